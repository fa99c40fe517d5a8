"""JAX's TPU interpreter: its parameters, and a run of it with tracked memory."""

import ast
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import shared_memory as tpu_memory
from jax.experimental.pallas import tpu as pltpu

from kerneltest.core.details import Access, Hung, MemoryFault, Race, Raised, Stated, UndefinedSource, Visit
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.source_location import in_order, relative_path
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.interpreter_threads import (
    COPIES,
    EvaluateThread,
    Wait,
    exclusive_interpreter,
    grid_order,
    method_codes,
    supported_parameters,
)
from kerneltest.trace.jax_compat.jaxprs import Equation
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes
from kerneltest.trace.jax_compat.source_lines import (
    KernelFaultError,
    is_limit_text,
    limitation_text,
    raised_in_jax,
    text_of,
)
from kerneltest.trace.jax_compat.tpu_memory import (
    PIPELINE_CODE,
    ChooseFill,
    Leftover,
    MemoryLayout,
    MisuseError,
    TrackedSharedMemory,
    place_of,
)

# Failures of TPU kernels, from what JAX's interpreter prints and raises, and from the semaphores at the end.

_FIRST_COPY = 100  # JAX numbers devices from 0, and copies from here

# JAX's text.
_ACCESS = re.compile(
    r"^ *(read|write) of (\('\w+', \d+, \d+, \d+\))\[(.*?)\] from \(?(\d+), (\d+)\)?,? (.*)$", re.MULTILINE
)
_FRAME = re.compile(r"(.+?):(\d+)(?::\d+)? \(")
_BLOCK = in_order(
    r".*?Out-of-bounds block index \(",
    r"(.*?),?\) for ",
    r'\w+ "(.*?)" in iteration ',
    r"(\(.*?\)) ",
    r".*?ing \[\(?",
    r"(.*?)\)?\] but \w+ has shape ",
    r"(\(.*?\))",
)
_REVISITED = in_order(
    r".*?Revisited block \(?",
    r"(.*?)\)? of output (\d+) in iteration ",
    r"(\(.*?\))\. ",
    r".*? iterations ",
    r"(\(.*?\)) ",
)
_OUTSIDE = re.compile(r"^Out-of-bounds|^Range [^\n]*? out of bounds for (?:allocation )?shape ")
_INDEX = re.compile(r"slice\((-?\d+), (-?\d+), \w+\)|(-?\d+)")


def failure(error: Exception, deadlock: Hung | None, memory: TrackedSharedMemory | None) -> Failure:
    """The failure that ended a run, from the interpreter's exception, a deadlock, and its memory if that was made."""
    if deadlock is not None:
        return Failure(Verdict.HANG, deadlock)
    cause = (memory.first if memory is not None else None) or error
    if isinstance(cause, MisuseError):
        return Failure(cause.verdict, cause.detail)
    text, name = exception_text(cause), type(cause).__name__
    if (found := _checked(text, memory)) is not None:
        return found
    if is_limit_text(name, text) or raised_in_jax(cause):
        said = text_of(cause) + (f" ({memory.layout.line})" if memory is not None else "")
        return Failure(Verdict.UNAVAILABLE, limitation_text("cannot interpret this", name, said))
    return Failure(Verdict.RUNTIME_ERROR, Raised("the interpreter", name, text))


# The failure that a check of the interpreter's found, from its text; None for any other exception.
def _checked(text: str, memory: TrackedSharedMemory | None) -> Failure | None:
    if memory is not None:
        if "RACE DETECTED" in text:
            return Failure(Verdict.RACE, race(text, memory))
        if (block := _BLOCK.search(text)) is not None:
            return Failure(Verdict.OUT_OF_BOUNDS, _block_outside(block, memory))
        if (again := _REVISITED.search(text)) is not None:
            return Failure(Verdict.RUNTIME_ERROR, _revisited_block(again, memory))
    if _OUTSIDE.search(text):  # NumPy's own IndexError has other words: it may be due to JAX
        return Failure(Verdict.OUT_OF_BOUNDS, MemoryFault("", Visit(Access.LOAD), "", "", text))
    return None


def _block_outside(found: re.Match[str], memory: TrackedSharedMemory) -> MemoryFault:
    index, buffer, iteration, block, shape = found.groups()
    element, line = f"[{_indices(block)}]", memory.layout.line
    place = f"in iteration {iteration} of the call at {line}"
    words = f"block ({index}) of {buffer}, {element}, is outside its shape {shape} {place}"
    return MemoryFault("", Visit(Access.BLOCK, ast.literal_eval(iteration), line), buffer, element, words)


