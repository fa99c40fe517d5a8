"""Decides how many helpers a process starts, if any."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kerneltest.core.processes import free_memory
from kerneltest.core.runtime import available_processors
from kerneltest.core.targets import Tier
from kerneltest.pytest_plugin.gpu_assignment import gpu_memory

if TYPE_CHECKING:
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.helper_process import HelperSetup
    from kerneltest.pytest_plugin.helpers import Helpers

CPU_TIERS, DEVICE_TIERS = (Tier.INTERPRET, Tier.SIMULATE), (Tier.DEVICE,)

_LEAST_CASES = 1000  # fewer take less time than a helper needs to start
_MOST = 3
_MOST_ON_DEVICE = 7  # a GPU is idle for most of a run, so that several processes can share it
_GPU_MEMORY = 3.0  # GiB that JAX may allocate in each of them
_OWN_GPU_MEMORY = 8.0  # GiB that are left to this process
_MEMORY = 4 * 2**30  # bytes of main memory for each of these processes; CUDA's libraries take most of it


def start_helpers(setup: HelperSetup, parts: Sequence[Item], tiers: Collection[Tier]) -> Helpers | None:
    """Starts helpers of this process if processors, and memory of the GPU, are free and the run is long enough.

    Args:
      setup: of the helpers.
      parts: the groups of all items of the run.
      tiers: of the backends whose cases they may judge.
    """
    number = min(available_processors() - 1, _MOST)
    own = [part for part in parts if part.backend.tier in tiers and not part.backend.unavailable()]
    if number < 1 or sum(sum(part.families().values()) for part in own) < _LEAST_CASES:
        return None
    if tiers == DEVICE_TIERS:
        free, total = gpu_memory()
        room = min((free - _OWN_GPU_MEMORY) / _GPU_MEMORY, free_memory() / _MEMORY - 1)
        number = min(available_processors() - 1, _MOST_ON_DEVICE, int(room))
        if number < 1:
            return None
        setup = replace(setup, gpu_fraction=_GPU_MEMORY / total)
    from kerneltest.pytest_plugin.helpers import Helpers

    try:
        return Helpers(setup, number, tiers)
    except Exception as error:  # such as a limit of processes
        warnings.warn(f"no helper processes: {error}", stacklevel=1)
        return None
