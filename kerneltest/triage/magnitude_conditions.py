"""Conditions on the magnitudes of inputs: the range in which all failing cases have a number, and passing ones none."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from kerneltest.records.magnitudes import HIGHEST, LOWEST
from kerneltest.records.schema import Record
from kerneltest.triage.predicates import Condition

_COUNT = HIGHEST - LOWEST + 1
_CHANCE = 1e-4  # probability that all failing cases are in a range by chance, of which there are many to choose from
_MOST_EXCEPTIONS = 0.1  # share of passing cases among those that have a number in the range


@dataclass(frozen=True, slots=True)
class _Range:
    """Numbers of an argument from one binade to another, of one sign or both.

    Attributes:
      argument: the path of the argument.
      sign: "+", "-", or "" for both.
      first, last: the numbers of the binades.
    """

    argument: str
    sign: str
    first: int
    last: int

    @property
    def bits(self) -> int:
        return (2 << self.last) - (1 << self.first)

    @property
    def is_open(self) -> bool:
        """True if the range has no other end than zero or infinity."""
        return self.first == 0 or self.last == _COUNT - 1

    def text(self) -> str:
        """`x holds a number of magnitude 256 or more`."""
        low, high = (f"{2.0 ** (binade + LOWEST):.4g}" for binade in (self.first, self.last + 1))
        if self.last == _COUNT - 1:
            words = {"": f"of magnitude {low} or more", "+": f"of {low} or more", "-": f"of -{low} or less"}[self.sign]
        elif self.first == 0:
            words = {"": f"of magnitude below {high}", "+": f"between 0 and {high}", "-": f"between -{high} and 0"}[
                self.sign
            ]
        else:
            words = {
                "": f"of magnitude {low} to {high}",
                "+": f"from {low} to {high}",
                "-": f"from -{high} to -{low}",
            }[self.sign]
        return f"{self.argument} holds a number {words}"


def magnitude_condition(
    failing: Sequence[Record], passing: Sequence[Record], smallest: Record, covered: Sequence[Record] = ()
) -> Condition:
    """Returns the range of magnitudes in which all failing cases and fewest passing ones have a number.

    Of two, the open one is preferred, and then the narrower one. Nothing is said if the smallest case, whose numbers
    were replaced by zeros and ones where that changes nothing, has no number in the range.

    Args:
      failing, passing: cases of one backend.
      smallest: the smallest failing case.
      covered: further failing cases, such as on other backends, which must fulfil it and are not counted.
    """
    count = len(failing) + len(passing)
    none = Condition("", len(failing), count, count)
    if not failing or not passing:
        return none
    fitting = []
    known = [[_masks(each) for each in cases] for cases in ([*failing, *covered], passing)]
    for (argument, sign), own in _masks(smallest).items():
        bad, good = (Counter(each.get((argument, sign), 0) for each in cases) for cases in known)
        for each in _ranges(argument, sign, own, reduce(or_, bad)):
            if all(mask & each.bits for mask in bad):
                left = sum(number for mask, number in good.items() if mask & each.bits)
                fitting.append((left, not each.is_open, bool(sign), each.last - each.first, each.text()))
    if not fitting:
        return none
    left, *_, words = min(fitting)
    fulfilled = len(failing) + left
    if left > _MOST_EXCEPTIONS * fulfilled or (fulfilled / count) ** len(failing) > _CHANCE:
        return none
    return Condition(words, len(failing), fulfilled, count)


def _masks(record: Record) -> Mapping[tuple[str, str], int]:
    """Returns the binades of a record's inputs, by argument and sign."""
    found: dict[tuple[str, str], int] = {}
    for each in record.magnitudes:
        found[each.argument, ""] = each.positive | each.negative
        found[each.argument, "+"], found[each.argument, "-"] = each.positive, each.negative
    return found


def _ranges(argument: str, sign: str, own: int, bad: int) -> Iterator[_Range]:
    """Yields ranges with a number of the smallest case, whose ends are binades of failing cases, or open."""
    ends = [binade for binade in range(_COUNT) if bad >> binade & 1]
    for first in [0, *ends]:
        for last in [*ends, _COUNT - 1]:
            each = _Range(argument, sign, first, last)
            if first <= last and own & each.bits and (first, last) != (0, _COUNT - 1):
                yield each
