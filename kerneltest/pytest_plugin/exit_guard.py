"""Keeps a process that runs pytest from ending as a success before pytest has decided that it is one."""

from __future__ import annotations

import atexit
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

_FAILED = 1  # as pytest's own status of a run with failures


@contextmanager
def refuse_exit() -> Iterator[None]:
    """Makes `os._exit` raise. A kernel that calls it while it is traced for the plan then fails when its case runs."""

    def refuse(status: int) -> NoReturn:
        raise RuntimeError(f"os._exit({status}) was called")

    original, os._exit = os._exit, refuse
    try:
        yield
    finally:
        os._exit = original


class ExitGuard:
    """Replaces `os._exit` during a session, and again while Python's exit handlers run after it.

    Code under test may call it anywhere: while its module is imported, while a kernel is traced at collection, or in an
    exit handler. Processes that were forked from this one are left alone.
    """

    def __init__(self) -> None:
        """Installs the guard. Call it before pytest captures standard error."""
        self._console, self._status = os.dup(2), _FAILED
        self._process, self._is_over = os.getpid(), False
        self._original = os._exit
        os._exit = self._exit

    def end_session(self, status: int) -> None:
        """Lets `os._exit` end the process again, until the exit handlers run; `status` is the session's."""
        os.close(self._console)
        self._console, self._status, self._is_over = 2, status, True
        if os._exit == self._exit:
            os._exit = self._original
        if status:
            atexit.register(self._guard_handlers)  # it runs before the handlers registered so far

    def _guard_handlers(self) -> None:
        self._original, os._exit = os._exit, self._exit

    def _exit(self, status: int) -> NoReturn:
        if os.getpid() == self._process and not status:
            status = self._status
            caller = traceback.extract_stack(limit=2)[0]
            when = "after the session failed" if self._is_over else "before the session ended"
            place = f"{caller.filename}:{caller.lineno}"
            text = f"\nkerneltest: os._exit(0) was called {when} ({place}); exit status {status}\n"
            with suppress(OSError):  # a closed console; the status says enough
                os.write(self._console, text.encode("utf-8", "backslashreplace"))
        self._original(status)
