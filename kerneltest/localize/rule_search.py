"""The search for the rule that decides whether something fails, by trials chosen to tell rules apart.

A rule is a conjunction of properties that all failing subjects have. Subjects are tried one after another, each chosen
since the rules that fit so far predict different results for it: a threshold is found by bisection, a remainder by its
true modulus, and a conjunction is believed only if each of its halves alone was refuted. Then a few more subjects must
fail, or pass, as predicted. Limits count trials.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kerneltest.triage.conditions import is_believable

_RIVALS = 80  # rules that a trial is to tell apart
_VERIFIED = 2  # further subjects that must fail, and that must pass
_MOST_OF_NEARLY_FITTING = 12  # further subjects that are tried if every rule has exceptions
_MOST_PAIRED = 150  # properties that are tried in pairs

P = TypeVar("P")  # a property


@dataclass(frozen=True, slots=True)
class Rule(Generic[P]):
    """A conjunction of properties.

    Attributes:
      parts: the properties.
      cost: of two rules that fit equally well, the one of lower cost is believed.
      bits: the numbers of the subjects that have all of the properties, as bits.
    """

    parts: tuple[P, ...]
    cost: int
    bits: int


class RuleSearch(Generic[P]):
    """The search for the rule of the subjects that fail; `failing` and `passing` are their numbers, as bits."""

    def __init__(
        self,
        properties: Iterable[tuple[P, int, int]],
        kinds: Sequence[Hashable],
        fails: Callable[[int], bool | None],
        most_tried: int,
        *,
        pairs_have_exceptions: bool = False,
    ) -> None:
        """Makes a search that knows nothing yet.

        Each property has a cost, and the subjects that have it as bits; they are asked for once something passes. A
        rule is checked on kinds of subjects that were not tried, if any. `fails` is None if a subject says nothing.
        Rules of two properties may have exceptions, like those of one, if `pairs_have_exceptions` says so.
        """
        self._kinds, self._fails, self._most_tried = kinds, fails, most_tried
        self._properties, self._pairs_have_exceptions = properties, pairs_have_exceptions
        self.failing = self.passing = self._skipped = 0
        self.tried = 0

    @property
    def _known(self) -> int:
        return self.failing | self.passing | self._skipped

    def observe(self, number: int, *, fails: bool | None) -> None:
        """Notes the result of a subject."""
        self.failing |= (fails is True) << number
        self.passing |= (fails is False) << number
        self._skipped |= (fails is None) << number

    def _try(self, number: int) -> None:
        self.tried += 1
        self.observe(number, fails=self._fails(number))

    def try_all(self, numbers: Iterable[int]) -> None:
        """Tries subjects whose result is not known."""
        for number in numbers:
            if not self._known >> number & 1 and self.tried < self._most_tried:
                self._try(number)

    def run(self) -> Rule[P] | None:
        """Returns the rule that trials confirm; None if nothing passes, or if no rule is confirmed."""
        if not self.passing:
            return None
        self._holding = _distinct(self._properties)
        self._size, self._fitting, verified = 1, self._holding, 0
        while True:
            rules = self._narrow()
            if not rules:
                return self._nearly_fitting()
            if self.tried >= self._most_tried:
                return None  # rules that no trial has told apart are guesses
            best, rivals = rules[0], rules[1:_RIVALS]
            number = self._most_telling(best, rivals)
            if number is None:
                number = self._untried(best, verified) if verified < 2 * _VERIFIED else None
                verified += 1
            if number is None:
                return best if self.is_believable(best, self.passing) else None
            self._try(number)

    def _narrow(self) -> list[Rule[P]]:
        # The rules without exceptions, cheapest first; conjunctions only if no single property is one. What fits now
        # is among what fitted before the last trial.
        self._holding = [rule for rule in self._holding if rule.bits & self.failing == self.failing]
        fitting = self._without_exceptions(self._fitting)
        while not fitting and self._size < len(_MOST_COMBINED):
            among = self._holding[: _MOST_COMBINED[self._size]]
            self._size += 1
            made = map(_conjunction, itertools.combinations(among, self._size))
            fitting = sorted(self._without_exceptions(made), key=lambda rule: rule.cost)
        self._fitting = fitting
        return fitting

    def _without_exceptions(self, rules: Iterable[Rule[P]]) -> list[Rule[P]]:
        return [rule for rule in rules if not rule.bits & self.passing and rule.bits & self.failing == self.failing]

    def _nearly_fitting(self) -> Rule[P] | None:
        def exceptions(rule: Rule[P]) -> tuple[int, int]:
            return (rule.bits & self.passing).bit_count(), rule.cost

        pairs: list[Rule[P]] = []
        if self._pairs_have_exceptions and (best := min(self._holding, key=exceptions, default=None)) is not None:
            untried = [n for n in range(len(self._kinds)) if best.bits & ~self._known & 1 << n]
            self.try_all(untried[:: -(-len(untried) // _MOST_OF_NEARLY_FITTING) or 1])
            self._holding = [rule for rule in self._holding if rule.bits & self.failing == self.failing]
            for halves in itertools.combinations(self._holding[:_MOST_PAIRED], 2):
                made = _conjunction(halves)  # each half excludes several that the other does not
                pairs += [made] * (exceptions(made)[0] + 1 < min(exceptions(half)[0] for half in halves))
        bests = (min(rules, key=exceptions, default=None) for rules in (pairs, self._holding))
        return next((best for best in bests if best is not None and self.is_believable(best, self.passing)), None)

    def is_believable(self, rule: Rule[P], passing: int) -> bool:
        """Returns whether a rule is unlikely to fit by chance, if the subjects of some bits pass."""
        failing, exceptions = self.failing.bit_count(), (rule.bits & passing).bit_count()
        return is_believable(rule.cost, failing, failing + passing.bit_count(), exceptions)

    def _most_telling(self, best: Rule[P], rivals: Sequence[Rule[P]]) -> int | None:
        weights: dict[int, float] = {}
        for rival in rivals:
            differ = (rival.bits ^ best.bits) & ~self._known
            weight = 1 / (1 + rival.cost)
            while differ:
                lowest = differ & -differ
                number = lowest.bit_length() - 1
                weights[number] = weights.get(number, 0.0) + weight
                differ ^= lowest
        if not weights:
            return None
        half = sum(1 / (1 + rival.cost) for rival in rivals) / 2
        return min(weights, key=lambda number: (abs(weights[number] - half), number))

    def _untried(self, rule: Rule[P], turn: int) -> int | None:
        # One that is to fail and one that is to pass take turns: one of a kind that was not tried, if there is one.
        known = self._known
        wanted = (rule.bits if turn % 2 else ~rule.bits) & ~known
        numbers = [number for number in reversed(range(len(self._kinds))) if wanted >> number & 1]
        tried = {kind for number, kind in enumerate(self._kinds) if known >> number & 1}
        return next((n for n in numbers if self._kinds[n] not in tried), next(iter(numbers), None))


def _distinct(properties: Iterable[tuple[P, int, int]]) -> list[Rule[P]]:
    # The cheapest of the properties that the same subjects have, cheapest first.
    rules: dict[int, Rule[P]] = {}
    for found, cost, bits in properties:
        if bits not in rules or cost < rules[bits].cost:
            rules[bits] = Rule((found,), cost, bits)
    return sorted(rules.values(), key=lambda rule: rule.cost)


_MOST_COMBINED = (0, _MOST_PAIRED, _MOST_PAIRED // 4)  # properties that are tried alone (all), in pairs and in threes


def _conjunction(parts: Sequence[Rule[P]]) -> Rule[P]:
    bits = -1
    for part in parts:
        bits &= part.bits
    return Rule(tuple(p for part in parts for p in part.parts), sum(p.cost for p in parts) + 2 * len(parts), bits)
