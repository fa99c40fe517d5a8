"""A process for items that may end it, or never end: this one feeds it, watches it, and replaces it when it dies."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as StillRunning
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context

import psutil
import pytest
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from kerneltest.core.failures import Failure
from kerneltest.execute.item import Item
from kerneltest.pytest_plugin import crash_reports, watchdog
from kerneltest.pytest_plugin.child import begin, collect_ahead, serve
from kerneltest.pytest_plugin.executor import Arguments
from kerneltest.pytest_plugin.memory import free
from kerneltest.pytest_plugin.worker import Ended, Process, Setup, Task
from kerneltest.records.journal import Doing, left_running

_EVERY = 0.25  # seconds between two looks at the child
_IN_TRANSIT = 3  # seconds for an answer, or for word of an end
_MOST_STARTS = 2  # of a child that dies before it has begun a case
_SPAWN = get_context("spawn")  # JAX's threads do not survive a fork


class _DiedError(Exception):
    """The child died, or was ended; says of what where it left no word itself."""


class _GarbledError(Exception):
    """What the child answered cannot be read, or never came."""


class Child:
    """The process that runs items for this one.

    Attributes:
      busy: whether it runs one.
    """

    def __init__(self, main: Process, arguments: Arguments, memory: float) -> None:
        """Args:
        main: of this process, which records what the child cannot.
        arguments: by which the child collects the same items.
        memory: GiB that it may take; 0 for nine tenths of what is free when it starts.
        """
        self._main, self._arguments, self._memory = main, arguments, memory
        self._pool: ProcessPool | None = None
        self._count = 0  # of the processes so far
        self._said = 0  # bytes that were passed on of what the child wrote
        self._pid, self._judged, self._ended = (_SPAWN.Value("q", 0) for _ in range(3))
        self._most = self._gone = 0.0  # bytes that it may take, and since when it is gone
        self._seen = 0  # its process id, when it was looked at last
        self.busy = False

    @property
    def judged(self) -> int:
        """Cases of the item that is running."""
        return int(self._judged.value)

    @property
    def setup(self) -> Setup:
        """What the child is told, under a name that no process before it had."""
        return replace(self._main.setup, shard=f"{self._main.setup.shard}.{self._count}")

    def doing(self) -> Doing | None:
        """What the child is doing, or was when it died."""
        shard = self.setup.shard
        return next((each for each in left_running(self.setup.folder) if each.shard == shard), None)

    def start(self) -> None:
        """Starts the child, which collects all that this process does, at the same time."""
        self._start()
        assert self._pool is not None
        self._pool.schedule(collect_ahead)

    def run(self, parts: Sequence[Item], task: Task, judged: Callable[[], None] = lambda: None) -> Ended:
        """As `Process.run`, in the child, and in another one each time it dies.

        A case that a child dies of is a finding, which the next one records.
        """
        starts = 0
        doing = Doing(task.name)
        for _ in range(crash_reports.MOST):
            try:
                ended = self._attempt(task, judged)
            except _GarbledError as garbled:  # at an unknown time, so no case is to blame
                self.close()
                starts += 1
                words = (
                    f"{task.name}: what its process answered cannot be read ({garbled}); the item went on in another"
                )
                warnings.warn(words, pytest.PytestWarning, stacklevel=1)
                doing = Doing(task.name, shard=self.setup.shard)
            except _DiedError as died:
                doing = self.doing() or Doing(task.name, shard=self.setup.shard)
                crash_reports.leave_word(self.setup.folder, self.setup.shard, str(died))
                self.stop()
                starts += not doing.case
            else:
                if ended.lost:
                    self.close()
                return ended
            if starts == _MOST_STARTS:
                break
            task = replace(task, again=True)
        return self._given_up(task, doing)

    def _attempt(self, task: Task, judged: Callable[[], None]) -> Ended:
        """Runs an item once, in a child that is there or a new one.

        Raises:
          _DiedError: the child died.
          _GarbledError: it answered nothing that can be read.
        """
        if self._pool is None:
            self._start()
        assert self._pool is not None
        self._judged.value = self._ended.value = 0
        self.busy = True
        try:
            return self._awaited(self._pool.schedule(serve, args=(task, self._main.setup.planned)), judged)
        except (_DiedError, _GarbledError, crash_reports.UncollectedError):
            raise
        except BaseException:  # an interrupt or an alarm: whoever gets it must not wait for the child
            self.stop()
            raise
        finally:
            self.busy = False
            self._pass_on()

    def _awaited(self, future: ProcessFuture[Ended], judged: Callable[[], None]) -> Ended:
        while True:
            try:
                ended = future.result(timeout=_EVERY)
            except StillRunning:
                judged()
                self._look()
            except ProcessExpired as expired:
                raise _DiedError(_ending(expired.exitcode or 0)) from expired
            except BrokenProcessPool as broken:
                raise _GarbledError(str(broken)) from broken
            else:
                return ended

    def _look(self) -> None:
        """Ends a child that is gone, takes too much memory, or does not even end what goes on for too long."""
        if not (pid := int(self._pid.value)):
            return
        replaced, self._seen = self._seen not in (0, pid), pid
        if replaced and self.doing() is not None:  # the pool takes an exit with 0 for an end in peace
            raise _DiedError("it exited without a word")
        try:
            child = psutil.Process(pid)
            taken, gone = child.memory_info().rss, child.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            taken, gone = 0, True
        if gone:  # the pool may know how it ended, or have started another, in a moment
            self._gone = self._gone or time.monotonic()
            if time.monotonic() - self._gone > _IN_TRANSIT:
                raise _DiedError("it exited without a word")
            return
        self._gone = 0.0
        if self._ended.value and time.time() - self._ended.value > _IN_TRANSIT:
            raise _GarbledError("it did not arrive")
        if taken > self._most:
            self._kill()
            raise _DiedError(
                f"{crash_reports.TOO_MUCH}: it took {taken / 2**30:.1f} GiB, and {self._most / 2**30:.1f} GiB were free"
            )
        setup = self.setup
        try:
            running = (setup.folder / f"running-{setup.shard}.txt").stat()
        except OSError:
            return
        if setup.timeout and running.st_size and time.time() - running.st_mtime > setup.timeout + 4 * watchdog.GRACE:
            self._kill()
            raise _DiedError(
                f"{crash_reports.GAVE_UP}: no answer within {setup.timeout} s, nor an end when it was told to"
            )

    def _start(self) -> None:
        self._count += 1
        self._said, self._pid.value, self._seen, self._gone = 0, 0, 0, 0.0
        self._most = self._memory * 2**30 or 0.9 * free()
        arguments = (self.setup, self._arguments, self._pid, self._judged, self._ended)
        self._pool = ProcessPool(max_workers=1, initializer=begin, initargs=arguments, context=_SPAWN)

    def _kill(self) -> None:
        if pid := int(self._pid.value):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ends the child at once; what it left says what it was doing."""
        if self._pool is not None:
            self._kill()
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None

    def close(self) -> None:
        """Ends a child that does nothing."""
        if self._pool is not None:
            self.stop()
            for name in crash_reports.traces(self.setup.shard):
                (self.setup.folder / name).unlink(missing_ok=True)

    def _pass_on(self) -> None:
        """Writes what the child wrote to where this process writes, so that pytest shows it with the item."""
        said, self._said = crash_reports.said(self.setup.folder, self.setup.shard, self._said)
        print(said, end="", flush=True)

    def _given_up(self, task: Task, doing: Doing) -> Ended:
        """How an item ends of which no more is run."""
        failure: Failure = crash_reports.of(self.setup.folder, doing)
        planned = crash_reports.planned(self.setup.folder, task.name)
        crash_reports.record(self._main.writer, planned, doing, failure)
        words = f"{failure}\nIt was {doing}; the rest of the item is not run."
        families = tuple(family for part in planned for family in part.families)
        return Ended(str(failure.verdict), families, str(failure).partition("\n")[0], words)


def _ending(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"it exited with status {code}"
