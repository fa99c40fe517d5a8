"""What a debugger and a notebook show: the case's arrays by name, results on one screen, and inert cards."""

from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.cli import main
from kerneltest.pytest_plugin.kernel_item import FindingsError
from tests import forked
from tests.plugins import PLUGINS

SUITE = """
import pdb
import jax
from jax.experimental import pallas as pl
import kerneltest as kt

def double(x):
    def body(x_ref, o_ref):
        o_ref[...] = 2 * x_ref[...]
    return pl.pallas_call(body, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

@kt.oracle_for(double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def triple(x):
    return 3 * x
"""

DEBUGGER = """
import pdb

class Printing(pdb.Pdb):
    def interaction(self, frame, traceback):
        self.setup(frame, traceback)
        where, names = self.curframe.f_code, self.curframe.f_locals
        print("stopped at", where.co_filename.rpartition("/")[2], where.co_firstlineno)
        print("names", *names)
        print("disagrees", names["wrong"].any(), (3 * names["x"] == names["expected"]).all())
        print("calls", self.curframe.f_globals["double"].__name__)
"""


def test_the_debugger_stops_at_the_pairing_with_the_arrays_of_the_case(tmp_path: Path) -> None:
    (tmp_path / "test_triple.py").write_text(SUITE, encoding="utf-8")
    (tmp_path / "printing.py").write_text(DEBUGGER, encoding="utf-8")
    run = forked.run(
        tmp_path, "pytest", *PLUGINS, "-p", "no:cacheprovider", "--pdb", "--pdbcls=printing:Printing",
        "--kt-backends", "interpret", "--kt-depth", "quick",
    )  # fmt: skip
    assert "stopped at test_triple.py 12" in run.stdout, run.stdout + run.stderr
    assert "names x expected got wrong" in run.stdout
    assert "disagrees True True" in run.stdout
    assert "calls double" in run.stdout


def test_the_command_has_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"kerneltest {kt.__version__}\n"


def test_findings_are_a_failed_assertion_to_other_tools() -> None:
    assert issubclass(FindingsError, AssertionError)


def _double(x: jax.Array) -> jax.Array:
    def body(x_ref: jax.Array, o_ref: jax.Array) -> None:
        o_ref[...] = 2 * x_ref[...]  # type: ignore[index]

    return pl.pallas_call(body, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.fixture(scope="module")
def wrong() -> kt.Result:
    made = kt.oracle_for(_double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))(lambda x: 3 * x)
    return kt.check(made, backends=["interpret", "rocm"], depth="quick")


def test_a_result_is_one_screen(wrong: kt.Result) -> None:
    shown = repr(wrong).splitlines()
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 200
    assert shown[0].startswith(f"not ok: 1 suspect ({len(wrong.findings)} findings) in {wrong.cases} cases")
    assert any(wrong.suspects[0].title in line for line in shown)
    assert any(line.startswith("minimize=30 searches ") for line in shown)  # as long as no smallest case was sought
    assert shown[-1].startswith("rocm unavailable: ")
    assert not wrong


def test_a_finding_has_the_arrays_and_shows_itself(wrong: kt.Result, capsys: pytest.CaptureFixture[str]) -> None:
    finding = next(each for each in wrong.findings if each.wrong is not None)
    assert finding.got is not None
    assert finding.expected is not None
    assert finding.wrong is not None
    np.testing.assert_array_equal(finding.expected, 3.0 * finding.arguments["x"].astype(np.float64))
    assert finding.wrong.any()
    assert finding.got.shape == finding.wrong.shape
    finding.show()
    shown = capsys.readouterr().out
    assert shown.startswith(f"{finding.verdict} on interpret: ")
    assert "x = float32[" in shown
    assert repr(finding).startswith(f"<Finding {finding.verdict} on interpret, n=")
    assert len(repr(finding)) < 250


def test_cards_load_and_run_nothing(wrong: kt.Result) -> None:
    for shown in (wrong, wrong.findings[0], wrong.suspects[0]):
        card = shown._repr_html_()
        assert not any(word in card for word in ("<script", "<style", "href", "src=", "url(", "onload"))
        assert card.count("<div") == card.count("</div>") > 0
    assert wrong.suspects[0].title in wrong._repr_html_()
    (suspect,) = wrong.suspects
    assert repr(suspect) == f"<Suspect {suspect.id}: {suspect.title}; {len(suspect.findings)} findings>"
