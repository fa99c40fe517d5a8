"""Running one of JAX's Mosaic interpreters: its threads, which may wait for each other, and its printed output."""

import contextlib
import ctypes
import dataclasses
import functools
import io
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import CodeType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import callback as callbacks
from jax._src import config, dispatch, source_info_util
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import race_detection_state, thread_map, vector_clock
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory

from kerneltest.core.details import Hung
from kerneltest.core.dtypes import Array
from kerneltest.core.processes import thread_stacks
from kerneltest.trace.jax_compat.jaxprs import Jaxpr
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes
from kerneltest.trace.jax_compat.source_lines import KernelFaultError, call_back, note, raise_own_exception

# Replacements for functions of JAX's Mosaic interpreters: the same results with less work for each access.


def patch_interpreters() -> AbstractContextManager[None]:
    """Puts the replacements in place while an interpreter is lowered or runs; may be entered more than once."""
    return replace_attributes(*_REPLACEMENTS)


def _find_replacements() -> Iterator[Replacement]:
    if (clocks := getattr(vector_clock, "NpVectorClock", None)) is not None:  # since JAX 0.12
        yield Replacement(clocks, "ordered", lambda self, other: are_ordered(self.clock, other.clock))
    else:
        yield Replacement(vector_clock, "ordered", are_ordered)
    if hasattr(getattr(gpu_callbacks, "HostAllocationRequest", None), "as_jax_array"):  # before JAX 0.12
        # It makes arrays on a device, which its caller converts back to NumPy's.
        on_host = SimpleNamespace(**{**vars(jnp), "array": np.array, "int32": np.int32})
        yield Replacement(gpu_callbacks, "jnp", on_host)
    if _jax_to_int is not None:
        yield Replacement(shared_memory, "_to_int", _to_int)
    # Each access is recorded with its line, which takes a walk through a traceback.
    line = functools.lru_cache(maxsize=4096)(source_info_util.summarize)
    yield Replacement(race_detection_state, "source_info_util", SimpleNamespace(summarize=line))
    yield Replacement(tpu, "_get_randomized_grid_coordinates", grid_order)


def are_ordered(x: Array, y: Array) -> bool:
    """Returns whether one of two vector clocks is before the other, that is, exactly one of them is ahead anywhere.

    JAX compares each access with all earlier ones to the same memory, and takes four times as long.
    """
    return bool(np.count_nonzero(x < y)) != bool(np.count_nonzero(x > y))


_jax_to_int: Any = getattr(shared_memory, "_to_int", None)  # since JAX 0.12


def _to_int(x: Any) -> Any:
    # The callbacks of an interpreter that is not compiled get NumPy's integers instead of JAX's arrays.
    return int(x) if isinstance(x, np.integer) else _jax_to_int(x)


_jax_grid_order = tpu._get_randomized_grid_coordinates


def grid_order(*args: Any) -> Any:
    """The order in which the TPU interpreter runs programs, as a constant: it depends only on the grid and a seed."""
    with jax.ensure_compile_time_eval():
        return _jax_grid_order(*args)


_REPLACEMENTS = tuple(_find_replacements())


# Number of copies that get a vector clock of their own. When copies share one, a copy in flight can seem complete.
COPIES = 64

_POLL_INTERVAL = 0.05  # seconds
_POLLS_UNTIL_DEADLOCK = 10  # consecutive polls in which all threads wait and nothing changes

_one_at_a_time = threading.Lock()  # the interpreters keep their state in globals

# Runs one thread of a kernel that is not compiled, from an open jaxpr and the values of its constants and inputs.
EvaluateThread = Callable[[Jaxpr, Sequence[Any]], None]


_jitted_eval = jax.jit(jax.core.eval_jaxpr, static_argnums=0)


def _compile_and_run(jaxpr: Jaxpr, consts: Any, *args: Any) -> None:
    # Not called directly: when threads make the first call together, one goes on and the others wait until it ends.
    _jitted_eval.trace(jaxpr, consts, *args).lower().compile()(consts, *args)


# JAX 0.10's own function compiles the same code for each thread of each run.
_run_compiled = thread_map._run_jaxpr if jax.__version_info__ >= (0, 11) else _compile_and_run


def _run_thread(evaluate: EvaluateThread | None, jaxpr: Jaxpr, consts: Any, *args: Any) -> None:
    try:
        # The default device belongs to the parent thread. A machine with a GPU would run this one there.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            if evaluate is None:
                _run_compiled(jaxpr, consts, *args)
            else:
                evaluate(jaxpr, [*consts, *args])
    except Exception as error:
        note(error)
        raise


def _call_back_with_numpy(*args: Any, callback: Callable[..., Any], **_: Any) -> tuple[Any, ...]:
    # JAX's own makes arrays on a device of all arguments, and the interpreter converts them back to NumPy's: that is
    # two thirds of the cost of a callback, and each run makes dozens of them.
    # Arrays without axes become scalars, which they are where nothing is compiled.
    with config.default_device(jax.local_devices(backend="cpu")[0]):
        return tuple(map(np.asarray, call_back(callback, [np.array(value)[()] for value in args])))


