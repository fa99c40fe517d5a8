"""Conditions on inputs: the special values that all failing cases have, and that passing ones lack."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kerneltest.records.evidence import FillExtent, SpecialInput, SpecialValue
from kerneltest.triage.predicates import MOST_EXCEPTIONS, Condition

_CHANCE = 0.02  # probability that as many cases share a special value by chance, up to which it is believed
_ABSENT = (SpecialValue.NAN, SpecialValue.POSITIVE_INFINITY, SpecialValue.NEGATIVE_INFINITY)  # their lack is telling
_PARTS = list(FillExtent)  # from the weakest claim to the strongest
_VALUES = list(SpecialValue)  # the more telling ones first


def input_condition(
    failing: Sequence[Sequence[SpecialInput]],
    passing: Sequence[Sequence[SpecialInput]],
    covered: Sequence[Sequence[SpecialInput]] = (),
) -> Condition:
    """Returns the special input that all failing cases and fewest passing ones have, and another that they all lack.

    Args:
      failing, passing: the special values among each case's inputs.
      covered: those of further failing cases, such as on other backends, which must fulfil it and are not counted.
    """
    count = len(failing) + len(passing)
    none = Condition("", len(failing), count, count)
    bad, good, more = ([frozenset(_with_general(each)) for each in cases] for cases in (failing, passing, covered))
    if not bad or not good:
        return none
    common = sorted(frozenset.intersection(*bad, *more), key=_preference)
    if not common:
        return none
    best = min(common, key=lambda found: sum(found in each for each in good))
    others: Sequence[frozenset[SpecialInput]] = [each for each in good if best in each]
    words = best.text()
    lacking, without = _lacked(best, [*bad, *more], others)
    if lacking is not None:
        words, others = f"{words} and {lacking.text_of_absence()}", without
    left = len(others)
    if left > MOST_EXCEPTIONS * (len(failing) + left) or ((len(failing) + left) / count) ** len(failing) > _CHANCE:
        return none
    return Condition(words, len(failing), len(failing) + left, count)


def _lacked(
    best: SpecialInput, failing: Sequence[frozenset[SpecialInput]], others: Sequence[frozenset[SpecialInput]]
) -> tuple[SpecialInput | None, Sequence[frozenset[SpecialInput]]]:
    """Returns a special input that most passing cases and no failing one have, and the passing cases without it."""
    known = sorted({each for case in others for each in case if each.value in _ABSENT}, key=_preference)
    absent = [
        each
        for each in known
        if each.part is FillExtent.SOME and each.argument == best.argument and not any(each in case for case in failing)
    ]
    if not absent:
        return None, others
    lacking = max(absent, key=lambda each: sum(each in case for case in others))
    left = [case for case in others if lacking not in case]
    return (lacking, left) if len(others) - len(left) > len(others) / 2 else (None, others)


def _with_general(found: Sequence[SpecialInput]) -> Iterator[SpecialInput]:
    """Yields special inputs, and the same ones in whichever argument."""
    for each in found:
        yield each
        yield replace(each, argument="")


def _preference(found: SpecialInput) -> tuple[bool, int, int, str]:
    """Returns the order among special inputs that fit equally well: named arguments first, the weaker claim first."""
    return not found.argument, _VALUES.index(found.value), _PARTS.index(found.part), found.argument
