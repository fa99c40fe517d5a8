"""The limits of Mosaic GPU kernels on a target: what not every GPU has, threads, clusters, shared and tensor memory."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kerneltest.backends.lowering_errors import Excess, Rule, format_size, largest_arrays, part_that_fits
from kerneltest.core.details import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes, inner_jaxprs, parameter_names
from kerneltest.trace.jax_compat.mosaic_gpu_lowering import is_chosen_while_traced
from kerneltest.trace.jax_compat.source_lines import line_of_nested
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import equations_in, first_line, primitive_name

_PRIMITIVES: Mapping[str, tuple[str, ...]] = {
    "wgmma": ("wgmma", "wgmma_ref", "wgmma_wait"),
    "tcgen05": (
        "tcgen05_mma", "tcgen05_commit_arrive", "commit_tmem", "async_load", "wait_load_tmem", "async_store_tmem",
        "async_copy_scales_to_tmem", "async_copy_sparse_metadata_to_tmem", "async_copy_smem_to_tmem",
    ),
    "TMA": ("copy_smem_to_gmem", "wait_smem_to_gmem", "async_prefetch"),
    "cp.async": ("wait_gmem_to_smem",),
    "multimem": ("multimem_store", "multimem_load_reduce", "semaphore_signal_multicast"),
    "cluster launch control": ("try_cluster_cancel", "query_cluster_cancel"),
}  # fmt: skip
_NEEDED = {name: feature for feature, names in _PRIMITIVES.items() for name in names}
_CONVERTED = {"float4_e2m1fn", "float8_e8m0fnu"}  # dtypes that PTX converts since Blackwell


class _Use(NamedTuple):
    feature: str
    line: str  # FILE:LINE
    chosen: bool = False  # by JAX, for the GPU that the kernel was traced for


def _uses(call: Call) -> Iterator[_Use]:
    if any(getattr(mesh, "cluster", ()) for mesh in core_meshes(call.equation)):
        yield _Use("clusters", first_line(call.equation))
    for equation, around in equations_in(call.equation):
        if feature := _feature(equation):
            chosen = primitive_name(equation) == "copy_gmem_to_smem" and is_chosen_while_traced(equation)
            yield _Use(feature, line_of_nested([*around, equation]), chosen)


def _feature(equation: Equation) -> str:
    name = primitive_name(equation)
    if name == "copy_gmem_to_smem":
        return "TMA" if equation.params.get("has_barrier", True) else "cp.async"
    if name == "convert_element_type":
        dtypes = {equation.invars[0].aval.dtype.name, equation.params["new_dtype"].name}
        return "conversions of float4 and float8_e8m0fnu" if dtypes & _CONVERTED else ""
    return _NEEDED.get(name, "")


def _lacking(traced: Traced, target: Target) -> Iterator[tuple[Call, _Use, list[str]]]:
    for call in traced.calls:
        for use in _uses(call) if call.dialect == "mosaic_gpu" else ():
            if use.feature not in target.features:
                yield call, use, [other.id for other in TARGETS.values() if use.feature in other.features]


def other_generation(traced: Traced, target: Target) -> str:
    """Returns why a kernel is written for another generation of GPUs, the only one with something it uses, or ""."""
    for _, (feature, line, _), having in _lacking(traced, target):
        if len(having) == 1:
            return f"the kernel uses {feature}{f' at {line}' if line else ''}, which only {having[0]} has"
    return ""


def check_features(traced: Traced, target: Target) -> None:
    """Raises a Failure if a target lacks what Mosaic GPU calls use; `unavailable` if JAX chose it for another GPU."""
    lacking = sorted(_lacking(traced, target), key=lambda each: each[1].chosen)
    for call, (feature, line, chosen), having in lacking:
        words = f"{target} has no {feature}, which {', '.join(having[:-1])} and {having[-1]} have"
        if chosen:
            words += ": JAX's pipeline chose it because the kernel was traced for compute capability 9.0"
        verdict = Verdict.UNAVAILABLE if chosen else Verdict.UNIMPLEMENTED
        raise Failure(verdict, NotBuilt(Stage.LOWER, call.name, "", words, source=line))


# CUDA C++ Programming Guide: 1,024 threads for a block; 8 blocks for a cluster, 16 where the driver is asked for more.
_THREADS, _CLUSTER = 1024, 16
_WARPGROUP = 128
_SHARED = "shared memory"


def check_block(call: Call, target: Target) -> None:
    """Checks the threads and the cluster of a Mosaic GPU call, which JAX does not; Failure: `resource_exceeded`."""
    for mesh in core_meshes(call.equation):
        groups, blocks = getattr(mesh, "num_threads", None) or 1, math.prod(getattr(mesh, "cluster", ()))
        if groups * _WARPGROUP > _THREADS:
            words = (
                f"{groups} warpgroups (num_threads) are {groups * _WARPGROUP:,} threads, but a block on {target} has "
                f"at most {_THREADS:,}, or {_THREADS // _WARPGROUP} warpgroups"
            )
            raise _exceeded(call, "threads of a block", groups * _WARPGROUP, _THREADS, words)
        if blocks > _CLUSTER:
            words = f"a cluster of {blocks} blocks, but {target} has at most {_CLUSTER}, and promises 8"
            raise _exceeded(call, "blocks of a cluster", blocks, _CLUSTER, words)


def _exceeded(call: Call, resource: str, needed: int, available: int, words: str, unit: str = "") -> Failure:
    source = first_line(call.equation)
    detail = ResourceExceeded(Stage.LOWER, call.name, resource, needed, available, unit, words, source=source)
    return Failure(Verdict.RESOURCE_EXCEEDED, detail)


def check_shared_memory(calls: Sequence[Call], name: str, needed: int, target: Target) -> None:
    """Checks the shared memory of one kernel by its target, not by JAX's largest GPU; Failure: `resource_exceeded`."""
    if needed > target.shared_memory:
        call = next((call for call in calls if call.name == name), calls[0])
        words = _shared_memory_words([call], needed, target)
        raise _exceeded(call, _SHARED, needed, target.shared_memory, words, "B")


