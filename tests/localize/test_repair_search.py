"""What a search for repairs concludes from those that repair only some cases, if all were tried and if not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.source_location import source_line
from kerneltest.core.targets import TARGETS, Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import WorkBudget
from kerneltest.execute.item import Outcome
from kerneltest.localize import repair_search
from kerneltest.localize.case_replay import MutableKernel
from kerneltest.localize.edits import after
from kerneltest.localize.equation_replay import EquationReplay, EvaluatedKernel, equation_replays
from kerneltest.localize.repair_search import (
    LineSearch,
    Repair,
    code_repairs,
    equation_repairs,
    find_repair,
    lines_of_wrong_values,
    locate_fault,
)
from kerneltest.records.schema import FaultLocation
from kerneltest.trace.tracing import trace_function
from tests.localize.fault_cases import make_case


@dataclass(frozen=True)
class FakeReplay:
    """A wrong call that some patches make right."""

    number: int
    repairs: frozenset[str]
    is_wrong: bool = True
    kernel: object = field(default_factory=object)
    together: int = 1
    most_edits: int = 2
    length: int = 1
    cost: float = 0.1

    @property
    def case(self) -> Any:
        return SimpleNamespace(id=str(self.number), signature=SimpleNamespace(dims=(("n", self.length),)))

    def work(self, patches: int) -> float:
        return self.cost * patches

    def are_right(self, patches: Sequence[str]) -> list[bool]:
        return [patch in self.repairs for patch in patches]


def _repair(line: int, name: str) -> Repair:
    return Repair(f"kernel.py:{line}", name, f"changing {name}", 0, True, lambda kernel: iter([name]))


ONE, OTHER = frozenset({"one"}), frozenset({"other"})


@pytest.mark.parametrize(
    ("repaired", "most", "seconds", "split"),
    [(4, 2, 10, True), (4, 1, 10, False), (6, 2, 10, True), (6, 1, 10, False), (6, 2, -1, False)],
)
def test_two_bugs_are_told_apart_only_if_all_repairs_were_tried(
    repaired: int, most: int, seconds: float, split: bool
) -> None:
    replays = [FakeReplay(i, ONE if i < repaired else OTHER, most_edits=most) for i in range(10)]
    repairs = [_repair(1, "one"), _repair(2, "neither")]
    found = find_repair(replays[0], replays[1:], repairs, WorkBudget(seconds), ())
    if split:
        assert found is not None
        assert found.explained == tuple(map(str, range(repaired)))
        assert found.unexplained == tuple(map(str, range(repaired, 10)))
    else:
        assert found is None


@pytest.mark.parametrize(("work", "is_found"), [(25, True), (15, False)])
def test_repairs_that_a_replay_refutes_leave_the_work_to_others(work: float, is_found: bool) -> None:
    by_chance = [_repair(2, f"chance {number}") for number in range(99)]
    first = FakeReplay(0, ONE | {f"chance {number}" for number in range(99)}, most_edits=200, together=200)
    dear, *others = [FakeReplay(number, ONE) for number in range(1, 16)]
    found = find_repair(first, [replace(dear, cost=1), *others], [*by_chance, _repair(1, "one")], WorkBudget(work), ())
    assert (found is not None and found.place == "kernel.py:1") is is_found


@pytest.mark.parametrize(
    ("undone", "costs", "cause"),
    [
        (["a rounding to float16"] * 2, (0, 0), "a rounding to float16"),
        (["a rounding to float16", ""], (0, 0), ""),
        (["a rounding to float16", ""], (0, 1), "a rounding to float16"),
        (["a rounding to float16", ""], (1, 0), ""),
        # what is wide in the product stays wide in the sum
        (["an int16 product that overflows", "an int16 sum that overflows"], (0, 0), "an int16 sum that overflows"),
    ],
)
def test_a_cause_is_stated_if_all_of_the_cheapest_repairs_undo_it(
    undone: list[str], costs: tuple[int, int], cause: str
) -> None:
    repairs = [
        replace(_repair(number, "one"), undone=words, cost=cost)
        for number, (words, cost) in enumerate(zip(undone, costs, strict=True))
    ]
    found = find_repair(FakeReplay(0, ONE), [FakeReplay(1, ONE)], repairs, WorkBudget(10), ())
    assert found is not None
    assert found.cause == cause


@pytest.mark.parametrize(("cost", "confirmed"), [(1, False), (2, False), (3, True)])
def test_another_value_that_fits_by_chance_does_not_unconfirm_a_line(cost: int, confirmed: bool) -> None:
    repairs = [_repair(1, "one"), replace(_repair(1, "one"), literal=False, cost=cost)]
    found = find_repair(FakeReplay(0, ONE), [FakeReplay(1, ONE)], repairs, WorkBudget(10), ())
    assert found is not None
    assert found.confirmed is confirmed


@pytest.mark.parametrize(("lengths", "confirmed"), [((3, 3), False), ((3, 4), True)])
def test_a_repair_of_one_length_among_several_is_not_confirmed(lengths: tuple[int, int], confirmed: bool) -> None:
    first, other = (FakeReplay(number, ONE, length=length) for number, length in enumerate(lengths))
    right = FakeReplay(2, ONE, is_wrong=False, length=2)
    found = find_repair(first, [other, right], [_repair(1, "one")], WorkBudget(10), ())
    assert found is not None
    assert found.confirmed is confirmed


@pytest.mark.parametrize("late", ["rest", "more"])
def test_a_repair_is_not_confirmed_if_replays_are_missing_for_want_of_time(late: str) -> None:
    first, budget = FakeReplay(0, ONE), WorkBudget(10)

    def replays(name: str) -> Iterator[FakeReplay]:
        if name == late:
            budget.spend(10)
        if not budget.is_over():
            yield FakeReplay(1, ONE)

    found = find_repair(first, replays("rest"), [_repair(1, "one")], budget, replays("more"))
    assert found is None or not found.confirmed


def test_a_search_that_finds_a_line_too_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    location = FaultLocation("kernel.py:1", "x * 2", "removing mul fixes the result", False)

    def search(*arguments: Any) -> FaultLocation:
        budget: WorkBudget = arguments[-1]
        budget.spend(budget.work)
        assert budget.is_over()
        return location

    for name in ("_locate_in_equations", "_locate_in_code"):
        monkeypatch.setattr(repair_search, name, search)
    record: Any = SimpleNamespace(family="", detail=None, tier=Tier.INTERPRET, verdict=Verdict.MISMATCH)
    nothing: Any = None
    budget = WorkBudget(1)
    assert locate_fault(nothing, nothing, Outcome(record), budget) == LineSearch(location)
    assert budget.is_cut


@pytest.mark.parametrize(("verdict", "shares"), [(Verdict.MISMATCH, [0.75, 1.0]), (Verdict.RACE, [1.0])])
def test_the_first_way_to_search_leaves_work_for_the_second(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, shares: list[float]
) -> None:
    done = []

    def search(*arguments: Any, **_: Any) -> None:
        budget: WorkBudget = arguments[-1]
        while not budget.is_over():
            budget.spend(0.05)
        done.append(budget.spent)

    for name in ("_locate_in_equations", "_locate_in_code", "_if_wrong"):
        monkeypatch.setattr(repair_search, name, search if name != "_if_wrong" else lambda *_: None)
    record: Any = SimpleNamespace(family="", detail=None, tier=Tier.INTERPRET, verdict=verdict)
    nothing: Any = None
    assert locate_fault(nothing, nothing, Outcome(record), WorkBudget(1)) == LineSearch()
    assert done == pytest.approx(shares, abs=0.06)


def _two_sums(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = jnp.sum(x_ref[...] * 1.1)
        o_ref[1] = jnp.sum(x_ref[...] * 1.3)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((2,), x.dtype))(x)


@pytest.fixture(name="wrong")
def fixture_wrong() -> EquationReplay:
    @kt.oracle_for(_two_sums, x=kt.array("m n"), dims=dict(m=kt.dim(values=(8,)), n=kt.dim(values=(70,))))
    def pairing(x: Any) -> Any:
        return np.array([np.sum(x * 1.1), np.sum(x * 1.7)])

    case = make_case(pairing, {}, x=np.random.default_rng(0).normal(size=(8, 70)))
    return next(equation_replays(pairing, [case], "drawn"))


def test_sums_in_another_order_are_no_changes(wrong: EquationReplay) -> None:
    (line,) = lines_of_wrong_values(wrong)
    assert "1.3" in source_line(line)


def test_an_edit_whose_outputs_cannot_be_compared_is_not_right(wrong: EquationReplay) -> None:
    def take(outputs: Any) -> Any:
        raise FloatingPointError

    assert wrong.is_wrong
    wrong._checks = [replace(check, take=take) for check in wrong._checks]
    assert wrong.are_right([lambda _: []]) == [False]


def test_the_roundings_of_a_line_are_left_out_together_once() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        o_ref[...] = (x * x + x) * (x - x * x)

    out = ShapeDtype((4,), np.dtype(jnp.bfloat16))
    traced = trace_function(lambda x: [pl.pallas_call(body, out_shape=x)(x)], (out,), "")
    phrases = [repair.phrase for repair in equation_repairs(EvaluatedKernel(traced, None, {}))]
    assert phrases.count("not rounding to bfloat16 in this line") == 1


def test_a_mask_by_the_only_length_of_a_dim_is_dearer_than_any_insertion() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.sum(x_ref[...] * jnp.arange(4))

    out = ShapeDtype((), np.dtype("f4"))
    traced = trace_function(lambda x: [pl.pallas_call(body, out_shape=out)(x)], (ShapeDtype((4,), out.dtype),), "")
    repairs = equation_repairs(EvaluatedKernel(traced, None, {"n": 4, "d": 4}, {"d"}))
    costs = {words: {each.cost for each in repairs if f" {words} with " in each.phrase} for words in ("< n", "< d")}
    assert costs == {"< n": {1}, "< d": {4}}
    assert max(repair.cost for repair in repairs if " < d " not in repair.phrase) < 4


def _times(number: int) -> Callable[..., Any]:
    def function(x: Any, *, factor: int = number) -> Any:
        return x * factor

    return function


def _plus(x: Any, term: Any) -> Any:
    return x + term


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_times(2), _times(3)),
        (partial(_plus, term=np.float32(0.0)), partial(_plus, term=np.float32(-0.0))),
        (partial(_plus, term=1.0), partial(_plus, term=np.float64(1.0))),
    ],
)
def test_functions_that_differ_only_in_a_number_make_different_edits(one: Any, other: Any) -> None:
    (equation,) = jax.make_jaxpr(jnp.sin)(np.zeros(4, np.float16)).eqns
    made = [[(v.aval, str(getattr(v, "val", ""))) for e in after(equation, f) for v in e.invars] for f in (one, other)]
    assert made[0] != made[1]


def test_a_kernel_with_a_change_of_its_grid_is_lowered_once_for_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: jax.Array) -> list[Any]:
        def body(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        block = pl.BlockSpec((4,), lambda i: (i,))
        return [pl.pallas_call(body, grid=(2,), in_specs=[block], out_specs=block, out_shape=x)(x)]

    traced = trace_function(kernel, (ShapeDtype((8,), np.dtype("f4")),), "for a test")
    known = MutableKernel(traced, TARGETS["sm_90"], {"n": 8})
    repairs = code_repairs(known)
    changed = [[*repair.patches(known)] for repair in repairs if repair.cost == 0]
    assert any(patch.calls for patches in changed for patch in patches)
    monkeypatch.setattr(repair_search, "MutableCall", None)
    assert [[*repair.patches(known)] for repair in repairs if repair.cost == 0] == changed
