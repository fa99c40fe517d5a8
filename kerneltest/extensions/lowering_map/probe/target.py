"""GPUs and TPUs to lower for, as the caller describes them."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuTarget:
    """One GPU architecture.

    Attributes:
      id: as the map calls it.
      platform, device_kind: as JAX calls them.
      triton_backend, arch: as Triton calls them.
      warp: threads in a warp or a wavefront.
    """

    id: str
    platform: str
    device_kind: str
    triton_backend: str
    arch: int | str
    warp: int


@dataclass(frozen=True)
class TpuTarget:
    """One TPU generation.

    Attributes:
      id: as the map calls it.
      platform, device_kind: as JAX calls them.
      topology: as libtpu calls it.
    """

    id: str
    platform: str
    device_kind: str
    topology: str


Target = GpuTarget | TpuTarget


def read_targets(text: str) -> list[Target]:
    """Returns the targets in a JSON list of objects.

    Raises:
      ValueError, TypeError: the text is not such a list.
    """
    return [(TpuTarget if "topology" in described else GpuTarget)(**described) for described in json.loads(text)]
