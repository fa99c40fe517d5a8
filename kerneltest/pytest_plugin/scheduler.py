"""The distribution of items over xdist workers: items that share traces and expectations go to one worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from xdist.scheduler.load import LoadScheduling

from kerneltest.pytest_plugin.pytest_run import RUN
from kerneltest.pytest_plugin.sharding import COSTS, Part

if TYPE_CHECKING:
    from kerneltest.records.run_plan import Plan

_ANOTHER_GPU = 0.1  # of the cost of a simulation: the next ones of the part mostly run the same code
_MIN_QUEUE = 2  # queued items per worker; xdist starts an item only once the next one is queued


class ItemCost(NamedTuple):
    """The cost of an item.

    Attributes:
      part: to which it belongs.
      tier: of its backend.
      cost: as `COSTS` gives it.
    """

    part: Part
    tier: str
    cost: float


class PartScheduling(LoadScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's `load` scheduling in units of parts: a pairing in one dtype, on all backends.

    The most expensive part goes first, so that workers finish at about the same time. A part of more than twice a
    worker's share of the remaining cost is cut to about that share, since an idle worker costs more than repeated
    traces; its simulations, which share lowered code, stay together. Other tests and unavailable backends come last, as
    xdist distributes them.
    """

    _costs: Mapping[int, ItemCost] = {}  # of items with a cost, by their index in the collection
    _ranks: Mapping[int, tuple[float, int, int]] = {}  # of the same items

    def schedule(self) -> None:
        run = self.config.stash[RUN]
        if self.collection is None and run.plan.is_written:  # all workers have collected
            from kerneltest.records.record_files import read_plan

            self._costs = item_costs(read_plan(run.folder.path), next(iter(self.node2collection.values())))
            self._ranks = rank_items(self._costs)
        super().schedule()

    def _send_tests(self, node: Any, num: int) -> None:
        self.pending.sort(key=self._rank)
        if not self.pending or self.pending[0] not in self._costs:
            super()._send_tests(node, num)
        elif (queued := len(self.node2pending[node])) < _MIN_QUEUE:
            pending = [self._costs[each] for each in self.pending if each in self._costs]
            minimum = min(num, _MIN_QUEUE - queued)  # with fewer, it would wait for ever if no more items follow
            super()._send_tests(node, max(minimum, chunk_size(pending, len(self.node2pending), minimum)))

    def _rank(self, index: int) -> tuple[float, int, int, int]:
        return *self._ranks.get(index, (0.0, 0, 0)), index


def item_costs(plan: Plan, names: Sequence[str]) -> dict[int, ItemCost]:
    """Returns the cost of each item by its index in `names`, without items of unavailable backends."""
    from kerneltest.records.run_plan import ANY

    costs: defaultdict[str, float] = defaultdict(float)
    known: dict[str, tuple[Part, str]] = {}
    simulated: dict[tuple[Part, str], str] = {}  # the first GPU of each part and group
    for each in plan.items:
        if each.group != ANY:
            part = each.pairing, each.dtype
            known[each.item] = part, str(each.tier)
            cost = COSTS[each.tier] * sum(each.families.values())
            if each.tier == "simulate" and simulated.setdefault((part, each.group), each.backend) != each.backend:
                cost *= _ANOTHER_GPU
            costs[each.item] += cost
    return {index: ItemCost(*known[name], costs[name]) for index, name in enumerate(names) if name in known}


def rank_items(costs: Mapping[int, ItemCost]) -> dict[int, tuple[float, int, int]]:
    """Returns the sort key of each item, by its index.

    The most expensive part comes first, equal ones in the order of collection. Its items are in the order of their
    tiers.
    """
    totals: defaultdict[Part, float] = defaultdict(float)
    first: dict[Part, int] = {}
    for index, each in costs.items():
        totals[each.part] += each.cost
        first.setdefault(each.part, index)
    tiers = list(COSTS)
    return {index: (-totals[each.part], first[each.part], tiers.index(each.tier)) for index, each in costs.items()}


def chunk_size(pending: Sequence[ItemCost], workers: int, minimum: int) -> int:
    """Returns how many of the pending items the next worker gets.

    Args:
      pending: the cost of each item, part by part.
      workers: number of workers.
      minimum: number of items that it needs, if there are that many.
    """
    count = 0
    while count < min(minimum, len(pending)):
        rest = pending[count:]
        first_part = [each for each in rest if each.part == rest[0].part]
        share = sum(each.cost for each in rest) / workers
        if sum(each.cost for each in first_part) < 2 * share:
            count += len(first_part)
            continue
        total, before = 0.0, ""
        for _, tier, cost in first_part:
            is_tied = tier == before == "simulate"
            if total and not is_tied and total + cost - share > share - total:  # with it, they are farther from a share
                break
            total, count, before = total + cost, count + 1, tier
    return count