def memory_rules(calls: Sequence[Call], target: Target) -> tuple[Rule, ...]:
    """Returns the rules for JAX's errors about the memory of a block."""

    def shared(needed: str) -> Excess:
        words = _shared_memory_words(calls, int(needed), target)
        return Excess(words, _SHARED, int(needed), target.shared_memory, "B")

    def tensor(needed: str, available: str) -> Excess:
        words = (
            f"needs {needed} columns of tensor memory, rounded up to a power of two, but {target} has {available} of "
            f"32 bits: {largest_arrays(_scratch(calls, 'tmem'))}; fewer or narrower accumulators fit"
        )
        return Excess(words, "TMEM columns", int(needed), int(available))

    exceeded = Verdict.RESOURCE_EXCEEDED
    return (
        (re.compile(r"exceeds available shared memory: smem_bytes=(\d+)"), exceeded, shared),
        (re.compile(r"(?:got|Requested) (\d+) columns, exceeding the limit of (\d+)"), exceeded, tensor),
        (re.compile(r"Requested (\d+) columns which exceeds limit of (\d+)"), exceeded, tensor),
    )


def _shared_memory_words(calls: Sequence[Call], needed: int, target: Target) -> str:
    arrays = largest_arrays(_scratch(calls, "smem"))
    return (
        f"needs {needed:,} bytes of shared memory for a block, but {target} has {target.shared_memory:,}: "
        f"{arrays}; arrays of {part_that_fits(needed, target.shared_memory)} the size fit: use smaller blocks, or "
        "fewer slots (max_concurrent_steps)"
    )


@dataclass(frozen=True, slots=True)
class _Scratch:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    line: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        place = f" at {self.line}" if self.line else ""
        return f"{self.name} {self.dtype.name}{list(self.shape)} = {format_size(self.size)}{place}".lstrip()


def _scratch(calls: Sequence[Call], space: str) -> Iterator[_Scratch]:
    for equation, around in (found for call in calls for found in equations_in(call.equation)):
        for jaxpr in inner_jaxprs(equation) if primitive_name(equation) == "run_scoped" else ():
            for variable, name in zip(jaxpr.invars, parameter_names(jaxpr), strict=True):
                aval = variable.aval
                if str(aval.memory_space) == space and isinstance(aval.dtype, np.dtype):  # no barrier
                    line = line_of_nested([*around, equation])
                    yield _Scratch(name, tuple(aval.shape), aval.dtype, line)
