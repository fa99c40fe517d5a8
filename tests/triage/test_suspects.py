"""Suspects: findings with one cause are one, findings with two are two, and each says where it shows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kerneltest.core.details import (
    Access,
    Detail,
    ErrorCause,
    IndexOverflow,
    MemoryFault,
    Mismatch,
    MismatchCause,
    NotBuilt,
    Stage,
    Unavailable,
    Visit,
    without_numbers,
)
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import Evidence, RelationKind, SpecialInput, SpecialValue, ValueRelation
from kerneltest.records.schema import ConfirmedCondition, ConfirmedRelation, FaultLocation, Record, Reproducer
from kerneltest.report.text.suspect_text import describe_suspect
from kerneltest.triage.clustering import FindingCluster
from kerneltest.triage.suspects import Suspect, find_suspects
from kerneltest.triage.symptoms import OVERFLOWS, Effect, Level, Symptom
from tests.written import PAIRING, case

LENGTHS = (1, 15, 16, 17, 31, 32, 33, 48, 49, 64)
BLOCKS = {"n": 16}
WRONG = Evidence(index=(0,), actual=3.0, expected=1.0, wrong_blocks=(1, 1))
SLIGHT = Evidence(index=(0,), actual=1.01, expected=1.0, wrong_blocks=(1, 1))
NAN = Evidence(index=(0,), actual=float("nan"), expected=1.0, wrong_blocks=(1, 1))
FAMILIES = (("structural", "ones"), ("structural", "ties"), ("numeric", "normal"), ("special", "nan_first"))
X_NAN = SpecialInput("x", SpecialValue.NAN)


def _run(fails: Any, backend: str = "interpret", dtypes: Sequence[str] = ("float32", "bfloat16")) -> list[Record]:
    """A record for each length, dtype and family; `fails` gives verdict, detail and evidence of a finding, or None."""
    records = []
    for dtype in dtypes:
        for n in LENGTHS:
            for group, family in FAMILIES:
                place: dict[str, Any] = dict(
                    backend=backend, dtype=dtype, group=group, family=family, signature=f"n={n},{dtype}",
                    case=f"{n} {dtype} {family}", dims={"n": n}, dtypes={"x": dtype},
                    special_inputs=(X_NAN,) if group == "special" else (),
                )  # fmt: skip
                found = fails(n, dtype, group)
                if found is None:
                    records.append(case(**place))
                else:
                    verdict, detail, evidence = found
                    more = dict(verdict=verdict, detail=detail, message=detail.text(), evidence=evidence)
                    records.append(case(**place, **more))
    return records


def _mismatch(evidence: Evidence, verdict: str = "mismatch") -> tuple[str, Detail, Evidence]:
    return verdict, Mismatch("", 0, "", 1, 4, "", (0,), "", "off"), evidence


def _tail(n: int, dtype: str, group: str) -> Any:
    return _mismatch(WRONG) if n % 16 else None


def _rounded(n: int, dtype: str, group: str) -> Any:
    return _mismatch(SLIGHT) if dtype == "bfloat16" and group == "numeric" else None


def _only_17(n: int, found: Any) -> Any:
    return found if n == 17 else None


def _lost(n: int, dtype: str, group: str) -> Any:
    return _mismatch(NAN, "special_mismatch") if group == "special" else None


def _outside(n: int, dtype: str, group: str) -> Any:
    return ("out_of_bounds", _load(n, 7), Evidence()) if n > 16 else None


def _overflowing(bits: int, n: int, dtype: str, group: str) -> Any:
    fault = replace(_load(n, 7), overflow=IndexOverflow("2 x 3", bits, 5, 6))
    return ("out_of_bounds", fault, Evidence()) if n > 16 else None


def _outside_somewhere(n: int, dtype: str, group: str) -> Any:
    return ("out_of_bounds", MemoryFault("", Visit(Access.LOAD), ""), Evidence()) if n > 16 else None


def _load(n: int, line: int) -> MemoryFault:
    return MemoryFault("k", Visit(Access.LOAD, (n,), f"kernels/k.py:{line}"), "x_ref", f"[{n}]", f"load at x_ref[{n}]")


def _unlowered(n: int, dtype: str, group: str) -> Any:
    return ("unimplemented", _no_rule(Stage.LOWER, "kernels/k.py:9"), Evidence()) if dtype == "bfloat16" else None


def _no_rule(stage: Stage, source: str) -> NotBuilt:
    return NotBuilt(stage, "k", "NotImplementedError", "Unimplemented primitive: cumsum", "cumsum", source=source)


def _uncompiled(n: int, dtype: str, group: str) -> Any:
    return ("unimplemented", _no_rule(Stage.COMPILE, "kernels/k.py:8"), Evidence()) if dtype == "bfloat16" else None


def _either(*fails: Any) -> Any:
    return lambda *what: next((found for each in fails if (found := each(*what)) is not None), None)


def _of(records: Sequence[Record], *smallest: Reproducer) -> tuple[Suspect, ...]:
    return find_suspects(records, {PAIRING: BLOCKS}, smallest)


@pytest.mark.parametrize(
    ("records", "titles"),
    [
        ([], []),
        (_run(lambda *_: None), []),
        (_run(_tail), ["wrong values where n is not a multiple of its block, 16"]),
        (_run(_rounded), ["insufficient precision, or another formula where dtype is bfloat16"]),
        (_run(_lost), ["NaN where x holds a NaN"]),
        (_run(lambda n, *what: _mismatch(WRONG) if n == 17 and _lost(n, *what) else _lost(n, *what)),
         ["NaN or wrong values where x holds a NaN"]),
        ([*_run(lambda n, *what: _only_17(n, _rounded(n, *what) or _lost(n, *what))),
          *_run(lambda n, *what: _only_17(n, _lost(n, *what)), "simulate:sm_90")],
         ["NaN or insufficient precision where n is 17"]),
        (_run(_outside, "simulate:sm_90"),
         ["an access out of bounds: load of x_ref where n is longer than its block, 16"]),
        (_run(partial(_overflowing, 31), "simulate:sm_90"),
         ["an int32 offset overflows: load of x_ref where n is longer than its block, 16"]),
        (_run(partial(_overflowing, 32), "simulate:sm_90"),
         ["a uint32 offset overflows: load of x_ref where n is longer than its block, 16"]),
        (_run(_outside_somewhere, "interpret-tpu"),
         ["an access out of bounds where n is longer than its block, 16"]),
        (_run(_unlowered, "lower:sm_90"), ["cumsum does not lower where dtype is bfloat16"]),
        # one bug on several backends, seen as wrong values on one and as a bad access on the other
        ([*_run(_tail), *_run(_tail, "simulate:sm_90")], ["wrong values where n is not a multiple of its block, 16"]),
        ([*_run(lambda n, *_: _mismatch(NAN) if n > 16 else None), *_run(_outside, "simulate:sm_90")],
         ["an access out of bounds: load of x_ref where n is longer than its block, 16"]),
        ([*_run(_unlowered, "lower:sm_90"), *_run(_unlowered, "lower:gfx942")],
         ["cumsum does not lower where dtype is bfloat16"]),
        ([*_run(_uncompiled, "cuda"), *_run(_unlowered, "lower:sm_90")],
         ["cumsum does not lower where dtype is bfloat16"]),
        ([*_run(_uncompiled, "cuda")], ["does not compile where dtype is bfloat16"]),
        # an access that ends a case hides its wrong values
        (_run(_either(lambda n, *_: _mismatch(WRONG) if n in (32, 48) else None, _outside)),
         ["an access out of bounds: load of x_ref where n is longer than its block, 16"]),
        # two bugs
        (_run(_either(lambda n, *_: _mismatch(WRONG) if 1 < n <= 16 else None, _outside)),
         ["an access out of bounds: load of x_ref where n is longer than its block, 16",
          "wrong values where n is over 1"]),
        (_run(_either(_tail, _rounded)),
         ["wrong values where n is not a multiple of its block, 16",
          "insufficient precision, or another formula where dtype is bfloat16"]),
        ([*_run(_lost), *_run(_either(_outside, _lost), "simulate:sm_90")],
         ["an access out of bounds: load of x_ref where n is longer than its block, 16",
          "NaN where x holds a NaN"]),
        ([*_run(_tail), *_run(_unlowered, "lower:sm_90")],
         ["wrong values where n is not a multiple of its block, 16", "cumsum does not lower where dtype is bfloat16"]),
        # what does not compile does not pass either
        (_run(_either(_uncompiled, _lost), "cuda"),
         ["NaN where x holds a NaN", "does not compile where dtype is bfloat16"]),
        (_run(lambda n, dtype, group: _mismatch(WRONG) if n < 16 or (n > 16 and dtype == "float32") else None),
         ["wrong values where dtype is float32 and n is longer than its block, 16",
          "wrong values where n is shorter than its block, 16"]),
    ],
    ids=["none", "no finding", "structure", "precision", "special", "special and values", "special and precision",
         "memory", "int32", "uint32",
         "unknown memory", "build", "two tiers", "seen twice", "two targets", "target and device", "device",
         "hidden by an access", "access and values", "structure and precision", "memory and special",
         "values and build", "values beside build", "two conditions"],
)  # fmt: skip
def test_a_bug_is_one_suspect_and_two_are_two(records: list[Record], titles: list[str]) -> None:
    assert [suspect.title for suspect in _of(records)] == titles


def test_a_suspect_holds_every_finding_of_its_pairing_once() -> None:
    records = [*_run(_either(_tail, _lost)), *_run(_either(_outside, _rounded), "simulate:sm_90")]
    held_once = [record for suspect in _of(records) for record in suspect.findings]
    assert sorted(map(id, held_once)) == sorted(id(r) for r in records if r.verdict.is_finding)


def test_a_suspect_counts_what_failed_of_what_was_tried() -> None:
    (suspect,) = _of(_run(_tail))
    assert suspect.backends == {"interpret": 48}
    assert suspect.tried == {"interpret": 80}
    assert (suspect.signatures.failing, suspect.signatures.fulfilled, suspect.signatures.tried) == (12, 12, 20)


def test_what_could_not_be_run_is_not_counted_among_what_passes() -> None:
    records = _run(lambda n, *_: ("unavailable", Unavailable("no"), None) if n == 1 else _tail(n, *_))
    (suspect,) = _of(records)
    assert suspect.tried == {"interpret": 72}
    assert suspect.signatures.tried == 18


def test_an_id_lasts_when_lines_move_and_lengths_change() -> None:
    moved = _run(lambda n, *_: ("out_of_bounds", _load(n, 8), Evidence()) if n > 16 else None, "simulate:sm_90")
    fewer = [record for record in _run(_outside, "simulate:sm_90") if record.dims["n"] < 48]
    ids = {suspect.id for records in (_run(_outside, "simulate:sm_90"), moved, fewer) for suspect in _of(records)}
    assert len(ids) == 1
    assert _of(_run(_tail))[0].id not in ids


def test_a_smallest_case_belongs_to_the_suspect_it_was_made_from() -> None:
    records = _run(_either(_tail, _rounded))
    first = next(r for r in records if r.verdict.is_finding)
    tiny = case(verdict="mismatch", message="tiny", case="made", evidence=WRONG)
    born = FaultLocation("kernels/k.py:5", "x < n", "with <= in place of < the result is right", True)
    structure, precision = _of(records, Reproducer(first.case, tiny, 0, 9, True, born))
    assert structure.reproducer is not None
    assert structure.example is tiny
    assert precision.reproducer is None
    assert any("root cause: kernels/k.py:5   x < n" in line for line in describe_suspect(structure).texts)


@pytest.mark.parametrize(
    ("tested", "words"),
    [
        (("n is odd", None), "n is odd"),
        (("", "x holds a NaN"), "x holds a NaN"),
        ((None, "x holds a NaN"), "x holds a NaN and n is not a multiple of its block, 16"),
        (("k or n is odd", "x holds a NaN"), "x holds a NaN, and k or n is odd"),
        # one with exceptions gives way to one without
        (("n is odd (some such cases pass)", None), "n is not a multiple of its block, 16"),
    ],
)
def test_a_condition_by_experiment_is_said(tested: tuple[str | None, str | None], words: str) -> None:
    records = _run(_tail)
    first = next(r for r in records if r.verdict.is_finding)
    condition = ConfirmedCondition(tested[0], 9, (), tested[1])
    (suspect,) = _of(records, Reproducer(first.case, first, 0, 9, True, condition=condition))
    assert suspect.condition == words


@pytest.mark.parametrize(
    ("tested", "words"),
    [
        (None, "n is not a multiple of its block, 16"),
        (ConfirmedCondition("n is not a multiple of 4", 9, ()), "n is not a multiple of 4"),
        (ConfirmedCondition("n is odd (some such cases pass)", 9, ()), ""),
        (ConfirmedCondition("", 9, (), "x holds a zero (some such cases pass)"), ""),
    ],
)
def test_a_formula_that_is_slightly_off_has_no_condition_with_exceptions(
    tested: ConfirmedCondition | None, words: str
) -> None:
    """Its cases with wide bounds pass, which says nothing of the bug."""
    cause = MismatchCause(ErrorCause.FORMULA, 1e-6)
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=cause)
    records = _run(lambda n, *_: ("mismatch", detail, SLIGHT) if n % 16 else None)
    first = next(r for r in records if r.verdict.is_finding)
    (suspect,) = _of(records, Reproducer(first.case, first, 0, 9, True, condition=tested))
    assert suspect.title.startswith("a formula that is slightly off")
    assert suspect.condition == words


@pytest.mark.parametrize(("by", "group", "sizes"), [
    ("signature", "structural", [44, 4]), ("case", "structural", [47, 1]), ("case", "invariants", [48]),
])  # fmt: skip
def test_findings_that_do_not_fulfil_a_tested_condition_are_another_suspect(
    by: str, group: str, sizes: list[int]
) -> None:
    """They passed in the experiment, which says nothing of invariants: those only refute the condition."""
    records = _run(_tail)
    first, *_, last = [r for r in records if r.verdict.is_finding]
    moved = [replace(r, group=group) if getattr(r, by) == getattr(last, by) else r for r in records]
    condition = ConfirmedCondition("n is at most 48", 9, (getattr(last, by),))
    suspects = _of(moved, Reproducer(first.case, first, 0, 9, True, condition=condition))
    assert [len(suspect.findings) for suspect in suspects] == sizes
    assert (suspects[0].condition == "n is at most 48") is (len(sizes) > 1)


def test_of_several_smallest_cases_one_whose_condition_all_findings_fulfil_is_shown() -> None:
    records = _run(_tail)
    first, second, *_, last = [r for r in records if r.verdict.is_finding]
    records = [replace(r, group="invariants") if r is last else r for r in records]
    narrow, wide = ConfirmedCondition("n is 1", 9, (last.case,)), ConfirmedCondition("n is odd", 9, ())
    smallest = [Reproducer(first.case, first, 0, 9, True, condition=narrow)]
    smallest += [Reproducer(second.case, first, 3, 9, True, condition=wide)]
    assert [each.condition for each in _of(records, *smallest)] == ["n is odd"]


@pytest.mark.parametrize(
    ("evidence", "fault", "title"),
    [
        (NAN, FaultLocation("k.py:5", "x / y", "0 / 0 is nan", True, cause="0 / 0"), "NaN from 0 / 0"),
        (WRONG, FaultLocation("k.py:5", "x", "adding 1 fixes the result", True),
         "wrong values: adding 1 fixes the result"),
        (WRONG, FaultLocation("k.py:5", "x", "adding 1 fixes the result", False), "wrong values"),
        (NAN, FaultLocation("k.py:5", "x", "adding 1 fixes the result", True), "NaN: adding 1 fixes the result"),
        (SLIGHT, FaultLocation("k.py:5", "x", "it fixes the result", False, cause="a rounding to bfloat16"),
         "insufficient precision, or another formula from a rounding to bfloat16"),
        (SLIGHT, FaultLocation("k.py:5", "x", "adding 1 fixes the result", True),
         "insufficient precision, or another formula: adding 1 fixes the result"),
        # the smallest case shows something else
        (WRONG, FaultLocation("k.py:5", "x / y", "0 / 0 is nan", True, cause="0 / 0"), "wrong values from 0 / 0"),
        # which is no rounding, however small the error is
        (SLIGHT, FaultLocation("k.py:5", "x", "it fixes the result", True, cause=f"an int32 sum {OVERFLOWS}"),
         "wrong values from an int32 sum that overflows"),
    ],
)  # fmt: skip
def test_a_title_says_what_an_experiment_showed(evidence: Evidence, fault: FaultLocation, title: str) -> None:
    verdict, detail, _ = _mismatch(evidence)
    record = case(verdict=verdict, detail=detail, message=detail.text(), evidence=evidence)
    (suspect,) = _of([record], Reproducer(record.case, record, 0, 9, True, fault))
    assert suspect.title == title
    assert sum(fault.words in text for text in describe_suspect(suspect).texts) == 1


@pytest.mark.parametrize(
    ("relation", "title"),
    [
        (ValueRelation(RelationKind.FACTORS, axis="n"), "wrong values from a missing mask"),
        (ValueRelation(RelationKind.OPPOSITE), "wrong values: each has the opposite sign"),
    ],
)
def test_a_cause_says_more_than_that_a_row_is_off_by_a_factor(relation: ValueRelation, title: str) -> None:
    verdict, detail, _ = _mismatch(WRONG)
    record = case(verdict=verdict, detail=detail, message=detail.text(), evidence=WRONG)
    fault = FaultLocation("k.py:5", "x", "it fixes the result", True, cause="a missing mask")
    confirmed = ConfirmedRelation(relation, 1, 1)
    (suspect,) = _of([record], Reproducer(record.case, record, 0, 9, True, fault, relation=confirmed))
    assert suspect.title == replace(suspect, everywhere=True).title == title


@pytest.mark.parametrize(
    ("relation", "edit"),
    [(ValueRelation(RelationKind.CONSTANT, number=7), ": adding 1 fixes the result"),
     (ValueRelation(RelationKind.OPPOSITE), "")],
)  # fmt: skip
def test_a_title_quotes_an_edit_if_it_otherwise_only_says_what_the_numbers_are(
    relation: ValueRelation, edit: str
) -> None:
    verdict, detail, _ = _mismatch(WRONG)
    record = case(verdict=verdict, detail=detail, message=detail.text(), evidence=WRONG)
    fault, confirmed = (
        FaultLocation("k.py:5", "x", "adding 1 fixes the result", True),
        ConfirmedRelation(relation, 1, 1),
    )
    (suspect,) = _of([record], Reproducer(record.case, record, 0, 9, True, fault, relation=confirmed))
    assert suspect.title == f"wrong values: {relation.text()}{edit}"


@pytest.mark.parametrize("special", [Effect.NUMBER_FOR_INFINITY, Effect.NAN])
@pytest.mark.parametrize("wrong", [1, 0])
def test_wrong_special_values_are_wrong_values_if_other_numbers_are_wrong(wrong: int, special: Effect) -> None:
    effects = [special] * 4 + [Effect.WRONG] * wrong
    findings = [(case(verdict="mismatch"), Symptom(Level.STRUCTURE, each)) for each in effects]
    assert FindingCluster(Level.STRUCTURE, findings).kind == (Effect.WRONG if wrong else special, "")


def test_a_title_states_when_before_it_quotes_an_edit() -> None:
    records = _run(_tail)
    first = next(record for record in records if record.verdict.is_finding)
    fault = FaultLocation("k.py:5", "x", "adding 1 fixes the result", True)
    (suspect,) = _of(records, Reproducer(first.case, first, 0, 9, True, fault))
    assert suspect.title == "wrong values where n is not a multiple of its block, 16: adding 1 fixes the result"


@pytest.mark.parametrize("records", [_run(_tail), _run(_outside, "simulate:sm_90"), _run(_unlowered, "lower:sm_90")])
def test_a_suspect_is_told_in_at_most_twelve_lines(records: list[Record]) -> None:
    (suspect,) = _of(records)
    lines = describe_suspect(suspect, "report").texts
    assert len(lines) <= 12
    assert lines[0].startswith(suspect.title)
    assert " of " in lines[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("kernel k: (1, 17) is not", "kernel k: (1, 9) is not"),
        ("3 of 4 at [2, 1]: got 3.5e-7", "31 of 64 at [5]: got -2"),
        ("tensor<4x8xbf16> and 3", "tensor<2xf32> and 7"),
    ],
)
def test_messages_that_say_the_same_are_alike(one: str, other: str) -> None:
    assert without_numbers(one) == without_numbers(other)


@pytest.mark.parametrize(
    ("dtypes", "dtype", "words"),
    [
        (("bfloat16",), "bfloat16", "a rounding to bfloat16"),
        (("bfloat16", "float16"), "bfloat16", "a rounding to the dtype"),
        (("bfloat16", "float16"), "float16", "a rounding to bfloat16"),
    ],
)
def test_a_rounding_to_the_dtype_of_each_case_is_named_by_none(dtypes: Sequence[str], dtype: str, words: str) -> None:
    records = _run(lambda *_: _mismatch(SLIGHT), dtypes=dtypes)
    smallest = replace(records[0], dtype=dtype)
    fault = FaultLocation("k.py:5", "x", "it fixes the result", True, cause="a rounding to bfloat16")
    (suspect,) = _of(records, Reproducer(records[0].case, smallest, 0, 9, True, fault))
    assert suspect.headline.endswith(f" from {words}")


def test_a_pass_makes_no_suspect() -> None:
    assert not find_suspects([case(verdict=Verdict.XFAIL), case(verdict=Verdict.UNAVAILABLE, case="c2")], {})
