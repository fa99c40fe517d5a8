"""Chooses what runs each item, and owns the processes that do."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.backends.registry import resolve
from kerneltest.core.media import lines_for_terminal
from kerneltest.core.processes import available_processors
from kerneltest.core.targets import Tier
from kerneltest.pytest_plugin.collection import Collection, junit_properties
from kerneltest.pytest_plugin.executor import Cluster, Executor, ItemRequest, PytestArguments, WorkerSetup

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend
    from kerneltest.core.failures import Failure
    from kerneltest.execute.item import Item
    from kerneltest.execute.settings import RunSettings
    from kerneltest.pytest_plugin.isolation import IsolatedWorker
    from kerneltest.pytest_plugin.summary import Reporter
    from kerneltest.pytest_plugin.worker import ItemWorker
    from kerneltest.records.journal import Activity

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel0", "/dev/vfio/0")  # of NVIDIA, AMD and TPUs


class Dispatcher:
    """The executors of this process: itself, the isolated process that it supervises, and a cluster."""

    def __init__(
        self,
        config: pytest.Config,
        settings: RunSettings,
        folder: Path,
        collection: Collection,
        *,
        shard: str,
        arguments: Sequence[str],
        reporter: Reporter | None,
    ) -> None:
        self.cluster: Cluster | None = None  # runs items on other machines; None without one
        captures = config.getoption("capture", "no") != "no"
        self.arguments = PytestArguments(tuple(arguments), config.invocation_params.dir, captures)
        self._config, self._settings, self._folder, self._collection = config, settings, folder, collection
        self._shard, self._reporter = shard, reporter
        self._worker: ItemWorker | None = None
        self._isolated: IsolatedWorker | None = None

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        """The backends of the run, as this machine or the cluster can serve them."""
        backends = tuple(resolve(self._settings.backends, self._settings.orders))
        return self.cluster.wrap_backends(backends) if self.cluster is not None else backends

    @cached_property
    def store_folder(self) -> Path | None:
        """The folder in pytest's cache for what later runs reuse, created on first use; None without a cache."""
        cache: pytest.Cache | None = getattr(self._config, "cache", None)
        try:
            return None if cache is None else cache.mkdir("kerneltest")
        except OSError as error:
            warnings.warn(f"kerneltest caches no compiled code: {error}", pytest.PytestWarning, stacklevel=2)
            return None

    @property
    def records_are_complete(self) -> bool:
        """True if records hold all results of an item: no files belong to them, and no time limit applied."""
        settings = self._settings
        return not (settings.artifacts or settings.budget or settings.resume or self.cluster is not None)

    def setup(self, shard: str) -> WorkerSetup:
        return WorkerSetup(
            folder=self._folder,
            shard=shard,
            planned=self._collection.selected,
            settings=self._settings,
            named_backends=self._settings.named_backends(),
            store=self.store_folder,
            reuses_records=self.records_are_complete,
            writes_keys=self.cluster is None and bool(self._settings.report or self.store_folder),
            root=self._config.rootpath,
            shows_cases=self._config.option.verbose > 0,
        )

    @property
    def worker(self) -> ItemWorker:
        if self._worker is None:
            from kerneltest.execute.watchdog import ConsoleCrashLog
            from kerneltest.pytest_plugin.worker import ItemWorker

            reporter, setup = self._reporter, self.setup(self._shard)
            if reporter is None:  # a worker of xdist, which has no terminal
                self._worker = ItemWorker(setup, self._abandon)
            else:
                console = ConsoleCrashLog(reporter.console)
                self._worker = ItemWorker(setup, self._abandon, console, reporter.show_finding)
        return self._worker

    @property
    def isolated_worker(self) -> IsolatedWorker:
        if self._isolated is None:
            from kerneltest.pytest_plugin.isolation import IsolatedWorker

            self._isolated = IsolatedWorker(self.worker, self.arguments, self._settings.memory)
        return self._isolated

    def executor_of(self, item: Item) -> Executor:
        available = not item.backend.unavailable()
        if self.cluster is not None and available:
            return self.cluster
        is_device = available and item.backend.tier is Tier.DEVICE
        isolate = self._settings.isolate
        return self.isolated_worker if isolate == "always" or (isolate == "device" and is_device) else self.worker

    def request(self, item: Item, node_id: str, *, is_retry: bool) -> ItemRequest:
        from kerneltest.report.rerun_commands import pytest_command

        root = os.path.relpath(self._config.rootpath, self._config.invocation_params.dir)
        command = pytest_command(self._settings, item.backend.id, node_id, root)
        budget = self._settings.budget
        seconds = self._collection.share_of(budget, item) if budget else 0.0
        stops = self._config.getoption("maxfail") == 1
        return ItemRequest(item.name, command, seconds, is_retry=is_retry, stops_at_finding=stops)

    def prestart(self) -> None:
        """Starts the isolated process during collection if items are likely to need it and a processor is free."""
        isolate, xdist_workers = self._settings.isolate, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        if self._isolated is not None or isolate == "never" or self.cluster is not None:
            return
        if self._config.option.collectonly or available_processors() < 2 * xdist_workers:
            return
        has_driver = any(Path(each).exists() for each in _DRIVERS)
        if isolate == "always" or (has_driver and any(backend.tier is Tier.DEVICE for backend in self.backends)):
            self.isolated_worker.start()

    def begin_run(self) -> None:
        if self._worker is not None:
            self._worker.plan_parts(self._collection.selected)

    def progress(self) -> tuple[int, str]:
        """Returns the number of judged cases of the running item, and its stage as a word before the item's name."""
        if self.cluster is not None:
            return self.cluster.progress()
        if self._isolated is not None and self._isolated.is_busy:
            return self._isolated.judged_cases, "running"
        if self._worker is None:
            return 0, ""
        if self._worker.is_shrinking:
            return self._worker.judged_cases, "shrinking a finding of"
        prepared = list(self._worker.cache.executables.prepared.values())
        done = sum(each.done() for each in prepared)
        stage = "running" if done == len(prepared) else f"compiling {done} of {len(prepared)} for"
        return self._worker.judged_cases, stage

    def activity(self) -> Activity | None:
        """Returns what the executor of the running item is doing; None between items."""
        if self._isolated is not None and self._isolated.is_busy:
            return self._isolated.activity()
        return self._worker.cache.process.journal.activity if self._worker is not None else None

    def _abandon(self, activity: Activity, failure: Failure) -> None:
        if self._reporter is not None:
            from kerneltest.pytest_plugin import crash_reports

            if items := crash_reports.planned_items(self._folder, activity.item):
                crash_reports.record_crash(self.worker.writer, items, activity, failure)
            self._reporter.abandon_run(activity, failure)

    def close(self) -> None:
        if self._isolated is not None:
            self._isolated.close()
        if self._worker is not None:
            self._worker.close()


