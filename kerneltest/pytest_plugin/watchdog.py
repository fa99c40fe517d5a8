"""Ends cases that take too long, and processes that cannot end such a case."""

import ctypes
import faulthandler
import threading
import time
from collections.abc import Callable

from kerneltest.core import exit_guard
from kerneltest.core.details import Hung
from kerneltest.core.failures import Failure
from kerneltest.core.processes import thread_stacks
from kerneltest.core.source_location import location_of_frame
from kerneltest.core.verdicts import Verdict
from kerneltest.pytest_plugin.crash_reports import CrashLog, CrashReason
from kerneltest.records.journal import Activity, Journal, Phase

_EVERY = 0.5  # seconds between two checks
GRACE = 10.0  # seconds for a case to end after the hang is raised, and then for its process
_DEBUGGERS = {"bdb", "pdb", "pydevd"}


class Watchdog:
    """A thread that watches the journal of its process.

    It raises a `hang` into a case that stays in one phase for too long. Python cannot raise into compiled code: if the
    case goes on, the thread writes all stacks and ends the process. If compiled code keeps even this thread from
    running, faulthandler's timer does that.
    """

    def __init__(
        self, journal: Journal, seconds: float, log: CrashLog, before_exit: Callable[[Activity, Failure], None]
    ) -> None:
        self.journal, self.seconds = journal, seconds
        self._log, self._before_exit = log, before_exit
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kerneltest-watchdog", daemon=True)
        self._main = threading.main_thread().ident or 0
        self._armed, self._arming = False, threading.Lock()

    def start(self) -> None:
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

    def _set_timer(self) -> None:
        faulthandler.dump_traceback_later(self.seconds + 2 * GRACE, exit=True, file=self._log.stacks)

    # Sets the timer anew if it is armed, also where pytest has cancelled it, as it does when a test fails.
    def _postpone(self) -> None:
        with self._arming:
            if self._armed:
                self._set_timer()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.disarm()

    def _watch(self) -> None:
        interrupted: Activity | None = None
        while not self._stopped.wait(_EVERY):
            activity, since = self.journal.activity, self.journal.changed
            late = time.monotonic() - since
            # Not for every slow case, since Python may crash when one thread looks at another's frames.
            if activity is not None and late > self.seconds / 2 and self._is_in_debugger():
                faulthandler.cancel_dump_traceback_later()
                self.journal.changed = time.monotonic()
                continue
            self._postpone()
            if activity is None:  # an item may be about to begin, and the timer must stay armed
                continue
            if late < self.seconds:
                continue
            if interrupted is not activity and activity.phase is not Phase.STARTING:  # there no case would catch it
                interrupted = activity
                self._raise_hang(activity)
            elif late > self.seconds + GRACE:
                self._end_process(activity)

    def _raise_hang(self, activity: Activity) -> None:
        reason = self._reason(activity)

        class Hang(Failure):
            def __init__(self) -> None:
                super().__init__(Verdict.HANG, Hung(reason.cause, reason.location))

        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), ctypes.py_object(Hang))

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
            frame = frames.get(self._main)
            location = location_of_frame(frame).strip(" ()") if frame else ""
        cause = f"no answer within {self.seconds:g} s while {activity.phase}"
        return CrashReason(cause, is_hang=True, location=location)

    def _is_in_debugger(self) -> bool:
        with thread_stacks() as frames:
            frame = frames.get(self._main)
            while frame is not None:
                if frame.f_globals.get("__name__", "").partition(".")[0] in _DEBUGGERS:
                    return True
                frame = frame.f_back
        return False
