"""The detection benchmark: its variants fit the sources and are wrong, its bounds scale, its page repeats results."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from benchmarks import checkers
from benchmarks.detection import Scaled, right
from benchmarks.detection_report import CHECKERS, WHY, markdown
from benchmarks.suspects import line_named, mutated, told_apart, touched
from kerneltest.backends.base import Artifact
from kerneltest.backends.registry import resolve
from kerneltest.core.precision import SIMULATED, XLA_CPU
from kerneltest.declare.error_models import Tolerance
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.mutation.mutants import LocatedTraces, find_mutants
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.localize.sites import LocatedJaxpr, locate_equations
from kerneltest.oracle.evaluation import expect
from kerneltest.plan.signatures import signatures
from kerneltest.trace.runnable import runnable
from kerneltest.trace.tracing import trace
from tests.corpus import TWINS, VARIANTS
from tests.corpus.twin import KERNELS

QUICKLY_FOUND = (
    "vector_add.blocked: the grid's rounding up is one short",
    "vector_add.blocked: integers are added as float32 and do not wrap",
    "iota.blocked: positions are kept in 8 bits",
    "matmul.tiled: products are of bfloat16 operands",
    "softmax.fused: no maximum is subtracted",
    "softmax.tiled_by_comparison: -inf passes for finite",
)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_a_variant_fits_the_source_and_differs(variant: Any) -> None:
    assert variant.broken().kernel is not variant.right().kernel
    assert variant.edit.changes
    assert all(old != new for old, new in variant.edit.changes)


def test_there_are_enough_and_no_two_alike() -> None:
    assert len(VARIANTS) >= 40
    assert len({(v.edit.pairing, v.edit.changes) for v in VARIANTS}) == len(VARIANTS)
    counts = Counter(variant.edit.family for variant in VARIANTS)
    elementary = {"vector_add", "iota", "matmul", "batched_matmul", "softmax", "rms_norm"}
    composed = {"attention", "rotary", "swiglu", "layer_norm", "cross_entropy", "cumulative_sum"}
    assert set(counts) == elementary | composed
    assert min(counts.values()) >= 5
    numeric = Counter(variant.edit.pairing for variant in VARIANTS if variant.edit.numeric)
    assert sum(numeric.values()) >= 60
    assert min(n for pairing, n in numeric.items() if pairing.partition(".")[0] in composed) >= 4


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_quick_finds_it_on_interpret(name: str) -> None:
    found = checkers.kerneltest(TWINS[name].broken(), "quick")
    assert found["interpret"].finding
    assert found["both"].finding


def _problem(pairing: Pairing, dims: dict[str, int], leaves: list[np.ndarray]) -> str:
    (statics, *_) = checkers.one_at_a_time(pairing)
    return checkers.disagreement(pairing, checkers.signature_of(pairing, dims, statics), leaves)


@pytest.mark.parametrize(
    ("name", "dims", "leaves"),
    [
        ("iota.blocked: positions are computed in bfloat16, so wrong from 257 on", {"n": 300}, []),
        ("softmax.fused: -10000 stands for -inf past the end", {"m": 1, "n": 3}, [np.full((1, 3), -2e4, np.float32)]),
    ],
)
def test_what_no_checker_finds_is_wrong_all_the_same(name: str, dims: dict[str, int], leaves: list[np.ndarray]) -> None:
    assert _problem(TWINS[name].broken(), dims, leaves)
    assert not _problem(TWINS[name].right(), dims, leaves)


def test_a_lost_sign_of_zero_is_wrong_all_the_same() -> None:
    variant = TWINS["vector_add.blocked: a zero in y returns x and its sign of zero"]
    zero = np.zeros(1, np.float32)
    signs = []
    for pairing in (variant.broken(), variant.right()):
        signature = checkers.signature_of(pairing, {"n": 1}, {"block": "32"})
        (total,) = runnable(trace(pairing, signature), interpret=True)(-zero, zero)
        signs.append(bool(np.signbit(total)[0]))
    assert signs == [True, False]


def test_what_is_explained_is_a_variant() -> None:
    assert set(WHY) <= set(TWINS)


@pytest.mark.parametrize("model", [kt.tolerance.rounding(), kt.tolerance.dot("k"), kt.tolerance.conditioned()])
def test_scaled_bounds_are_scaled(model: Tolerance) -> None:
    pairing = right()["matmul.two_by_two"]
    signature = next(each for each in signatures(pairing, "quick") if each.dtype == "float32")
    leaves = {path: np.ones(signature.shape(leaf), np.float32) / 3 for path, leaf in pairing.leaves.items()}
    outputs = trace(pairing, signature).outputs
    plain, small = (
        expect(replace(pairing, tolerance=each), signature, leaves, outputs, bitwise=False).bounds
        for each in (model, Scaled(model, 0.1))
    )
    assert plain is not None
    assert small is not None
    for precision in (SIMULATED, XLA_CPU):
        np.testing.assert_allclose(small[0].at(precision), 0.1 * plain[0].at(precision))
        assert (small[0].at(precision) > 0).all()


def test_a_scaled_model_says_what_it_scales() -> None:
    assert str(Scaled(kt.tolerance.dot("k"), 0.1)).startswith("0.1 x dot")


def test_the_tutorial_check_takes_whole_blocks() -> None:
    pairing = right()["matmul.tiled"]
    assert {name: checkers.nice_length(axis) for name, axis in pairing.dims.items()} == {"m": 64, "n": 64, "k": 64}
    options = list(checkers.one_at_a_time(pairing))
    assert len(options) == 1 + 4 + 1
    assert not checkers.tutorial(right()["vector_add.whole"]).finding


def test_the_page_says_what_was_measured() -> None:
    miss, hit = {"seconds": 2.0, "finding": ""}, {"seconds": 0.5, "finding": "mismatch"}
    found, lost = QUICKLY_FOUND[0], next(iter(WHY))
    rows = [
        {"name": found, "family": "vector_add", "numeric": False, "found": dict.fromkeys(CHECKERS, hit)},
        {"name": lost, "family": "vector_add", "numeric": False, "found": dict.fromkeys(CHECKERS, miss)},
    ]
    page = markdown({"detection": {"variants": rows, "took": 1.0, "environment": {"JAX": "0"}}})
    assert "**1** of 2" in page
    assert WHY[lost] in page
    assert "false alarms" not in page.lower()


def test_an_ignored_precision_is_wrong_all_the_same() -> None:
    variant = TWINS["matmul.tiled: the precision asked for is ignored"]
    (backend,) = resolve(["simulate:sm_90"])
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    errors = []
    for pairing in (variant.broken(), variant.right()):
        lengths, statics = dict.fromkeys("mnk", 64), {"activation": "none", "precision": "highest"}
        executable = backend.prepare(trace(pairing, checkers.signature_of(pairing, lengths, statics)))
        assert not isinstance(executable, Artifact)
        (product,) = executable.run([x, y])
        errors.append(np.abs(product - x.astype(np.float64) @ y).max())
    assert errors[0] > 2.0**-11  # of operands rounded to TF32
    assert errors[1] < 2.0**-16


SINGLE = {
    "p: one": {"suspects": [{"cases": ["a", "b", "c"]}]},
    "p: two": {"suspects": [{"cases": ["d", "e"]}]},
    "p: part": {"suspects": [{"cases": ["b"]}]},
    "p: unseen": {"suspects": []},
}


@pytest.mark.parametrize(
    ("bugs", "suspects", "told"),
    [
        ("one AND two", [["a", "b", "c"], ["d", "e"]], True),
        ("one AND two", [["a", "b", "c", "d", "e"]], False),
        ("one AND two", [["a", "b"], ["c"]], False),
        ("one AND part", [["a", "c"], ["b"]], True),
        ("one AND part", [["a", "b", "c"]], False),
        ("one AND unseen", [["a", "b", "c"]], None),
    ],
)
def test_bugs_are_told_apart_by_the_cases_that_each_fails_alone(
    bugs: str, suspects: list[list[str]], told: bool | None
) -> None:
    row = {"name": f"p: {bugs}", "suspects": [{"cases": cases} for cases in suspects]}
    assert told_apart(row, SINGLE) is told


@pytest.mark.parametrize(
    ("born", "lines", "named"),
    [
        (("k.py:7", "x", True), [], "right"),
        (("k.py:9", "x", True), [], "wrong and certain"),
        (("k.py:9", "x", False), [], "wrong"),
        (("k.py:9", "0 / 0 is nan, in program (0)", True), [], "right"),
        (None, ["k.py:7"], "right"),
        (None, ["k.py:9"], "wrong"),
        (None, [], "none"),
    ],
)
def test_a_line_is_right_where_the_edit_is(born: tuple[str, str, bool] | None, lines: list[str], named: str) -> None:
    suspect = {"born": dict(zip(("place", "words", "certain"), born, strict=True)) if born else None, "lines": lines}
    assert line_named({"lines": [6, 7], "suspects": [suspect]}) == named


def test_a_mutant_of_a_pairing_keeps_the_line_of_its_change() -> None:
    pairing = TWINS["vector_add.blocked: the store is not masked"].right()
    signature = next(each for each in signatures(pairing, "quick") if each.dtype == "float32")
    traced = LocatedTraces().trace(pairing, signature, "cpu")
    mutant = next(each for each in find_mutants(traced.jaxpr, OPERATORS.entries()) if each.operator == "sum-sign")
    jaxpr = locate_equations(trace(mutated(pairing, mutant), signature, "cpu").jaxpr)
    changed = [site.frames[0][0] for site in LocatedJaxpr(jaxpr).sites() if site.name == "sub"]
    assert mutant.place in changed


def test_the_lines_of_a_variant_are_those_of_the_statement_it_edits() -> None:
    variant = TWINS["vector_add.blocked: the store is not masked"]
    source = (KERNELS / "vector_add.py").read_text(encoding="utf-8").splitlines()
    (line,) = touched(variant)
    assert "plgpu.store(" in source[line - 1]
