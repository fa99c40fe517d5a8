"""Decides how many helpers a process starts, if any."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from typing import TYPE_CHECKING

from kerneltest.core.processes import free_memory, reads_files
from kerneltest.core.runtime import available_processors
from kerneltest.core.targets import Tier
from kerneltest.pytest_plugin.gpu_assignment import gpu_memory

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

    from kerneltest.backends.base import Backend
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.helper_process import HelperSetup
    from kerneltest.pytest_plugin.helpers import Helpers

CPU_TIERS, DEVICE_TIERS = (Tier.INTERPRET, Tier.SIMULATE), (Tier.DEVICE,)

_LEAST_CASES, _LEAST_CASES_FORKED = 1000, 100  # fewer take less time than a helper needs to start
_MOST = 3
_MOST_ON_DEVICE = 7  # a GPU is idle for most of a run, so that several processes can share it
_GPU_MEMORY = 3.0  # GiB that JAX may allocate in each of them
_OWN_GPU_MEMORY = 8.0  # GiB that are left to this process
_MEMORY = 4 * 2**30  # bytes of main memory for each of these processes; CUDA's libraries take most of it


def fork_helpers(setup: HelperSetup, backends: Iterable[Backend]) -> Helpers | None:
    """Forks helpers of this process if processors are free. They collect while this process does.

    Args:
      setup: of the helpers.
      backends: of the run.
    """
    number = _free_processors()
    if number < 1 or not any(backend.tier in CPU_TIERS for backend in backends):
        return None
    from kerneltest.trace.jax_compat.forking import may_fork

    if not may_fork() or reads_files():
        return None
    return _start(setup, number, CPU_TIERS, get_context("fork"))


def fork_device_helpers(setup: HelperSetup) -> Helpers | None:
    """Forks helpers of this process that share its GPU, if processors and the GPU's memory are free.

    Args:
      setup: of the helpers.
    """
    from kerneltest.trace.jax_compat.forking import may_fork

    if not may_fork() or reads_files():
        return None
    free, total = gpu_memory()
    room = min((free - _OWN_GPU_MEMORY) / _GPU_MEMORY, free_memory() / _MEMORY - 1)
    number = min(available_processors() - 1, _MOST_ON_DEVICE, int(room))
    if number < 1:
        return None
    return _start(replace(setup, gpu_fraction=_GPU_MEMORY / total), number, DEVICE_TIERS, get_context("fork"))


def are_worthwhile(parts: Sequence[Item], tiers: Collection[Tier], *, forked: bool) -> bool:
    """Returns whether a run is long enough for helpers.

    Args:
      parts: the groups of all items of the run.
      tiers: of the backends whose cases they may judge.
      forked: whether they were forked.
    """
    own = [part for part in parts if part.backend.tier in tiers and not part.backend.unavailable()]
    return sum(sum(part.families().values()) for part in own) >= (_LEAST_CASES_FORKED if forked else _LEAST_CASES)


def start_helpers(setup: HelperSetup, parts: Sequence[Item]) -> Helpers | None:
    """Spawns helpers of this process if processors are free and the run is long enough.

    Args:
      setup: of the helpers.
      parts: the groups of all items of the run.
    """
    number = _free_processors()
    if number < 1 or not are_worthwhile(parts, CPU_TIERS, forked=False):
        return None
    return _start(setup, number, CPU_TIERS, get_context("spawn"))


def _free_processors() -> int:
    return min(available_processors() - 1, _MOST)


def _start(
    setup: HelperSetup, number: int, tiers: Collection[Tier], context: ForkContext | SpawnContext
) -> Helpers | None:
    from kerneltest.pytest_plugin.helpers import Helpers

    with suppress(Exception):  # such as a limit of processes: the run takes longer
        return Helpers(setup, number, tiers, context)
    return None
