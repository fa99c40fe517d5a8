"""Oracles that leave some elements undefined: a kernel may return anything there, but not elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Gap, GroupName, Verdict
from kerneltest.execute.batching import check_repeated
from kerneltest.records.run_plan import NotApplicable
from kerneltest.records.runs import read_all, read_runs
from kerneltest.records.schema import Record
from kerneltest.report.counts import count_cells, undefined_remarks
from kerneltest.report.text.markdown_summary import conformance_badge
from kerneltest.report.text.terminal_summary import summary_lines
from tests.made_runs import made_record, made_run
from tests.sample import elementwise

DIMS = dict(m=kt.dim(values=(3,)), n=kt.dim(block=4, values=(5, 1)))


def attended(x: jax.Array, mask: jax.Array, wrong: float = 0.0) -> tuple[jax.Array, jax.Array]:
    """A softmax over unmasked elements, NaN in rows that are all masked, and the place of each row's maximum."""

    def body(x_ref: Any, mask_ref: Any, o_ref: Any, at_ref: Any) -> None:
        scores = jnp.where(mask_ref[...], x_ref[...], -jnp.inf)
        terms = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
        o_ref[...] = terms / jnp.sum(terms, axis=-1, keepdims=True) + wrong * mask_ref[...]
        seen = jnp.any(mask_ref[...], axis=-1)
        at_ref[...] = jnp.where(seen, jnp.argmax(scores, axis=-1).astype(jnp.int32), -7)

    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[:1], jnp.int32))
    made: tuple[jax.Array, jax.Array] = pl.pallas_call(body, out_shape=shapes)(x, mask)
    return made


def oracle(x: np.ndarray, mask: np.ndarray) -> tuple[Any, Any]:
    scores = np.where(mask, x, -np.inf)
    terms = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    seen = mask.any(axis=-1)
    at = kt.defined(np.argmax(scores, axis=-1), where=seen)
    return kt.defined(terms / terms.sum(axis=-1, keepdims=True), where=seen[:, None]), at


FINITE = dict(x=kt.array("m n", "float32", domain=(-10, 10)), mask=kt.mask("m n"), dims=DIMS)


def _check(wrong: float) -> Result:
    made = kt.oracle_for(lambda x, mask: attended(x, mask, wrong), **FINITE)(oracle)
    return kt.check(made, depth="quick")


def _of(result: Result, family: str) -> list[Record]:
    return [record for record in result.records if record.family == family]


def test_undefined_elements_may_have_any_value_and_do_not_count_as_compared() -> None:
    result = _check(0.0)
    assert result.ok, result.findings[0].message
    (masked, *_) = _of(result, "all_masked_row")
    rows, n = masked.dims["m"], masked.dims["n"]
    assert (masked.compared, masked.defined, masked.undefined) == ((rows - 1) * (n + 1), (rows - 1) * (n + 1), n + 1)
    for record in _of(result, "all_masked_array"):
        if record.target == "mask":
            assert (record.verdict, record.compared, record.defined) == (Verdict.PASS, 0, 0)
            assert record.message == "nothing was compared: the oracle leaves all elements undefined"


def test_wrong_defined_elements_are_found_next_to_undefined_ones() -> None:
    result = _check(0.5)
    families = {finding.family for finding in result.findings}
    assert {"normal", "all_masked_row", "plain_call"} <= families
    finding = next(each for each in result.findings if each.family == "all_masked_row")
    assert not np.isnan(finding.record.evidence.expected)  # type: ignore[union-attr]
    assert finding.record.wrong <= finding.record.defined


def differentiable(x: jax.Array, mask: jax.Array, factor: float) -> jax.Array:
    """Squares, with garbage in masked elements, and a gradient of its own."""

    @jax.custom_vjp
    def squared(x: jax.Array) -> jax.Array:
        return elementwise(lambda v, seen: jnp.where(seen, v * v, 7 * v), x, mask)

    squared.defvjp(lambda x: (squared(x), x), lambda x, g: (factor * g * x,))
    return squared(x)


@pytest.mark.parametrize(("factor", "found"), [(2.0, set()), (1.0, {"gradient"})])
def test_a_gradient_is_that_of_the_defined_elements(factor: float, found: set[str]) -> None:
    made = kt.oracle_for(lambda x, mask: differentiable(x, mask, factor), grad=True, **FINITE)(
        lambda x, mask: kt.defined(x * x, where=mask)
    )
    result = kt.check(made, depth="quick")
    assert any(record.family == "gradient" and record.compared for record in result.records)
    assert {finding.family for finding in result.findings} == found


def test_undefined_elements_may_differ_from_run_to_run() -> None:
    one, other = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    check_repeated([one], [other], [np.array([True, False])])
    with pytest.raises(kt.Failure, match="elements differ"):
        check_repeated([one], [other], [np.array([False, True])])


