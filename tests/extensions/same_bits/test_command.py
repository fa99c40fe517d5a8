"""`kerneltest certificate`: what a run certified holds until the kernel changes."""

from pathlib import Path

import pytest

from tests import forked
from tests.plugins import PLUGINS

_SUITE = """
import jax
from jax.experimental import pallas as pl
import kerneltest as kt

def doubled(x):
    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * {factor}
    spec, out = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0)), jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, out, grid=(len(x),), in_specs=[spec], out_specs=spec)(x)

@kt.oracle_for(
    doubled, x=kt.array("m n", "float32"), dims=dict(m=kt.dim(maximum=3), n=kt.dim(values=(2,))),
    batch_dims="m", invariant_to="batch",
)
def doubled_oracle(x):
    return {factor} * x
"""


def _run(folder: Path, factor: int, report: str) -> None:
    (folder / "test_doubled.py").write_text(_SUITE.replace("{factor}", str(factor)), encoding="utf-8")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", report)
    finished = forked.run(folder, "pytest", *PLUGINS, "-p", "no:cacheprovider", *options)
    assert finished.returncode == 0, finished.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificate")
    _run(made, 2, "first")
    _run(made, 2, "again")
    _run(made, 3, "changed")
    written = forked.run(made, "kerneltest", "certificate", "first", "--write", "bits.json")
    assert (written.returncode, written.stdout, written.stderr) == (0, "1 statements on 1 pairings certified\n", "")
    (made / "other.json").write_text('{"schema": 1}')
    return made


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("again --verify bits.json", 0, "1 statements hold"),
        ("changed --verify bits.json", 1, "bits_in_any_batch: the kernel or its lengths have changed"),
        ("first --verify other.json", 2, "other.json is not a certificate of kerneltest"),
        ("first --verify none.json", 2, "none.json cannot be read: No such file"),
        ("first", 2, "one of the arguments --write --verify is required"),
    ],
)
def test_a_certificate(arguments: str, status: int, words: str, folder: Path) -> None:
    finished = forked.run(folder, "kerneltest", "certificate", *arguments.split())
    assert finished.returncode == status, finished.stdout + finished.stderr
    assert words in finished.stdout + finished.stderr
