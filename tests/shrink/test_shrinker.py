"""The smallest case of a finding: no dim, element or option of it can be simpler."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.core.work_budget import WorkBudget
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_case, run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.localize.suspect_reduction import reduce_suspect
from kerneltest.plan.explicit import DRAWN_FAMILY, AnyCase, ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import signatures
from kerneltest.records.schema import Record
from kerneltest.shrink import shrinker as module
from kerneltest.shrink.shrinker import ShrinkResult, candidate_arguments, minimize, resembles
from tests.execute.test_invariants import WRONG
from tests.sample import double, elementwise, whole

BLOCK = 8
LONG = 300.0  # work, which no search needs


def softmax_unguarded(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jax.nn.softmax(v, axis=-1), x)


def softmax(x: np.ndarray) -> np.ndarray:
    highest = x.max(-1, keepdims=True)
    e = np.exp(x - np.where(highest == -np.inf, 0, highest))
    total = e.sum(-1, keepdims=True)
    return np.asarray(e / np.where(total == 0, 1, total))


def first_block(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(jnp.arange(len(v)) < BLOCK, v, 0), x)


def first_of_batch(x: jax.Array, y: jax.Array) -> jax.Array:
    return elementwise(lambda u, v: u + v[:1], x, y)


def swapped(x: jax.Array, y: jax.Array) -> jax.Array:
    return elementwise(lambda u, v: v - u, x, y)


def two_bugs(x: jax.Array) -> jax.Array:
    """Replaces NaN by 0, and above four elements also the last one."""
    kept = max(4, len(x) - 1)
    return elementwise(lambda v: jnp.where(jnp.isnan(v) | (jnp.arange(len(v)) >= kept), 0, v), x)


def none_above_three(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(v > 3, 1, v), x)


def scaled(x: jax.Array, mode: str, factor: int) -> jax.Array:
    wrong = x.dtype == jnp.bfloat16 and mode == "late"
    return elementwise(lambda v: v * factor + (1 if wrong else 0), x)


def doubled_wrong(x: jax.Array, mode: str, factor: int) -> jax.Array:
    return elementwise(lambda v: v * factor + 1, x)


def wrong_between(x: jax.Array) -> jax.Array:
    """Wrong if the length is not a power of two."""
    n = len(x)
    return elementwise(lambda v: v + (n & (n - 1) != 0), x)


def wrong_past_ten(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v + (len(v) > 10), x)


def wrong_at_one_number(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(v == -121, 0, v), x)


def sums_without_large_ones(x: jax.Array) -> jax.Array:
    total = jax.ShapeDtypeStruct((1,), x.dtype)
    return whole(lambda v: jnp.where(v[...] > 80, 0, v[...]).sum(keepdims=True), total, x)


def conjunction(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: v & False, x)


def together(x: jax.Array) -> jax.Array:
    """Wrong if both lengths are equal and above four."""
    return elementwise(lambda v: v + (4 < v.shape[0] == v.shape[1]), x)


def taken(x: jax.Array, i: jax.Array) -> jax.Array:
    out = jax.ShapeDtypeStruct(i.shape, x.dtype)
    return whole(lambda x_ref, i_ref: x_ref[...][jnp.minimum(i_ref[...], 2)], out, x, i)


def all_masked_is_one(x: jax.Array, keep: jax.Array) -> jax.Array:
    return elementwise(lambda v, k: jnp.where(k, v, 0) + jnp.all(~k, axis=-1, keepdims=True), x, keep)


def sums_below_a_row(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.where(v > 50, 0, v), x)


def beside(x: jax.Array, y: jax.Array) -> jax.Array:
    """Reads one element past the end of y."""

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        i = pl.program_id(0)
        o_ref[i] = x_ref[i] + 0 * y_ref[i + 1] + y_ref[i]

    return pl.pallas_call(body, grid=x.shape, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)


def make_pairing(kernel: Callable[..., Any], oracle: Callable[..., Any], **more: Any) -> kt.Pairing:
    given = dict(x=kt.array("n", "float32"), dims=dict(n=kt.dim(block=BLOCK)), tolerance=kt.tolerance.exact())
    made = kt.oracle_for(kernel, **{**given, **more})(oracle)
    assert isinstance(made, kt.Pairing)
    return made


def same(x: np.ndarray) -> np.ndarray:
    return x


def first_finding(
    pairing: kt.Pairing, backend: str = "interpret", **wanted: str
) -> tuple[Item, AnyCase, Record, Cache]:
    cache = Cache()
    for item in plan_pairing(pairing, "p", resolve([backend]), RunSettings(depth="quick", fuzz=20)).items:
        cases = {case.id: case for case in item.cases()}
        for outcome in run_item(item, cache):
            record = outcome.record
            if record.verdict.is_finding and all(getattr(record, name) == value for name, value in wanted.items()):
                return item, cases[record.case], record, cache
    raise AssertionError(f"no finding with {wanted}")


def shrink_first_finding(pairing: kt.Pairing, backend: str = "interpret", **wanted: str) -> ShrinkResult:
    item, case, record, cache = first_finding(pairing, backend, **wanted)
    made = minimize(item, case, record, cache, WorkBudget())
    assert made is not None
    assert made.complete
    assert resembles(record, made.outcome.record)
    assert (made.case.family, made.case.target) == (case.family, case.target)
    assert made.outcome.record.dtype == made.case.signature.dtype
    assert resembles(record, run_case(replace(item, dtype=made.case.signature.dtype), made.case, Cache()).record)
    return made


@dataclass(frozen=True)
class SmallestCase:
    """A broken kernel, and the smallest case of its first finding that has `fields`."""

    pairing: kt.Pairing
    signature: str
    nontrivial: int
    arguments: dict[str, list[Any]] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)


ROWS = dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(block=BLOCK))
CASES = {
    "a masked row": SmallestCase(
        make_pairing(softmax_unguarded, softmax, x=kt.array("m n", "float32"), dims=ROWS, tolerance=None),
        "m=1,n=1,float32",
        1,
        {"x": [[-math.inf]]},
        {"family": "all_masked_row"},
    ),
    "a tail": SmallestCase(make_pairing(first_block, same), "n=9,float32", 0, {"x": [0] * 8 + [1]}),
    "more than one in the batch": SmallestCase(
        make_pairing(first_of_batch, np.add, x=kt.array("b n", "float32"), y=kt.array("b n", "float32"),
               dims=dict(b=kt.dim(values=(1, 2, 5)), n=kt.dim(block=BLOCK))),
        "b=2,n=1,float32", 0, {"x": [[0], [0]], "y": [[0], [1]]},
    ),
    "operands swapped": SmallestCase(
        make_pairing(swapped, np.subtract, y=kt.array("n", "float32")), "n=1,float32", 0, {"x": [0], "y": [1]}
    ),
    "the first bug of two": SmallestCase(
        make_pairing(two_bugs, same), "n=1,float32", 1, {"x": [math.nan]}, {"family": "nan_first"}
    ),
    "the second bug of two": SmallestCase(
        make_pairing(two_bugs, same), "n=5,float32", 0, {"x": [0] * 4 + [1]}, {"verdict": "mismatch"}
    ),
    "a domain without 0 and 1": SmallestCase(
        make_pairing(none_above_three, same, x=kt.array("n", "float32", domain=(2, 5))), "n=1,float32", 1, {"x": [5]}
    ),
    "one dtype and one option": SmallestCase(
        make_pairing(scaled, lambda x, mode, factor: x * factor, x=kt.array("n"), mode=kt.static("early", "late"),
               factor=kt.static(1, 2)),
        "n=1,bfloat16,mode=late,factor=1", 0, {"x": [0]},
    ),
    "any dtype and option": SmallestCase(
        make_pairing(doubled_wrong, lambda x, mode, factor: x * factor, x=kt.array("n", ("bfloat16", "float32")),
               mode=kt.static("early", "late"), factor=kt.static(1, 2)),
        "n=1,float32,mode=early,factor=1", 0, {"x": [0]}, {"dtype": "bfloat16"},
    ),
    "lengths that are not planned": SmallestCase(make_pairing(wrong_between, same), "n=3,float32", 0, {"x": [0, 0, 0]}),
    "lengths of a multiple": SmallestCase(
        make_pairing(wrong_past_ten, same, dims=dict(n=kt.dim(block=BLOCK, multiple_of=4))), "n=12,float32", 0
    ),
    "dims in step": SmallestCase(
        make_pairing(together, same, x=kt.array("m n", "float32"), dims=dict(m=kt.dim(block=8), n=kt.dim(block=8))),
        "m=5,n=5,float32", 0, {"x": np.zeros((5, 5)).tolist()},
    ),
    "one element in the middle": SmallestCase(
        make_pairing(wrong_at_one_number, same), "n=1,float32", 1, {"x": [-121]}, {"family": "position_coded"}
    ),
    "one element of a sum": SmallestCase(
        make_pairing(sums_without_large_ones, lambda x: x.sum(keepdims=True)), "n=1,float32", 1, {},
        {"family": "small_integers"},
    ),
    "booleans": SmallestCase(make_pairing(conjunction, same, x=kt.array("n", "bool")), "n=1,bool", 0, {"x": [True]}),
    "negative": SmallestCase(
        make_pairing(lambda x: elementwise(lambda v: jnp.where(v < 0, 0, v), x), same), "n=1,float32", 1, {"x": [-1]}
    ),
    "an index": SmallestCase(
        make_pairing(taken, lambda x, i: x[i], i=kt.indices("q", into="n")), "n=4,q=1,float32", 1, {"i": [3]}
    ),
    "a mask": SmallestCase(
        make_pairing(all_masked_is_one, lambda x, keep: np.where(keep, x, 0), x=kt.array("m n", "float32"),
               keep=kt.mask("m n"), dims=ROWS),
        "m=1,n=1,float32", 0, {"x": [[0]], "keep": [[False]]}, {"group": "masks"},
    ),
    "a number": SmallestCase(
        make_pairing(sums_below_a_row, same), "n=1,float32", 1, {"x": [64]}, {"family": "small_integers"}
    ),
    "drawn": SmallestCase(
        make_pairing(two_bugs, same), "n=1,float32", 1, {"x": [math.nan]},
        {"group": "fuzz", "verdict": "special_mismatch"},
    ),
    "an invariant": SmallestCase(WRONG["alone"][0], "m=3,n=1,float32", 0, {}, {"family": "alone"}),
    "a gradient": SmallestCase(WRONG["gradient"][0], "n=1,float32", 0, {"x": [1]}, {"family": "gradient"}),
}  # fmt: skip


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CASES)
def test_the_smallest_case_cannot_be_simpler(name: str) -> None:
    wanted = CASES[name]
    made = shrink_first_finding(wanted.pairing, **wanted.fields)
    assert (str(made.case.signature), made.nontrivial) == (wanted.signature, wanted.nontrivial)
    for path, values in wanted.arguments.items():
        np.testing.assert_array_equal(made.case.arguments[path].astype(np.float64), values)
    assert made.outcome.arguments is not None


def test_an_access_outside_keeps_its_line_and_a_kernel_that_does_not_lower_has_no_values() -> None:
    pairing = make_pairing(beside, np.add, y=kt.array("n", "float32"))
    made = shrink_first_finding(pairing, "simulate:sm_90", verdict="out_of_bounds")
    assert (str(made.case.signature), made.nontrivial) == ("n=1,float32", 0)
    assert "load at y_ref" in made.outcome.record.message.splitlines()[0]
    made = shrink_first_finding(make_pairing(double, lambda x: 2 * x), "lower:sm_90")
    assert (str(made.case.signature), made.case.arguments, made.nontrivial) == ("n=3,float32", {}, 0)
    assert made.outcome.record.verdict == "compile_error"


def test_a_case_that_has_another_bug_is_no_smallest_case() -> None:
    item, case, record, cache = first_finding(make_pairing(double, same))
    made = minimize(item, case, record, cache, WorkBudget(), lambda case, record: record.dims["n"] < 3)
    assert made is not None
    assert made.case.signature.dims == (("n", 3),)


def all_255_but_the_last(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        but_last = pl.ds(0, x_ref.shape[0] - 1)
        o_ref[but_last] = jnp.full(x_ref.shape[0] - 1, 255, x_ref.dtype)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def test_wrong_numbers_do_not_end_as_an_element_that_was_never_written() -> None:
    """An interpreter fills it with 0, which is wrong in the same way."""
    pairing = make_pairing(all_255_but_the_last, lambda x: x, x=kt.array("n", "uint8"))
    item, _, record, cache = first_finding(pairing, family="one_hot_per_tile")
    assert record.shown.actual != 0
    reduced = reduce_suspect([item], [record], cache, LONG)
    assert reduced is not None
    assert (reduced.reproducer.record.dims["n"], reduced.reproducer.relation is None) == (2, True)


@pytest.mark.parametrize(
    "changes",
    [*({"group": group} for group in (GroupName.INVARIANTS, GroupName.PRODUCTION, GroupName.PROOFS)),
     {"verdict": Verdict.NONDETERMINISTIC, "item": "of a kernel that is run twice"}],
)  # fmt: skip
def test_a_finding_that_no_edit_can_be_tried_on_is_reduced_only_if_there_is_no_other(changes: dict[str, Any]) -> None:
    item, _, record, cache = first_finding(make_pairing(two_bugs, same), verdict="mismatch")
    other = replace(record, case="f" * 16, dims={"n": 1}, **changes)
    reduced = reduce_suspect([item], [other, record], cache, LONG)
    assert reduced is not None
    assert reduced.reproducer.origin == record.case


def test_the_budget_is_checked_before_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    item, case, record, cache = first_finding(make_pairing(two_bugs, same), verdict="mismatch")
    assert minimize(item, case, record, cache, WorkBudget(0)) is None
    monkeypatch.setattr(module, "JUDGED", 1.0)
    whole = sum(n for _, n in case.signature.dims)
    for work in range(2, 26, 3):
        made = minimize(item, case, record, cache, WorkBudget(work))
        assert made is not None
        assert not made.complete
        assert made.attempts <= work + 1
        assert resembles(record, made.outcome.record)
        assert sum(n for _, n in made.case.signature.dims) <= whole


def test_a_case_that_does_not_fail_again_has_no_smallest_case() -> None:
    item, case, record, cache = first_finding(make_pairing(two_bugs, same), verdict="mismatch")
    mended = replace(item, pairing=make_pairing(lambda x: elementwise(lambda v: v, x), same))
    assert minimize(mended, case, record, Cache(), WorkBudget()) is None
    assert minimize(item, case, replace(record, verdict=Verdict.SPECIAL_MISMATCH), cache, WorkBudget()) is None


def test_a_case_that_passes_when_it_is_judged_again_is_replaced_by_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item, case, record, cache = first_finding(make_pairing(double, same))
    steady = minimize(item, case, record, cache, WorkBudget())
    assert steady is not None
    assert steady.case.signature.dims == (("n", 1),)
    seen: set[str] = set()

    def flaky(item: Item, case: AnyCase, cache: Cache) -> Outcome:
        outcome = run_case(item, case, cache)
        again = case.id in seen and case.signature.dims == (("n", 1),)
        seen.add(case.id)
        return replace(outcome, record=replace(outcome.record, verdict=Verdict.PASS)) if again else outcome

    monkeypatch.setattr(module, "run_case", flaky)
    made = minimize(item, case, record, cache, WorkBudget())
    assert made is not None
    assert made.case.signature == case.signature
    assert resembles(record, made.outcome.record)


def test_cases_that_crashed_or_have_no_values_are_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> Outcome:
        raise AssertionError("it was tried")

    monkeypatch.setattr(module, "run_case", never)
    item, case, record, cache = first_finding(make_pairing(two_bugs, same), verdict="mismatch")
    for verdict in (Verdict.HANG, Verdict.CRASH):
        assert minimize(item, case, replace(record, verdict=verdict), cache, WorkBudget()) is None
    refusal = kt.rejects("short", dims=dict(n=1), raises=ValueError, match="short")
    item, case, record, cache = first_finding(
        make_pairing(lambda x: elementwise(lambda v: v, x), same, rejects=[refusal])
    )
    assert record.group == "rejects"
    assert minimize(item, case, record, cache, WorkBudget()) is None


def test_nothing_is_left_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    item, case, record, cache = first_finding(make_pairing(two_bugs, same), verdict="mismatch")

    def stores() -> list[set[Any]]:
        traces, expectations = cache.traces, cache.expectations.cases
        return [*map(set, (traces._kernels, traces._variations, cache.executables.prepared, expectations))]

    before = stores()

    def watched(item: Item, case: AnyCase, cache: Cache) -> Outcome:
        assert not cache.expectations.cases
        return run_case(item, case, cache)

    monkeypatch.setattr(module, "run_case", watched)
    made = minimize(item, case, record, cache, WorkBudget())
    assert made is not None
    assert made.case.signature not in {signature for signature, _ in cache.traces._kernels}
    assert stores() == before


def test_an_invariant_runs_only_for_signatures_to_which_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing, whole = WRONG["plain_call"][0], INVARIANTS["plain_call"]
    monkeypatch.setitem(
        INVARIANTS, "plain_call", replace(whole, applies=lambda pairing, signature: dict(signature.dims)["n"] > 4)
    )
    assert shrink_first_finding(pairing, family="plain_call").case.signature.dims == (("n", 5),)


def test_the_candidate_arguments_of_a_shorter_signature() -> None:
    more = dict(i=kt.indices("q", into="n"), k=kt.lengths("q", up_to="n"))
    pairing = make_pairing(lambda x, i, k: taken(x, i), lambda x, i, k: x[i], **more)
    signature = signatures(pairing, "quick")[0]
    long, short = (replace(signature, dims=(("n", n), ("q", 3))) for n in (9, 3))
    arguments = {
        "x": np.array([0, 1, 2, 3, 4, 5, 6, np.inf, 8], np.float32),
        "i": np.array([0, 4, 8], np.int32),
        "k": np.array([0, 5, 9], np.int32),
    }
    family = FAMILIES["nan_first"]
    case = ExplicitCase("p", long, arguments, family=family, target="x")
    parts = list(candidate_arguments(pairing, case, short, {"n": 4}, 0))
    assert [part["x"].tolist() for part in parts[:-1]] == [[0, 1, 2], [6, math.inf, 8], [4, 5, 6], [6, math.inf, 8]]
    assert [part["i"].tolist() for part in parts[:-1]] == [[0, 2, 2], [0, 0, 2], [0, 0, 2], [0, 0, 2]]
    assert [part["k"].tolist() for part in parts[:-1]] == [[0, 3, 3], [0, 0, 3], [0, 1, 3], [0, 0, 3]]
    assert np.isnan(parts[-1]["x"]).tolist() == [True, False, False]  # as the family fills the signature
    plain = replace(case, arguments={path: np.zeros_like(value) for path, value in arguments.items()})
    assert len(list(candidate_arguments(pairing, plain, short, {}, 0))) == 4  # the family has no simpler values
    assert (
        len(list(candidate_arguments(pairing, replace(case, family=DRAWN_FAMILY), short, {}, 0))) == 4
    )  # the family applies to no argument
