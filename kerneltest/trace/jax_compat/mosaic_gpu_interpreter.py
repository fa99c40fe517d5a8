"""JAX's Mosaic GPU interpreter."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.pallas.mosaic_gpu.core import MemorySpace
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

from kerneltest.core.details import Access, Hung, MemoryFault, Race, Raised, Stated, Visit
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.source_location import in_order, relative_path
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.interpreter_threads import (
    COPIES,
    EvaluateThread,
    Wait,
    exclusive_interpreter,
    method_codes,
    supported_parameters,
)
from kerneltest.trace.jax_compat.source_lines import (
    first_exception,
    is_limit_text,
    limitation_text,
    line_of,
    raised_in_jax,
)

# Before 0.11, copies to global memory, waits for them and `commit_smem` do not take part in the order of events.
DETECTS_ALL_RACES = jax.__version_info__ >= (0, 11)

PARAMETERS = supported_parameters(
    InterpretGPUParams, detect_races=True, on_race="raise", num_tma_threads_per_device=COPIES
)
_WAITS = method_codes(shared_memory.Barrier, "wait", "_wait")

# JAX's text: an access that is part of a race, an exception in a traceback, and an access outside a buffer.
_ACCESS = re.compile(
    r"^ *+(read|write) of (?>(.*?) from )(Warp\w*+\([^()]*\)|\d++, \d++),? (?:([^\s:]++):(\d++)[:\d]*+ .*)?$",
    re.MULTILINE,
)
_EXCEPTION = re.compile(
    r"^(?:\w+\.)*(\w+Error): (.*(?:\n(?!(?:\w+\.)*\w+Error: |Traceback|At:|\s|$).*)*)", re.MULTILINE
)
_OUTSIDE = in_order(
    r".*?(read|swap|block index [^\n]{0,200}?)(?: of| for) ",
    r"(\w*?Key\(.*?\)|[^\n]*?)[,:] ",
    r"[^\n]*?ing (\[[^\[\]\n]*\]) but",
)
_AT_A_BARRIER = re.compile("phase|complet|arriv|participat")
_NAMES = {"GMEM": "global memory", "SMEM": "shared memory", "TMEM": "tensor memory", "REGS": "registers"}
_SPACES: list[str] = [_NAMES.get(space.name, "memory") for space in MemorySpace]
# JAX's representations of memory, threads and indices, and the forms in which messages show them.
_PLAIN_FORMS: Mapping[str, Callable[[re.Match[str]], str]] = {
    # Which of several buffers it is depends on the order of allocations.
    r"\b\w*?Key\(memory_space_id=(\d++),[^()]{0,200}?buffer_id=\d++\)": lambda m: _SPACES[int(m[1])],
    r"Warpgroup\([^()]{0,200}?block_id=(\d++), warpgroup_id=(\d++)\)": lambda m: f"warpgroup {m[2]} of block {m[1]}",
    r"^(\d+), (\d+)$": lambda m: f"warpgroup {m[2]}",
    r"slice\((\d+), (\d+)(?:, (?:1|None))?\)": lambda m: f"{m[1]}:{m[2]}",
    r"\[Access\(range=\(([^\[\]]*)\), permutation=\w+\)\]|\[\(([^\[\]]*)\)\]": lambda m: f"[{m[1] or m[2]}]",
}


def run(call: Callable[..., Any], operands: Sequence[Any], evaluate: EvaluateThread | None = None) -> list[Array]:
    """Runs one interpreted kernel; a Failure says the fault. Its threads run by `evaluate` if they are not compiled."""
    reset = gpu_callbacks.reset_gpu_interpret_mode_state
    with exclusive_interpreter(_WAITS, _describe_wait, evaluate, reset) as (detector, printed):
        try:
            outputs = [np.asarray(output) for output in call(*operands)]
            races = gpu_callbacks._races
            if races is not None and races.races_found:  # JAX 0.11 prints them and goes on
                raise Failure(Verdict.RACE, _race(printed.getvalue()))
        except Failure:
            raise
        except Exception as error:
            raise _failure(exception_text(error), detector.deadlock) from error
    return outputs


def _failure(text: str, deadlock: Hung | None) -> Failure:
    if deadlock is not None:
        return Failure(Verdict.HANG, deadlock)
    if "RACE DETECTED" in text:
        return Failure(Verdict.RACE, _race(text))
    # The first exception is the cause. Those of other threads quote it, as XLA's do.
    raised = [found for found in _EXCEPTION.findall(text) if not found[0].endswith("RuntimeError")]
    name, said = raised[0] if raised else ("RuntimeError", text)
    if name == "IndexError" or "out-of-bounds" in said.lower():
        return Failure(Verdict.OUT_OF_BOUNDS, _outside(said))
    message = _plain(said)
    if "read-side operations completed" in said:
        words = (
            "the kernel ends while a copy to global memory is still reading shared memory: end it with "
            "plgpu.wait_smem_to_gmem(0)"
        )
        return Failure(Verdict.RACE, Race("", "shared memory", "", (Visit(Access.COPY),), words))
    if "barrier" in said.lower() and _AT_A_BARRIER.search(said):
        misuse = Stated("a barrier is misused: {error}: {message}", {"error": name, "message": message})
        return Failure(Verdict.RUNTIME_ERROR, misuse)
    if is_limit_text(name, said) or raised_in_jax(first_exception()):
        return Failure(Verdict.UNAVAILABLE, limitation_text("cannot interpret this", name, message))
    return Failure(Verdict.RUNTIME_ERROR, Raised("the interpreter", name, message))


def _outside(said: str) -> MemoryFault:
    found = _OUTSIDE.search(said)
    if found is None:
        return MemoryFault("", Visit(Access.LOAD), "", "", _plain(said))
    kind = {"read": Access.LOAD, "swap": Access.STORE}.get(found[1], Access.BLOCK)
    return MemoryFault("", Visit(kind), _plain(found[2]), _plain(found[3]), _plain(said))


def _race(text: str) -> Race:
    accesses = _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]
    clauses, visits = [], []
    for access, where, thread, file, number in accesses:
        memory, indices = _split_indices(where)
        line = f"{relative_path(file)}:{number}" if file else ""
        done, kind = ("read", Access.LOAD) if access == "read" else ("written", Access.STORE)
        clauses.append(f"{_plain(memory)}{_plain(indices)} is {done} by {_plain(thread)}{_at(line)}")
        visits.append(Visit(kind, place=line, thread=_plain(thread)))
    words = (
        f"{', and '.join(clauses)}, with no ordering between them (a copy runs concurrently with the warpgroup that "
        "started it)"
    )
    # JAX's documentation requires this of pipelines that store nothing; the simulator and an H200 do not need it.
    if {(visit.access, bool(visit.place)) for visit in visits} == {(Access.STORE, False), (Access.LOAD, True)}:
        words += ": end the body of a pipeline that stores nothing with plgpu.commit_smem()"
    buffer, element = map(_plain, _split_indices(accesses[0][1] if accesses else ""))
    return Race("", buffer, element, tuple(visits), words)


# Splits `MEMORY[INDICES]`; without indices, the second part is "".
def _split_indices(where: str) -> tuple[str, str]:
    memory, bracket, inside = where.partition("[")
    return (memory, bracket + inside) if inside.endswith("]") else (where, "")


def _at(line: str) -> str:
    return f" at {line}" if line else " in the pipeline's own code"


def _plain(text: str) -> str:
    for pattern, form in _PLAIN_FORMS.items():
        text = re.sub(pattern, form, text)
    return text


def _describe_wait(variables: Mapping[str, Any]) -> Wait:
    barrier, source = variables["self"], getattr(variables.get("logging_info"), "source_info", None)
    if "num_arrivals" not in vars(barrier):
        return Wait(f"a thread waits for {_barrier_name(barrier)}")
    line = "" if source is None else line_of(source)
    arrived = f"at which {barrier.arrivals_count} of {barrier.num_arrivals} arrived"
    thread = _plain(str(variables.get("thread", "a thread")))
    return Wait(f"{thread} waits for {_barrier_name(barrier)}{_at(line)}, {arrived}", line)


def _barrier_name(barrier: Any) -> str:
    memory: Any = gpu_callbacks._shared_memory
    for key, allocation in (memory.mem if memory is not None else {}).items():
        if allocation is barrier:
            return f"barrier {getattr(key, 'buffer_id', key)}"
    return "a barrier"
