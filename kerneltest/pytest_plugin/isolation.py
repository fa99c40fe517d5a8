"""The supervisor of an isolated process: sends it items, watches it, and replaces it when it dies."""

from __future__ import annotations

import io
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as StillRunning
from concurrent.futures.process import BrokenProcessPool
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from kerneltest.core.ids import ItemId, PairingId
from kerneltest.core.processes import depend_on_parent, free_memory
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_entry
from kerneltest.pytest_plugin import crash_reports, watchdog
from kerneltest.pytest_plugin.crash_reports import (
    CrashReason,
    ReasonSource,
    UncollectedError,
    captured_output,
    crash_files,
    output_file,
    write_crash_reason,
)
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, PytestArguments, WorkerSetup
from kerneltest.pytest_plugin.worker import ItemWorker
from kerneltest.records.journal import Activity, read_orphaned
from kerneltest.records.record_files import read_plan
from kerneltest.records.run_plan import Plan, describe_pairing
from kerneltest.trace.jax_environment import jax_environment, jax_settings

# The second collection of a session's items, in another process.

ItemsByName = Mapping[str, tuple[Item, ...]]

# Options of the second collection, after those of the session.
_ALWAYS = (
    "--collect-only", "-q", "--kt-report=", "--kt-shard=", "--kt-durations=", "--kt-isolate=never",
    "--kt-ray=", "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
_WRITE_THE_CACHE = ("lfplugin", "nfplugin", "stepwiseplugin")  # at their end, which may be after the session's
PROBLEMS: dict[str, str] = {}
"""From the names of pairings that this process cannot test to the reasons."""


def collect(arguments: PytestArguments, file: Path | None = None) -> ItemsByName:
    """Returns the items of a session, or of one of its files, by name.

    Raises:
      UncollectedError: pytest cannot collect them.
    """
    collector = _ItemCollector(file and file.resolve())
    output = io.StringIO()
    with redirect_stdout(output):
        status = pytest.main([*arguments.words, *_ALWAYS], plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        subject = file or "the session"
        raise UncollectedError(f"{subject} cannot be re-collected in another process:\n{output.getvalue().strip()}")
    return collector.items


class _ItemCollector:
    """A pytest plugin that collects one file, or all if that is None, and keeps the items."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.items: dict[str, tuple[Item, ...]] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        path = collection_path.resolve()
        return None if self.file is None or self.file.is_relative_to(path) else True

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        config = yield
        config.option.cacheclear, config.option.log_file = False, os.devnull  # these belong to the session
        return config

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for name in _WRITE_THE_CACHE:
            if (plugin := session.config.pluginmanager.getplugin(name)) is not None:
                session.config.pluginmanager.unregister(plugin)
        for item in session.items:
            parts = tuple(getattr(item, "items", ()))
            if parts and all(isinstance(part, Item) for part in parts):  # a `KernelItem`, imported twice perhaps
                self.items.setdefault(parts[0].name, parts)  # the item of its mutants comes after it
            elif problem := getattr(item, "problem", ""):  # an `UntestableItem`
                PROBLEMS[item.nodeid] = problem


# The isolated process: it collects the items of the session again, and runs those that its supervisor requests.

PlannedParts = frozenset[tuple[str, str, str]]

_SAME_ON_ALL_MACHINES = ("jax", "jaxlib", "numpy", "machine")


class SharedInteger(Protocol):
    """An integer in memory that both processes share."""

    value: int


class _IsolatedProcess:
    """This process, once it is initialised.

    Attributes:
      judged: number of judged cases of the running item; the supervisor reads it.
      ended: when the item ended, in seconds since 1970.
    """

    def __init__(
        self, setup: WorkerSetup, arguments: PytestArguments, judged: SharedInteger, ended: SharedInteger
    ) -> None:
        self.judged, self.ended = judged, ended
        self._setup, self._arguments = setup, arguments
        self._worker: ItemWorker | None = None
        self._items: dict[Path, ItemsByName] = {}
        self._ahead: ItemsByName = {}

    def collect_ahead(self) -> None:
        """Collects all items of the session."""
        with suppress(UncollectedError):  # reported when an item is missing
            self._ahead = collect(self._arguments)

    def run(self, request: ItemRequest, planned: PlannedParts) -> ItemResult:
        """Runs one item."""
        if self._worker is None:
            self._redirect_output()
            self._worker = ItemWorker(replace(self._setup, planned=planned), lambda activity, failure: None)
        parts = self._parts(request.name)
        try:
            return self._worker.run(parts, request, self._count_case)
        finally:
            self.ended.value = int(time.time())

    def _count_case(self) -> None:
        self.judged.value += 1

    def _redirect_output(self) -> None:
        """Redirects standard output and error to a file; not before the session has cleared the run's folder."""
        if self._arguments.captures:
            with output_file(self._setup.folder, self._setup.shard).open("ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)

    def _parts(self, name: str) -> tuple[Item, ...]:
        file = self._setup.root / PairingId.parse(name).file
        if name in self._ahead:
            self._items[file] = self._ahead
        elif file not in self._items:
            self._items[file] = collect(self._arguments, file)
        if name not in self._items[file]:
            raise UncollectedError(_absence(name, self._items[file]))
        parts = self._items[file][name]
        if self._arguments.is_remote:
            self._check_plan(name, parts)
        return parts

    def _check_plan(self, name: str, parts: tuple[Item, ...]) -> None:
        """Refuses an item if this machine would run other cases than planned.

        Raises:
          UncollectedError: it would.
        """
        if unlike := list(plan_differences(read_plan(self._setup.folder), parts, name)):
            raise UncollectedError(
                f"{name} differs on {socket.gethostname()}: {'; '.join(unlike)}. All machines of a cluster need the "
                "same packages, settings, devices and sources"
            )


_this: _IsolatedProcess | None = None


def initialize(
    setup: WorkerSetup, arguments: PytestArguments, pid: SharedInteger, judged: SharedInteger, ended: SharedInteger
) -> None:
    """Initialises the isolated process: exits with the parent, is the OOM killer's first choice, publishes its pid."""
    global _this
    depend_on_parent(setup.folder if arguments.is_remote else None)
    os.chdir(arguments.folder)
    _this = _IsolatedProcess(setup, arguments, judged, ended)
    pid.value = os.getpid()


def collect_ahead() -> None:
    """Collects all items before the first is requested."""
    assert _this is not None
    _this.collect_ahead()


def run_item(request: ItemRequest, planned: PlannedParts) -> ItemResult:
    """Runs one item; `planned` is as in `WorkerSetup`."""
    assert _this is not None
    return _this.run(request, planned)


def _absence(name: str, collected: ItemsByName) -> str:
    """Returns why an item was not collected again."""
    item = ItemId.parse(name)
    if unavailable := collected.get(str(item.unavailable)):
        return f"{name} cannot run in the isolated process: {unavailable[0].backend.unavailable()}"
    if problem := PROBLEMS.get(item.pairing):
        return f"{name} cannot be planned in the isolated process: {problem}"
    return (
        f"{name} was not found when its file was re-collected in the isolated process. Test files must define the same "
        "tests on every import; otherwise use --kt-isolate never"
    )


def plan_differences(plan: Plan, parts: Sequence[Item], name: str) -> Iterator[str]:
    """Yields how an item that was collected on this machine differs from the plan of its run.

    Args:
      plan: of the run.
      parts: the item's groups.
      name: its node id.
    """
    here = {
        **{key: value for key, value in jax_environment().items() if key in _SAME_ON_ALL_MACHINES},
        **jax_settings(),
    }
    backend = parts[0].backend
    if not backend.unavailable():
        here |= {f"{backend.id}: {key}": str(value) for key, value in backend.environment().items()}
    for key, value in here.items():
        if value != (planned := plan.environment.get(key, value)):
            yield f"{key} is {value}; the run was planned with {planned}"
    pairing_id = parts[0].pairing_id
    mine, planned_pairing = describe_pairing(parts[0].pairing), plan.pairings[pairing_id]
    same_sources = (
        mine.kernel.parts == planned_pairing.kernel.parts and mine.oracle.parts == planned_pairing.oracle.parts
    )
    if mine.declaration != planned_pairing.declaration or not same_sources:
        yield f"the source or the declaration of {pairing_id} differs"
    elif [plan_entry(part, name) for part in parts] != [each for each in plan.items if each.item == name]:
        yield f"{name} has other cases"


_EVERY = 0.25  # seconds between two checks
_IN_TRANSIT = 3  # seconds for a result, or for the news of an exit, to arrive
_MAX_STARTS = 2  # of a process that dies before it has begun a case
_SPAWN = get_context("spawn")  # JAX's threads do not survive a fork


class _DiedError(Exception):
    """The isolated process exited abnormally or was ended."""

    def __init__(self, cause: str, source: ReasonSource = ReasonSource.OBSERVER, *, is_hang: bool = False) -> None:
        super().__init__(cause)
        self.reason = CrashReason(cause, source, is_hang)


class _GarbledError(Exception):
    """The answer of the isolated process cannot be read, or never arrived."""


class IsolatedWorker:
    """Runs items in an isolated process.

    Attributes:
      is_busy: whether an item is running.
    """

    def __init__(self, main: ItemWorker, arguments: PytestArguments, memory: float) -> None:
        """Initialises the instance.

        Args:
          main: the worker of this process, which records what the isolated process cannot.
          arguments: with which the isolated process collects the same items.
          memory: its limit in GiB; 0 for 90 % of the memory free at its start.
        """
        self._main, self._arguments, self._memory = main, arguments, memory
        self._pool: ProcessPool | None = None
        self._starts = 0  # processes so far
        self._forwarded = 0  # bytes of the process's output
        self._pid, self._judged, self._ended = (_SPAWN.Value("q", 0) for _ in range(3))
        self._max_bytes = 0.0
        self._gone_since = 0.0  # of the monotonic clock; 0 while the process lives
        self._last_pid = 0
        self.is_busy = False

    @property
    def judged_cases(self) -> int:
        """The number of judged cases of the running item."""
        return int(self._judged.value)

    @property
    def setup(self) -> WorkerSetup:
        """The setup of the current process; each process of the run has a name of its own."""
        return replace(self._main.setup, shard=f"{self._main.setup.shard}.{self._starts}")

    def activity(self) -> Activity | None:
        """Returns what the process is doing, or was doing when it died; None between items."""
        shard = self.setup.shard
        return next((each for each in read_orphaned(self.setup.folder) if each.shard == shard), None)

    def start(self) -> None:
        """Starts the process, which collects all items while this process does so too."""
        self._start_process().schedule(collect_ahead)

    def run(
        self, parts: Sequence[Item], request: ItemRequest, on_case: Callable[[], None] = lambda: None
    ) -> ItemResult:
        """Runs an item like `ItemWorker.run`, in a new process each time one dies.

        A case that ends its process is a finding, which the next process records.
        """
        starts = 0
        activity = Activity(request.name)
        for _ in range(crash_reports.MAX_CRASHES):
            try:
                result = self._attempt(request, on_case)
            except _GarbledError as garbled:  # no case is to blame, since it is unknown when this happened
                self.close()
                starts += 1
                message = f"{request.name}: the answer of its process is unreadable ({garbled}); continued in a new one"
                warnings.warn(message, pytest.PytestWarning, stacklevel=1)
                activity = Activity(request.name, shard=self.setup.shard)
            except _DiedError as died:
                activity = self.activity() or Activity(request.name, shard=self.setup.shard)
                write_crash_reason(self.setup.folder, self.setup.shard, died.reason)
                self.stop()
                starts += not activity.case
            else:
                if result.device_lost:
                    self.close()
                return result
            if starts == _MAX_STARTS:
                break
            request = replace(request, is_retry=True)
        return self._abandon(request, activity)

    def _attempt(self, request: ItemRequest, on_case: Callable[[], None]) -> ItemResult:
        """Runs an item once, in the current process or a new one.

        Raises:
          _DiedError: the process died.
          _GarbledError: its answer cannot be read.
        """
        pool = self._pool or self._start_process()
        self._judged.value = self._ended.value = 0
        self.is_busy = True
        try:
            return self._wait(pool.schedule(run_item, args=(request, self._main.setup.planned)), on_case)
        except (_DiedError, _GarbledError, crash_reports.UncollectedError):
            raise
        except BaseException:  # an interrupt or an alarm, which must not wait for the process
            self.stop()
            raise
        finally:
            self.is_busy = False
            self._forward_output()

    def _wait(self, future: ProcessFuture[ItemResult], on_case: Callable[[], None]) -> ItemResult:
        while True:
            try:
                result = future.result(timeout=_EVERY)
            except StillRunning:
                on_case()
                self._check_process()
            except ProcessExpired as expired:
                raise _DiedError(_describe_exit(expired.exitcode or 0)) from expired
            except BrokenProcessPool as broken:
                raise _GarbledError(str(broken)) from broken
            else:
                return result

    def _check_process(self) -> None:
        """Ends a process that is gone, takes too much memory, or does not respond to its own watchdog.

        Raises:
          _DiedError: it is gone or was ended.
          _GarbledError: it has ended the item, and its answer did not arrive.
        """
        if not (pid := int(self._pid.value)):
            return
        was_replaced, self._last_pid = self._last_pid not in (0, pid), pid
        if was_replaced and self.activity() is not None:  # the pool ignores an exit with status 0
            raise _DiedError("it exited without a crash report")
        try:
            process = psutil.Process(pid)
            memory, is_gone = process.memory_info().rss, process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            memory, is_gone = 0, True
        if is_gone:  # the pool may report how it exited, or start another one, in a moment
            self._gone_since = self._gone_since or time.monotonic()
            if time.monotonic() - self._gone_since > _IN_TRANSIT:
                raise _DiedError("it exited without a crash report")
            return
        self._gone_since = 0.0
        if self._ended.value and time.time() - self._ended.value > _IN_TRANSIT:
            raise _GarbledError("it did not arrive")
        if memory > self._max_bytes:
            self._kill()
            limit = self._max_bytes / 2**30
            raise _DiedError(f"it used {memory / 2**30:.1f} GiB; its limit is {limit:.1f} GiB", ReasonSource.KILLER)
        self._check_journal()

    def _check_journal(self) -> None:
        """Ends a process whose watchdog should have ended it.

        Raises:
          _DiedError: it was ended.
        """
        setup = self.setup
        try:
            running = (setup.folder / f"running-{setup.shard}.txt").stat()
        except OSError:
            return
        timeout = setup.settings.timeout
        if timeout and running.st_size and time.time() - running.st_mtime > timeout + 4 * watchdog.GRACE:
            self._kill()
            cause = f"no answer within {timeout} s, and its watchdog could not end it"
            raise _DiedError(cause, ReasonSource.KILLER, is_hang=True)

    def _start_process(self) -> ProcessPool:
        self._starts += 1
        self._forwarded, self._pid.value, self._last_pid, self._gone_since = 0, 0, 0, 0.0
        self._max_bytes = self._memory * 2**30 or 0.9 * free_memory()
        arguments = (self.setup, self._arguments, self._pid, self._judged, self._ended)
        self._pool = ProcessPool(max_workers=1, initializer=initialize, initargs=arguments, context=_SPAWN)
        return self._pool

    def _kill(self) -> None:
        if pid := int(self._pid.value):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ends the process at once. Its journal still holds what it was doing."""
        if self._pool is not None:
            self._kill()
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None

    def close(self) -> None:
        """Ends an idle process and deletes its files."""
        if self._pool is not None:
            self.stop()
            for path in crash_files(self.setup.folder, self.setup.shard):
                path.unlink(missing_ok=True)

    def _forward_output(self) -> None:
        """Prints what the process wrote, so that pytest captures it with the item."""
        output, self._forwarded = captured_output(self.setup.folder, self.setup.shard, self._forwarded)
        print(output, end="", flush=True)

    def _abandon(self, request: ItemRequest, activity: Activity) -> ItemResult:
        """Returns the result of an item that is abandoned after too many crashes."""
        failure = crash_reports.failure_from_crash(self.setup.folder, activity)
        planned = crash_reports.planned_items(self.setup.folder, request.name)
        crash_reports.record_crash(self._main.writer, planned, activity, failure)
        message = f"{failure}\nIt was {activity}; the rest of the item is not run."
        families = tuple(family for part in planned for family in part.families)
        return ItemResult(str(failure.verdict), families, str(failure).partition("\n")[0], message)


def _describe_exit(status: int) -> str:
    """Returns how a process ended, in words; a negative status is that of a signal."""
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"it exited with status {status}"
