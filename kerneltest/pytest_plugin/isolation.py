"""The supervisor of an isolated process: sends it items, watches it, and replaces it when it dies."""

import io
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kerneltest.core.children import CONTEXTS, Child, ChildEndedError, ChildRaisedError, End
from kerneltest.core.ids import ItemId, PairingId
from kerneltest.core.processes import free_memory
from kerneltest.execute import watchdog
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_entry
from kerneltest.execute.verdict_key import item_fingerprint
from kerneltest.execute.watchdog import CrashReason, ReasonSource
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.crash_reports import UncollectedError, captured_output
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, PytestArguments, WorkerSetup
from kerneltest.pytest_plugin.worker import ItemWorker
from kerneltest.records.journal import Activity, Journal, read_orphaned
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
    """Returns the items of a session, or of one of its files, by name; raises an `UncollectedError`."""
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

_SAME_ON_ALL_MACHINES = ("jax", "jaxlib", "numpy", "machine")


class IsolatedProcess:
    """The isolated process: it collects items again, and answers requests to run them."""

    def __init__(
        self,
        setup: WorkerSetup,
        arguments: PytestArguments,
        judged: Any,  # an integer that both processes share: the number of judged cases of the running item
        ended: Any,  # one for the time at which the item ended, in seconds since 1970
        *,
        ahead: bool = False,  # whether to collect all items of the session before the first request
    ) -> None:
        os.chdir(arguments.folder)
        self._judged, self._ended = judged, ended
        self._setup, self._arguments = setup, arguments
        self._worker: ItemWorker | None = None
        self._items: dict[Path, ItemsByName] = {}
        self._ahead: ItemsByName = {}
        if ahead:
            with suppress(UncollectedError):  # reported when an item is missing
                self._ahead = collect(arguments)

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Runs one item; the answer holds its result, or why it was not collected."""
        if self._worker is None:
            if self._arguments.captures:  # now that the session has cleared the run's folder
                with crash_reports.crash_file(self._setup.folder, self._setup.shard, "output").open("ab") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
            planned = frozenset((pairing, backend, dtype) for pairing, backend, dtype in request["planned"])
            self._worker = ItemWorker(replace(self._setup, planned=planned), lambda activity, failure: None)
        item = ItemRequest(**request["item"])
        try:
            return {"result": asdict(self._worker.run(self._parts(item), item, self._count_case))}
        except UncollectedError as error:
            return {"uncollected": str(error)}
        finally:
            self._ended.value = int(time.time())

    def _count_case(self) -> None:
        self._judged.value += 1

    def _parts(self, request: ItemRequest) -> tuple[Item, ...]:
        name = request.name
        file = self._setup.root / PairingId.parse(name).file
        if name in self._ahead:
            self._items[file] = self._ahead
        elif file not in self._items:
            self._items[file] = collect(self._arguments, file)
        if name not in self._items[file]:
            raise UncollectedError(_absence(name, self._items[file]))
        parts = self._items[file][name]
        plan = read_plan(self._setup.folder) if self._arguments.is_remote else None
        if plan is not None and (unlike := list(plan_differences(plan, parts, name, request.fingerprint))):
            raise UncollectedError(
                f"{name} differs on {socket.gethostname()}: {'; '.join(unlike)}. All machines of a cluster need the "
                "same packages, settings, devices and sources"
            )
        return parts


def _absence(name: str, collected: ItemsByName) -> str:
    item = ItemId.parse(name)
    if unavailable := collected.get(str(item.unavailable)):
        return f"{name} cannot run in the isolated process: {unavailable[0].backend.unavailable()}"
    if problem := PROBLEMS.get(item.pairing):
        return f"{name} cannot be planned in the isolated process: {problem}"
    return (
        f"{name} was not found when its file was re-collected in the isolated process. Test files must define the same "
        "tests on every import; otherwise use --kt-isolate never"
    )


def plan_differences(plan: Plan, parts: Sequence[Item], name: str, fingerprint: str = "") -> Iterator[str]:
    """Yields how an item that was collected on this machine differs from the plan of its run, and its fingerprint."""
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
    mine, other = describe_pairing(parts[0].pairing), plan.pairings[pairing_id]
    same_sources = mine.kernel.parts == other.kernel.parts and mine.oracle.parts == other.oracle.parts
    if mine.declaration != other.declaration or not same_sources:
        yield f"the source or the declaration of {pairing_id} differs"
    elif [plan_entry(part, name) for part in parts] != [item for item in plan.items if item.item == name]:
        yield f"{name} has other cases"
    elif fingerprint and fingerprint != item_fingerprint(parts, Journal()):
        yield f"code or data outside of the project differs: the kernel or the oracle of {pairing_id} is another one"


_IN_TRANSIT = 3  # seconds for a result to arrive
_MAX_STARTS = 2  # of a process that dies before it has begun a case


class _GarbledError(Exception):
    """The answer of the isolated process never arrived."""


class IsolatedWorker:
    """Runs items in an isolated process."""

    def __init__(self, main: ItemWorker, arguments: PytestArguments, memory: float) -> None:
        self._main = main  # the worker of this process, which records what the isolated process cannot
        self._arguments, self._memory = arguments, memory  # GiB; 0 for 90 % of the memory free at its start
        self._child: Child | None = None
        self._starts = 0  # processes so far
        self._forwarded = 0  # bytes of the process's output
        self._judged, self._ended = (CONTEXTS["spawn"].Value("q", 0) for _ in range(2))
        self.is_busy = False

    @property
    def judged_cases(self) -> int:
        return int(self._judged.value)

    @property
    def setup(self) -> WorkerSetup:
        """The setup of the current process; each process of the run has a name of its own."""
        return replace(self._main.setup, shard=f"{self._main.setup.shard}.{self._starts}")

    def activity(self) -> Activity | None:
        """Returns what the process is doing, or was doing when it died; None between items."""
        shard = self.setup.shard
        return next((each for each in read_orphaned(self.setup.folder) if each.shard == shard), None)

    def start(self, *, ahead: bool = True) -> Child:
        """Starts the process; with `ahead`, it collects all items while this process does so too."""
        self._starts, self._forwarded = self._starts + 1, 0
        memory = self._memory * 2**30 or 0.9 * free_memory()
        temporary = self.setup.folder if self._arguments.is_remote else None
        serve = partial(IsolatedProcess, self.setup, self._arguments, self._judged, self._ended, ahead=ahead)
        self._child = Child(serve, "the isolated process", "spawn", memory=memory, temporary=temporary)
        self._child.start()
        return self._child

    def run(
        self, parts: Sequence[Item], request: ItemRequest, on_case: Callable[[], None] = lambda: None
    ) -> ItemResult:
        """Runs an item, in a new process each time that a case ends one; the next process records that finding."""
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
            except ChildEndedError as died:
                activity = self.activity() or Activity(request.name, shard=self.setup.shard)
                source = ReasonSource.OBSERVER if died.end is End.DIED else ReasonSource.KILLER
                reason = CrashReason(died.cause, source, is_hang=died.end is End.LATE)
                crash_reports.write_crash_reason(self.setup.folder, self.setup.shard, reason)
                self.stop()
                starts += not activity.case
            else:
                if result.device_lost:
                    self.close()
                return result
            if starts == _MAX_STARTS:
                break
            request = replace(request, is_retry=True)
        failure = crash_reports.failure_from_crash(self.setup.folder, activity)
        return crash_reports.abandon_item(self._main.writer, request.name, activity, failure)

    def _attempt(self, request: ItemRequest, on_case: Callable[[], None]) -> ItemResult:
        child = self._child or self.start(ahead=False)
        self._judged.value = self._ended.value = 0
        self.is_busy = True

        def check() -> None:
            on_case()
            if self._ended.value and time.time() - self._ended.value > _IN_TRANSIT:
                raise _GarbledError("it did not arrive")
            self._check_journal()

        try:
            answer = child.ask({"item": asdict(request), "planned": sorted(self._main.setup.planned)}, on_wait=check)
        except ChildEndedError as died:
            if died.end is End.SILENT:
                raise _GarbledError(died.cause) from died
            raise
        except ChildRaisedError:
            raise
        except BaseException:  # an interrupt or an alarm, which must not wait for the process
            self.stop()
            raise
        finally:
            self.is_busy = False
            # pytest captures it with the item
            output, self._forwarded = captured_output(self.setup.folder, self.setup.shard, self._forwarded)
            print(output, end="", flush=True)
        if "uncollected" in answer:
            raise UncollectedError(answer["uncollected"])
        return ItemResult(**{**answer["result"], "families": tuple(answer["result"]["families"])})

    # Gives up a process whose watchdog should have ended it.
    def _check_journal(self) -> None:
        setup = self.setup
        try:
            running = crash_reports.crash_file(setup.folder, setup.shard, "journal").stat()
        except OSError:
            return
        timeout = setup.settings.timeout
        if timeout and running.st_size and time.time() - running.st_mtime > timeout + 4 * watchdog.GRACE:
            cause = f"no answer within {timeout} s, and its watchdog could not end it"
            raise ChildEndedError(End.LATE, -signal.SIGKILL, cause, cause, "")

    def stop(self) -> None:
        """Ends the process at once. Its journal still holds what it was doing."""
        if self._child is not None:
            self._child.kill()
            self._child.close()
            self._child = None

    def close(self) -> None:
        if self._child is not None:
            self.stop()
            crash_reports.delete_crash_files(self.setup.folder, self.setup.shard)
