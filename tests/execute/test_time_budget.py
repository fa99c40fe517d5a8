"""The time limit of an item: the cases that fit, their order, and the report of the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.details import Unavailable
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute import runner
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.process_state import ProcessState
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.time_budget import TimeBudget, breadth_first, group_weight
from kerneltest.records.run_plan import Plan, PlannedItem
from kerneltest.records.runs import RunRecords, reconcile
from kerneltest.records.schema import Record
from kerneltest.report.counts import budget_remarks, slow_remarks, unserved_remarks
from tests.sample import double


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _make_pairing() -> kt.Pairing:
    dims = dict(n=kt.dim(values=(3, 5, 8)))
    return kt.oracle_for(double, x=kt.array("n", "float32"), dims=dims, tolerance=kt.tolerance.exact())(lambda x: 2 * x)


def _items() -> list[Item]:
    return list(
        plan_pairing(_make_pairing(), "suite.py::doubled", resolve(["interpret"]), RunSettings(depth="quick")).items
    )


def _run_with_budget(items: list[Item], seconds: float, budget: float, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A run with a budget, in which every case takes a given number of seconds."""
    clock = Clock()
    state = ProcessState(
        budget=TimeBudget(budget, {item.group.name: group_weight(item.cases()) for item in items}, clock)
    )
    cache = Cache(process=state)

    def slowly(*given: Any) -> Any:
        clock.now += seconds
        return judged(*given)

    judged = runner.run_case
    monkeypatch.setattr(runner, "run_case", slowly)
    return cache


def _ran(seconds: float, budget: float, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Item], list[Record]]:
    items = _items()
    cache = _run_with_budget(items, seconds, budget, monkeypatch)
    return items, [outcome.record for item in items for outcome in run_item(item, cache)]


def _left(records: list[Record]) -> list[Record]:
    return [record for record in records if record.verdict is Verdict.UNAVAILABLE]


def test_each_case_has_a_record_and_those_that_fit_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    items, records = _ran(2.0, 60.0, monkeypatch)
    planned = sorted(case.id for item in items for case in item.cases())
    assert sorted(record.case for record in records) == planned
    ran = [record for record in records if record.verdict is Verdict.PASS]
    assert 25 <= len(ran) <= 30
    assert len(ran) + len(_left(records)) == len(records)
    assert {record.message for record in _left(records)} == {
        "left out: a case takes 2 s here, and --kt-budget allows 60 s for this item"
    }


def test_every_group_has_its_share_and_families_go_before_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    items, records = _ran(2.0, 60.0, monkeypatch)
    ran = [record for record in records if record.verdict is Verdict.PASS]
    for item in items:
        mine = [record.family for record in ran if record.group == item.group.name]
        assert len(mine) > len(item.families()) / 3, item.group.name
        repeated = len(mine) > len(set(mine))
        assert not repeated or set(mine) == set(item.families()), item.group.name