class _DeadlockError(KernelFaultError):
    pass


def supported_parameters(cls: Any, **wanted: Any) -> Any:
    """An interpreter's parameters: those of `wanted` that this version of JAX has."""
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in wanted.items() if name in known})


def method_codes(cls: type, *names: str) -> frozenset[CodeType]:
    """The code objects of those methods that a class has."""
    return frozenset(getattr(cls, name).__code__ for name in names if hasattr(cls, name))


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """A thread that waits for others, in words, and FILE:LINE of the wait in the user's code, or ""."""

    words: str
    line: str = ""


# From the local variables of the method in which a thread waits.
DescribeWait = Callable[[Mapping[str, Any]], Wait]


@contextlib.contextmanager
def exclusive_interpreter(
    waits: frozenset[CodeType],
    describe: DescribeWait,
    evaluate: EvaluateThread | None,
    reset: Callable[[], None],
) -> Iterator[tuple["DeadlockDetector", io.StringIO]]:
    """Holds the lock under which one interpreter at a time runs, with JAX patched for it.

    Yields the deadlock detector, and the text that the interpreter prints. `reset` clears the interpreter's globals: at
    the end for the next kernel, and first because a test that calls the interpreter itself may leave them. The first
    exception inside the interpreter is raised again if it is kerneltest's.
    """
    threads = Replacement(thread_map, "_run_jaxpr", functools.partial(_run_thread, evaluate))
    with (
        _one_at_a_time,
        raise_own_exception(),
        patch_interpreters(),
        replace_attributes(threads, Replacement(callbacks, "io_callback_impl", _call_back_with_numpy)),
        _captured_output() as printed,
        DeadlockDetector(waits, describe) as detector,
    ):
        _reset(reset)
        try:
            yield detector, printed
        finally:
            _reset(reset)


# Also has JAX forget ordered effects if one failed: the next kernel with such effects would fail with it.
def _reset(reset: Callable[[], None]) -> None:
    reset()
    try:
        dispatch.runtime_tokens.block_until_ready()
    except Exception:
        dispatch.runtime_tokens.clear()


# Captures what JAX prints of races and semaphores, and suppresses the traceback that it logs for each thread.
@contextlib.contextmanager
def _captured_output() -> Iterator[io.StringIO]:
    log = logging.getLogger("jax._src.callback")
    before, log.disabled = log.disabled, True
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            yield printed
    finally:
        log.disabled = before
        if "RACE DETECTED" not in printed.getvalue():
            lines = printed.getvalue().splitlines(keepends=True)
            kept = (line for line in lines if not (line.startswith("Semaphore ") and " at kernel exit: " in line))
            sys.stdout.write("".join(kept))


class DeadlockDetector:
    """Ends a run in which every thread waits for a signal that can no longer come, and keeps what they wait for."""

    def __init__(self, waits: frozenset[CodeType], describe: DescribeWait) -> None:
        self.deadlock: Hung | None = None
        self._waits, self._describe = waits, describe
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> "DeadlockDetector":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._over.is_set():
            try:
                self._detect()
                return
            except Exception as error:  # a deadlock must be noticed all the same
                note(error)

    def _detect(self) -> None:
        before, unchanged = None, 0
        while not self._over.wait(_POLL_INTERVAL):
            waiting, running = _waiting_threads(self._waits)
            now = frozenset((thread, *_progress(variables["self"])) for thread, variables in waiting.items())
            unchanged = unchanged + 1 if waiting and len(waiting) >= running and now == before else 0
            before = now
            if unchanged < _POLLS_UNTIL_DEADLOCK:
                continue
            try:
                found = sorted(map(self._describe, waiting.values()), key=lambda wait: wait.words)
                line = next((wait.line for wait in found if wait.line), "")
                self.deadlock = Hung("deadlock: " + "; ".join(wait.words for wait in found), line)
            except Exception as error:  # the run must end all the same
                note(error)
            for thread, variables in waiting.items():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_DeadlockError))
                with variables["self"].cv:
                    variables["self"].cv.notify_all()
            return


# The local variables of each thread that waits for others, and the number of the kernel's threads.
def _waiting_threads(waits: frozenset[CodeType]) -> tuple[dict[int, Mapping[str, Any]], int]:
    waiting: dict[int, Mapping[str, Any]] = {}
    running = 0
    with thread_stacks() as frames:
        for thread, frame in frames.items():
            for at in (frame, frame.f_back):
                if at is not None and at.f_code in waits and "self" in at.f_locals:
                    waiting[thread] = dict(at.f_locals)
            running += any(outer.f_code is _run_thread.__code__ for outer, _ in traceback.walk_stack(frame))
    return waiting, max(running, 1)


# The state of a barrier or a semaphore, which changes with every arrival.
def _progress(awaited: Any) -> tuple[Any, ...]:
    counts = getattr(awaited, "count_by_core", None)
    arrived = (getattr(awaited, name, 0) for name in ("phase", "arrivals_count"))
    return (id(awaited), *arrived, () if counts is None else tuple(counts.tolist()))
