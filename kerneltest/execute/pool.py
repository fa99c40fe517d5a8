"""Threads for compilations, side by side, none of which keeps the process alive."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class Pool:
    """A pool of threads whose calls cannot keep the process from exiting, even if they never return.

    Args:
      threads: the number of calls that run at once.
    """

    def __init__(self, threads: int) -> None:
        self._slots = threading.Semaphore(threads)
        self._closed = False
        self._counting = threading.Lock()
        self.under_way = 0  # calls that have not ended

    def submit(self, function: Callable[..., _T], *args: Any) -> "Future[_T]":
        """Calls a function in a thread of its own, once there is a slot."""
        future: Future[_T] = Future()
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        threading.Thread(target=self._call, args=(future, function, args), daemon=True).start()
        return future

    def give_up(self) -> None:
        """Gives the slot of a call that does not end to others."""
        self._slots.release()

    def close(self) -> None:
        """Drops the calls that wait for a slot."""
        self._closed = True

    def _count(self, more: int) -> None:
        with self._counting:
            self.under_way += more

    def _call(self, future: "Future[_T]", function: Callable[..., _T], args: tuple[Any, ...]) -> None:
        with self._slots:
            if self._closed or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)
