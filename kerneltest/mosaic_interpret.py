"""JAX's interpreter of Mosaic GPU kernels: one run of it, its races, its deadlocks, and its global state put right."""

import contextlib
import ctypes
import dataclasses
import io
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import source_info_util
from jax._src.pallas.mosaic.interpret import thread_map
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

from kerneltest.dtypes import Array

# 0.10.2 takes `detect_races` and looks for none; waits for copies, groups and `commit_smem` do nothing there.
DETECTS_RACES = jax.__version_info__ >= (0, 11)

# So many copies have a clock of their own; with fewer, one that is under way seems done when its clock is used again.
_COPIES = 64
_STEP = 0.05  # seconds between two looks at the threads
_STUCK = 10  # looks without a change until threads that all wait are a deadlock

_WAITS = frozenset(
    method.__code__
    for name in ("wait", "_wait")
    if (method := getattr(shared_memory.Barrier, name, None)) is not None
)
_ACCESS = re.compile(r"(read|write) of (?:\S*?Key)?\(?(.*?)\)?\[(.*)\] from (.*), (\S+?:\d+)\S*(.*)")
_one_at_a_time = threading.Lock()


class InterpretError(Exception):
    """What the interpreter says against a kernel.

    Attributes:
      verdict: `race`, `out_of_bounds`, `hang`, `unimplemented` or `runtime_error`.
    """

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class _DeadlockError(Exception):
    """Raised in threads that wait for each other."""


def parameters() -> InterpretGPUParams:
    """With races and out-of-bounds reads detected, and memory that nobody wrote filled with NaN."""
    known = {field.name for field in dataclasses.fields(InterpretGPUParams)}
    wanted = {"detect_races": True, "on_race": "raise", "num_tma_threads_per_device": _COPIES}
    return InterpretGPUParams(**{name: value for name, value in wanted.items() if name in known})


def run(compiled: Callable[..., Any], operands: Sequence[Any]) -> list[Array]:
    """The outputs of one interpreted kernel.

    Raises:
      InterpretError: with what the interpreter found; its state is put right for the next kernel.
    """
    with _one_at_a_time, _Watch() as watch, contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            outputs = jax.block_until_ready(compiled(*operands))
            races = _races_found()
        except Exception as error:
            raise _told(error, watch.deadlock, printed.getvalue()) from error
        finally:
            gpu_callbacks.reset_gpu_interpret_mode_state()
    if races:  # 0.11 prints them and goes on
        raise InterpretError("race", _race(printed.getvalue()))
    return [np.asarray(output) for output in outputs]


def _races_found() -> bool:
    races = gpu_callbacks._races
    return races is not None and bool(races.races_found)


def _told(error: Exception, deadlock: str, printed: str) -> InterpretError:
    text = str(error)
    if deadlock:
        return InterpretError("hang", deadlock)
    if "RACE DETECTED" in text or "RACE DETECTED" in printed:
        return InterpretError("race", _race(text if "RACE DETECTED" in text else printed))
    raised = re.findall(r"^(?:\w+\.)*(\w+Error): (.*(?:\n(?!\S*Error|Traceback|\s+File|At:|$).*)*)", text, re.MULTILINE)
    inner = [each for each in raised if each[0] not in ("XlaRuntimeError", "JaxRuntimeError")]
    name, message = inner[0] if inner else (type(error).__name__, text)
    if name == "IndexError" or "out-of-bounds" in message.lower():
        return InterpretError("out_of_bounds", message)
    if name == "NotImplementedError":
        return InterpretError("unimplemented", f"JAX's interpreter of Mosaic GPU kernels: {message}")
    if "read-side operations completed" in message:
        return InterpretError(
            "race",
            "the kernel ends while a copy to global memory still reads shared memory: end it with "
            "plgpu.wait_smem_to_gmem(0)",
        )
    return InterpretError("runtime_error", f"{name}: {message}")


def _race(text: str) -> str:
    """The first race of those that JAX tells of, in two clauses."""
    accesses = _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]
    if len(accesses) < 2:
        return text[text.index("RACE DETECTED") :][:500]
    (one, where, window, thread, line, _), (other, _, other_window, other_thread, other_line, _) = accesses
    return f"{where} [{window}] {one} by {thread} {line} {other} [{other_window}] {other_thread} {other_line}"


class _Watch:
    """Ends a run whose threads all wait for barriers at which nobody can arrive any more.

    Attributes:
      deadlock: which barriers these were, or "".
    """

    def __init__(self) -> None:
        self.deadlock = ""
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
            waiting, running = _threads()
            now = frozenset((thread, id(at["self"]), at["self"].phase, at["self"].arrivals_count)
                            for thread, at in waiting.items())  # fmt: skip
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


def _threads() -> tuple[dict[int, dict[str, Any]], int]:
    """The local variables of each thread that waits at a barrier, and how many of the kernel's threads there are."""
    waiting: dict[int, dict[str, Any]] = {}
    running = 0
    for thread, frame in sys._current_frames().items():
        caller = frame.f_back
        if frame.f_code is threading.Condition.wait.__code__ and caller is not None and caller.f_code in _WAITS:
            waiting[thread] = dict(caller.f_locals)
        at: Any = frame
        while at is not None and at.f_code is not thread_map._run_jaxpr.__code__:
            at = at.f_back
        running += at is not None
    return waiting, max(running, 1)


def _describe(waiting: list[dict[str, Any]]) -> str:
    told = []
    for at in waiting:
        barrier = at["self"]
        source = getattr(at.get("logging_info"), "source_info", None)
        line = f" at {source_info_util.summarize(source)}" if source is not None else ""
        told.append(f"{_number(barrier)}{line}, at which {barrier.arrivals_count} of {barrier.num_arrivals} arrived")
    return "deadlock: " + "; ".join(sorted(told))


def _number(barrier: Any) -> str:
    memory = gpu_callbacks._shared_memory
    for key, allocation in (memory.mem if memory is not None else {}).items():
        if allocation is barrier:
            return f"barrier {key.buffer_id if hasattr(key, 'buffer_id') else key}"
    return "barrier"
