"""Mosaic's interpreters, and the primitives of Mosaic GPU that copy from shared to global memory."""

import contextlib
import ctypes
import dataclasses
import io
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import shared_memory as tpu_memory
from jax._src.pallas.mosaic.interpret import thread_map
from jax._src.pallas.mosaic_gpu import primitives
from jax._src.pallas.mosaic_gpu.core import MemorySpace
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
from jax.experimental.pallas import tpu as pltpu

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.jaxprs.compat.names import line_of

# Before, copies to global memory, waits for them and `commit_smem` have no part in the order of things.
DETECTS_ALL_RACES = jax.__version_info__ >= (0, 11)

# So many copies have a clock of their own; with fewer, one that is under way seems done when its clock is used again.
_COPIES = 64
_STEP = 0.05  # seconds between two looks at the threads
_STUCK = 10  # looks without a change until threads that all wait are a deadlock

_ACCESS = re.compile(
    r"^ *(read|write) of (.*?) from (Warp\w*\(.*?\)|\d+, \d+),? (?:(\S+?:\d+)[:\d]* .*)?$", re.MULTILINE
)
_RAISED = re.compile(r"^(?:\w+\.)*(\w+Error): (.*(?:\n(?!(?:\w+\.)*\w+Error: |Traceback|At:|\s|$).*)*)", re.MULTILINE)
_SPACES: list[str] = [str(space.name).lower() for space in MemorySpace]
# JAX's own names, and what is shown in their place.
_PLAINLY: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\w*Key\(memory_space_id=(\d+),.*?buffer_id=(\d+)\)"), lambda m: f"{_SPACES[int(m[1])]} {m[2]}"),
    (re.compile(r"Warpgroup\(.*?block_id=(\d+), warpgroup_id=(\d+)\)"), lambda m: f"warpgroup {m[2]} of block {m[1]}"),
    (re.compile(r"^(\d+), (\d+)$"), lambda m: f"warpgroup {m[2]}"),
    (re.compile(r"slice\((\d+), (\d+)(?:, (?:1|None))?\)"), lambda m: f"{m[1]}:{m[2]}"),
    (re.compile(r"\[Access\(range=\((.*?)\), permutation=\w+\)\]|\[\((.*?)\)\]"), lambda m: f"[{m[1] or m[2]}]"),
)
_one_at_a_time = threading.Lock()


class _DeadlockError(Exception):
    """Raised in threads that wait for each other."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interpreter:
    """One of JAX's two, and where it keeps what.

    Attributes:
      parameters: with races and out-of-bounds reads detected, and memory that nobody wrote filled with NaN.
      reset: forgets all state, as is due after an exception.
      races: the state of race detection, or None.
      waits: the code in which a thread waits for others.
    """

    parameters: Any
    reset: Callable[[], None]
    races: Callable[[], Any]
    waits: frozenset[Any]


def _parameters(cls: Any, **wanted: Any) -> Any:
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in wanted.items() if name in known})


def _codes(cls: Any, *names: str) -> frozenset[Any]:
    return frozenset(getattr(cls, name).__code__ for name in names if hasattr(cls, name))


GPU = Interpreter(
    _parameters(InterpretGPUParams, detect_races=True, on_race="raise", num_tma_threads_per_device=_COPIES),
    gpu_callbacks.reset_gpu_interpret_mode_state,
    lambda: gpu_callbacks._races,
    _codes(shared_memory.Barrier, "wait", "_wait"),
)
TPU = Interpreter(
    _parameters(pltpu.InterpretParams, detect_races=True, on_race="raise"),
    tpu.reset_tpu_interpret_mode_state,
    lambda: tpu.races,
    _codes(tpu_memory.Semaphore, "wait"),
)


def run(interpreter: Interpreter, compiled: Callable[..., Any], operands: Sequence[Any]) -> list[Array]:
    """The outputs of one interpreted kernel.

    Raises:
      Failure: with what the interpreter found; its state is put right for the next kernel.
    """
    with _one_at_a_time, _quiet() as printed, _Watch(interpreter.waits) as watch:
        try:
            outputs = [np.asarray(output) for output in compiled(*operands)]
            races = interpreter.races()
            if races is not None and races.races_found:  # 0.11 prints them and goes on
                raise Failure(Verdict.RACE, _race(printed.getvalue()))
        except Failure:
            raise
        except Exception as error:
            raise _failure(str(error), watch.deadlock) from error
        finally:
            interpreter.reset()
    return outputs


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Without the traceback that JAX logs for each thread, and with what 0.11 prints of races."""
    log = logging.getLogger("jax._src.callback")
    before, log.disabled = log.disabled, True
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            yield printed
    finally:
        log.disabled = before
        if "RACE DETECTED" not in printed.getvalue():
            sys.stdout.write(printed.getvalue())


