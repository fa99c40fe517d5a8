"""Sources of pairings, and whose bug a finding is."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.core.details import ErrorCause, Mismatch, MismatchCause
from kerneltest.records.evidence import Evidence
from kerneltest.records.run_plan import describe_pairing, source_of
from kerneltest.triage.attribution import attribution, attributions
from tests.pages import Page
from tests.sample import double, elementwise
from tests.written import PASS, case

ROOT = Path(__file__).parents[2]


def test_a_source_has_the_functions_that_it_names_and_their_lines() -> None:
    found = source_of(double)
    assert found.file == "tests/sample.py"
    lines = (ROOT / found.file).read_text(encoding="utf-8").splitlines()
    names = ["def double", "def whole", "def elementwise"]  # the function itself, then those that it names
    assert [text.splitlines()[0].split("(")[0] for _, text in found.parts] == names
    for first, text in found.parts:
        assert text.splitlines() == lines[first - 1 : first - 1 + len(text.splitlines())]


@pytest.mark.parametrize("wrapped", [jax.jit(double), functools.partial(double), functools.partial(jax.jit(double))])
def test_wrapped_functions_have_their_own_source(wrapped: Callable[..., Any]) -> None:
    assert source_of(wrapped) == source_of(double)


@pytest.mark.parametrize("without", [np.add, len, eval("lambda x: x")])
def test_what_has_no_source_has_none(without: Callable[..., Any]) -> None:
    assert source_of(without).parts == ()


def test_a_declaration_is_told_in_words() -> None:
    def kernel(x: Any, lengths: Any, mode: Any, n: Any) -> Any:
        return double(x)

    @kt.oracle_for(
        kernel,
        x=kt.array("b n 3", ("float32", "int8"), domain=(0, 1)),
        lengths=kt.lengths("b", up_to="n"),
        mode=kt.static("up", "down"),
        n=kt.dim_size("n"),
        dims=dict(b=kt.dim(values=(1, 7)), n=kt.dim(block=32, multiple_of=8, maximum=96)),
        tolerance=kt.tolerance.exact(),
        signed_zeros=True,
    )
    def oracle(x: Any, lengths: Any, n: Any) -> Any:
        return x

    assert describe_pairing(oracle).declaration == {
        "x": "array [b n 3] of float32, int8, from 0 to 1",
        "lengths": "length [b] into n of int32",
        "mode": "one of up, down",
        "n": "the length of n",
        "dim b": "1, 7",
        "dim n": "from 1 to 96, a multiple of 8; block 32",
        "tolerance": "exact",
        "signed zeros": "compared",
    }
    assert "@kt.oracle_for(" in describe_pairing(oracle).oracle.parts[0][1]


@pytest.mark.parametrize(
    ("backend", "verdicts", "words"),
    [
        ("simulate:sm_90", {"interpret": "pass", "simulate:sm_90": "mismatch"}, ""),  # no evidence, no claim
        ("simulate:sm_90", {"interpret": "pass", "simulate:sm_90": "race"}, "the kernel; interpret mode cannot see it"),
        ("simulate:sm_90", {"simulate:sm_90": "mismatch"}, ""),
        ("cuda", {"interpret": "pass", "simulate:sm_90": "pass", "cuda": "mismatch"}, "the compiler or the device"),
        ("cuda", {"interpret": "pass", "cuda": "mismatch"}, "the lowering or a later stage"),
        ("cuda", {"interpret": "pass", "simulate:sm_90": "mismatch", "cuda": "mismatch"}, ""),
        ("interpret", {"interpret": "mismatch", "simulate:sm_90": "pass"}, "the interpreter"),
        ("interpret", {"interpret": "mismatch", "simulate:sm_90": "mismatch"}, "the kernel, or the oracle"),
        ("cuda", {"interpret": "mismatch", "cuda": "special_mismatch"}, "the kernel, or the oracle"),
        ("cuda", {"interpret-mosaic-gpu": "pass", "cuda": "mismatch"}, "the lowering or a later stage"),
        ("interpret", {"interpret": "mismatch"}, ""),
    ],
)
def test_a_split_between_tiers_names_a_suspect(backend: str, verdicts: dict[str, str], words: str) -> None:
    alike = {name: case(backend=name, verdict=verdict) for name, verdict in verdicts.items()}
    found = attribution(alike[backend], list(alike.values()))
    assert (found.text() if found else "").startswith(words)
    assert (found is not None) is bool(words)
    assert attributions(list(alike.values())).get((PASS.pairing, PASS.case, backend)) == found


KNOWN = "as Triton's maximum does: https://github.com/triton-lang/triton/issues/10291"
AGREES = "the lowering for sm_90: interpret mode agrees with the oracle"


@pytest.mark.parametrize(
    ("evidence", "ulps", "words"),
    [
        (Evidence(actual=2.0, expected=1.0, bound=0.1), (), AGREES),
        (Evidence(actual=math.nan, expected=1.0, bound=0.1), (), AGREES),
        (Evidence(actual=0.0, expected=math.nan), (), AGREES),
        (Evidence(actual=0.0, expected=math.nan, otherwise=("maximum",)), (), KNOWN),
        (Evidence(actual=2.0, expected=1.0, bound=0.1, otherwise=("maximum",)), (), AGREES),
        (Evidence(actual=2.0, expected=1.0, bound=0.1, otherwise=("bfloat16",)), (), "the kernel: it computes in"),
        (Evidence(actual=2.0, expected=1.0, bound=0.1, otherwise=("TF32",)), (), "TF32 operands"),
        # 1.2e-7 apart at most, on either side of the oracle's value, or farther: as far as it is beyond the bound.
        (Evidence(actual=1 + 2e-7, expected=1.0, bound=1.5e-7), (9, 1), ""),
        (Evidence(actual=1 + 9e-7, expected=1.0, bound=1.5e-7), (9, 1), AGREES),
        (Evidence(actual=2.0, expected=1.0, bound=0.1), (1,) * 16, ""),
        (Evidence(actual=1e-40, expected=0.0), (), ""),
    ],
)
def test_a_lowering_is_blamed_only_for_what_rounding_does_not_explain(
    evidence: Evidence, ulps: tuple[int, ...], words: str
) -> None:
    found = case(backend="simulate:sm_90", verdict="mismatch", evidence=evidence, tolerance="ulp(4)")
    blamed = attribution(found, [case(backend="interpret", verdict="pass", ulps=ulps), found])
    assert words in (blamed.text() if blamed else "")
    assert (blamed is not None) is bool(words)


@pytest.mark.parametrize(("what", "words"), [("unstable", ""), ("overflow", ""), ("rounding", AGREES)])
def test_a_lowering_is_not_blamed_for_what_the_kernel_s_own_formula_explains(what: str, words: str) -> None:
    evidence, cause = Evidence(actual=2.0, expected=1.0, bound=0.1), MismatchCause(ErrorCause(what), 90.0)
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=cause)
    found = case(backend="simulate:sm_90", verdict="mismatch", evidence=evidence, detail=detail)
    blamed = attribution(found, [case(backend="interpret", verdict="pass"), found])
    assert (blamed.text() if blamed else "") == words


@pytest.mark.parametrize(
    ("backend", "verdict", "words"),
    [
        ("simulate:sm_90", "out_of_bounds", "the kernel; interpret mode cannot see it"),
        ("simulate:gfx942", "out_of_bounds", AGREES),
        ("simulate:sm_90", "pass", AGREES),
    ],
)
def test_a_kernel_that_leaves_its_arrays_elsewhere_is_blamed_for_wrong_values(
    backend: str, verdict: str, words: str
) -> None:
    apart = Evidence(actual=2.0, expected=1.0, bound=0.1)
    found = case(backend="simulate:sm_90", verdict="mismatch", evidence=apart)
    records = [case(backend="interpret", verdict="pass"), found, case(backend=backend, verdict=verdict, case="other")]
    assert attributions(records)[found.pairing, found.case, found.backend].text() == words


def _relu(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.maximum(v, 0), x)


def _relu_that_keeps_nan(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(v < 0, 0, v), x)


def _result(kernel: object, oracle: Callable[..., Any] = lambda x: np.maximum(x, 0)) -> Result:
    declare = kt.oracle_for(
        kernel,  # type: ignore[arg-type]
        x=kt.array("n", "float32"),
        dims=dict(n=kt.dim(values=(16,))),
        tolerance=kt.tolerance.exact(),
    )
    backends = ["interpret", "simulate:sm_90", "simulate:gfx942"]
    return kt.check(declare(oracle), backends=backends, depth="quick")


def test_nan_dropped_by_the_lowering_is_found_with_no_gpu_and_blamed_on_it() -> None:
    result = _result(_relu)
    families = {finding.family for finding in result.findings}
    assert families == {"nan_first", "nan_last", "nan_and_inf_in_one_tile"}
    assert {finding.backend for finding in result.findings} == {"simulate:sm_90", "simulate:gfx942"}
    blamed = attributions(result.records)
    for finding in result.findings:
        record = finding.record
        target = finding.backend.partition(":")[2]
        text = blamed[record.pairing, record.case, record.backend].text()
        assert text == f"the lowering for {target}: jnp.maximum drops NaN there, {KNOWN}"
    assert _result(_relu_that_keeps_nan).ok


# A kernel of one element, its oracle, and the operation whose lowering explains every number in place of NaN, or "".
DROPPING: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "a minimum": (lambda v: jnp.minimum(v, 1), lambda x: np.minimum(x, 1), "minimum"),
    "the largest of all": (lambda v: v + jnp.max(v), lambda x: x + np.max(x), "maximum"),
    "both, as in hypot": (lambda v: jnp.maximum(v, 1) + jnp.minimum(v, 1), lambda x: x + 1, "maximum"),
    "an index is clamped": (
        lambda v: jnp.where(v > 0, v, 0) + 0 * jnp.minimum(jnp.sum((v > 0).astype(int)), 3),
        lambda x: np.maximum(x, 0), "",
    ),
    "a maximum of numbers": (
        lambda v: jnp.where(v > 0, v, 0) + 0 * jnp.maximum(jnp.where(v > 0, 1.0, 2.0), 0),
        lambda x: np.maximum(x, 0), "",
    ),
    "a comparison drops it as well": (
        lambda v: jnp.where(jnp.maximum(v, -1) > 0, jnp.maximum(v, -1), 0), lambda x: np.maximum(x, 0), "",
    ),
}  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", DROPPING)
def test_a_known_bug_is_named_only_if_mending_the_operation_mends_the_case(name: str) -> None:
    function, oracle, known = DROPPING[name]
    result = _result(lambda x: elementwise(function, x), oracle)
    words = f"jnp.{known} drops NaN there, as Triton's {known} does:" if known else ""
    assert {suspect.known_bug.partition(" https")[0] for suspect in result.suspects} == {words}


def test_the_terminal_and_the_report_say_so(tmp_path: Path) -> None:
    from tests.pytest_plugin.test_plugin import _pytest

    suite = """
import numpy as np
import kerneltest as kt
from tests.triage.test_attribution import _relu

@kt.oracle_for(_relu, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(16,))), tolerance=kt.tolerance.exact())
def relu(x):
    return np.maximum(x, 0)
"""
    run = _pytest(tmp_path, "--kt-report", "out", "--kt-backends", "interpret,simulate:gfx942", suite=suite)
    words = f"the lowering for gfx942: jnp.maximum drops NaN there, {KNOWN}"
    assert f"suspected lowering bug in 3 cases: {words}" in run.stdout
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert f"suspected lowering bug in 3 cases: {words}" in page.words
    assert [finding["suspect"] for finding in page.data["findings"]] == [words] * 3
