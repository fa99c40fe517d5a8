"""Ends what goes on for too long: the case, and where that does not help, the process."""

import ctypes
import faulthandler
import os
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TextIO

from kerneltest.core.failures import Failure
from kerneltest.core.runtime import stacks
from kerneltest.core.source_location import where_it_is
from kerneltest.core.verdicts import Verdict
from kerneltest.pytest_plugin.crash_reports import GAVE_UP
from kerneltest.records.journal import Doing, Journal, Phase

_EVERY = 0.5  # seconds between two looks
GRACE = 10.0  # seconds for a case that was told to end, and then for its process
_exit = os._exit  # which a run replaces, see `tell_of_exit`
_DEBUGGERS = {"bdb", "pdb", "pydevd"}


def tell_of_exit(journal: Journal, output: TextIO, *, alone: bool) -> Callable[[int], NoReturn]:
    """An `os._exit` that tells which case called it, and never with the status of a success.

    Args:
      journal: of this process.
      output: where it tells.
      alone: whether nobody goes on with the run, and a person reads it.
    """
    process = os.getpid()

    def loudly(status: int) -> NoReturn:
        if journal.doing is not None and os.getpid() == process:  # and not a child that it forked
            whole = f"\nkerneltest: os._exit({status}) ended the run: it was {journal.doing}\n"
            output.write(whole if alone else f"os._exit({status}) was called\n")
            output.flush()
            status = status or 1
        _exit(status)

    return loudly


class Watchdog:
    """A thread that looks at the journal of its process.

    A case that stays in one phase for too long gets a `hang` raised into it. Python raises nothing into compiled code:
    if the case goes on, all stacks are written down and the process ends. Where compiled code keeps even this thread
    from running, a timer without Python does the same.
    """

    def __init__(
        self, journal: Journal, seconds: float, output: TextIO, give_up: Callable[[Doing, Failure], None]
    ) -> None:
        """Args:
        journal: of this process.
        seconds: how long a phase may last.
        output: for the stacks; it has a file descriptor.
        give_up: what is done before the process ends.
        """
        self.journal, self.seconds = journal, seconds
        self._output, self._give_up = output, give_up
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kerneltest-watchdog", daemon=True)
        self._main = threading.main_thread().ident or 0
        self._armed = False

    def start(self) -> None:
        self._thread.start()

    def arm(self) -> None:
        """Sets the timer for a process in which the thread cannot run either. pytest cancels it when a test fails."""
        self._armed = True
        faulthandler.dump_traceback_later(self.seconds + 2 * GRACE, exit=True, file=self._output)

    def disarm(self) -> None:
        """Ends the timer between items: other tests may have one of their own, and take as long as they like."""
        if self._armed:
            self._armed = False
            faulthandler.cancel_dump_traceback_later()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.disarm()

    def _watch(self) -> None:
        told: Doing | None = None
        while not self._stopped.wait(_EVERY):
            doing, since = self.journal.doing, self.journal.changed
            late = time.monotonic() - since
            if doing is None:
                self.disarm()
                continue
            if late > _EVERY and self._debugged():
                self.disarm()
                self.journal.changed = time.monotonic()
                continue
            self.arm()
            if late < self.seconds:
                continue
            if told is not doing and doing.phase is not Phase.STARTING:  # where no case would catch it
                told = doing
                self._tell(doing)
            elif late > self.seconds + GRACE:
                self._end(doing)

    def _tell(self, doing: Doing) -> None:
        """Raises a hang into the thread that runs the case."""
        message = self._message(doing)

        class Hang(Failure):
            def __init__(self) -> None:
                super().__init__(Verdict.HANG, message)

        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), ctypes.py_object(Hang))

    def _end(self, doing: Doing) -> None:
        message = self._message(doing)
        self._output.write(f"{GAVE_UP}: {message}\n")
        self._output.flush()
        faulthandler.dump_traceback(self._output)
        try:
            self._give_up(doing, Failure(Verdict.HANG, message))
        finally:
            _exit(1)

    def _message(self, doing: Doing) -> str:
        with stacks() as frames:
            frame = frames.get(self._main)
            where = where_it_is(frame) if frame else ""
        return f"no answer within {self.seconds:g} s while {doing.phase}{where}"

    def _debugged(self) -> bool:
        with stacks() as frames:
            frame = frames.get(self._main)
            while frame is not None:
                if frame.f_globals.get("__name__", "").partition(".")[0] in _DEBUGGERS:
                    return True
                frame = frame.f_back
        return False
