"""The GPU of each xdist worker, chosen before the worker starts among those that this process may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_NVIDIA = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")  # processors and GPUs, by AMD's driver
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_MAX_MEMORY = 0.9  # fraction of a GPU's memory for all workers on it


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """A worker's GPU, or its share of one.

    Attributes:
      environment: variables with which the worker is started; {} without a GPU.
      device: the GPU's name or number on this machine, by its driver; "" without a GPU.
    """

    environment: Mapping[str, str]
    device: str = ""


def assign_gpus(workers: int, environment: Mapping[str, str] | None = None) -> list[GpuAssignment]:
    """Assigns a GPU to each worker, or a share of one if there are more workers than GPUs.

    Args:
      workers: number of workers.
      environment: variables that restrict the GPUs of this process; None for those of `os.environ`.
    """
    known = os.environ if environment is None else environment
    visible = _visible(known)
    if not visible:
        return [GpuAssignment({})] * workers
    assignments = []
    for number in range(workers):
        gpu = visible[number % len(visible)]
        sharers = len(range(number % len(visible), workers, len(visible)))
        variables = dict(gpu)
        if _FRACTION not in known:
            variables[_FRACTION] = f"{_MAX_MEMORY / sharers:.3f}"
        assignments.append(GpuAssignment(variables, next(iter(gpu.values()))))
    return assignments


def _visible(known: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns, for each GPU that the caller may use, the variables that hide all others."""
    if nvidia := _select(known.get("CUDA_VISIBLE_DEVICES"), _nvidia()):
        return [{"CUDA_VISIBLE_DEVICES": name} for name in nvidia]
    amd = _select(known.get("ROCR_VISIBLE_DEVICES"), _amd())
    # HIP numbers the GPUs that ROCr leaves; it also reads the older variable of CUDA.
    restriction = known.get("HIP_VISIBLE_DEVICES", known.get("CUDA_VISIBLE_DEVICES"))
    numbers = _select(restriction, [str(number) for number in range(len(amd))])
    selected = [amd[int(number)] for number in numbers if number.isdigit()]
    return [{"ROCR_VISIBLE_DEVICES": name, "HIP_VISIBLE_DEVICES": "0"} for name in selected]


def _select(variable: str | None, present: Sequence[str]) -> list[str]:
    """Returns the GPUs that a variable selects.

    Like the drivers, it ignores everything after the first GPU that is not present.

    Args:
      variable: numbers, or names such as `GPU-1f3c`, separated by commas; None selects all.
      present: all GPUs.
    """
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
    """Returns the numbers of NVIDIA's GPUs."""
    try:
        output = subprocess.run(_NVIDIA, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in output.splitlines() if line.strip().isdigit()]


def _amd() -> list[str]:
    """Returns the numbers of AMD's GPUs as ROCr counts them: nodes with vector units, in order."""
    found = 0
    for node in sorted(_KFD.glob("*/properties"), key=lambda path: int(path.parent.name)):
        try:
            facts = dict(line.split(" ", 1) for line in node.read_text(encoding="ascii").splitlines() if " " in line)
        except (OSError, ValueError):
            continue
        found += int(facts.get("simd_count", "0")) > 0
    return [str(number) for number in range(found)]
