"""JAX's TPU interpreter: its parameters, and a run of it with tracked memory."""

import dataclasses
import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import shared_memory as tpu_memory
from jax.experimental.pallas import tpu as pltpu

from kerneltest.core.details import UndefinedSource
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat import tpu_findings
from kerneltest.trace.jax_compat.interpreter_errors import KernelFaultError
from kerneltest.trace.jax_compat.interpreter_threads import (
    COPIES,
    EvaluateThread,
    exclusive_interpreter,
    method_codes,
    supported_parameters,
)
from kerneltest.trace.jax_compat.jaxpr_types import Equation
from kerneltest.trace.jax_compat.mosaic_patches import grid_order
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes
from kerneltest.trace.jax_compat.tpu_layout import MemoryLayout
from kerneltest.trace.jax_compat.tpu_memory import ChooseFill, TrackedSharedMemory

_PARAMETERS = supported_parameters(pltpu.InterpretParams, detect_races=True, on_race="raise", vector_clock_size=COPIES)
_WAITS = method_codes(tpu_memory.Semaphore, "wait")
_CORES = 2
_SEEDS = range(8)


@dataclasses.dataclass(frozen=True, slots=True)
class InterpretResult:
    """The result of an interpreted call.

    Attributes:
      outputs: the call's.
      unwritten: for each output a mask of the elements that were never written, or None for an output without any.
      reads: the reads of memory that was never written.
    """

    outputs: Sequence[Array]
    unwritten: Sequence[Array | None] = ()
    reads: tuple[UndefinedSource, ...] = ()


def interpret_parameters(equation: Equation) -> dict[str, Any]:
    """The parameters with which a call is interpreted.

    A call that declares parallel dimensions runs on two cores, its programs shuffled. The interpreter does not know
    the dimensions that vmap adds, and takes parallel dimensions only before all others: those after one that is not
    parallel run in order.
    """
    compiler, mapping = equation.params.get("compiler_params"), equation.params.get("grid_mapping")
    declared = getattr(compiler, "dimension_semantics", None)
    if declared is None or mapping is None:
        return {"interpret": _PARAMETERS}
    own = iter(declared)
    whole = ["arbitrary" if i in mapping.vmapped_dims else next(own, "arbitrary") for i in range(len(mapping.grid))]
    count = next((i for i, each in enumerate(whole) if each not in ("parallel", pltpu.PARALLEL)), len(whole))
    leading = ("parallel",) * count + ("arbitrary",) * (len(whole) - count)
    compiler = dataclasses.replace(compiler, dimension_semantics=leading)
    lengths = mapping.grid[:count]
    if not all(isinstance(n, int) for n in lengths) or math.prod(lengths) < _CORES:
        return {"interpret": _PARAMETERS, "compiler_params": compiler}
    seed = _seed(lengths, mapping.grid, compiler)
    shuffled = dataclasses.replace(_PARAMETERS, num_cores_or_threads=_CORES, random_seed=seed)
    return {"interpret": shuffled, "compiler_params": compiler}


def _seed(lengths: Sequence[int], grid: Sequence[int], compiler: Any) -> int:
    """The first seed that leaves the fewest parallel dimensions in order."""

    def in_order(seed: int) -> int:
        drawn = grid_order(tuple(grid), compiler, seed)
        return sum(np.array_equal(order, range(n)) for order, n in zip(drawn, lengths, strict=False) if n > 1)

    return min(_SEEDS, key=in_order)


def run(
    call: Callable[..., Any],
    layout: MemoryLayout,
    operands: Sequence[Any],
    fill: ChooseFill | None,
    evaluate: EvaluateThread | None = None,
) -> InterpretResult:
    """Runs one interpreted call.

    Args:
      call: the interpreter, with the kernel in it.
      layout: the kernel's memory.
      operands: the kernel's.
      fill: the content of memory that was never written; None for JAX's own: NaN and the largest integers.
      evaluate: runs the kernel on each core if the interpreter is not compiled.

    Raises:
      Failure: the interpreter found a fault.
    """
    with (
        exclusive_interpreter(_WAITS, tpu_findings.describe_wait, evaluate, tpu.reset_tpu_interpret_mode_state) as (
            detector,
            printed,
        ),
        _tracked_memory(layout, fill) as made,
    ):
        try:
            outputs = [np.asarray(output) for output in call(*operands)]
            (memory,) = made
            _raise_races(printed, memory)
            _finish(memory, printed)
        except Failure:
            raise
        except Exception as error:
            cause = None if isinstance(error, KernelFaultError) else error
            raise tpu_findings.failure(error, detector.deadlock, made[0] if made else None) from cause
    unwritten = [_crop(memory.unwritten_mask(i), output.shape) for i, output in enumerate(outputs)]
    return InterpretResult(outputs, unwritten, tuple(memory.reads))


def _crop(mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    inside = None if mask is None else mask[tuple(map(slice, shape))]
    return inside if inside is not None and inside.any() else None


@contextmanager
def _tracked_memory(layout: MemoryLayout, fill: ChooseFill | None) -> Iterator[list[TrackedSharedMemory]]:
    """Has the interpreter make tracked memory, and yields it."""
    made: list[TrackedSharedMemory] = []

    def make(**kwargs: Any) -> TrackedSharedMemory:
        made.append(TrackedSharedMemory(**kwargs))
        made[-1].track(layout, fill)
        return made[-1]

    def carried_out(execute: Callable[[Any], None]) -> Callable[[Any], None]:
        def execute_copy(copy: Any) -> None:
            with made[-1].carry_out(copy.id):
                execute(copy)

        return execute_copy

    parts = (Replacement(tpu.DMA, name, carried_out(vars(tpu.DMA)[name])) for name in ("execute_read", "execute_write"))
    with replace_attributes(Replacement(tpu_memory, "SharedMemory", make), *parts):
        yield made


def _finish(memory: TrackedSharedMemory, printed: io.StringIO) -> None:
    """Carries out the copies that nothing waited for, and checks the semaphores.

    The interpreter runs a copy when it is waited for, so one without a wait never runs, whereas a TPU runs it
    concurrently with everything after it. Running it at the end exposes the accesses that it races with.

    Raises:
      Failure: a race, a copy in flight, or a semaphore that is not at 0.
    """
    left = list(memory.leftovers())
    memory.over = True
    tpu._shared_memory = memory  # JAX has dropped it; `exclusive_interpreter` resets it
    for semaphore in left:
        for carry_out, _ in semaphore.copies:
            carry_out()
    _raise_races(printed, memory)
    for semaphore in left:
        for _, line in semaphore.copies:
            raise tpu_findings.unfinished_copy(semaphore, line)
    for semaphore in left:
        raise tpu_findings.nonzero_semaphore(semaphore, memory)


def _raise_races(printed: io.StringIO, memory: TrackedSharedMemory) -> None:
    """Raises a Failure for a race that JAX before 0.12 has printed before going on."""
    if tpu.races is not None and tpu.races.races_found:
        raise Failure(Verdict.RACE, tpu_findings.race(printed.getvalue(), memory))
