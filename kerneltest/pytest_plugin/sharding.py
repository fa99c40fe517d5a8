"""Shards: a run divided among several machines into parts of similar cost, identically on each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kerneltest.core.failures import RecordError
from kerneltest.core.media import lines_for_terminal
from kerneltest.pytest_plugin.hook_guard import guard_hooks
from kerneltest.pytest_plugin.kernel_item import KernelItem, PairingItem
from kerneltest.pytest_plugin.pytest_run import resolve_path

if TYPE_CHECKING:
    from kerneltest.core.ids import RunShard

Part = tuple[str, str]  # a pairing and a dtype: its items share traces and expectations

COSTS = {"interpret": 1.0, "lower": 4.0, "compile": 8.0, "simulate": 1.5, "device": 1.0}  # of a case, by tier


class ShardPlugin:
    """Selects the items of one shard. Tests that are not pairings belong to the first shard."""

    def __init__(self, shard: RunShard, seconds: Mapping[str, float]) -> None:
        self.shard, self._seconds = shard, seconds
        self.whole: list[KernelItem] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.whole = [item for item in items if isinstance(item, KernelItem)]
        shard_of = balance(part_costs(self.whole, self._seconds), self.shard.count)

        def is_selected(item: pytest.Item) -> bool:
            return self.shard.number == (shard_of[part_of(item)] if isinstance(item, PairingItem) and item.items else 1)

        deselected = [item for item in items if not is_selected(item)]
        items[:] = [item for item in items if is_selected(item)]
        config.hook.pytest_deselected(items=deselected)

    guard_hooks(vars())


def part_of(item: PairingItem) -> Part:
    """Returns the part to which an item belongs: that of its first group."""
    return item.items[0].pairing_id, item.items[0].dtype


def part_costs(items: Sequence[KernelItem], seconds: Mapping[str, float]) -> dict[Part, float]:
    """Returns the cost of each part: the known seconds of its items, or else a guess, scaled to the known ones."""
    guesses = {
        item.nodeid: sum(COSTS[part.backend.tier] * sum(part.families().values()) for part in item.items) or 1.0
        for item in items
    }
    known = [name for name in guesses if name in seconds]
    scale = sum(seconds[name] for name in known) / sum(guesses[name] for name in known) if known else 1.0
    costs: defaultdict[Part, float] = defaultdict(float)
    for item in items:
        costs[part_of(item)] += seconds.get(item.nodeid, scale * guesses[item.nodeid])
    return dict(costs)


def balance(costs: Mapping[Part, float], count: int) -> dict[Part, int]:
    """Returns the shard of each part, from 1: the most expensive first, to the shard with the lowest cost so far."""
    loads = [0.0] * min(count, len(costs))  # the other shards are empty
    shard_of: dict[Part, int] = {}
    for part in sorted(costs, key=lambda part: (-costs[part], part)):
        lowest = min(range(len(loads)), key=lambda shard: (loads[shard], shard))
        loads[lowest] += costs[part]
        shard_of[part] = lowest + 1
    return shard_of


def earlier_seconds(config: pytest.Config, durations: str) -> dict[str, float]:
    """Returns the seconds that items took in an earlier run, by which shards are balanced; raises pytest.UsageError."""
    try:
        return seconds_by_item(resolve_path(config, "durations", durations)) if durations else {}
    except RecordError as error:
        raise pytest.UsageError(lines_for_terminal(f"--kt-durations: {error}")) from error


def seconds_by_item(folder: Path) -> dict[str, float]:
    """Returns the seconds that each item took in the runs of a folder, by node id; raises a RecordError."""
    from kerneltest.records.runs import read_runs

    seconds: defaultdict[str, float] = defaultdict(float)
    for run in read_runs(folder):
        for record in run.records:
            seconds[record.item] += record.seconds
    return dict(seconds)
