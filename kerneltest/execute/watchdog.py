"""Ends cases that take too long, and processes that cannot end such a case."""

import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Any, Protocol, TextIO

from kerneltest.core import exit_guard
from kerneltest.core.details import Hung, format_place
from kerneltest.core.failures import Failure
from kerneltest.core.processes import thread_stacks
from kerneltest.core.source_location import is_internal, location_of_frame
from kerneltest.core.verdicts import Verdict
from kerneltest.records.journal import Activity, Journal, Phase


class ReasonSource(StrEnum):
    """The origin of a reason, the most trustworthy first."""

    KILLER = "killer"  # ended the process for this reason; whatever else was written follows from that
    PROCESS = "process"  # the process itself
    OBSERVER = "observer"  # saw only how the process exited


@dataclass(frozen=True, slots=True)
class CrashReason:
    """The reason why a process died."""

    cause: str  # in words: "killed by SIGKILL"; of a hang, what did not answer in time
    source: ReasonSource = ReasonSource.PROCESS
    is_hang: bool = False  # whether the process was ended because a case did not answer in time
    location: str = ""  # FILE:LINE of the user's source at which it was then, or ""


class CrashLog(Protocol):
    """The log of a process that ends: the reason, and the stacks of its threads in a file."""

    stacks: TextIO

    def write(self, reason: CrashReason, activity: Activity | None) -> None: ...

    def close(self) -> None: ...


class ConsoleCrashLog:
    """The log of an unsupervised process: a person reads it."""

    def __init__(self, console: int) -> None:
        self.stacks: TextIO = os.fdopen(os.dup(console), "w", encoding="utf-8")

    def write(self, reason: CrashReason, activity: Activity | None) -> None:
        self.stacks.write(f"\nkerneltest: {reason.cause}{format_place(reason.location)}. It was {activity}.\n")
        self.stacks.flush()

    def close(self) -> None:
        self.stacks.close()


_WAKE = signal.SIGURG  # ignored by default, and sent by nothing else
_LONGEST, _SHORTEST = 0.5, 0.01  # seconds between two checks: a tenth of the limit, within these
GRACE = 10.0  # seconds for a case to end after the hang is raised, and then for its process
_DEBUGGERS = {"bdb", "pdb", "pydevd"}
_MACHINES = ("numerics", "trace")  # the rooms that evaluate oracles and kernels, and catch no hang


def _on_wake(number: int, frame: object) -> None:
    """Handles `_WAKE`: the hang is raised in here."""


