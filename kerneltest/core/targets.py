"""Tiers of backends, and the GPUs and TPUs that kernels are lowered, compiled and simulated for."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from kerneltest.core.extension_registry import suggest


class Tier(StrEnum):
    """The stage to which a backend takes a kernel. Records write a member as its value."""

    INTERPRET = "interpret"
    LOWER = "lower"
    COMPILE = "compile"
    SIMULATE = "simulate"
    DEVICE = "device"

    @property
    def gives_values(self) -> bool:
        """True if the kernel runs, so that there are values to compare."""
        return self not in (Tier.LOWER, Tier.COMPILE)


WHEELS = {"cuda": "jax[cuda13]", "rocm": "jax[rocm7-local]", "tpu": "jax[tpu]"}
"""For each platform of devices, the requirement that lets JAX use it."""

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU architecture."""

    id: str  # the name in backend ids: `sm_90`, `gfx942`
    platform: str  # JAX's name of the platform: `cuda` or `rocm`
    device_kind: str  # JAX's name of a device of the architecture
    arch: int | str  # Triton's name of the architecture: the compute capability times ten, or the id
    warp: int  # threads in a warp or a wavefront
    shared_memory: int  # the maximum of shared memory (LDS) for one block, in bytes
    # the maximum number of programs along x, y and z of one launch
    grid: tuple[int, int, int] = (2**31 - 1, 2**16 - 1, 2**16 - 1)
    work_items: int = 0  # the maximum number of threads along an axis of one launch; 0 if only `grid` limits them
    features: tuple[str, ...] = ()  # what Mosaic GPU kernels can use there and not on every NVIDIA GPU

    def __str__(self) -> str:
        return self.id

    @property
    def compute_capability(self) -> str:
        """`9.0` for sm_90, and "" for other platforms."""
        return f"{self.arch // 10}.{self.arch % 10}" if isinstance(self.arch, int) else ""


def _cuda(arch: int, device_kind: str, shared_memory: int, *features: str) -> Target:
    return Target(f"sm_{arch}", "cuda", device_kind, arch, 32, shared_memory, features=features)


def _rocm(arch: str, warp: int) -> Target:
    return Target(arch, "rocm", arch, arch, warp, 64 * KIB, work_items=2**32 - 1)


# Shared memory and grid: CUDA C++ Programming Guide, table "Technical specifications per compute capability"; AMD's
# CDNA and RDNA instruction set guides give 64 KiB of LDS to a work-group. HIP has the same maximum grid
# (`hipDeviceProp_t.maxGridSize`), and "does not support kernel launch with total work items defined in dimension with
# size gridDim x blockDim >= 2^32" (HIP API, `hipModuleLaunchKernel`), because the dispatch packet holds the number of
# work items in 32 bits (HSA specification, `hsa_kernel_dispatch_packet_t.grid_size_x`). Features: PTX ISA, "Target ISA
# Notes" of cp.async.bulk.tensor, barrier.cluster, multimem, wgmma.mma_async, tcgen05.mma, clusterlaunchcontrol and cvt.
# JAX uses cp.async only where there is no TMA.
_BLACKWELL = "cluster launch control", "conversions of float4 and float8_e8m0fnu"
TARGETS = {
    target.id: target
    for target in (
        _cuda(80, "NVIDIA A100", 163 * KIB, "cp.async"),
        _cuda(90, "NVIDIA H200", 227 * KIB, "TMA", "clusters", "multimem", "wgmma"),
        _cuda(100, "NVIDIA B200", 227 * KIB, "TMA", "clusters", "multimem", "tcgen05", *_BLACKWELL),
        _cuda(120, "NVIDIA RTX PRO 6000", 99 * KIB, "TMA", "clusters", "multimem", *_BLACKWELL),
        _rocm("gfx90a", 64),
        _rocm("gfx942", 64),
        _rocm("gfx1100", 32),
        _rocm("gfx1151", 32),
    )
}


XLA_TARGETS = {f"xla-{target}": target for target in TARGETS.values() if target.platform == "cuda"}
"""The targets of XLA's CUDA compiler, by the name in backend ids."""

