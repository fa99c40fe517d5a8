"""What a shard is, and which parts of a run go to which."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Part = tuple[str, str]

COSTS = {"interpret": 1.0, "lower": 4.0, "compile": 8.0, "simulate": 1.5, "device": 1.0}  # of a case, by tier


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several shards, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parsed(text: str) -> Shard:
    """A shard as users write it.

    Raises:
      ValueError: it is no `i/n` with i from 1 to n.
    """
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise ValueError(f"{text!r} is no shard: write 2/3 for the second of three")
    return Shard(int(match[1]), int(match[2]))


def shared_out(costs: Mapping[Part, float], count: int) -> dict[Part, int]:
    """The number of the shard that each part goes to, from 1: the costliest part first, to the shard with the least.

    Args:
      costs: of the parts, in any unit.
      count: of the shards.
    """
    loads = [0.0] * count
    chosen: dict[Part, int] = {}
    for part in sorted(costs, key=lambda part: (-costs[part], part)):
        least = min(range(count), key=lambda shard: (loads[shard], shard))
        loads[least] += costs[part]
        chosen[part] = least + 1
    return chosen


def seconds_of(folder: Path) -> dict[str, float]:
    """What each item of the runs in a folder took, by node id.

    Raises:
      RecordError: there is no run, or one cannot be read.
    """
    from kerneltest.records.runs import read_runs

    spent: defaultdict[str, float] = defaultdict(float)
    for run in read_runs(folder):
        for record in run.records:
            spent[record.item] += record.seconds
    return dict(spent)
