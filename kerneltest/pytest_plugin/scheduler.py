"""The distribution of items over xdist workers: items that share traces and expectations go to one worker."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xdist.scheduler.load import LoadScheduling

from kerneltest.core.children import ask_nvidia_smi
from kerneltest.core.ids import ANY
from kerneltest.pytest_plugin.pytest_run import RUN
from kerneltest.pytest_plugin.sharding import COSTS, Part

if TYPE_CHECKING:
    from kerneltest.records.run_plan import Plan

_ANOTHER_GPU = 0.1  # of the cost of a simulation: the next ones of the part mostly run the same code
_MIN_QUEUE = 2  # queued items per worker; xdist starts an item only once the next one is queued


class ItemCost(NamedTuple):
    """The cost of an item."""

    part: Part
    tier: str
    cost: float  # as `COSTS` gives it


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
    costs: defaultdict[str, float] = defaultdict(float)
    known: dict[str, tuple[Part, str]] = {}
    simulated: dict[tuple[Part, str], str] = {}  # the first GPU of each part and group
    for item in plan.items:
        if item.group != ANY:
            part = item.pairing, item.dtype
            known[item.item] = part, str(item.tier)
            cost = COSTS[item.tier] * sum(item.families.values())
            if item.tier == "simulate" and simulated.setdefault((part, item.group), item.backend) != item.backend:
                cost *= _ANOTHER_GPU
            costs[item.item] += cost
    return {index: ItemCost(*known[name], costs[name]) for index, name in enumerate(names) if name in known}


def rank_items(costs: Mapping[int, ItemCost]) -> dict[int, tuple[float, int, int]]:
    """Returns the sort key of each item: the most expensive part first, its items by tier; else as collected."""
    totals: defaultdict[Part, float] = defaultdict(float)
    first: dict[Part, int] = {}
    for index, each in costs.items():
        totals[each.part] += each.cost
        first.setdefault(each.part, index)
    tiers = list(COSTS)
    return {index: (-totals[each.part], first[each.part], tiers.index(each.tier)) for index, each in costs.items()}


def chunk_size(pending: Sequence[ItemCost], workers: int, minimum: int) -> int:
    """Returns how many of the pending items, which are listed part by part, the next worker gets."""
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


# The GPU of each xdist worker, chosen before the worker starts among those that this process may use.

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")  # processors and GPUs, by AMD's driver
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_MAX_MEMORY = 0.9  # fraction of a GPU's memory for all workers on it


def assign_gpus(workers: int, environment: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """Returns the variables that give each worker a GPU, or a share of one; `environment` restricts the GPUs."""
    known = os.environ if environment is None else environment
    visible = _visible(known)
    assignments: list[dict[str, str]] = [{} for _ in range(workers)]
    for number, variables in enumerate(assignments if visible else ()):
        variables |= visible[number % len(visible)]
        if _FRACTION not in known:
            sharers = len(range(number % len(visible), workers, len(visible)))
            variables[_FRACTION] = f"{_MAX_MEMORY / sharers:.3f}"
    return assignments


# For each GPU that the caller may use: the variables that hide all others.
def _visible(known: Mapping[str, str]) -> list[dict[str, str]]:
    if nvidia := _select(known.get("CUDA_VISIBLE_DEVICES"), _nvidia()):
        return [{"CUDA_VISIBLE_DEVICES": name} for name in nvidia]
    amd = _select(known.get("ROCR_VISIBLE_DEVICES"), _amd())
    # HIP numbers the GPUs that ROCr leaves; it also reads the older variable of CUDA.
    restriction = known.get("HIP_VISIBLE_DEVICES", known.get("CUDA_VISIBLE_DEVICES"))
    numbers = _select(restriction, [str(number) for number in range(len(amd))])
    selected = [amd[int(number)] for number in numbers if number.isdigit()]
    return [{"ROCR_VISIBLE_DEVICES": name, "HIP_VISIBLE_DEVICES": "0"} for name in selected]


# Like the drivers, it ignores everything after the first GPU that is not present.
def _select(variable: str | None, present: Sequence[str]) -> list[str]:
    if variable is None or not present:
        return list(present)
    names = []
    for each in variable.split(","):
        name = each.strip()
        if name not in present and (not name or name.lstrip("-").isdigit()):
            break
        names.append(name)
    return names


def _nvidia() -> list[str]:
    try:
        return [line for line in ask_nvidia_smi("index") if line.isdigit()]
    except (OSError, subprocess.SubprocessError):
        return []


# As ROCr counts them: nodes with vector units, in order.
def _amd() -> list[str]:
    found = 0
    for node in sorted(_KFD.glob("*/properties"), key=lambda path: int(path.parent.name)):
        try:
            facts = dict(line.split(" ", 1) for line in node.read_text(encoding="ascii").splitlines() if " " in line)
        except (OSError, ValueError):
            continue
        found += int(facts.get("simd_count", "0")) > 0
    return [str(number) for number in range(found)]
