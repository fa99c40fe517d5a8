"""Which GPU each worker has: chosen before it starts, among those that this process may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_NVIDIA = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")  # of AMD's driver: processors and GPUs
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_MOST_MEMORY = 0.9  # of a GPU's, for all workers on it


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's share of the GPUs.

    Attributes:
      environment: what it is started with; nothing where there is no GPU.
      device: the GPU as its driver names it among those of the machine; "" for none.
    """

    environment: Mapping[str, str]
    device: str = ""


def leases(workers: int, environment: Mapping[str, str] | None = None) -> list[Lease]:
    """A lease for each worker: a GPU of its own, or where there are more workers, a share of one.

    Args:
      workers: how many there are.
      environment: by which the caller restricts its own GPUs; by default that of this process.
    """
    known = os.environ if environment is None else environment
    visible = _visible(known)
    if not visible:
        return [Lease({})] * workers
    made = []
    for number in range(workers):
        chosen = visible[number % len(visible)]
        sharing = len(range(number % len(visible), workers, len(visible)))
        given = dict(chosen)
        if _FRACTION not in known:
            given[_FRACTION] = f"{_MOST_MEMORY / sharing:.3f}"
        made.append(Lease(given, next(iter(chosen.values()))))
    return made


def _visible(known: Mapping[str, str]) -> list[dict[str, str]]:
    """For each GPU that the caller may use, what makes it the only one."""
    if nvidia := _named(known.get("CUDA_VISIBLE_DEVICES"), _nvidia()):
        return [{"CUDA_VISIBLE_DEVICES": name} for name in nvidia]
    amd = _named(known.get("ROCR_VISIBLE_DEVICES"), _amd())
    # HIP counts what ROCr has left; its older name is CUDA's.
    among = known.get("HIP_VISIBLE_DEVICES", known.get("CUDA_VISIBLE_DEVICES"))
    left = [amd[int(each)] for each in _named(among, [str(i) for i in range(len(amd))]) if each.isdigit()]
    return [{"ROCR_VISIBLE_DEVICES": name, "HIP_VISIBLE_DEVICES": "0"} for name in left]


def _named(given: str | None, present: Sequence[str]) -> list[str]:
    """Those of the GPUs present that a variable names: numbers, or names such as `GPU-1f3c`; all if it is not set.

    As the drivers do, what follows the first that is not there is left out.
    """
    if given is None or not present:
        return list(present)
    names = []
    for each in given.split(","):
        name = each.strip()
        if name not in present and (not name or name.lstrip("-").isdigit()):
            break
        names.append(name)
    return names


def _nvidia() -> list[str]:
    try:
        shown = subprocess.run(_NVIDIA, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in shown.splitlines() if line.strip().isdigit()]


def _amd() -> list[str]:
    """The GPUs that AMD's driver serves, as ROCr counts them: nodes with vector units, in order."""
    found = 0
    for node in sorted(_KFD.glob("*/properties"), key=lambda path: int(path.parent.name)):
        try:
            facts = dict(line.split(" ", 1) for line in node.read_text(encoding="ascii").splitlines() if " " in line)
        except (OSError, ValueError):
            continue
        found += int(facts.get("simd_count", "0")) > 0
    return [str(number) for number in range(found)]