def _revisited_block(found: re.Match[str], memory: TrackedSharedMemory) -> Stated:
    block, output, iteration, earlier = found.groups()
    values = {
        "iteration": iteration,
        "line": memory.layout.line,
        "block": f"[{_indices(block)}]",
        "output": memory.layout.buffers[memory.layout.outputs[int(output)]].name,
        "earlier": earlier,
    }
    return Stated(
        "iteration {iteration} of the call at {line} comes back to block {block} of {output}, which it had from "
        "iteration {earlier}: a TPU keeps a block only while consecutive iterations use it, so make the innermost "
        "dimensions those that share a block",
        values,
        values["line"],
    )


# The failure of a kernel that ends before a copy, started at `line`, has been waited for.
def _unfinished_copy(semaphore: Leftover, line: str) -> Failure:
    waited = semaphore.name or "its semaphore"
    words = f"the copy started at {line} is still in flight when the kernel ends: nothing waits for {waited}"
    return Failure(Verdict.RACE, Race("", semaphore.name, "", (Visit(Access.COPY, place=place_of(line)),), words))


# The failure of a kernel that leaves a semaphore at another count than 0.
def _nonzero_semaphore(semaphore: Leftover, memory: TrackedSharedMemory) -> Failure:
    values: dict[str, int | str] = {"semaphore": semaphore.name or "a semaphore", "count": semaphore.count}
    sentence = "{semaphore} is at {count} when the kernel ends, but a TPU requires 0"
    if not semaphore.name:
        return Failure(Verdict.RUNTIME_ERROR, Stated(sentence, values))
    signals = memory.lines(semaphore.name, ("semaphore_signal", "dma_start"))
    waits = memory.lines(semaphore.name, ("semaphore_wait", "dma_wait"))
    places = {
        "signals": f"signalled at {', '.join(signals)}" if signals else "never signalled",
        "waits": f"waited for at {', '.join(waits)}" if waits else "never waited for",
    }
    line = next(iter([*signals, *waits]), "")
    detail = Stated(f"{sentence}: it is {{signals}} and {{waits}}", {**values, **places}, line)
    return Failure(Verdict.RUNTIME_ERROR, detail)


class _RacingAccess(NamedTuple):
    verb: str
    buffer: str
    indices: str
    core: int
    words: str
    visit: Visit
    is_copy: bool


def race(text: str, memory: TrackedSharedMemory) -> Race:
    """The first race that JAX reports in `text`."""
    found = [_access(match, memory) for match in _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]]
    if len(found) < 2:
        return Race("", "", "", (), "two accesses with no ordering between them")
    one, other = sorted(found, key=lambda access: access.is_copy)
    visits = one.visit, other.visit
    target, other_target = one.buffer + one.indices, other.buffer + other.indices
    if memory.over and one.visit.access is Access.BLOCK and other.is_copy:
        words = (
            f"{other_target} is {other.verb} by {other.words}, still in flight when the kernel ends: nothing waits for "
            "that copy"
        )
        return Race("", other.buffer, other.indices, visits[::-1], words)
    if memory.over and other.is_copy:
        advice = "nothing waits for that copy"
    elif one.core == other.core:
        advice = "wait for the copy in between"
    else:
        advice = "have each core write its own part, or do not declare the dimension parallel"
    again = "" if target == other_target else f"{other_target} "
    words = (
        f"{target} is {one.verb} by {one.words}, and {again}is {other.verb} by {other.words}, with no ordering "
        f"between them: {advice}"
    )
    return Race("", one.buffer, one.indices, visits, words)


def _access(match: tuple[str, ...], memory: TrackedSharedMemory) -> _RacingAccess:
    what, key, extent, device, core, at = match
    frame = _FRAME.match(at)
    line = f"{relative_path(frame[1])}:{frame[2]}" if frame else ""
    verb, kind = ("read", Access.LOAD) if what == "read" else ("written", Access.STORE)
    words = f"core {core} at {line or PIPELINE_CODE}"
    if at.startswith("pallas_call"):
        kind, line = Access.BLOCK, memory.layout.line
        words = f"core {core} as a block of the call at {line}"
    if int(device) >= _FIRST_COPY:
        starter, source = memory.copies[int(device)]
        kind, line, core = Access.COPY, memory.line(source), str(starter)
        words = f"the copy that core {starter} started at {line}"
    indices = f"[{_indices(extent)}]" if extent.strip("()") else ""
    visit, buffer = Visit(kind, place=place_of(line), thread=f"core {core}"), memory.name(ast.literal_eval(key))
    return _RacingAccess(verb, buffer, indices, int(core), words, visit, kind is Access.COPY)


# Indices as Python writes them, from JAX's text of slices and numbers.
def _indices(extent: str) -> str:
    return ", ".join(f"{i[0]}:{i[1]}" if i[0] else i[2] for i in _INDEX.findall(extent))


