"""Suspects as text: short numbers, wrapped lines, and the bug of a lowering that explains one."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from kerneltest.core.details import ErrorCause, Mismatch, MismatchCause, Stated
from kerneltest.judge.mismatch_evidence import format_array
from kerneltest.records.evidence import BudgetPart, Evidence, RelationKind, ValueRelation, format_pair
from kerneltest.records.run_plan import PairingSummary, source_of
from kerneltest.records.schema import ConfirmedRelation, Reproducer
from kerneltest.report.text.lines import Line, LineKind
from kerneltest.report.text.suspect_text import describe_suspect, format_suspects, name_function
from kerneltest.triage.suspects import Suspect, find_suspects
from tests.written import PAIRING, case

NAN = float("nan")


@pytest.mark.parametrize(
    ("got", "expected", "shown"),
    [
        (0.1 + 0.2, 1.0, ("0.3", "1")),
        (1.17e31, -2.5e-7, ("1.17e+31", "-2.5e-07")),
        (0.999995, 0.9999995, ("0.999995", "1")),
        (123456.0, 123457.0, ("123456", "123457")),
        (2147483647, -1, ("2147483647", "-1")),
        (True, False, ("True", "False")),
        (NAN, 0.0, ("nan", "0")),
        (1.0, 1.0, ("1", "1")),
    ],
)
def test_numbers_have_four_digits_or_as_many_as_differ(got: float, expected: float, shown: tuple[str, str]) -> None:
    assert format_pair(got, expected) == shown


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([0, 7], np.int32), "int32[2] [0 7]"),
        (np.array([0, 7], np.float32), "float32[2] [0. 7.]"),
        (np.array([True, False]), "bool[2] [ True False]"),
        (np.zeros((1, 33), np.float32), "float32[1, 33] all 0"),
        (np.eye(1, 33, 32, dtype=np.float32), "float32[1, 33] all 0 but 1 at [0, 32]"),
        (np.eye(2, 9, dtype=np.int8), "int8[2, 9] all 0 but 1 at [0, 0], 1 at [1, 1]"),
        (np.arange(9) < 8, "bool[9] all True but False at [8]"),
        (np.array([0.0] * 8 + [-0.0]), "float64[9] all 0 but -0 at [8]"),
        (np.array([NAN] * 8 + [0.1]), "float64[9] all nan but 0.1 at [8]"),
        (np.arange(9), "int64[9] [0 1 2 3 4 5 6 7 8]"),
    ],
)
def test_arrays_are_short_and_integers_are_shown_as_integers(values: np.ndarray, text: str) -> None:
    assert format_array(values) == text


@pytest.mark.parametrize(
    ("kind", "text", "width", "shown"),
    [
        ("TITLE", "1  NaN where n is 3", None, ["1  NaN where n is 3"]),
        ("PLAIN", "     got nan, expected 0 at all", 24, ["     got nan, expected 0", "         at all"]),
        ("COMMAND", "   kerneltest repro report 52c867ebd8654d59", 20, ["   kerneltest repro report 52c867ebd8654d59"]),
        ("NOTE", "   root cause: k.py:5   aaaaaaaaaaaaaaaa", 30, ["   root cause: k.py:5", "       aaaaaaaaaaaaaaaa"]),
    ],
)  # fmt: skip
def test_lines_are_wrapped_with_a_hanging_indent(kind: str, text: str, width: int | None, shown: list[str]) -> None:
    assert [line.text for line in Line(LineKind[kind], text).wrapped(width)] == shown


def _suspect(evidence: Evidence, *sizes: float | None, backend: str = "interpret") -> Suspect:
    records = []
    for number, size in enumerate(sizes or (None,)):
        cause = MismatchCause(ErrorCause.FORMULA, size) if size is not None else None
        detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=cause)
        records.append(case(verdict="mismatch", case=f"c{number}", backend=backend, detail=detail, evidence=evidence))
    (suspect,) = find_suspects(records, {})
    return suspect


@pytest.mark.parametrize(
    ("sizes", "actual", "title"),
    [
        ((1e-6, 4.5e-6), 1.001, "a formula that is slightly off (by up to 4.5e-06 of the largest value)"),
        ((*[1e-3] * 19, 0.7), 1.001, "a formula that is slightly off (mostly by less than 0.001 of the largest value)"),
        ((1e-3, 0.5), 1.001, "wrong values"),
        ((1e-3, None), 3.0, "wrong values"),
        ((1e-6, 4.5e-6), -1.0, "wrong values"),  # of the largest value, and all of a small one
    ],
)
def test_a_formula_that_is_slightly_off_says_by_how_much(
    sizes: tuple[float | None, ...], actual: float, title: str
) -> None:
    evidence = Evidence(index=(0,), actual=actual, expected=1.0, wrong_blocks=(1, 1))
    assert _suspect(evidence, *sizes).title == title


ROUNDED = MismatchCause(ErrorCause.CONSTANT, None, constants=("0.1 is rounded to bfloat16",))


@pytest.mark.parametrize(
    ("verdict", "detail", "title"),
    [
        ("runtime_error", Stated("There are 2 mismatches, including:\n  * at x, a list\n  * at y, a tuple"),
         "runtime_error: There are 2 mismatches, including: * at x, a list"),
        ("mismatch", Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=ROUNDED),
         "insufficient precision: 0.1 is rounded to bfloat16"),
    ],
)  # fmt: skip
def test_a_title_names_the_first_of_what_is_listed(verdict: str, detail: Stated | Mismatch, title: str) -> None:
    evidence = Evidence(index=(0,), actual=1.001, expected=1.0, wrong_blocks=(1, 1))
    (suspect,) = find_suspects([case(verdict=verdict, detail=detail, message=detail.text(), evidence=evidence)], {})
    assert suspect.title == title


ONE, TWO, OTHER = (f"{number} is rounded to bfloat16" for number in (0.1, 0.7, 0.3))


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ([(ONE, TWO), (TWO,), (ONE, TWO), (OTHER,)], f": {TWO} and {ONE}"),
        ([(ONE,), (TWO,)], f": {ONE} and {TWO}"),
        ([(ONE,), (ONE,), ()], ""),
    ],
    ids=["what one finding names fits by chance", "of one each", "one finding has another cause"],
)
def test_a_title_names_constants_that_differ_from_finding_to_finding(
    constants: Sequence[tuple[str, ...]], words: str
) -> None:
    evidence = Evidence(index=(0,), actual=1.001, expected=1.0, wrong_blocks=(1, 1))
    causes = (MismatchCause(ErrorCause.CONSTANT, None, constants=each) for each in constants)
    details = (Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=cause) for cause in causes)
    records = [case(verdict="mismatch", detail=each, case=f"c{n}", evidence=evidence) for n, each in enumerate(details)]
    (suspect,) = find_suspects(records, {})
    assert suspect.title == f"insufficient precision{words}"


def test_an_integer_is_never_slightly_off() -> None:
    assert _suspect(Evidence(index=(0,), actual=-128, expected=-127), 0.0079).title == "wrong values"


@pytest.mark.parametrize(
    ("backend", "otherwise", "known"),
    [("simulate:sm_90", ("maximum",), True), ("simulate:sm_90", (), False), ("interpret", ("maximum",), False)],
)
def test_a_known_bug_follows_the_headline_with_a_link(backend: str, otherwise: tuple[str, ...], known: bool) -> None:
    suspect = _suspect(Evidence(index=(0,), actual=0.0, expected=NAN, otherwise=otherwise), backend=backend)
    second = describe_suspect(suspect).texts[1]
    assert second.startswith("known: jnp.maximum drops NaN") is known
    assert ("https://github.com/" in second) is known


@pytest.mark.parametrize(
    ("verdict", "message", "shown"),
    [
        ("crash", "the process died while evaluating the oracle: Aborted", ["e.g. m=3,k=70,float32"]),
        ("runtime_error", "the kernel raised for m=3,k=70,float32: too short", []),
        ("runtime_error", "first line\nsecond line", ["e.g. m=3,k=70,float32"]),
    ],
)
def test_nothing_is_told_twice(verdict: str, message: str, shown: list[str]) -> None:
    finding = case(verdict=verdict, message=message, signature="m=3,k=70,float32")
    (suspect,) = find_suspects([finding], {})
    first, *others = describe_suspect(suspect).texts
    assert first.startswith(f"{verdict}: {message.partition(chr(10))[0]}")
    assert others == shown


def test_suspects_fit_the_terminal() -> None:
    arguments = {"x": f"float32[99] {'1.5 ' * 99}"}
    suspect = _suspect(Evidence(index=(0,), actual=3.0, expected=1.0, arguments=arguments))
    shown = [line.text for line in format_suspects([suspect], {}, "report", 60)]
    assert max(map(len, shown)) <= 60
    assert shown[0] == f"1 suspect in {PAIRING}"
    assert shown[1].startswith("1  wrong values")
    assert all(not line or line.startswith(("1  ", "   ")) for line in shown[1:])
    _, *narrow = (line.text for line in format_suspects([suspect], {}, "report", 32))
    assert narrow[:2] == ["1  wrong values", "   1 of 1 cases on interpret"]


def test_of_many_inputs_those_that_hold_something_are_shown() -> None:
    values = {name: np.zeros(size, np.float32) for size, name in enumerate("abcde", 1)} | {"keep": np.array([[True]])}
    values |= {"x": np.array([[NAN]]), "y": np.ones(9)}
    arguments = {name: format_array(value) for name, value in values.items()}
    suspect = _suspect(Evidence(index=(0,), actual=3.0, expected=1.0, arguments=arguments))
    shown = re.findall(r"(\w+) = ", " ".join(describe_suspect(suspect).texts))
    assert len(shown) == 5
    assert "x" in shown


def _helper(x: int) -> int:
    return x


def _kernel(x: int) -> int:
    return _helper(x)


def _oracle(x: int) -> int:
    return _helper(x)


def test_a_head_names_the_function_that_is_paired_and_its_pairing() -> None:
    declared = PairingSummary({}, source_of(_kernel), source_of(_oracle))
    place = f"test_suspect_text.py:{_kernel.__code__.co_firstlineno}), pairing t.py::one"
    assert re.fullmatch(rf"_kernel \(\S*{re.escape(place)}", name_function("t.py::one", declared))
    assert name_function("t.py::one", declared, of_oracle=True).startswith("oracle _oracle (")
    assert name_function("t.py::one", None) == "t.py::one"


def test_suspects_are_numbered_through_the_run_and_an_oracle_s_error_is_under_its_name() -> None:
    wrong, other, broken = (
        case(verdict=verdict, pairing=f"t.py::{name}", item=f"t.py::{name}[x]", case=name, detail=Stated(name))
        for name, verdict in (("one", "mismatch"), ("other", "mismatch"), ("broken", "oracle_error"))
    )
    summary = PairingSummary({}, source_of(_kernel), source_of(_oracle))
    declared = dict.fromkeys(("t.py::one", "t.py::broken"), summary)
    suspects = find_suspects([wrong, other, broken], {})
    texts = [line.text for line in format_suspects(suspects, declared)]
    numbers = [text[0] for text in texts if re.match(r"\d  ", text)]
    assert numbers == ["1", "2", "3"]
    assert sum(text.startswith("1 suspect in oracle _oracle (") for text in texts) == 1
    assert sum(text.startswith("1 suspect in _kernel (") for text in texts) == 1


@pytest.mark.parametrize(
    ("output", "gradient_of", "shown"),
    [(0, "", "  got 3, expected 1"), (1, "", "  output 1: got 3, expected 1"), (1, "y", "  by y: got 3, expected 1")],
)
def test_a_suspect_says_which_output_is_wrong(output: int, gradient_of: str, shown: str) -> None:
    detail = Mismatch("", output, gradient_of, 1, 4, "", (0,), "", "off")
    evidence = Evidence(output=output, index=(0,), actual=3.0, expected=1.0)
    (suspect,) = find_suspects([case(verdict="mismatch", detail=detail, evidence=evidence)], {})
    assert shown in describe_suspect(suspect).texts


@pytest.mark.parametrize(("cause", "is_shown"), [(ErrorCause.ROUNDING, True), (ErrorCause.FORMULA, False)])
def test_the_parts_of_a_bound_are_shown_where_rounding_is_the_matter(cause: ErrorCause, is_shown: bool) -> None:
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=MismatchCause(cause, 3.0))
    evidence = Evidence(index=(0,), actual=1.01, expected=1.0)
    budget = (BudgetPart("rounding of `np.exp(x)`", "test_exp.py", 9, 0.97),)
    finding = case(verdict="mismatch", detail=detail, message=detail.text(), evidence=evidence, error_budget=budget)
    (suspect,) = find_suspects([finding], {})
    shown = "  the bound: 97% rounding of `np.exp(x)` (test_exp.py:9)" in describe_suspect(suspect).texts
    assert shown is is_shown


@pytest.mark.parametrize(
    ("got", "expected", "relation", "title"),
    [
        (-2.0, 2.0, ValueRelation(RelationKind.OPPOSITE), "wrong values: each has the opposite sign"),
        (1.001, 1.0, ValueRelation(RelationKind.NARROW, name="bfloat16"), "wrong values: each is a bfloat16 number"),
        (np.nan, 2.0, ValueRelation(RelationKind.UNWRITTEN), "unwritten elements"),
        (2.0, -np.inf, ValueRelation(RelationKind.CHANGE, "x"),
         "a number in place of an infinity: each is the value of x"),
    ],
)  # fmt: skip
def test_a_title_says_once_what_wrong_elements_hold(
    got: float, expected: float, relation: ValueRelation, title: str
) -> None:
    evidence = Evidence(index=(0,), actual=got, expected=expected, wrong_blocks=(1, 1), diagnosis=relation.text())
    detail = Mismatch("", 0, "", 1, 4, "", (0,), "", "off", cause=MismatchCause(ErrorCause.FORMULA, 1e-3))
    record = case(verdict="mismatch", detail=detail, evidence=evidence)
    smallest = Reproducer(record.case, record, 1, 1, True, relation=ConfirmedRelation(relation, 3, 2))
    (suspect,) = find_suspects([record], {}, [smallest])
    assert suspect.title == title
    assert not any(relation.text() in line for line in describe_suspect(suspect).details)