@pytest.mark.parametrize(("budget", "signatures"), [(1.0, 1), (1e6, 3)])
def test_nothing_is_compiled_that_is_left_out(budget: float, signatures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    items = list(
        plan_pairing(
            _make_pairing(), "suite.py::doubled", resolve(["simulate:sm_90"]), RunSettings(depth="quick")
        ).items
    )
    cache = _run_with_budget(items[:1], 100.0, budget, monkeypatch)
    list(run_item(items[0], cache))
    assert len(cache.executables.prepared) == signatures


@pytest.mark.parametrize(("seconds", "budget"), [(0.0, 1.0), (0.01, 60.0)])
def test_a_quick_item_runs_completely(seconds: float, budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _left(_ran(seconds, budget, monkeypatch)[1]) == []


def test_families_come_once_then_signatures_then_repeats() -> None:
    for item in _items():
        cases = list(item.cases())
        order = breadth_first([case for case in cases for _ in range(2)])
        once = len(item.families())
        assert [case.family.name for case in order[:once]] == list(item.families())
        if cases[0].family.structural:
            signatures = {case.signature for case in cases}
            assert {case.signature for case in order[: once + len(signatures) - 1]} == signatures
        assert sorted(case.id for case in order) == sorted([case.id for case in cases] * 2)


@pytest.mark.parametrize(("budget", "groups"), [(1.0, 1), (205.0, 3), (1000.0, None)])
def test_the_first_case_of_an_item_always_runs_and_one_of_each_group_if_time_allows(
    budget: float, groups: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, records = _ran(100.0, budget, monkeypatch)
    ran = [record.group for record in records if record.verdict is Verdict.PASS]
    assert list(dict.fromkeys(ran)) == [item.group.name for item in items][:groups]
    assert len(ran) * 100.0 <= budget + 100.0


def test_the_same_costs_leave_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for _ in range(2):
        with monkeypatch.context() as patch:
            runs.append([(record.case, record.verdict) for record in _ran(1.0, 40.0, patch)[1]])
    assert runs[0] == runs[1]


def test_a_compilation_is_expected_where_a_signature_is_new() -> None:
    clock = Clock()
    (item, *_) = plan_pairing(
        _make_pairing(), "suite.py::doubled", resolve(["interpret"]), RunSettings(depth="quick")
    ).items
    cases = breadth_first(item.cases())
    first = next(case for case in cases if case.signature == cases[0].signature)
    repeat = next(case for case in cases[1:] if case.signature == first.signature)
    other = next(case for case in cases if case.signature != first.signature)
    budget = TimeBudget(20.0, {item.group.name: 1}, clock)
    budget.begin_group(item.group.name)
    assert budget.skip_reason(first) == ""
    budget.add_cost(first, 12.0, compared=True)
    clock.now = 12.0
    assert budget.skip_reason(repeat) == ""
    budget.add_cost(repeat, 1.0, compared=True)
    assert "a case takes 12 s here" in budget.skip_reason(other)
    assert budget.skip_reason(repeat) == ""


def _run_of(records: tuple[Record, ...], budget: int) -> RunRecords:
    families = {record.family: 0 for record in records}
    for record in records:
        families[record.family] += 1
    planned = PlannedItem("i", "s.py::p", "interpret-tpu", Tier.INTERPRET, "float32", "numeric", families)
    plan = Plan((planned,), 0, "standard", {}, {}, {}, budget=budget)
    return RunRecords("", Path(), plan, records, reconcile(plan, records))


def _record(number: int, family: str, **more: Any) -> Record:
    base = Record(
        item="i", pairing="s.py::p", backend="interpret-tpu", tier=Tier.INTERPRET, dtype="float32", group="numeric",
        family=family, signature="n=3", target="", case=f"{number:016x}", verdict=Verdict.PASS, compared=3,
    )  # fmt: skip
    return replace(base, **more)


def test_cases_left_out_are_reported_by_family_and_do_not_fail() -> None:
    out = dict(verdict=Verdict.UNAVAILABLE, compared=0, detail=Unavailable("a case takes 2 s", left_out=True))
    records = (_record(0, "normal"), _record(1, "normal", **out), _record(2, "ties", **out), _record(3, "ties", **out))
    thinned = _run_of(records, 60)
    assert budget_remarks(thinned) == [
        "s.py::p on interpret-tpu: 3 of 4 cases left out to meet --kt-budget 60: ties 2, normal 1"
    ]
    assert thinned.reconciled.complete
    assert {status.verdict for status in thinned.reconciled.cells.values()} == {Verdict.UNAVAILABLE}
    assert budget_remarks(_run_of(records[:1], 0)) == []


def test_unavailable_cases_are_listed_with_their_reason() -> None:
    reasons = ("too long", "too long", "no lowering")
    records = [_record(9, "normal")]
    for number, why in enumerate(reasons):
        out = dict(verdict=Verdict.UNAVAILABLE, compared=0, detail=Unavailable(why), message=f"{why}\nmore")
        records.append(_record(number, "ones", **out))
    assert unserved_remarks(_run_of(tuple(records), 0)) == [
        "s.py::p: 2 cases unavailable on interpret-tpu: too long",
        "s.py::p: 1 case unavailable on interpret-tpu: no lowering",
    ]


def test_a_run_of_minutes_mentions_the_option_once() -> None:
    records = tuple(_record(number, "normal", seconds=7.25) for number in range(44))
    assert slow_remarks(_run_of(records, 0)) == [
        "s.py::p on interpret-tpu: 44 cases took 319 s, 7.2 s each, in all processes together; --kt-budget 60 "
        "limits that"
    ]
    assert slow_remarks(_run_of(records, 60)) == []
    assert slow_remarks(_run_of(records[:4], 0)) == []


def test_what_was_traced_ahead_costs_no_more_than_what_was_compiled() -> None:
    clock = Clock()
    item = next(each for each in _items() if len({case.signature for case in each.cases()}) > 2)
    first, second, third = list({case.signature: case for case in item.cases()}.values())[:3]
    budget = TimeBudget(10.0, {item.group.name: 1}, clock)
    budget.begin_group(item.group.name)
    assert budget.skip_reason(first) == ""
    clock.now = 3.0
    budget.add_cost(first, 3.0, compared=True)
    clock.now = 4.9
    assert budget.note_prepared(second.signature)
    assert budget.skip_reason(second) == ""
    clock.now = 7.5
    assert budget.skip_reason(third)
    assert not budget.note_prepared(third.signature)
