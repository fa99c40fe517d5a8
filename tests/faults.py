"""Pairings whose oracles or kernels do what a test process does not survive, or never ends: each on one case alone.

That case is the one of ones, or of an infinity, unless the fault is of a signature: then it is the longer one.
"""

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.backends.base import Executable
from kerneltest.backends.interpret import Interpret
from kerneltest.execute import watchdog
from kerneltest.trace.tracing import Traced

SHORT, LONG = 5, 6
FATAL = 7  # a length for which nothing is compiled


def double(x: Any) -> Any:
    return vector_add(x, x)


def _paired(name: str, kernel: Callable[..., Any], oracle: Callable[..., Any], *lengths: int) -> kt.Pairing:
    oracle.__name__ = oracle.__qualname__ = name
    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=lengths)))(oracle)


def in_oracle(fault: Callable[[], object]) -> kt.Pairing:
    """A pairing whose oracle does something on an array of ones."""

    def oracle(x: Any) -> Any:
        if type(x) is np.ndarray and x.size and (x == 1).all():
            fault()
        return 2 * x

    return _paired(fault.__name__.strip("_"), double, oracle, SHORT)


def _send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _segfault() -> None:
    print("said before the end", file=sys.stderr)
    ctypes.string_at(0)


def _overflow() -> None:
    faulthandler._stack_overflow()  # type: ignore[attr-defined]


def _abort() -> None:
    os.abort()


def _divide() -> None:
    _send(signal.SIGFPE)()


def _illegal() -> None:
    _send(signal.SIGILL)()


def _bus() -> None:
    _send(signal.SIGBUS)()


def _killed() -> None:
    _send(signal.SIGKILL)()


def _terminated() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _send(signal.SIGTERM)()


def _leaves() -> None:
    os._exit(0)


def _leaves_loudly() -> None:
    os._exit(7)


def _leaves_in_c() -> None:
    ctypes.CDLL(None)._exit(0)


def _exits() -> None:
    sys.exit(0)


def _loops() -> None:
    while True:
        time.sleep(0.01)


def _sleeps() -> None:
    ctypes.CDLL(None).sleep(600)


def _sleeps_with_the_lock() -> None:
    ctypes.PyDLL(None).sleep(600)


def _stopped() -> None:
    _send(signal.SIGSTOP)()


def _eats() -> None:
    kept = []
    while True:
        kept.append(np.ones(2**24))
        time.sleep(0.05)  # the limit is looked at from time to time


def _asks_for_too_much() -> None:
    np.ones(2**60, np.uint8)


def _recurses() -> None:
    _recurses()


def _files() -> list[int]:
    """Descriptors of the pipes and sockets of this process."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            target = str(path.readlink())
        except OSError:
            continue
        if int(path.name) > 2 and target.startswith(("pipe:", "socket:")):
            found.append(int(path.name))
    return found


def _writes_garbage() -> None:
    for file in _files():
        try:
            os.set_blocking(file, False)
            os.write(file, b"\x00\x00\x00\x04\xde\xad\xbe\xef" * 3)
        except OSError:
            continue


def _records() -> int:
    """A descriptor of this process's records, beside which it notes what it does."""
    open_files = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.exists()]
    (running,) = (path for path in open_files if path.name.startswith("running-"))
    mine = running.with_name(running.name.replace("running", "records")).with_suffix(".jsonl")
    return os.open(mine, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _cut_off() -> None:
    os.write(_records(), b'{"schema":12,"record":{"item":"tests/fau')
    _send(signal.SIGKILL)()


def _disk_is_full() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


def _chatters() -> None:
    for _ in range(2000):
        print("a line that nobody asked for, and many more of them" * 20)


segfault, overflow, abort = map(in_oracle, (_segfault, _overflow, _abort))
divide, illegal, bus, killed, terminated = map(in_oracle, (_divide, _illegal, _bus, _killed, _terminated))
leaves, leaves_loudly, leaves_in_c, exits = map(in_oracle, (_leaves, _leaves_loudly, _leaves_in_c, _exits))
loops, sleeps, sleeps_with_the_lock, stopped = map(in_oracle, (_loops, _sleeps, _sleeps_with_the_lock, _stopped))
eats, asks_for_too_much, recurses = map(in_oracle, (_eats, _asks_for_too_much, _recurses))
writes_garbage, cut_off, disk_is_full, chatters = map(in_oracle, (_writes_garbage, _cut_off, _disk_is_full, _chatters))


def of_a_kernel(kernel: Callable[..., Any]) -> kt.Pairing:
    """A pairing of a kernel that does something itself."""
    return _paired(kernel.__name__.strip("_"), kernel, lambda x: 2 * x, SHORT, LONG)


def _on_host(x: Any) -> Any:
    if np.isposinf(x).any():
        os.abort()
    return x


def _aborts_in_run(x: Any) -> Any:
    return double(jax.pure_callback(_on_host, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential"))


def _aborts_in_trace(x: Any) -> Any:
    if len(x) == LONG and "KT_FAULTS" in os.environ:
        os.abort()
    return double(x)


def _hangs_in_trace(x: Any) -> Any:
    while len(x) == LONG and "KT_FAULTS" in os.environ:
        time.sleep(0.01)
    return double(x)


aborts_in_run, aborts_in_trace, hangs_in_trace = map(of_a_kernel, (_aborts_in_run, _aborts_in_trace, _hangs_in_trace))


aborts_in_compilation = _paired("aborts_in_compilation", double, lambda x: 2 * x, FATAL, SHORT)
_prepare = Interpret.prepare


def _prepared(self: Interpret, traced: Traced) -> Executable:
    if traced.inputs[0].shape == (FATAL,):
        os.abort()
    return _prepare(self, traced)


if "KT_FAULTS" in os.environ:  # and not where a test that reads all modules imports this one
    Interpret.prepare = _prepared  # type: ignore[method-assign]
    watchdog.GRACE = 2.0


def _of_infinities(x: Any) -> Any:
    if np.isposinf(x).any():
        os.abort()
    return x


@kt.oracle_for(
    vector_add,
    x=kt.array("n", "float32"),
    y=kt.derived("n", _of_infinities, dtypes="float32"),
    dims=dict(n=kt.dim(values=(SHORT,))),
)
def aborts_in_filling(x: Any, y: Any) -> Any:
    return x + y


def _on(name: str, fatal: Callable[[Any], bool]) -> kt.Pairing:
    def oracle(x: Any) -> Any:
        if type(x) is np.ndarray and fatal(x):
            os.abort()
        return 2 * x

    return _paired(name, double, oracle, SHORT)


dies_twice = _on("dies_twice", lambda x: bool((x == 1).all() or (x == 0).all()))
dies_always = _on("dies_always", lambda x: True)
