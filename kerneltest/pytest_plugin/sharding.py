"""Shards: a run cut into parts of like cost, each for another machine, in the same way on all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kerneltest.pytest_plugin.item import KernelItem
from kerneltest.pytest_plugin.shards import COSTS, Part, Shard, shared_out


def costs_of(items: Sequence[KernelItem], seconds: Mapping[str, float]) -> dict[Part, float]:
    """What each part costs: the items of a pairing in one dtype, which share traces and the oracle's answers.

    Args:
      items: of the run.
      seconds: that items took in an earlier run. Others are taken to cost as much as those did for a case, or one
        each for a case where none is known.
    """
    guesses = {item.nodeid: _guess(item) for item in items}
    known = [name for name in guesses if name in seconds]
    scale = sum(seconds[name] for name in known) / sum(guesses[name] for name in known) if known else 1.0
    costs: defaultdict[Part, float] = defaultdict(float)
    for item in items:
        costs[part_of(item)] += seconds.get(item.nodeid, scale * guesses[item.nodeid])
    return dict(costs)


def _guess(item: KernelItem) -> float:
    return sum(COSTS[part.backend.tier] * sum(part.families().values()) for part in item.items) or 1.0


def part_of(item: KernelItem) -> Part:
    """What an item is never parted from."""
    return item.items[0].pairing_id, item.items[0].dtype


class Sharding:
    """Leaves the items of one shard, once all others have chosen theirs. Tests that are no pairings go to the first.

    Attributes:
      whole: all items that would run without shards.
    """

    def __init__(self, shard: Shard, seconds: Mapping[str, float]) -> None:
        self.shard, self.seconds = shard, seconds
        self.whole: list[KernelItem] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.whole = [item for item in items if isinstance(item, KernelItem)]
        chosen = shared_out(costs_of(self.whole, self.seconds), self.shard.count)

        def mine(item: Any) -> bool:
            number = chosen[part_of(item)] if isinstance(item, KernelItem) else 1
            return number == self.shard.number

        left = [item for item in items if not mine(item)]
        items[:] = [item for item in items if mine(item)]
        config.hook.pytest_deselected(items=left)