# Crashes of xdist workers: the case is recorded, and another worker continues with the item.


class XdistCrashes:
    """Counts and records crashes of workers, in the controller."""

    def __init__(self, folder: Path, dispatcher: Dispatcher) -> None:
        self._folder, self._dispatcher = folder, dispatcher
        self._counts: Counter[str] = Counter()  # by item
        self._properties: dict[str, list[tuple[str, object]]] = {}  # by item

    def handle(self, item: str, report: Any, scheduler: Any) -> None:
        """Records why a worker died and reschedules the item; ignores tests that are not kerneltest's."""
        from kerneltest.pytest_plugin import crash_reports
        from kerneltest.records.journal import Activity, read_orphaned

        items = crash_reports.planned_items(self._folder, item)
        if not items:
            return
        shard = report.node.gateway.id
        orphans = (each for each in read_orphaned(self._folder) if each.shard == shard and each.item == item)
        activity = next(orphans, Activity(item, shard=shard))
        failure = crash_reports.failure_from_crash(self._folder, activity)
        self._counts[item] += 1
        may_continue = activity.case and self._counts[item] <= crash_reports.MAX_CRASHES
        families = " ".join(family for each in items for family in each.families)
        known = junit_properties(items[0].backend, items[0].dtype)
        self._properties[item] = [*known, ("family", families), ("verdict", str(failure.verdict))]
        try:
            if may_continue:
                scheduler.mark_test_pending(item)
                report.outcome = "rerun"  # the worker that continues with the item reports the crash
        except NotImplementedError:
            may_continue = False
        if not may_continue:
            report.longrepr = lines_for_terminal(f"{failure}\n{shard} was {activity}; the rest of the item is not run")
            crash_reports.record_crash(self._dispatcher.worker.writer, items, activity, failure)

    def take_properties(self, item: str) -> list[tuple[str, object]] | None:
        """Returns the JUnit XML properties of an item whose worker died, once."""
        return self._properties.pop(item, None)