def describe_wait(variables: Mapping[str, Any]) -> Wait:
    """A core's wait for a semaphore, from the local variables of `Semaphore.wait`."""
    semaphore, source = variables["self"], getattr(variables.get("logging_info"), "source_info", None)
    memory: TrackedSharedMemory = semaphore.shared_memory
    name = memory.name_of_semaphore(semaphore.id)
    lines: Sequence[str] = (
        [memory.line(source)] if source is not None else memory.lines(name, ("semaphore_wait",)) if name else []
    )
    place = f" at {' or '.join(lines)}" if name and lines else ""
    core = int(variables["global_core_id"])
    awaited = f"{name or f'semaphore {semaphore.id}'} to reach {variables['value']}"
    words = f"core {core} waits{place} for {awaited}, but it is at {int(semaphore.count_by_core[core])}"
    return Wait(words, next(filter(None, map(place_of, lines)), ""))


_PARAMETERS = supported_parameters(pltpu.InterpretParams, detect_races=True, on_race="raise", vector_clock_size=COPIES)
_jax_wait = tpu_memory.Semaphore.wait
_WAITS = method_codes(tpu_memory.Semaphore, "wait")
_CORES = 2
_SEEDS = range(8)


@dataclass(frozen=True, slots=True)
class InterpretResult:
    """The outputs of an interpreted call, and its reads of memory that was never written."""

    outputs: Sequence[Array]
    unwritten: Sequence[Array | None] = ()  # a mask of the elements that were never written; None if all were
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
    compiler = replace(compiler, dimension_semantics=leading)
    lengths = mapping.grid[:count]
    if not all(isinstance(n, int) for n in lengths) or math.prod(lengths) < _CORES:
        return {"interpret": _PARAMETERS, "compiler_params": compiler}
    seed = _seed(lengths, mapping.grid, compiler)
    shuffled = replace(_PARAMETERS, num_cores_or_threads=_CORES, random_seed=seed)
    return {"interpret": shuffled, "compiler_params": compiler}


# The first seed that leaves the fewest parallel dimensions in order.
def _seed(lengths: Sequence[int], grid: Sequence[int], compiler: Any) -> int:
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
    """Runs one interpreted call; a Failure says the fault. Unwritten memory holds `fill`, or NaN and large integers."""
    reset = tpu.reset_tpu_interpret_mode_state
    with (
        exclusive_interpreter(_WAITS, describe_wait, evaluate, reset) as (detector, printed),
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
            raise failure(error, detector.deadlock, made[0] if made else None) from cause
    masks = (memory.unwritten_mask(number) for number in range(len(outputs)))
    inside = (m if m is None else m[tuple(map(slice, o.shape))] for m, o in zip(masks, outputs, strict=True))
    return InterpretResult(outputs, [m if m is not None and m.any() else None for m in inside], tuple(memory.reads))


@contextmanager
def _tracked_memory(layout: MemoryLayout, fill: ChooseFill | None) -> Iterator[list[TrackedSharedMemory]]:
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

    # A copy of no elements signals nothing, and JAX's own wait for 0 bytes asserts that there was a signal.
    def wait(semaphore: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        if value:
            _jax_wait(semaphore, value, *args, **kwargs)

    waits = Replacement(tpu_memory.Semaphore, "wait", wait)
    parts = (Replacement(tpu.DMA, name, carried_out(vars(tpu.DMA)[name])) for name in ("execute_read", "execute_write"))
    with replace_attributes(Replacement(tpu_memory, "SharedMemory", make), waits, *parts):
        yield made


# Carries out the copies that nothing waited for, and checks the semaphores. The interpreter runs a copy when it is
# waited for, so one without a wait never runs, whereas a TPU runs it concurrently with everything after it. Running it
# at the end exposes the accesses that it races with.
def _finish(memory: TrackedSharedMemory, printed: io.StringIO) -> None:
    left = list(memory.leftovers())
    memory.over = True
    tpu._shared_memory = memory  # JAX has dropped it; `exclusive_interpreter` resets it
    for semaphore in left:
        for carry_out, _ in semaphore.copies:
            carry_out()
    _raise_races(printed, memory)
    for semaphore in left:
        for _, line in semaphore.copies:
            raise _unfinished_copy(semaphore, line)
    for semaphore in left:
        raise _nonzero_semaphore(semaphore, memory)


# Raises a Failure for a race that JAX before 0.12 has printed before going on.
def _raise_races(printed: io.StringIO, memory: TrackedSharedMemory) -> None:
    if tpu.races is not None and tpu.races.races_found:
        raise Failure(Verdict.RACE, race(printed.getvalue(), memory))
