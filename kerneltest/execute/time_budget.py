"""The time limit of an item (`--kt-budget`): the order of its cases, and the cases that no longer fit.

The cost of a case is predicted from the costs of earlier ones. Cases that cover something new come first.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature


def new_coverage(case: AnyCase) -> set[object]:
    """Returns what a case covers: its family with its target, and, if it is structural, its signature."""
    return {(case.family.name, case.target), *([case.signature] if case.family.structural else [])}


def breadth_first(cases: Iterable[AnyCase]) -> list[AnyCase]:
    """Returns cases in another order: one of each family, then those that cover something new, then the rest."""
    first_of_family: list[AnyCase] = []
    new: list[AnyCase] = []
    rest: list[AnyCase] = []
    families: set[str] = set()
    covered: set[object] = set()
    for case in cases:
        covers = new_coverage(case)
        order = first_of_family if case.family.name not in families else rest if covers <= covered else new
        order.append(case)
        families.add(case.family.name)
        covered |= covers
    return [*first_of_family, *new, *rest]


def group_weight(cases: Iterable[AnyCase]) -> int:
    """Returns the weight of a group in the division of time: its number of families and of structural signatures."""
    return len(
        {each for case in cases for each in (case.family.name, *new_coverage(case)) if not isinstance(each, tuple)}
    )


@dataclass
class TimeBudget:
    """The time limit of one item. Each group has a share by its weight; time that it leaves goes to later groups."""

    seconds: float  # for the whole item
    weights: Mapping[str, int]  # the weight of each group, by name, in the order in which they run
    clock: Callable[[], float] = time.monotonic  # returns the time in seconds
    _costs: dict[tuple[str, bool], list[float]] = field(default_factory=dict)  # by group, and whether it compiled
    _compiled: set[Signature] = field(default_factory=set)

    @classmethod
    def of_groups(cls, seconds: float, groups: Iterable[tuple[str, Iterable[AnyCase]]]) -> "TimeBudget | None":
        """Returns the limit of seconds for an item, None for 0. The cases of its groups are planned in that time."""
        started = time.monotonic()
        weights = {name: group_weight(cases) for name, cases in groups} if seconds else {}
        return cls(seconds - (time.monotonic() - started), weights) if seconds else None

    def __post_init__(self) -> None:
        self._end = self.clock() + self.seconds
        self._group, self._until, self._ahead_until, self._first = "", self._end, self._end, True

    def begin_group(self, group: str) -> None:
        """Begins a group, with its share of the time that is left."""
        names = list(self.weights)
        left = sum(self.weights[name] for name in names[names.index(group) :])
        share = self.weights[group] / left if left else 0.0
        now = self.clock()
        self._group, self._first = group, True
        self._until = now + max(0.0, self._end - now) * share
        self._ahead_until = (now + self._until) / 2

    def can_afford(self, cases: Iterable[AnyCase]) -> bool:
        """Returns whether the group has time to compile for all of these cases, one signature after another."""
        signatures = {case.signature: case for case in cases}
        return self.clock() + sum(map(self._predict, signatures.values())) <= self._until

    def note_prepared(self, signature: Signature) -> bool:
        """Notes that a signature was traced ahead, and returns whether to do so for another one.

        Half of the group's time is left for cases.
        """
        self._compiled.add(signature)
        return self.clock() < self._ahead_until

    def skip_reason(self, case: AnyCase) -> str:
        """Returns the reason to leave out a case; "" to run it.

        The first case of an item always runs, and that of a group if the time of the whole item allows it.
        """
        first, self._first = self._first, False
        now, cost = self.clock(), self._predict(case)
        until = self._end if first else self._until
        if not self._costs or (now < until and now + cost <= until):
            return ""
        return f"a case takes {max(cost, 0.01):.2g} s here, and --kt-budget allows {self.seconds:g} s for this item"

    def add_cost(self, case: AnyCase, seconds: float, *, compared: bool) -> None:
        """Notes the cost of a case in seconds. If it `compared` nothing, it may have ended before it compiled."""
        self._costs.setdefault((self._group, case.signature not in self._compiled), []).append(seconds)
        if compared:
            self._compiled.add(case.signature)

    def _predict(self, case: AnyCase) -> float:
        """Returns the mean cost of earlier cases that compiled, if this one has to, or else of those that did not."""
        compiles = case.signature not in self._compiled
        known = self._costs.get((self._group, compiles)) or [
            cost for (_, each), costs in self._costs.items() if each == compiles for cost in costs
        ]
        return sum(known) / len(known) if known else 0.0
