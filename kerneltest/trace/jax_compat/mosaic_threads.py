"""Running one of JAX's interpreters of Mosaic kernels: its threads, which may wait for each other, and its output."""

import contextlib
import ctypes
import dataclasses
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax._src.pallas.mosaic.interpret import thread_map

import kerneltest.trace.jax_compat.mosaic_host  # noqa: F401 - which changes what the interpreters call
from kerneltest.core.runtime import stacks

# So many copies have a clock of their own; with fewer, one that is under way seems done when its clock is used again.
COPIES = 64

_STEP = 0.05  # seconds between two looks at the threads
_STUCK = 10  # looks without a change until threads that all wait are a deadlock

_one_at_a_time = threading.Lock()  # their state is global

# From a jaxpr, open, and the values of its constants and inputs: runs a thread of a kernel that is not compiled.
Evaluate = Callable[[Any, Sequence[Any]], None]

_evaluate: Evaluate | None = None  # of the interpreter that runs; None for one that is compiled


def _evaluated(jaxpr: Any, consts: Any, *args: Any) -> None:
    jax.core.eval_jaxpr(jaxpr, consts, *args)


_compiled_once = jax.jit(_evaluated, static_argnums=0)


def _compiled_here(jaxpr: Any, consts: Any, *args: Any) -> None:
    # Not called as it is: of threads that call for the first time, one goes on and the others wait until it has ended.
    _compiled_once.trace(jaxpr, consts, *args).lower().compile()(consts, *args)


# JAX 0.10's own compiles the same code for each thread of each run.
_compiled = thread_map._run_jaxpr if jax.__version_info__ >= (0, 11) else _compiled_here


def _run_jaxpr(jaxpr: Any, consts: Any, *args: Any) -> None:
    # The thread that started this one has a device of its own: on a machine with a GPU, this one would run there.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        if _evaluate is None:
            _compiled(jaxpr, consts, *args)
        else:
            _evaluate(jaxpr, [*consts, *args])


thread_map._run_jaxpr = _run_jaxpr


class _DeadlockError(Exception):
    """Raised in threads that wait for each other."""


def known_parameters(cls: Any, **wanted: Any) -> Any:
    """An interpreter's parameters: those of some that this version of JAX has."""
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in wanted.items() if name in known})


def codes(cls: Any, *names: str) -> frozenset[Any]:
    """The code of those methods that a class has."""
    return frozenset(getattr(cls, name).__code__ for name in names if hasattr(cls, name))


@contextlib.contextmanager
def alone(
    waits: frozenset[Any], describe: Callable[[dict[str, Any]], str], evaluate: Evaluate | None
) -> Iterator[tuple["Watch", io.StringIO]]:
    """With no other interpreter beside it: who watches for deadlocks, and what is printed.

    Args:
      waits: the code in which a thread waits for others.
      describe: says what a thread waits for, from the local variables of that code.
      evaluate: runs the kernel's threads; None where they are compiled.
    """
    global _evaluate
    with _one_at_a_time, _quiet() as printed, Watch(waits, describe) as watch:
        _evaluate = evaluate
        try:
            yield watch, printed
        finally:
            _evaluate = None


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """Without the traceback that JAX logs for each thread, and with what it prints of races and semaphores."""
    log = logging.getLogger("jax._src.callback")
    before, log.disabled = log.disabled, True
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            yield printed
    finally:
        log.disabled = before
        if "RACE DETECTED" not in printed.getvalue():
            sys.stdout.write("".join(line for line in printed.getvalue().splitlines(True) if not _is_known(line)))


def _is_known(line: str) -> bool:
    return line.startswith("Semaphore ") and " at kernel exit: " in line


class Watch:
    """Ends a run whose threads all wait for what nobody can signal any more.

    Attributes:
      deadlock: which barriers or semaphores these were, or "".
    """

    def __init__(self, waits: frozenset[Any], describe: Callable[[dict[str, Any]], str]) -> None:
        self.deadlock = ""
        self._waits, self._describe = waits, describe
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
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
            self.deadlock = "deadlock: " + "; ".join(sorted(map(self._describe, waiting.values())))
            for thread, at in waiting.items():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_DeadlockError))
                with at["self"].cv:
                    at["self"].cv.notify_all()
            return


def _threads(waits: frozenset[Any]) -> tuple[dict[int, dict[str, Any]], int]:
    """The local variables of each thread that waits for others, and how many of the kernel's threads there are."""
    waiting: dict[int, dict[str, Any]] = {}
    running = 0
    with stacks() as frames:
        for thread, frame in frames.items():
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