def _failure(text: str, deadlock: str) -> Failure:
    """What the text of an interpreter's exception, or a deadlock, says of the kernel."""
    if deadlock:
        return Failure(Verdict.HANG, deadlock)
    if "RACE DETECTED" in text:
        return Failure(Verdict.RACE, _race(text))
    # The first exception is the cause; those of other threads, and XLA's, quote it.
    raised = [each for each in _RAISED.findall(text) if not each[0].endswith("RuntimeError")]
    name, message = raised[0] if raised else ("RuntimeError", text)
    message = _plainly(message)
    if name == "IndexError" or "out-of-bounds" in message.lower():
        return Failure(Verdict.OUT_OF_BOUNDS, message)
    if name == "NotImplementedError":
        return Failure(Verdict.UNIMPLEMENTED, f"JAX's interpreter of Mosaic GPU kernels: {message}")
    if "read-side operations completed" in message:
        return Failure(
            Verdict.RACE,
            "the kernel ends while a copy to global memory still reads shared memory: end it with "
            "plgpu.wait_smem_to_gmem(0)",
        )
    misused = "a barrier is misused: " if re.search(r"[Bb]arrier.* phase", message) else ""
    return Failure(Verdict.RUNTIME_ERROR, f"{misused}{name}: {message}")


def _race(text: str) -> str:
    """The first race that JAX tells of, in one line."""
    done = {"read": "is read", "write": "is written"}
    accesses = [
        f"{_plainly(where)} {done[what]} by {_plainly(thread)}{_at(line)}"
        for what, where, thread, line in _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]
    ]
    return f"{', and '.join(accesses)}, in no order (a copy, once started, runs beside its warpgroup)"


def _at(line: str) -> str:
    return f" at {line}" if line else " in code of the pipeline's own"


def _plainly(text: str) -> str:
    for pattern, words in _PLAINLY:
        text = pattern.sub(words, text)
    return text


class _Watch:
    """Ends a run whose threads all wait for barriers at which nobody can arrive any more.

    Attributes:
      deadlock: which barriers these were, or "".
    """

    def __init__(self, waits: frozenset[Any]) -> None:
        self.deadlock = ""
        self._waits = waits
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        before, same = None, 0
        while not self._over.wait(_STEP):
            waiting, running = _threads(self._waits)
            now = frozenset((thread, *_progress(at["self"])) for thread, at in waiting.items())
            same = same + 1 if waiting and len(waiting) >= running and now == before else 0
            before = now
            if same < _STUCK:
                continue
            self.deadlock = _describe(list(waiting.values()))
            for thread, at in waiting.items():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_DeadlockError))
                with at["self"].cv:
                    at["self"].cv.notify_all()
            return


def _threads(waits: frozenset[Any]) -> tuple[dict[int, dict[str, Any]], int]:
    """The local variables of each thread that waits for others, and how many of the kernel's threads there are."""
    waiting: dict[int, dict[str, Any]] = {}
    running = 0
    for thread, frame in sys._current_frames().items():
        for at in (frame, frame.f_back):
            if at is not None and at.f_code in waits and "self" in at.f_locals:
                waiting[thread] = dict(at.f_locals)
        runs: Any = frame
        while runs is not None and runs.f_code is not thread_map._run_jaxpr.__code__:
            runs = runs.f_back
        running += runs is not None
    return waiting, max(running, 1)


def _progress(awaited: Any) -> tuple[Any, ...]:
    """What changes about a barrier or a semaphore when anybody arrives."""
    counts = getattr(awaited, "count_by_core", None)
    arrived = (getattr(awaited, name, 0) for name in ("phase", "arrivals_count"))
    return (id(awaited), *arrived, () if counts is None else tuple(counts.tolist()))


def _describe(waiting: list[dict[str, Any]]) -> str:
    waits = []
    for at in waiting:
        awaited, source = at["self"], getattr(at.get("logging_info"), "source_info", None)
        line = "" if source is None else line_of(source)
        if isinstance(awaited, tpu_memory.Semaphore):
            counted = awaited.count_by_core.tolist()
            waits.append(
                f"core {at['global_core_id']} waits for semaphore {awaited.id} to count {at['value']}, at {counted}"
            )
        elif "num_arrivals" in vars(awaited):
            arrived = f"at which {awaited.arrivals_count} of {awaited.num_arrivals} arrived"
            waits.append(
                f"{_plainly(str(at.get('thread', 'a thread')))} waits for {_number(awaited)}{_at(line)}, {arrived}"
            )
        else:
            waits.append(f"a thread waits for {_number(awaited)}")
    return "deadlock: " + "; ".join(sorted(waits))


def _number(barrier: Any) -> str:
    memory: Any = gpu_callbacks._shared_memory
    for key, allocation in (memory.mem if memory is not None else {}).items():
        if allocation is barrier:
            return f"barrier {getattr(key, 'buffer_id', key)}"
    return "a barrier"


def is_copy_out(equation: Any) -> bool:
    """Whether it starts a copy from shared to global memory."""
    return equation.primitive is primitives.copy_smem_to_gmem_p


def is_predicated_copy_out(equation: Any) -> bool:
    """Whether it starts such a copy where its last operand, the predicate, is true."""
    return is_copy_out(equation) and bool(equation.params["has_user_predicate"])


def is_wait_for_copies_out(equation: Any) -> bool:
    """Whether it waits until at most its parameter `n` of the groups of such copies are under way."""
    # In JAX 0.10.2 `n` is an operand, and the interpreter waits for nothing.
    return equation.primitive is primitives.wait_smem_to_gmem_p and "n" in equation.params


def ends_copy_group(equation: Any) -> bool:
    """Whether the copies started before it make up a group."""
    return equation.primitive is primitives.commit_group_p or bool(equation.params.get("commit_group"))
