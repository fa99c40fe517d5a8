"""The limits of a block of threads of a Mosaic GPU kernel: its threads, its cluster, shared and tensor memory."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.backends.lowering_errors import Excess, Rule, format_size
from kerneltest.core.details import ResourceExceeded, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jaxprs import core_meshes, inner_jaxprs, parameter_names
from kerneltest.trace.jax_compat.source_lines import line_of_nested
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import equations_in, first_line, primitive_name

# CUDA C++ Programming Guide: 1,024 threads for a block; 8 blocks for a cluster, 16 where the driver is asked for more.
_THREADS, _CLUSTER = 1024, 16
_WARPGROUP = 128
_MOST_ARRAYS = 4  # that a message lists
_SHARED = "shared memory"


def check_block(call: Call, target: Target) -> None:
    """Checks the threads and the cluster of a Mosaic GPU call, which neither JAX nor XLA's compiler does.

    Raises:
      Failure: `resource_exceeded`, with the numbers and the call's line.
    """
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
    """Checks the shared memory of a lowered kernel, of one of some calls. JAX checks that of the largest GPU.

    Raises:
      Failure: `resource_exceeded`, with the arrays there and what would fit.
    """
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
            f"32 bits: {_list_arrays(calls, 'tmem')}; fewer or narrower accumulators fit"
        )
        return Excess(words, "TMEM columns", int(needed), int(available))

    exceeded = Verdict.RESOURCE_EXCEEDED
    return (
        (re.compile(r"exceeds available shared memory: smem_bytes=(\d+)"), exceeded, shared),
        (re.compile(r"(?:got|Requested) (\d+) columns, exceeding the limit of (\d+)"), exceeded, tensor),
        (re.compile(r"Requested (\d+) columns which exceeds limit of (\d+)"), exceeded, tensor),
    )


def _shared_memory_words(calls: Sequence[Call], needed: int, target: Target) -> str:
    times = 1 << (-(-needed // target.shared_memory) - 1).bit_length()
    return (
        f"needs {needed:,} bytes of shared memory for a block, but {target} has {target.shared_memory:,}: "
        f"{_list_arrays(calls, 'smem')}; arrays of 1/{times} the size fit: use smaller blocks, or fewer slots "
        "(max_concurrent_steps)"
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


def _scratch(call: Call, space: str) -> Iterator[_Scratch]:
    for equation, around in equations_in(call.equation):
        for jaxpr in inner_jaxprs(equation) if primitive_name(equation) == "run_scoped" else ():
            for variable, name in zip(jaxpr.invars, parameter_names(jaxpr), strict=True):
                aval = variable.aval
                if str(aval.memory_space) == space and isinstance(aval.dtype, np.dtype):  # no barrier
                    line = line_of_nested([*around, equation])
                    yield _Scratch(name, tuple(aval.shape), aval.dtype, line)


def _list_arrays(calls: Sequence[Call], space: str) -> str:
    arrays = sorted((array for call in calls for array in _scratch(call, space)), key=lambda array: -array.size)
    others = len(arrays) - _MOST_ARRAYS
    return "; ".join(map(str, arrays[:_MOST_ARRAYS])) + (f"; and {others} more" if others > 0 else "")
