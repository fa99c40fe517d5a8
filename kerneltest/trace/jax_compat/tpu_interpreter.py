"""JAX's TPU interpreter: how it is called, and what it finds, in words."""

import ast
import dataclasses
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax._src import callback as callbacks
from jax._src import config
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import shared_memory as tpu_memory
from jax.experimental.pallas import tpu as pltpu

from kerneltest.core.details import UndefinedSource
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.source_location import shown
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.mosaic_threads import COPIES, Evaluate, alone, codes, known_parameters
from kerneltest.trace.jax_compat.tpu_layout import Layout
from kerneltest.trace.jax_compat.tpu_memory import Fill, MisuseError, Watched

_PARAMETERS = known_parameters(pltpu.InterpretParams, detect_races=True, on_race="raise", vector_clock_size=COPIES)
_WAITS = codes(tpu_memory.Semaphore, "wait")
_CORES = 2
_SEEDS = range(8)

_FIRST_COPY = 100  # JAX numbers devices from 0, and copies from here
_ACCESS = re.compile(
    r"^ *(read|write) of (\('\w+', \d+, \d+, \d+\))\[(.*?)\] from \(?(\d+), (\d+)\)?,? (.*)$", re.MULTILINE
)
_FRAME = re.compile(r"(.+?):(\d+)(?::\d+)? \(")
_BLOCK = re.compile(
    r'Out-of-bounds block index \((.*?),?\) for \w+ "(.*?)" in iteration (\(.*?\)) .*?ing \[\(?(.*?)\)?\] but \w+ '
    r"has shape (\(.*?\))"
)
_REVISITED = re.compile(
    r"Revisited block \(?(.*?)\)? of output (\d+) in iteration (\(.*?\))\. .*? iterations (\(.*?\)) "
)
_INDEX = re.compile(r"slice\((-?\d+), (-?\d+), \w+\)|(-?\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """What a call did.

    Attributes:
      outputs: it gave.
      unwritten: which elements of each output nobody wrote, or None.
      reads: of memory that nobody had written.
    """

    outputs: Sequence[Array]
    unwritten: Sequence[Array | None] = ()
    reads: tuple[UndefinedSource, ...] = ()


def parameters(equation: Any) -> dict[str, Any]:
    """The parameters with which a call is interpreted: on two cores and shuffled, where it says that this is no matter.

    The interpreter knows no dimension that vmap has added, and takes parallel dimensions before all others: those that
    come later run in order.
    """
    compiler, mapping = equation.params.get("compiler_params"), equation.params.get("grid_mapping")
    declared = getattr(compiler, "dimension_semantics", None)
    if declared is None or mapping is None:
        return {"interpret": _PARAMETERS}
    own = iter(declared)
    whole = ["arbitrary" if i in mapping.vmapped_dims else next(own, "arbitrary") for i in range(len(mapping.grid))]
    count = next((i for i, each in enumerate(whole) if each not in ("parallel", pltpu.PARALLEL)), len(whole))
    kept = ("parallel",) * count + ("arbitrary",) * (len(whole) - count)
    compiler = dataclasses.replace(compiler, dimension_semantics=kept)
    lengths = mapping.grid[:count]
    if not all(isinstance(n, int) for n in lengths) or math.prod(lengths) < _CORES:
        return {"interpret": _PARAMETERS, "compiler_params": compiler}
    seed = _seed(lengths, mapping.grid, compiler)
    shuffled = dataclasses.replace(_PARAMETERS, num_cores_or_threads=_CORES, random_seed=seed)
    return {"interpret": shuffled, "compiler_params": compiler}


def _seed(lengths: Sequence[int], grid: Sequence[int], compiler: Any) -> int:
    """The first one that leaves no parallel dimension in order, or as few as can be."""

    def in_order(seed: int) -> int:
        drawn = tpu._get_randomized_grid_coordinates(tuple(grid), compiler, seed)
        return sum(np.array_equal(order, range(n)) for order, n in zip(drawn, lengths, strict=False) if n > 1)

    return min(_SEEDS, key=in_order)


def run(
    call: Callable[..., Any],
    layout: Layout,
    operands: Sequence[Any],
    fill: Fill | None,
    evaluate: Evaluate | None = None,
) -> Ran:
    """One interpreted call.

    Args:
      call: the interpreter, with the kernel in it.
      layout: of the kernel's memory.
      operands: of the kernel.
      fill: stands where nobody wrote; None for JAX's own: NaN and the largest integers.
      evaluate: runs the kernel on each core, where the interpreter is not compiled.

    Raises:
      Failure: with what the interpreter found; its state is put right for the next kernel.
    """
    with alone(_WAITS, _waiting, evaluate) as (watch, printed), _plain_callbacks(), _watched(layout, fill) as made:
        try:
            outputs = [np.asarray(output) for output in call(*operands)]
            (memory,) = made
            _raise_races(printed.getvalue(), memory)
            _finish(memory, printed)
        except Failure:
            raise
        except Exception as error:
            raise _failure(error, watch.deadlock, made[0] if made else None) from error
        finally:
            tpu.reset_tpu_interpret_mode_state()
    unwritten = [_cut(memory.unwritten(i), output.shape) for i, output in enumerate(outputs)]
    return Ran(outputs, unwritten, tuple(memory.reads))


_draw = tpu._get_randomized_grid_coordinates


def _drawn(*args: Any) -> Any:
    # Of a grid's lengths and a seed alone, so what it gives is a constant, and no part of what runs.
    with jax.ensure_compile_time_eval():
        return _draw(*args)


tpu._get_randomized_grid_coordinates = _drawn  # type: ignore[assignment]


def _cut(mask: Array | None, shape: tuple[int, ...]) -> Array | None:
    inside = None if mask is None else mask[tuple(map(slice, shape))]
    return inside if inside is not None and inside.any() else None


def _called_back(*args: Any, callback: Callable[..., Any], **_: Any) -> tuple[Any, ...]:
    # JAX's own makes arrays of a device of all that the interpreter takes in, which makes NumPy's of them again:
    # two thirds of what a call back costs, and there are dozens in each run.
    with config.default_device(jax.local_devices(backend="cpu")[0]):
        return tuple(map(np.asarray, callback(*map(np.array, args))))


@contextmanager
def _plain_callbacks() -> Iterator[None]:
    """The interpreter is called back with NumPy's arrays."""
    before = callbacks.io_callback_impl
    callbacks.io_callback_impl = _called_back
    try:
        yield
    finally:
        callbacks.io_callback_impl = before


@contextmanager
def _watched(layout: Layout, fill: Fill | None) -> Iterator[list[Watched]]:
    """In it, the interpreter's memory is watched; gives what memory it makes."""
    made: list[Watched] = []

    def make(**kwargs: Any) -> Watched:
        made.append(Watched(**kwargs))
        made[-1].watch(layout, fill)
        return made[-1]

    before = tpu_memory.SharedMemory
    tpu_memory.SharedMemory = make  # type: ignore[assignment,misc]
    try:
        yield made
    finally:
        tpu_memory.SharedMemory = before  # type: ignore[misc]


def _finish(memory: Watched, printed: io.StringIO) -> None:
    """Carries out the copies that nobody waited for, and looks at the semaphores.

    The interpreter runs a copy when it is waited for. So one without a wait never runs, where a TPU runs it beside
    everything after it: run at last, it meets what was in its way.
    """
    left = list(memory.leftovers())
    memory.over = True
    tpu._shared_memory = memory
    for semaphore in left:
        for carry_out, _ in semaphore.copies:
            carry_out()
    _raise_races(printed.getvalue(), memory)
    for semaphore in left:
        for _, line in semaphore.copies:
            raise Failure(
                Verdict.RACE,
                f"the copy started at {line} is under way when the kernel ends: nobody waits for "
                f"{semaphore.name or 'its semaphore'}",
            )
    for semaphore in left:
        raise Failure(
            Verdict.RUNTIME_ERROR,
            f"{semaphore.name or 'a semaphore'} stands at {semaphore.count} when the kernel ends, and a TPU wants it "
            f"at 0{_places(memory, semaphore.name)}",
        )


def _places(memory: Watched, name: str) -> str:
    """Where a semaphore is counted up and down, in words."""
    told = (("signalled", ("semaphore_signal", "dma_start")), ("waited for", ("semaphore_wait", "dma_wait")))
    found = [
        f"{words} at {', '.join(lines)}" if (lines := memory.lines(name, primitives)) else f"never {words}"
        for words, primitives in told
    ]
    return f": it is {' and '.join(found)}" if name else ""


def _failure(error: Exception, deadlock: str, memory: Watched | None) -> Failure:
    """What ended a run, in words."""
    if deadlock:
        return Failure(Verdict.HANG, deadlock)
    cause = (memory.first if memory is not None else None) or error
    text = str(cause)
    if isinstance(cause, MisuseError):
        return Failure(cause.verdict, text)
    if memory is None:
        return Failure(Verdict.RUNTIME_ERROR, f"{type(cause).__name__}: {text}")
    if "RACE DETECTED" in text:
        return Failure(Verdict.RACE, _race(text, memory))
    if (block := _BLOCK.search(text)) is not None:
        return Failure(
            Verdict.OUT_OF_BOUNDS,
            f"block ({block[1]}) of {block[2]}, which is [{_indices(block[4])}], lies outside of its shape {block[5]} "
            f"in iteration {block[3]} of the call at {memory.layout.line}",
        )
    if (again := _REVISITED.search(text)) is not None:
        output = memory.layout.buffers[memory.layout.outputs[int(again[2])]].name
        return Failure(
            Verdict.RUNTIME_ERROR,
            f"iteration {again[3]} of the call at {memory.layout.line} comes back to block [{_indices(again[1])}] of "
            f"{output}, which it had from iteration {again[4]}: a TPU keeps a block only while iterations that follow "
            "each other use it, so let the innermost dimensions be those that share one",
        )
    if isinstance(cause, NotImplementedError):
        return Failure(Verdict.UNIMPLEMENTED, f"JAX's interpreter of TPU kernels: {text}")
    verdict = Verdict.OUT_OF_BOUNDS if text.startswith("Out-of-bounds") else Verdict.RUNTIME_ERROR
    return Failure(verdict, f"{type(cause).__name__}: {text}")


def _raise_races(printed: str, memory: Watched) -> None:
    """Those that JAX before 0.12 prints, and goes on."""
    if tpu.races is not None and tpu.races.races_found:
        raise Failure(Verdict.RACE, _race(printed, memory))


@dataclasses.dataclass(frozen=True, slots=True)
class _Access:
    """One of the two of a race.

    Attributes:
      how: `read` or `written`.
      where: the buffer and the indices.
      core: that did it, or started the copy that did it.
      by: who did it, in words.
      copy: it is of a copy.
      block: it is of a block that the grid's loop moves, or of the call's end.
    """

    how: str
    where: str
    core: int
    by: str
    copy: bool
    block: bool


def _race(text: str, memory: Watched) -> str:
    """The first race that JAX tells of, in one line."""
    found = [_access(match, memory) for match in _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]]
    if len(found) < 2:
        return "two accesses in no order"
    one, other = sorted(found, key=lambda access: access.copy)
    if memory.over and one.block and other.copy:
        return f"{other.where} is {other.how} by {other.by}, under way when the kernel ends: nobody waits for that copy"
    if memory.over and other.copy:
        advice = "nobody waits for that copy"
    elif one.core == other.core:
        advice = "wait for the copy in between"
    else:
        advice = "let cores write apart from each other, or do not call the dimension parallel"
    again = "" if one.where == other.where else f"{other.where} "
    return f"{one.where} is {one.how} by {one.by}, and {again}is {other.how} by {other.by}, in no order: {advice}"


