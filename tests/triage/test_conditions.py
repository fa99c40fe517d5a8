"""Conditions: what failing signatures and cases have in common, said if it holds for each and not by chance."""

from collections.abc import Sequence

import pytest

from kerneltest.records.evidence import FillExtent, SpecialInput, SpecialValue
from kerneltest.triage.conditions import (
    Features,
    input_condition,
    signature_condition,
    signatures_tried,
    terms,
    two_conditions,
)
from kerneltest.triage.symptoms import Level
from tests.written import case

BLOCKS = {"n": 16}
Sizes = dict[str, int | str]  # lengths by dim, static arguments, and "t", a static argument that is a whole number


def _inputs(argument: str, *values: SpecialValue, part: FillExtent = FillExtent.SOME) -> tuple[SpecialInput, ...]:
    return tuple(SpecialInput(argument, value, part) for value in values)


X_NAN, Y_NAN = _inputs("x", SpecialValue.NAN), _inputs("y", SpecialValue.NAN)
X_INF, X_PLUS = _inputs("x", SpecialValue.NEGATIVE_INFINITY), _inputs("x", SpecialValue.POSITIVE_INFINITY)
ROW_INF = _inputs("x", SpecialValue.NEGATIVE_INFINITY, part=FillExtent.ROW)
ROW_ZERO = _inputs("x", SpecialValue.ZERO, part=FillExtent.ROW)


@pytest.mark.parametrize(
    ("failing", "passing", "words", "exact"),
    [
        ([{"n": 17}, {"n": 33}], [{"n": 16}, {"n": 32}], "n is not a multiple of its block, 16", True),
        ([{"n": 16, "d": "a"}, {"n": 17, "d": "a"}], [{"n": 16, "d": "b"}, {"n": 17, "d": "b"}], "d is a", True),
        ([{"b": 2}, {"b": 3}, {"b": 4}], [{"b": 1}, {"b": 0}], "b is over 1", True),
        ([{"n": 3}, {"n": 5}, {"n": 6}], [{"n": 4}, {"n": 8}, {"n": 2}], "n is not a power of two", True),
        ([{"n": 3, "m": 5}, {"n": 5, "m": 3}], [{"n": 5, "m": 5}, {"n": 3, "m": 3}, {"n": 4, "m": 4}, {"n": 1, "m": 1}],
         "n differs from m", True),
        ([{"n": 3, "m": 1}, {"n": 1, "m": 5}, {"n": 3, "m": 3}, {"n": 2, "m": 7}],
         [{"n": 1, "m": 1}, {"n": 4, "m": 1}, {"n": 2, "m": 8}, {"n": 1, "m": 4}],
         "n or m is not a power of two", True),
        ([{"n": 17, "d": "a"}, {"n": 33, "d": "a"}],
         [{"n": 17, "d": "b"}, {"n": 16, "d": "a"}, {"n": 33, "d": "b"}, {"n": 32, "d": "a"}],
         "d is a and n is not a multiple of its block, 16", True),
        ([{"n": 1}, {"n": 64}], [{"n": 16}, {"n": 32}, {"n": 17}, {"n": 33}], "", False),
        ([{"n": 16}], [], "", False),
        ([{"d": "b"}, {"d": "d"}] * 3, [{"d": "a"}, {"d": "c"}] * 3, "d is b or d", True),
        # between two lengths that were tried, what is said is true of the longer one; 1 is a limit of its own
        ([{"b": 99}, {"b": 129}, {"b": 300}], [{"b": 1}, {"b": 2}, {"b": 65}], "b is at least 99", True),
        ([{"b": 9}, {"b": 29}, {"b": 33}], [{"b": 0}, {"b": 1}], "b is over 1", True),
        # the longest signature is asked little, so that no condition rests on its passing
        ([{"b": 3}, {"b": 9}, {"b": 29}], [{"b": 999}], "", False),
        # a static argument that is a whole number is compared with lengths
        ([{"n": 5, "t": 4}, {"n": 9, "t": 8}, {"n": 17, "t": 16}],
         [{"n": 4, "t": 4}, {"n": 9, "t": 16}, {"n": 7, "t": 8}, {"n": 3, "t": 4}], "n is longer than t", True),
        # as where half of a row is rotated, or both halves are one gate
        ([{"h": 1, "d": 4}, {"h": 2, "d": 6}, {"h": 3, "d": 8}, {"h": 1, "d": 6}],
         [{"h": 1, "d": 2}, {"h": 2, "d": 4}, {"h": 3, "d": 6}, {"h": 4, "d": 8}], "d is more than twice h", True),
        # a kernel may flatten two dims
        ([{"c": 3, "s": 5}, {"c": 5, "s": 8}, {"c": 1, "s": 40}, {"c": 24, "s": 3}, {"c": 3, "s": 16},
          {"c": 7, "s": 5}],
         [{"c": 4, "s": 8}, {"c": 16, "s": 2}, {"c": 3, "s": 32}, {"c": 1, "s": 64}, {"c": 32, "s": 5}],
         "c * s is not a multiple of 32", True),
        # true of one passing signature too: it is said, with its counts, and is not exact
        ([{"d": "a"}] * 4, [{"d": "a"}, *[{"d": "b"}] * 4], "d is a", False),
        # many conditions fit a single signature
        ([{"n": 39}], [{"n": 16}, {"n": 17}, {"n": 48}, {"n": 64}], "", False),
        # the longest signature is asked little: that it passes is no second condition
        ([{"n": 17}, {"n": 33}, {"n": 39}], [{"n": 16}, {"n": 8}, {"n": 1}, {"n": 2049}],
         "n is longer than its block, 16", False),
    ],
)  # fmt: skip
def test_a_condition_separates_what_fails_from_what_passes(
    failing: list[Sizes], passing: list[Sizes], words: str, exact: bool
) -> None:
    found = signature_condition(_features(failing), _features(passing), BLOCKS)
    assert found.words == words
    assert found.exact is exact
    assert found.failing == len(failing)