def _is_of_runner(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return is_internal(file) and not is_internal(file, *_MACHINES)


class Watchdog:
    """A thread that watches the journal of the thread that starts it.

    It raises a `hang` into a case that stays in one phase for too long, and wakes the case with a signal if it sleeps.
    Python cannot raise into compiled code: if the case goes on, the thread writes all stacks and ends the process. If
    compiled code keeps even this thread from running, faulthandler's timer does that.
    """

    def __init__(
        self, journal: Journal, seconds: float, log: CrashLog, before_exit: Callable[[Activity, Failure], None]
    ) -> None:
        self.journal, self.seconds = journal, seconds
        self._log, self._before_exit = log, before_exit
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kerneltest-watchdog", daemon=True)
        self._watched = 0  # the id of the thread that is watched
        self._handler: Any = None  # of the signal, before the start
        self._wakes = False  # whether the signal wakes the watched thread
        self._armed, self._arming = False, threading.Lock()

    def start(self) -> None:
        self._watched = threading.get_ident()
        self._handler = signal.getsignal(_WAKE)
        is_free = self._handler in (signal.SIG_DFL, signal.SIG_IGN, _on_wake)  # no one waits for it
        if is_free and threading.current_thread() is threading.main_thread():  # Python handles signals in no other
            signal.signal(_WAKE, _on_wake)
            self._wakes = True
        self._thread.start()

    def arm(self) -> None:
        """Sets the timer for compiled code that blocks the thread."""
        with self._arming:
            self._armed = True
            self._set_timer()

    def disarm(self) -> None:
        """Cancels the timer between items, since other tests may use it and take as long as they like."""
        with self._arming:
            if self._armed:
                self._armed = False
                faulthandler.cancel_dump_traceback_later()

    # Python has one timer, so another's must be left alone.
    def _cancel_timer(self) -> None:
        with self._arming:
            if self._armed:
                faulthandler.cancel_dump_traceback_later()

    def _set_timer(self) -> None:
        faulthandler.dump_traceback_later(self.seconds + 2 * GRACE, exit=True, file=self._log.stacks)

    # Sets the timer anew if it is armed, also where pytest has cancelled it, as it does when a test fails.
    def _postpone(self) -> None:
        with self._arming:
            if self._armed:
                self._set_timer()

    def stop(self) -> None:
        self._stopped.set()
        try:
            self._thread.join()  # a hang that was raised just before may end this
        finally:
            self.disarm()
            if self._wakes and threading.current_thread() is threading.main_thread():
                signal.signal(_WAKE, self._handler)

    def _watch(self) -> None:
        interrupted: tuple[Activity, float] | None = None  # a step, and when it began
        noticed = 0.0  # when it was first seen to be late, which is later on a machine that is busy or was asleep
        calls: set[int] = set()  # that were running when the hang was raised
        every = min(_LONGEST, max(_SHORTEST, self.seconds / 10))
        while not self._stopped.wait(every):
            activity, since = self.journal.activity, self.journal.changed
            late = time.monotonic() - since
            # Not for every slow case, since Python may crash when one thread looks at another's frames.
            if activity is not None and late > self.seconds / 2 and self._is_in_debugger():
                self._cancel_timer()
                self.journal.changed = time.monotonic()
                continue
            self._postpone()
            if activity is None:  # an item may be about to begin, and the timer must stay armed
                continue
            if late < self.seconds:
                continue
            if interrupted != (activity, since):
                interrupted, noticed, calls = (activity, since), time.monotonic(), set()
                if activity.phase is not Phase.STARTING:  # there nothing catches it
                    calls = self._evaluating_calls()
                    self._raise_hang(activity, since)
            elif time.monotonic() > noticed + GRACE:
                self._end_process(activity)
            elif not calls.isdisjoint(self._evaluating_calls()):  # the exception was dropped
                self._raise_hang(activity, since)

    def _raise_hang(self, activity: Activity, since: float) -> None:
        reason = self._reason(activity)

        class Hang(Failure):
            def __init__(self) -> None:
                super().__init__(Verdict.HANG, Hung(reason.cause, reason.location))

        # To look at stacks takes time, in which the step may have ended.
        if self._stopped.is_set() or self.journal.activity is not activity or self.journal.changed != since:
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._watched), ctypes.py_object(Hang))
        if self._wakes:
            signal.pthread_kill(self._watched, _WAKE)  # it is raised in the handler, which interrupts a sleep

    def _end_process(self, activity: Activity) -> None:
        reason = self._reason(activity)
        self._log.write(reason, activity)
        faulthandler.dump_traceback(self._log.stacks)
        try:
            self._before_exit(activity, Failure(Verdict.HANG, Hung(reason.cause, reason.location)))
        finally:
            exit_guard.leave(1)

    def _reason(self, activity: Activity) -> CrashReason:
        with thread_stacks() as frames:
            frame = frames.get(self._watched)
            location = location_of_frame(frame).strip(" ()") if frame else ""
        cause = f"no answer within {self.seconds:g} s while {activity.phase}"
        return CrashReason(cause, is_hang=True, location=location)

    # Returns the ids of the frames of the user's code, of kerneltest's machines that evaluate it, and of what they call
    # back. Compiled code may drop an exception, and Python does so in callbacks of its garbage collector, of which JAX
    # has one.
    def _evaluating_calls(self) -> set[int]:
        found = set()
        with thread_stacks() as frames:
            frame = frames.get(self._watched)
            while frame is not None:
                caller = frame.f_back
                if _is_of_runner(frame) and (caller is None or not is_internal(caller.f_code.co_filename, *_MACHINES)):
                    break
                found.add(id(frame))
                frame = caller
        return found

    def _is_in_debugger(self) -> bool:
        with thread_stacks() as frames:
            frame = frames.get(self._watched)
            while frame is not None:
                if frame.f_globals.get("__name__", "").partition(".")[0] in _DEBUGGERS:
                    return True
                frame = frame.f_back
        return False


@contextmanager
def limit_time(journal: Journal, seconds: float, console: int = 2, *, owns_process: bool = True) -> Iterator[None]:
    """Raises a `hang` in whatever a journal notes inside if it takes too long.

    If compiled code does not let it, the process ends with status 1.

    Args:
      journal: of what is evaluated inside.
      seconds: for each step; 0 for no limit.
      console: descriptor of the file to which the reason is written before the process ends.
      owns_process: whether the process is one of kerneltest, whose timer of faulthandler it may set. In others, that is
        the user's or pytest's, and compiled code that keeps all of Python from running is not ended.
    """
    if not seconds:
        yield
        return
    log = ConsoleCrashLog(console)
    watchdog = Watchdog(journal, seconds, log, lambda activity, failure: None)
    watchdog.start()
    if owns_process:
        watchdog.arm()
    try:
        yield
    finally:
        try:
            watchdog.stop()
        finally:
            log.close()