def test_a_cell_without_defined_elements_is_neither_green_nor_wrong(tmp_path: Path) -> None:
    silent = made_record(compared=0, defined=0, undefined=4)
    empty = replace(silent, backend="simulate:sm_90", defined=2)  # the bounds of the defined elements are vacuous
    good = replace(silent, backend="simulate:gfx942", compared=4, defined=4)
    huge = replace(empty, backend="simulate:sm_80", group=GroupName.SPECIAL)  # where a whole result may overflow
    (run,) = read_runs(made_run(tmp_path / "run", silent, empty, huge, good))
    endings = {cell.backend: status.verdict for cell, status in run.reconciled.cells.items()}
    assert endings[silent.backend] is Gap.NOTHING_ASKED
    assert endings[empty.backend] is Gap.NOTHING_COMPARED
    assert endings[huge.backend] is Gap.NOTHING_ASKED
    assert not Gap.NOTHING_ASKED.is_finding
    counts = count_cells([run])
    assert (counts.passed, counts.undefined, counts.gaps, counts.planned) == (1, 2, 1, 4)
    assert "2 nothing asked" in str(counts)


# Records of a pairing beside one that is right, and whether the pairing compared nothing.
SILENT = made_record(compared=0, defined=0, undefined=4)
LOWERED = replace(SILENT, backend="lower:sm_90", tier=Tier.LOWER, group="signatures", compared=1, undefined=0)
BESIDE: dict[str, tuple[tuple[Record, ...], bool]] = {
    "undefined everywhere": ((SILENT, replace(SILENT, family="one_inf")), True),
    "undefined, and lowers": ((SILENT, LOWERED), True),
    "undefined, and rejects": (
        (SILENT, replace(LOWERED, backend=SILENT.backend, group="rejects", family="rejects_x")),
        True,
    ),
    "undefined in one family": ((SILENT, replace(SILENT, family="one_inf", compared=4, defined=4)), False),
    "undefined in one dtype": ((SILENT, replace(SILENT, dtype="bfloat16", compared=4, defined=4)), False),
    "a declared xfail": ((SILENT, replace(SILENT, family="one_inf", verdict=Verdict.XFAIL, undefined=0)), False),
    "lowered alone": ((LOWERED,), False),
}


@pytest.mark.parametrize("records", BESIDE)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_pairing_that_compares_nothing_fails_beside_one_that_is_right(
    records: str, shards: int, tmp_path: Path
) -> None:
    own, is_silent = BESIDE[records]
    beside = [replace(each, item="t.py::silent", pairing="t.py::silent", case=f"s{i}") for i, each in enumerate(own)]
    everything = [made_record(compared=4, defined=4), *beside]
    made_run(tmp_path / "whole", *everything)
    if shards == 2:  # each has a part of the pairing
        items = read_runs(tmp_path / "whole")[0].plan.items
        for number in range(2):
            mine, others = items[number::2], items[1 - number :: 2]
            plan = dict(items=mine, elsewhere=others, shard=f"{number + 1}/2", whole="one")
            made_run(tmp_path / f"{number}", *everything[number::2], **plan)
        runs = read_all([tmp_path / "0", tmp_path / "1"])
    else:
        runs = read_runs(tmp_path / "whole")
    counts = count_cells(runs)
    problem = "t.py::silent: nothing was compared: the oracle leaves all elements undefined in every case that ran"
    assert [each.endswith(problem) for each in counts.problems] == [True] * is_silent
    assert (conformance_badge(counts).colour, counts.exit_code) == (("orange", 1) if is_silent else ("brightgreen", 0))
    for verbose in (-1, 0, 1) if shards == 1 else ():
        lines = [line.text for line in summary_lines(runs[0], (), verbose=verbose)]
        assert any(problem in line for line in lines) is is_silent


def test_a_pairing_that_no_backend_can_test_is_counted_and_keeps_a_badge_from_green(tmp_path: Path) -> None:
    lacking = (NotApplicable("t.py::foreign", "interpret", "a Mosaic GPU kernel", 5),)
    made_run(tmp_path / "one", made_record(compared=4, defined=4), not_applicable=lacking)
    made_run(tmp_path / "other", replace(made_record(compared=4, defined=4), pairing="t.py::foreign"))
    counts = count_cells(read_runs(tmp_path / "one"))
    assert str(counts) == "1 of 1 cells pass, 1 pairing that no backend of the run can test"
    assert (conformance_badge(counts).colour, counts.exit_code) == ("yellow", 0)
    assert not count_cells(read_runs(tmp_path)).inapplicable  # another run has tested it


def test_no_gap_that_is_harmless_is_worse_than_a_finding() -> None:
    assert Verdict.UNAVAILABLE.severity < Gap.NOTHING_ASKED.severity < min(v.severity for v in Verdict if v.is_finding)


def test_an_oracle_that_leaves_most_ordinary_elements_undefined_is_reported() -> None:
    ordinary = made_record(group="numeric", defined=40, undefined=60)
    (text,) = undefined_remarks([ordinary, replace(ordinary, group="special", defined=1000)])
    assert text.startswith(f"{ordinary.pairing}: the oracle leaves 60% of all elements undefined in ordinary cases")
    assert undefined_remarks([replace(ordinary, undefined=40)]) == []


@pytest.mark.parametrize(
    ("values", "where", "message"),
    [
        (np.ones((2, 3)), np.ones(2, bool), r"where= has shape \(2,\), which does not broadcast to \(2, 3\)"),
        (np.ones(3), np.ones((1, 3), bool), r"does not broadcast to \(3,\), the output's"),
        (np.ones(3), np.ones(3), "where= has dtype float64; it takes booleans"),
        ((np.ones(3), np.ones(3)), np.ones(3, bool), "takes one output, not a tuple; wrap each output separately"),
    ],
)
def test_an_invalid_mask_of_defined_elements_is_an_error(values: Any, where: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        kt.defined(values, where=where)
