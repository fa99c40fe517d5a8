"""The seconds that an item may take: which of its cases still fit, by what earlier ones have cost."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature


def brings(case: AnyCase) -> set[object]:
    """What a case may be the first to show: its family with its target, and its signature if that alone is asked."""
    return {(case.family.name, case.target), *([case.signature] if case.family.structural else [])}


def breadth_first(cases: Iterable[AnyCase]) -> list[AnyCase]:
    """Cases in another order: each family once, then what brings another target or signature, then repeats."""
    rounds: tuple[list[AnyCase], ...] = ([], [], [])
    families: set[str] = set()
    brought: set[object] = set()
    for case in cases:
        new = brings(case)
        rounds[0 if case.family.name not in families else 2 if new <= brought else 1].append(case)
        families.add(case.family.name)
        brought |= new
    return [case for each in rounds for case in each]


def worth(cases: Iterable[AnyCase]) -> int:
    """How much a group has to show: its families, and the signatures that it asks by themselves."""
    return len({each for case in cases for each in (case.family.name, *brings(case)) if not isinstance(each, tuple)})


@dataclass
class Budget:
    """The time of one item. Its groups have shares, by what they are worth; what one leaves goes to the rest.

    Attributes:
      seconds: in all.
      groups: what each is worth, by name, in the order in which they are run.
      clock: tells the time, in seconds.
    """

    seconds: float
    groups: Mapping[str, int]
    clock: Callable[[], float] = time.monotonic
    _costs: dict[tuple[str, bool], list[float]] = field(default_factory=dict)  # by group, and whether compiled for
    _seen: set[Signature] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._end = self.clock() + self.seconds
        self._group, self._until, self._first = "", self._end, True

    def turn_to(self, group: str) -> None:
        """Begins a group: its share of the time that is left."""
        names = list(self.groups)
        left = sum(self.groups[name] for name in names[names.index(group) :])
        share = self.groups[group] / left if left else 0.0
        now = self.clock()
        self._group, self._first = group, True
        self._until = now + max(0.0, self._end - now) * share

    def affords(self, cases: Iterable[AnyCase]) -> bool:
        """Whether the group has time for all of these, compilations one after another, as far as costs are known."""
        signatures = {case.signature: case for case in cases}
        return self.clock() + sum(map(self._expected, signatures.values())) <= self._until

    def why_not(self, case: AnyCase) -> str:
        """Why a case is left out; "" where it is to be run, as the first of a group is at any cost."""
        first, self._first = self._first, False
        now, cost = self.clock(), self._expected(case)
        if first or (now < self._until and now + cost <= self._until):
            return ""
        return f"a case takes {max(cost, 0.01):.2g} s here, and --kt-budget gives this item {self.seconds:g} s"

    def ran(self, case: AnyCase, seconds: float, *, compared: bool) -> None:
        """Notes what a case has cost; one that compared nothing may have ended before its compilation."""
        self._costs.setdefault((self._group, case.signature not in self._seen), []).append(seconds)
        if compared:
            self._seen.add(case.signature)

    def _expected(self, case: AnyCase) -> float:
        """What a case costs: the mean of those before it that were compiled for as well, of its group if there are."""
        fresh = case.signature not in self._seen
        known = self._costs.get((self._group, fresh)) or [
            cost for (_, each), costs in self._costs.items() if each == fresh for cost in costs
        ]
        return sum(known) / len(known) if known else 0.0
