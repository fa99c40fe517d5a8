"""Which of xdist's workers gets which items: those that share traces and the oracle's answers go to one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdist.scheduler.load import LoadScheduling

from kerneltest.pytest_plugin.run import RUN
from kerneltest.pytest_plugin.shards import COSTS, Part

if TYPE_CHECKING:
    from kerneltest.records.schema import Plan

_AHEAD = 2  # items: a worker begins one when it knows the next


class Together(LoadScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's `load`, but that a worker gets a part at a time: a pairing in one dtype, on all backends.

    The costliest part goes first, so that workers end together. One that comes to twice a worker's share of what is
    left is cut to that share, since a worker with nothing to do costs more than what is done twice. Tests that are no
    pairings, and backends that are absent, come last and as xdist hands them out.
    """

    _costs: Mapping[int, tuple[Part, float]] = {}  # of the items that have some, by their place in the collection
    _ranks: Mapping[Part, tuple[float, int]] = {}

    def schedule(self) -> None:
        run = self.config.stash[RUN]
        if self.collection is None and run.has_plan:  # the workers have collected, and written it
            from kerneltest.records.io import read_plan

            self._costs = costs(read_plan(run.folder), next(iter(self.node2collection.values())))
            self._ranks = ranks(self._costs)
        super().schedule()

    def _send_tests(self, node: Any, num: int) -> None:
        self.pending.sort(key=self._rank)
        if not self.pending or self.pending[0] not in self._costs:
            super()._send_tests(node, num)
        elif (waiting := len(self.node2pending[node])) < _AHEAD:
            priced = [self._costs[each] for each in self.pending if each in self._costs]
            least = min(num, _AHEAD - waiting)  # with fewer, where no others follow, it would wait for ever
            super()._send_tests(node, max(least, chunk(priced, len(self.node2pending), least)))

    def _rank(self, number: int) -> tuple[float, int, int]:
        known = self._costs.get(number)
        return (*(self._ranks[known[0]] if known else (0.0, 0)), number)


def costs(plan: Plan, names: Sequence[str]) -> dict[int, tuple[Part, float]]:
    """The part that each item belongs to and what the item costs, by its place among `names`; none that is absent."""
    spent: defaultdict[str, float] = defaultdict(float)
    parts: dict[str, Part] = {}
    for each in plan.items:
        if each.backend not in plan.unavailable:
            spent[each.item] += COSTS[each.tier] * sum(each.families.values())
            parts[each.item] = each.pairing, each.dtype
    return {number: (parts[name], spent[name]) for number, name in enumerate(names) if name in parts}


def ranks(known: Mapping[int, tuple[Part, float]]) -> dict[Part, tuple[float, int]]:
    """By what parts are put in order: the costliest first, and of equal ones that which was collected first."""
    found: dict[Part, tuple[float, int]] = {}
    for number, (part, cost) in known.items():
        whole, first = found.get(part, (0.0, number))
        found[part] = whole - cost, first
    return found


def chunk(left: Sequence[tuple[Part, float]], workers: int, least: int) -> int:
    """How many of the items that are left go to the next worker.

    Args:
      left: the part and the cost of each, part by part.
      workers: how many there are.
      least: how many items it needs at least, if there are so many.
    """
    count = 0
    while count < min(least, len(left)):
        rest = left[count:]
        mine = [cost for part, cost in rest if part == rest[0][0]]
        share = sum(cost for _, cost in rest) / workers
        if sum(mine) < 2 * share:
            count += len(mine)
            continue
        taken = 0.0
        for cost in mine:
            taken, count = taken + cost, count + 1
            if taken >= share:
                break
    return count
