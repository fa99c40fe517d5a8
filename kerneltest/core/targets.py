"""How far a backend takes a kernel, and the GPUs that kernels are lowered, compiled and simulated for."""

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """What a backend can say of a kernel. A member is its own name as records write it."""

    INTERPRET = "interpret"
    LOWER = "lower"
    COMPILE = "compile"
    SIMULATE = "simulate"
    DEVICE = "device"

    @property
    def gives_values(self) -> bool:
        """Whether a kernel is run there, so that there are values to compare."""
        return self not in (Tier.LOWER, Tier.COMPILE)


KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU architecture.

    Attributes:
      id: as in backend ids: `sm_90`, `gfx942`.
      platform: `cuda` or `rocm`, as JAX calls it.
      device_kind: a device of the architecture, as JAX calls it.
      arch: as Triton calls it: the compute capability times ten, or the id.
      warp: threads in a warp or a wavefront.
      shared_memory: the most bytes of shared memory (LDS) that one block may have.
    """

    id: str
    platform: str
    device_kind: str
    arch: int | str
    warp: int
    shared_memory: int

    def __str__(self) -> str:
        return self.id

    @property
    def triton_backend(self) -> str:
        """The platform as Triton calls it: `cuda` or `hip`."""
        return "hip" if self.platform == "rocm" else self.platform


def _cuda(arch: int, device_kind: str, shared_memory: int) -> Target:
    return Target(f"sm_{arch}", "cuda", device_kind, arch, 32, shared_memory)


def _rocm(arch: str, warp: int) -> Target:
    return Target(arch, "rocm", arch, arch, warp, 64 * KIB)


# Shared memory: CUDA C++ Programming Guide, table "Technical specifications per compute capability"; AMD's CDNA and
# RDNA instruction set guides give 64 KiB of LDS to a work-group.
TARGETS = {
    target.id: target
    for target in (
        _cuda(80, "NVIDIA A100", 163 * KIB),
        _cuda(90, "NVIDIA H200", 227 * KIB),
        _cuda(100, "NVIDIA B200", 227 * KIB),
        _rocm("gfx90a", 64),
        _rocm("gfx942", 64),
        _rocm("gfx1100", 32),
        _rocm("gfx1151", 32),
    )
}