@pytest.mark.parametrize(
    ("covered", "words"),
    [([{"n": 64}], "n is longer than its block, 16"), ([{"n": 3}], "")],
    ids=["holds", "does not hold"],
)
def test_a_condition_holds_for_the_smallest_case_and_on_other_backends(covered: list[Sizes], words: str) -> None:
    failing, passing = _features([{"n": n} for n in (17, 32, 33, 48)]), _features([{"n": n} for n in (1, 8, 15, 16)])
    assert signature_condition(failing, passing, BLOCKS, _features(covered)).words == words


@pytest.mark.parametrize(
    ("unsure", "words"),
    [([], "n is not a multiple of its block, 16"), ([{"n": 1}, {"n": 3}], "n is longer than its block, 16")],
)
def test_of_two_conditions_the_one_that_fewer_hidden_signatures_fulfil_is_stated(
    unsure: list[Sizes], words: str
) -> None:
    failing, passing = _features([{"n": n} for n in (17, 33, 39)]), _features([{"n": 16}] * 3)
    assert signature_condition(failing, passing, BLOCKS, (), _features(unsure)).words == words


def _features(signatures: Sequence[Sizes]) -> list[Features]:
    return [
        Features({k: v for k, v in s.items() if isinstance(v, int) and k != "t"},
                 {k: v for k, v in s.items() if not isinstance(v, int) or k == "t"})
        for s in signatures
    ]  # fmt: skip


def test_a_kernel_without_arrays_has_conditions() -> None:
    signatures = [Features({"n": n}, {"dtype": "static"}) for n in (3, 17)]
    held = {term.words for term in terms(signatures, BLOCKS, thorough=True) if term.holds(signatures[0])}
    assert {"dtype is static", "n is odd"} <= held


def test_few_signatures_are_not_split_by_conditions() -> None:
    failing: list[Sizes] = [{"n": 1, "m": 64}, {"n": 64, "m": 1}]
    passing: list[Sizes] = [{"n": 16, "m": 16}, {"n": 32, "m": 32}]
    assert two_conditions(_features(failing), _features(passing), BLOCKS) is None


@pytest.mark.parametrize(
    ("asked", "counts"),
    [(("ones", "ties", "normal"), True), (("ones",), True), (("normal",), False), (("nan_first",), False)],
)
def test_a_signature_passes_only_if_it_was_asked_what_shows_the_failure(asked: Sequence[str], counts: bool) -> None:
    """`ones` shows it in each of four signatures, `normal` in one of them, and `nan_first` never."""
    families = ("ones", "ties", "normal", "nan_first")
    findings, passes = [], []
    for n in (1, 2, 3, 4):
        for family in families:
            place = dict(signature=f"n={n}", case=f"{n} {family}", dims={"n": n}, family=family, group="numeric")
            if family in ("ones", "ties") or (family, n) == ("normal", 1):
                findings.append(case(**place, verdict="mismatch"))
            else:
                passes.append(case(**place))
    long = [case(signature="n=99", case=f"99 {each}", dims={"n": 99}, family=each, group="numeric") for each in asked]
    tried = signatures_tried([*findings, *passes, *long], findings, Level.STRUCTURE, {})
    assert ("n=99" in tried) is counts


@pytest.mark.parametrize(
    ("failing", "passing", "words"),
    [
        ([X_NAN] * 2, [()] * 20, "x holds a NaN"),
        ([X_NAN], [()], ""),
        ([X_NAN, Y_NAN], [()] * 20, "x or y holds a NaN"),
        ([X_NAN, ()], [()] * 20, ""),
        ([X_NAN] * 2, [X_NAN] * 2, ""),
        ([X_INF + ROW_INF] * 4, [*[X_INF] * 3, *[()] * 20], "a row of x holds nothing but -inf"),
        ([X_INF + ROW_INF] * 4, [()] * 20, "x holds -inf"),
        ([ROW_ZERO] * 4, [()] * 20, "a row of x holds nothing but zeros"),
        ([X_PLUS] * 4, [*[X_PLUS + X_NAN] * 9, *[()] * 20], "x holds +inf and no NaN"),
        # that no number is negative says little
        ([X_PLUS] * 4, [*[X_PLUS + _inputs("x", SpecialValue.NEGATIVE)] * 9, *[()] * 20], ""),
    ],
)  # fmt: skip
def test_what_failing_inputs_hold_is_said_if_passing_ones_do_not(
    failing: list[tuple[SpecialInput, ...]], passing: list[tuple[SpecialInput, ...]], words: str
) -> None:
    assert input_condition(failing, passing).words == words


@pytest.mark.parametrize(("smallest", "words"), [(X_NAN, "x holds a NaN"), (X_INF, "")])
def test_a_condition_on_inputs_holds_for_the_smallest_case(smallest: tuple[SpecialInput, ...], words: str) -> None:
    assert input_condition([X_NAN] * 4, [()] * 20, [smallest]).words == words