X_BY_JAX = 2**31 - 2
"""The maximum number of programs along x that JAX's Triton lowering launches on any GPU."""

MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Tpu:
    """One TPU generation."""

    id: str  # the name in backend ids: `tpu-v5e`
    device_kind: str  # JAX's name of the device
    topology: str  # the smallest topology that XLA's TPU compiler accepts
    vmem: int  # VMEM of a core, in bytes
    smem: int = MIB  # scalar memory of a core, in bytes
    sparse_cores: bool = False  # whether it has SparseCores that Pallas can use
    platform = "tpu"

    def __str__(self) -> str:
        return self.id


# Memory sizes from the error messages of libtpu 0.0.42.1, 0.0.48.1 and 0.0.50.1 for kernels that need more.
TPUS = {
    tpu.id: tpu
    for tpu in (
        Tpu("tpu-v4", "TPU v4", "v4:2x2x1", 16 * MIB),
        Tpu("tpu-v5e", "TPU v5 lite", "v5e:2x2", 128 * MIB),
        Tpu("tpu-v5p", "TPU v5", "v5p:2x2x1", 64 * MIB, sparse_cores=True),
        Tpu("tpu-v6e", "TPU v6 lite", "v6e:2x2", 128 * MIB, sparse_cores=True),
        Tpu("tpu-7x", "TPU7x", "tpu7x:2x2x1", 64 * MIB, sparse_cores=True),
    )
}


def skip_tpu_discovery() -> None:
    """Stops libtpu, before it is loaded, from a search in the network that prints errors where no TPU is attached."""
    if not (any(Path("/dev").glob("accel*")) or Path("/dev/vfio").exists()):
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")


# The ids of all backends, so that a declaration can be checked before any backend is imported.

# Words for kinds of hardware, with the patterns of backend ids that they stand for.
HARDWARE_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("*:sm_*", "*:gfx*", "cuda", "rocm", "interpret-mosaic-gpu"),
    "nvidia": ("*:sm_*", "cuda", "interpret-mosaic-gpu"),
    "amd": ("*:gfx*", "rocm"),
    "tpu": ("*:tpu-*", "tpu", "interpret-tpu"),
}

# The backends of kerneltest, in the order of reports; `kt.backend` adds those of users.
BACKEND_IDS: dict[str, None] = dict.fromkeys(
    (
        "interpret",
        "interpret-mosaic-gpu",
        "interpret-tpu",
        *(f"lower:{target}" for target in (*TARGETS, *TPUS)),
        *(f"compile:{target}" for target in (*TARGETS, *TPUS)),
        *(f"compile:{target}" for target in XLA_TARGETS),
        *(f"simulate:{target}" for target in TARGETS),
        "cuda",
        "rocm",
        "tpu",
    )
)


# Words that users take for backends, with what to write instead.
_MEANT: Mapping[str, str] = {
    "cpu": "a CPU runs 'interpret'",
    "gpu": "a GPU runs 'cuda' or 'rocm', and a CPU 'simulate:*'",
    "nvidia": "an NVIDIA GPU runs 'cuda', and a CPU 'simulate:sm_90'",
    "amd": "an AMD GPU runs 'rocm', and a CPU 'simulate:gfx942'",
}


def suggest_backend(given: str, known: Iterable[str]) -> str:
    """Returns what to write in place of an unknown backend, as in `; did you mean 'interpret'?`, or ""."""
    return f"; {_MEANT[given]}" if given in _MEANT else suggest(given, known)


def unknown_pattern(pattern: str) -> str:
    """Returns what is wrong with a pattern that matches no backend, with the closest id; "" if it matches one."""
    if pattern in HARDWARE_PATTERNS or any(fnmatchcase(each, pattern) for each in BACKEND_IDS):
        return ""
    hint = suggest_backend(pattern, [*BACKEND_IDS, *HARDWARE_PATTERNS]) or "; `kerneltest doctor` lists the backends"
    return f"{pattern!r} matches no backend{hint} (register a backend of your own with kt.backend first)"