def _access(match: tuple[str, ...], memory: Watched) -> _Access:
    what, key, rnge, device, core, at = match
    frame, block = _FRAME.match(at), at.startswith("pallas_call")
    line = f"{shown(frame[1])}:{frame[2]}" if frame else "code of the pipeline's own"
    by = f"core {core} as a block of the call at {memory.layout.line}" if block else f"core {core} at {line}"
    if copy := int(device) >= _FIRST_COPY:
        starter, source = memory.copies[int(device)]
        core, by = str(starter), f"the copy that core {starter} started at {memory.line(source)}"
    where = memory.name(ast.literal_eval(key))
    where = f"{where}[{_indices(rnge)}]" if rnge.strip("()") else where
    return _Access("read" if what == "read" else "written", where, int(core), by, copy, block)


def _indices(rnge: str) -> str:
    """Indices as they are written, from the text of slices and numbers."""
    return ", ".join(f"{i[0]}:{i[1]}" if i[0] else i[2] for i in _INDEX.findall(rnge))


def _waiting(at: dict[str, Any]) -> str:
    """What a core waits for, from the local variables of its wait."""
    semaphore, source = at["self"], getattr(at.get("logging_info"), "source_info", None)
    memory: Watched = semaphore.shared_memory
    name = memory.name_of_semaphore(semaphore.id)
    lines = [memory.line(source)] if source is not None else memory.lines(name, ("semaphore_wait",))
    place = f" at {' or '.join(lines)}" if name and lines else ""
    count = int(semaphore.count_by_core[int(at["global_core_id"])])
    waited = f"{name or f'semaphore {semaphore.id}'} to count {at['value']}, which stands at {count}"
    return f"core {at['global_core_id']} waits{place} for {waited}"
