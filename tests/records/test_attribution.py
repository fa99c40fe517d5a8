"""Whose bug it is: by rule, and on a kernel that JAX lowers to something that drops NaN."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.records.attribution import attribution, attributions
from tests.pages import Page
from tests.sample import elementwise
from tests.written import PASS, case


@pytest.mark.parametrize(
    ("backend", "verdicts", "words"),
    [
        ("simulate:sm_90", {"interpret": "pass", "simulate:sm_90": "mismatch"}, "the lowering for sm_90"),
        ("simulate:sm_90", {"interpret": "pass", "simulate:sm_90": "race"}, "the kernel; interpret mode cannot see it"),
        ("simulate:sm_90", {"simulate:sm_90": "mismatch"}, ""),
        ("cuda", {"interpret": "pass", "simulate:sm_90": "pass", "cuda": "mismatch"}, "the compiler or the device"),
        ("cuda", {"interpret": "pass", "cuda": "mismatch"}, "the lowering or what comes after it"),
        ("cuda", {"interpret": "pass", "simulate:sm_90": "mismatch", "cuda": "mismatch"}, ""),
        ("interpret", {"interpret": "mismatch", "simulate:sm_90": "pass"}, "the interpreter"),
        ("interpret", {"interpret": "mismatch", "simulate:sm_90": "mismatch"}, "the kernel, or the oracle"),
        ("cuda", {"interpret": "mismatch", "cuda": "special_mismatch"}, "the kernel, or the oracle"),
        ("cuda", {"interpret-mosaic-gpu": "pass", "cuda": "mismatch"}, "the lowering or what comes after it"),
        ("interpret", {"interpret": "mismatch"}, ""),
    ],
)
def test_a_split_between_tiers_names_a_suspect(backend: str, verdicts: dict[str, str], words: str) -> None:
    alike = {name: case(backend=name, verdict=verdict) for name, verdict in verdicts.items()}
    text = attribution(alike[backend], list(alike.values()))
    assert text.startswith(words)
    assert bool(text) is bool(words)
    assert attributions(alike.values())[PASS.pairing, PASS.case, backend] == text


def _relu(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.maximum(v, 0), x)


def _relu_that_keeps_nan(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(v < 0, 0, v), x)


def _result(kernel: object) -> Result:
    declare = kt.oracle_for(
        kernel,  # type: ignore[arg-type]
        x=kt.array("n", "float32"),
        dims=dict(n=kt.dim(values=(16,))),
        tolerance=kt.tolerance.exact(),
    )
    backends = ["interpret", "simulate:sm_90", "simulate:gfx942"]
    return kt.check(declare(lambda x: np.maximum(x, 0)), backends=backends, depth="quick")


def test_nan_dropped_by_the_lowering_is_found_with_no_gpu_and_blamed_on_it() -> None:
    result = _result(_relu)
    families = {finding.family for finding in result.findings}
    assert families == {"nan_first", "nan_last", "nan_and_inf_in_one_tile"}
    assert {finding.backend for finding in result.findings} == {"simulate:sm_90", "simulate:gfx942"}
    blamed = attributions(result.records)
    for finding in result.findings:
        record = finding.record
        target = finding.backend.partition(":")[2]
        text = blamed[record.pairing, record.case, record.backend]
        assert text == f"the lowering for {target}: interpret mode agrees with the oracle"
    assert _result(_relu_that_keeps_nan).ok


def test_the_terminal_and_the_report_say_so(tmp_path: Path) -> None:
    from tests.pytest_plugin.test_plugin import _pytest

    suite = """
import numpy as np
import kerneltest as kt
from tests.records.test_attribution import _relu

@kt.oracle_for(_relu, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16,))), tolerance=kt.tolerance.exact())
def relu(x):
    return np.maximum(x, 0)
"""
    run = _pytest(tmp_path, "--kt-report", "out", "--kt-backends", "interpret,simulate:gfx942", suite=suite)
    words = "the lowering for gfx942: interpret mode agrees with the oracle"
    assert f"suspected lowering bug in 3 cases: {words}" in run.stdout
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert f"suspected lowering bug in 3 cases: {words}" in page.words
    assert [finding["suspect"] for finding in page.data["findings"]] == [words] * 3
