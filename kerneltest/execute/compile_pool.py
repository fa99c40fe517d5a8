"""A pool of daemon threads for compilations."""

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, TypeVarTuple

from kerneltest.core.runtime import available_processors

_T = TypeVar("_T")
_Arguments = TypeVarTuple("_Arguments")


def compiler_threads() -> int:
    """Returns the number of concurrent compilations: xdist workers share the processors equally."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, available_processors() // workers)


class CompilePool:
    """A thread pool whose threads do not keep the process alive, unlike those of `concurrent.futures`.

    A compilation that never returns therefore cannot prevent the process from exiting.

    Attributes:
      pending: number of calls that have not ended.
    """

    def __init__(self, threads: int) -> None:
        """Makes a pool that runs at most `threads` calls at a time."""
        self._slots = threading.Semaphore(threads)
        self._closed = False
        self._counting = threading.Lock()
        self.pending = 0

    def submit(self, function: Callable[[*_Arguments], _T], *arguments: *_Arguments) -> "Future[_T]":
        """Calls a function in a thread of its own, as soon as there is a free slot."""
        future: Future[_T] = Future()
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        call = functools.partial(function, *arguments)
        threading.Thread(target=self._run, args=(future, call), daemon=True).start()
        return future

    def abandon(self) -> None:
        """Frees the slot of a call that does not end."""
        self._slots.release()

    def close(self) -> None:
        """Cancels the calls that wait for a slot."""
        self._closed = True

    def _count(self, more: int) -> None:
        with self._counting:
            self.pending += more

    def _run(self, future: "Future[_T]", call: Callable[[], _T]) -> None:
        with self._slots:
            if self._closed or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
