"""Suspects that a reader could not tell apart are one, and what misused memory explains is told once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kerneltest.core.details import (
    Access,
    Detail,
    ErrorCause,
    MemoryFault,
    Mismatch,
    MismatchCause,
    Nondeterministic,
    Race,
    Undefined,
    Visit,
)
from kerneltest.records.evidence import Evidence, Pattern, PatternKind
from kerneltest.records.schema import FaultLocation, Record, Reproducer
from kerneltest.report.text.suspect_text import describe_suspect
from kerneltest.triage.suspects import find_suspects
from tests.written import PAIRING, PASS, case

LENGTHS = (1, 15, 16, 17, 31, 32, 33, 48, 49, 64)
FAMILIES = (("structural", "ones"), ("structural", "ties"), ("numeric", "normal"), ("special", "nan_first"))
Fails = Callable[[int, str], tuple[str, Detail, Evidence] | None]


def _run(backend: str, fails: Fails) -> list[Record]:
    """A record for each length and family; `fails` gives verdict, detail and evidence of a finding, or None."""
    records = []
    for n in LENGTHS:
        for group, family in FAMILIES:
            place: dict[str, Any] = dict(
                backend=backend, group=group, family=family, signature=f"n={n}", case=f"{n} {family}", dims={"n": n}
            )
            if (found := fails(n, family)) is None:
                records.append(case(**place))
            else:
                verdict, detail, evidence = found
                records.append(case(**place, verdict=verdict, detail=detail, message=detail.text(), evidence=evidence))
    return records


def _wrong(got: float, wanted: float = 1.0, off: float | None = None) -> tuple[str, Detail, Evidence]:
    cause = MismatchCause(ErrorCause.FORMULA, off) if off is not None else None
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=cause)
    return "mismatch", detail, Evidence(index=(0,), actual=got, expected=wanted, wrong_blocks=(1, 1))


SIMULATED = "simulate:sm_90"
EVERYWHERE = (*_wrong(3.0)[:2], replace(_wrong(3.0)[2], pattern=Pattern(PatternKind.EVERYWHERE)))
RACE = "race", Race("k", "o_ref", "[0]", ()), Evidence()
CHANGES = "nondeterministic", Nondeterministic("output 0", (0,), "1", "2", 1, 4), Evidence()
UNWRITTEN = "unwritten", Undefined("output 0", True, 1, PASS.compared, "[0]"), Evidence()
UNINITIALISED = "uninitialised", Undefined("output 0", False, 1, PASS.compared, "[0]"), Evidence()
OUTSIDE = "out_of_bounds", MemoryFault("k", Visit(Access.LOAD, (0,), "k.py:7"), "x_ref", "[9]", "a load"), Evidence()


@pytest.mark.parametrize(
    ("runs", "titles"),
    [
        ({"simulate:sm_90": lambda n, family: RACE if n > 16 else None,
          "cuda": lambda n, family: _wrong(3.0 if n % 2 else float("nan")) if n > 31 and family == "ones" else None},
         ["a race for o_ref where n is longer than its block, 16"]),
        ({"cuda": lambda n, family: {17: CHANGES, 33: _wrong(3.0), 49: CHANGES}.get(n) if family == "ties" else None,
          "simulate:sm_90": lambda n, family: RACE if n in (17, 33, 49, 64) else None},
         ["a race for o_ref"]),
        ({"simulate:sm_90": lambda n, family: OUTSIDE if n % 16 else None,
          "cuda": lambda n, family: _wrong(3.0) if n in (17, 33) else None},
         ["an access out of bounds: load of x_ref where n is not a multiple of its block, 16"]),
        # that every element is wrong says nothing of where the access is
        ({"simulate:sm_90": lambda n, family: OUTSIDE if n % 16 else None,
          "cuda": lambda n, family: EVERYWHERE if n in (17, 33) else None},
         ["an access out of bounds: load of x_ref where n is not a multiple of its block, 16"]),
        # an interpreter that pads arrays shows another bug, unless it is wrong in the same signatures
        ({"simulate:sm_90": lambda n, family: OUTSIDE if n % 16 else None,
          "interpret": lambda n, family: _wrong(3.0) if n > 32 else None},
         ["an access out of bounds: load of x_ref where n is not a multiple of its block, 16",
          "wrong values where n is over 32"]),
        # an interpreter shows elements that were never written as NaN; what is wrong elsewhere is another bug
        ({"simulate:sm_90": lambda n, family: UNWRITTEN if n % 16 else _wrong(3.0),
          "interpret": lambda n, family: _wrong(float("nan")) if n % 16 else _wrong(3.0)},
         ["unwritten elements", "wrong values"]),
        # the same of elements that depend on memory that was never written
        ({SIMULATED: lambda n, family: UNINITIALISED if n % 16 else _wrong(3.0),
          "interpret": lambda n, family: _wrong(float("nan")) if n % 16 else _wrong(3.0)},
         ["values from uninitialised memory", "wrong values"]),
        # a formula that is nearly right is the imprecision that others of its cases show
        ({"interpret": lambda n, family: _wrong(0.999, off=0.001) if family == "ones" and n == 1
          else _wrong(0.999) if family != "ones" else None},
         ["insufficient precision, or another formula"]),
        # a formula that is nearly right makes no NaN: that is another bug
        ({"interpret": lambda n, family: _wrong(1 + 1e-6, off=1e-6) if family != "nan_first"
          else _wrong(0.0, float("nan"))},
         ["a formula that is slightly off (by up to 1e-06 of the largest value)", "a number in place of NaN"]),
        ({"interpret": lambda n, family: _wrong(3.0, off=0.5) if family != "nan_first" else _wrong(0.0, float("nan"))},
         ["wrong values"]),
    ],
    ids=["race and device", "race and nondeterminism", "out of bounds and device", "every element", "two bugs",
         "unwritten", "uninitialised", "nearly right", "nearly right and NaN", "wrong and NaN"],
)  # fmt: skip
def test_a_bug_that_shows_in_several_ways_is_one_suspect(runs: dict[str, Fails], titles: list[str]) -> None:
    records = [record for backend, fails in runs.items() for record in _run(backend, fails)]
    assert [suspect.title for suspect in find_suspects(records, {PAIRING: {"n": 16}})] == titles


@pytest.mark.parametrize(
    ("backends", "lines", "arguments", "count"),
    [
        ((SIMULATED, SIMULATED), ("k.py:5", "k.py:9"), ("[1]", "[2]"), 2),
        ((SIMULATED, SIMULATED), ("k.py:5", "k.py:5"), ("[1]", "[2]"), 1),
        ((SIMULATED, SIMULATED), ("k.py:5", "k.py:9"), ("[1]", "[1]"), 1),
        ((SIMULATED, SIMULATED), ("", ""), ("[1]", "[2]"), 2),
        # interpret mode agrees with the oracle in one of them: that is the lowering's
        (("interpret", SIMULATED), ("k.py:5", "k.py:5"), ("[1]", "[2]"), 2),
    ],
    ids=["two lines", "same line", "same smallest case", "no line", "two tiers"],
)
def test_suspects_with_the_same_line_or_smallest_case_are_one(
    backends: tuple[str, str], lines: tuple[str, str], arguments: tuple[str, str], count: int
) -> None:
    nan = _wrong(float("nan"))
    tail: Fails = lambda n, family: _wrong(3.0) if n % 16 and family != "nan_first" else None  # noqa: E731
    lost: Fails = lambda n, family: nan if n % 16 == 0 and family == "nan_first" else None  # noqa: E731
    if backends[0] == backends[1]:
        records = _run(SIMULATED, lambda n, family: tail(n, family) or lost(n, family))
    else:
        records = [
            record for backend, fails in zip(backends, (tail, lost), strict=True) for record in _run(backend, fails)
        ]
    smallest = []
    for place, values, is_nan in zip(lines, arguments, (False, True), strict=True):
        origin = next(r for r in records if r.evidence and (r.evidence.actual != r.evidence.actual) is is_nan)
        evidence = Evidence(index=(0,), actual=3.0, expected=1.0, arguments={"x": values})
        made = case(verdict="mismatch", case="made", signature="n=1", backend=origin.backend, evidence=evidence)
        fault = FaultLocation(place, "x", "a change repairs it", True) if place else None
        smallest.append(Reproducer(origin.case, made, 0, 9, True, fault))
    assert len(find_suspects(records, {PAIRING: {"n": 16}}, smallest)) == count


@pytest.mark.parametrize(("values", "count"), [("[1]", 1), ("[2]", 2)])
def test_wrong_values_at_the_smallest_case_of_a_wrong_access_are_no_other_bug(values: str, count: int) -> None:
    """An interpreter pads arrays or clamps positions: it shows no access, and other signatures."""
    records = _run(SIMULATED, lambda n, family: OUTSIDE if n % 16 else None)
    records += _run("interpret", lambda n, family: _wrong(3.0) if n % 16 and n > 16 else None)
    smallest = []
    for backend, verdict, shown in ((SIMULATED, "out_of_bounds", "[1]"), ("interpret", "mismatch", values)):
        origin = next(r for r in records if r.backend == backend and r.verdict.is_finding)
        evidence = Evidence(index=(0,), actual=3.0, expected=1.0, arguments={"x": shown})
        made = case(verdict=verdict, case="made", signature="n=17", backend=backend, evidence=evidence)
        smallest.append(Reproducer(origin.case, made, 0, 9, True))
    assert len(find_suspects(records, {PAIRING: {"n": 16}}, smallest)) == count


@pytest.mark.parametrize(("values", "line", "count"), [("[1]", "k.py:9", 1), ("[2]", "", 1), ("[2]", "k.py:9", 2)])
def test_a_partial_repair_splits_only_if_another_one_repairs_another_smallest_case(
    values: str, line: str, count: int
) -> None:
    records = _run("interpret", lambda n, family: _wrong(3.0) if n % 16 and family in ("ones", "ties") else None)
    ones, ties = ([r.case for r in records if r.verdict.is_finding and r.family == each] for each in ("ones", "ties"))
    fault = FaultLocation("k.py:5", "x == n", "a change repairs some", False, explained=(*ones,), unexplained=(*ties,))
    smallest = []
    second = FaultLocation(line, "x < n", "another change repairs the others", False) if line else None
    for origin, shown, found in ((ones[0], "[1]", fault), (ties[0], values, second)):
        evidence = Evidence(index=(0,), actual=3.0, expected=1.0, arguments={"x": shown})
        made = case(verdict="mismatch", case="made", signature="n=1", evidence=evidence)
        smallest.append(Reproducer(origin, made, 0, 9, True, found))
    suspects = find_suspects(records, {PAIRING: {"n": 16}}, smallest)
    assert len(suspects) == count
    assert (suspects[0].fault is None) is (count == 1)


def test_a_repair_of_memory_that_leaves_values_wrong_shows_two_bugs() -> None:
    records = _run(SIMULATED, lambda n, family: UNWRITTEN)
    records += _run("interpret", lambda n, family: _wrong(float("nan") if n == 1 else 3.0))
    records = [replace(record, wrong=record.compared) for record in records]
    left = [record.case for record in records if record.dims["n"] > 1]
    fault = FaultLocation(
        "k.py:5", "i < n", "fixes it", False, explained=(records[0].case, *left), unexplained=(*left,)
    )
    made = case(verdict="unwritten", case="made", signature="n=1", backend=SIMULATED)
    memory, values = find_suspects(records, {PAIRING: {}}, [Reproducer(records[0].case, made, 0, 9, True, fault)])
    assert (memory.title, memory.fault) == ("unwritten elements", fault)
    assert values.title == "wrong values"
    assert values.fault is None


def test_findings_that_depend_on_inputs_are_not_split_by_lengths() -> None:
    """A maximum that begins at 0 fails where padding hides no length: all of them are one bug."""
    records = _run("interpret", lambda n, family: _wrong(3.0) if n in (17, 33, 15, 49) else None)
    assert len(find_suspects(records, {PAIRING: {}})) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["the sum omits the last block of k (from 16 to 20)"] * 10,
         "the sum omits the last block of k (from 16 to 20)"),
        (["the sum omits the last block of k (from 16 to 20)", "the sum omits the last block of k (from 8 to 9)"] * 5,
         "the sum omits the last block of k (from 16 to 20)"),
        (["blocks of n are permuted: block 0 has the values of block 1"] * 9 + [""],
         "blocks of n are permuted: block 0 has the values of block 1 (explains 9 of 10 findings)"),
        (["sums stop growing at about 256: they are accumulated in bfloat16"] + [""] * 9, ""),
        ([""] * 10, ""),
    ],
    ids=["all", "all with other numbers", "nearly all", "one by chance", "none"],
)  # fmt: skip
def test_a_suspect_has_a_diagnosis_only_if_it_explains_nearly_every_finding(said: list[str], words: str) -> None:
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off")
    records = [
        case(verdict="mismatch", case=f"c{number}", detail=detail, message=detail.text(),
             evidence=Evidence(index=(0,), actual=2.0, expected=1.0, diagnosis=each))
        for number, each in enumerate(said)
    ]  # fmt: skip
    (suspect,) = find_suspects(records, {})
    assert suspect.diagnosis == words
    shown = [line.strip() for line in describe_suspect(suspect).texts]
    assert (words in shown) is bool(words)
    assert not words or sum(words in line for line in shown) == 1


def test_what_an_experiment_with_the_smallest_case_showed_is_said_whatever_its_share() -> None:
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", remarks=("by a rule",))
    evidence = Evidence(index=(0,), actual=2.0, expected=1.0)
    record = case(verdict="mismatch", detail=detail, evidence=evidence)
    for diagnosis, words in (("by a rule", ""), ("read past the end of an array", "read past the end of an array")):
        made = case(verdict="mismatch", case="made", detail=detail, evidence=replace(evidence, diagnosis=diagnosis))
        (suspect,) = find_suspects([record], {}, [Reproducer(record.case, made, 0, 9, True)])
        assert suspect.diagnosis == words
