"""pytest's loop over items that run on a Ray cluster: each is reported as it ends, in any order."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.backends.device import RemoteBackend
from kerneltest.core.details import Crashed
from kerneltest.core.failures import Failure
from kerneltest.core.grouping import group_pairs
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict, worst
from kerneltest.execute.item import Item
from kerneltest.execute.verdict_key import item_fingerprint
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.ray import ACCELERATOR, GPUS, RAY
from kerneltest.extensions.ray.client import ClusterError, RayCluster
from kerneltest.extensions.ray.code import ArchiveError, pack, project_code
from kerneltest.extensions.ray.messages import (
    ItemDone,
    ItemProgress,
    ItemStarted,
    JobLost,
    JobOver,
    JobSetup,
    NodeEvent,
    QueuedItem,
    RecordLog,
    RecordLogError,
    Resources,
)
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult
from kerneltest.pytest_plugin.hook_guard import guard_hooks
from kerneltest.pytest_plugin.kernel_item import KernelItem
from kerneltest.pytest_plugin.sharding import balance, part_costs, part_of
from kerneltest.records.journal import Activity, Journal
from kerneltest.trace.jax_environment import JAX_SETTINGS

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend
    from kerneltest.pytest_plugin.progress import ProgressLine
    from kerneltest.pytest_plugin.pytest_run import PytestRun

# Tracks which item runs where: submits jobs, resubmits what died, and abandons what keeps dying.

MAX_LOSSES = 3  # of nodes and workers while an item runs, before the rest of its cases is abandoned


@dataclass(slots=True)
class ClusterJob:
    """Items that run one after another on a node: of one pairing in one dtype, which share traces and expectations."""

    requests: dict[str, ItemRequest]  # of the items that have not ended, by name
    needs: Resources
    running: str = ""  # the running item; "" before the first
    activity: Activity | None = None  # what its process was doing according to its last message
    location: str = ""  # host and node; "" before it runs


@dataclass(slots=True)
class JobTable:
    """All jobs of a run."""

    jobs: Sequence[ClusterJob]  # by number
    log: RecordLog  # receives the records
    submit: Callable[[int, Sequence[QueuedItem], Resources], None]  # submits a job
    # ends an item that keeps dying: its request, what its process was doing, and the reason
    abandon: Callable[[ItemRequest, Activity, str], ItemResult]
    ended: dict[str, ItemDone] = field(default_factory=dict)  # the items that have ended, by name
    losses: list[str] = field(default_factory=list)  # descriptions of nodes and workers that died
    served: Counter[str] = field(default_factory=Counter)  # number of items that ended on each node
    _losses_of: Counter[str] = field(default_factory=Counter)  # by item
    _begun: set[str] = field(default_factory=set)

    def start(self) -> None:
        for number in range(len(self.jobs)):
            self._submit(number)

    def running(self) -> Iterable[str]:
        return [job.running for job in self.jobs if job.running]

    def handle(self, number: int, event: NodeEvent | JobLost | JobOver) -> None:
        """Handles a message of a job, or its end; raises a RecordLogError if a node sent something invalid."""
        job = self.jobs[number]
        match event:
            case ItemStarted():
                job.running, job.activity, job.location = event.item, None, f"{event.host} (node {event.node[:8]})"
                self._begun.add(event.item)
            case ItemProgress():
                self.log.save(event.files)  # before the lines that name them
                for line in event.records:
                    self.log.add(line)
                self.log.add_smallest(event.smallest)
                job.activity = event.activity or job.activity
            case ItemDone():
                self.served[job.location] += 1
                self._end_item(job, event)
            case JobLost():
                self._lose(job, event)
                self._submit(number)
            case JobOver() if job.requests:
                self._lose(job, JobLost(False, "its job ended before all of its items had"))
                self._submit(number)

    def _end_item(self, job: ClusterJob, done: ItemDone) -> None:
        job.requests.pop(done.item, None)
        job.running, job.activity = "", None
        contradictions = self.log.end(done.item, done.crashes)
        if contradictions and done.result is not None:  # which the node cannot know
            verdict = worst([Verdict.NONDETERMINISTIC, *(each for each in Verdict if each == done.result.verdict)])
            message = "\n".join([*contradictions, *([done.result.message] if done.result.message else [])])
            result = replace(done.result, verdict=str(verdict), headline=contradictions[0], message=message)
            done = replace(done, result=result)
        self.ended[done.item] = done

    # The running case is not to blame: it runs in a process of its own, which its node supervises.
    def _lose(self, job: ClusterJob, lost: JobLost) -> None:
        if not job.requests:
            return
        item = job.running or next(iter(job.requests))
        self._losses_of[item] += 1
        continues = self._losses_of[item] < MAX_LOSSES
        subject = "the node" if lost.node else "a worker"
        location = f" on {job.location}" if job.location else ""
        others = len(job.requests) - 1
        more = f", with {others} more item{'s' * (others > 1)}" if others else ""
        outcome = "continues elsewhere" if continues else "is abandoned"
        self.losses.append(f"{subject} that ran {item} was lost{location}: {lost.reason}; the item {outcome}{more}")
        activity = job.activity or Activity(item)
        job.running, job.location = "", ""
        if not continues:
            reason = f"{MAX_LOSSES} nodes or workers were lost while running it: {lost.reason}"
            self._end_item(job, ItemDone(item, self.abandon(job.requests[item], activity, reason)))

    def _submit(self, number: int) -> None:
        job = self.jobs[number]
        items = []
        for name, request in job.requests.items():
            lines = self.log.lines_of(name)
            is_retry = request.is_retry or name in self._begun or bool(lines)
            items.append(QueuedItem(replace(request, is_retry=is_retry), lines))
        if items:
            self.submit(number, items, job.needs)


_EVERY = 0.5  # seconds to wait for messages
_MAX_WAIT = 60.0  # seconds without a node that can run any remaining item, before the run ends
_JOBS_PER_SLOT = 4
_DEVICES = {"cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}  # Ray's resource of each backend
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_MAX_MEMORY = 0.9  # fraction of a GPU's memory for all jobs on it
_FORWARDED_VARIABLES = {*(name.upper() for name in JAX_SETTINGS), "PYTEST_ADDOPTS"}


class RemoteItemError(Exception):
    """An item that could not run on its node; says why."""


class RayLoop:
    """A pytest plugin that runs pairings on a cluster and all other tests here. It is the run's `Cluster`."""

    def __init__(self, run: PytestRun, progress_line: ProgressLine | None) -> None:
        self._run, self._progress_line = run, progress_line
        self._jobs: JobTable | None = None
        self._stuck_since: float | None = None  # of the monotonic clock

    @cached_property
    def ray_cluster(self) -> RayCluster:
        cluster = RayCluster(self._run.settings.get(RAY))
        types = [name.partition(":")[2] for name in cluster.resources() if name.startswith("accelerator_type:")]
        accelerator = self._run.settings.get(ACCELERATOR)
        if accelerator and accelerator not in types:
            known = f"the cluster has {', '.join(sorted(types))}" if types else "the cluster has no typed GPUs"
            raise ClusterError(f"no node has a GPU of type {accelerator}; {known}")
        return cluster

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        try:
            assert self.ray_cluster
            assert self._run.dispatcher.backends  # asks the nodes about their devices
        except ClusterError as error:
            raise pytest.UsageError(lines_for_terminal(f"--kt-ray: {error}")) from error

    def wrap_backends(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        resources = self.ray_cluster.resources()
        devices: dict[str, tuple[str, Mapping[str, str]]] = {}
        queries: defaultdict[Resources, list[str]] = defaultdict(list)
        for backend in backends:
            kind = _DEVICES.get(backend.id)
            if kind and resources.get(kind, 0):
                queries[self._needs(backend)].append(backend.id)
            elif kind:
                devices[backend.id] = f"no node of the cluster has a {kind}", {}
        for needs, ids in queries.items():
            devices |= self.ray_cluster.devices(ids, needs)
        return tuple(RemoteBackend(each, *devices[each.id]) if each.id in devices else each for each in backends)

    def _needs(self, backend: Backend) -> Resources:
        if _DEVICES.get(backend.id) == "TPU":
            return Resources(tpus=1)
        if backend.tier is Tier.DEVICE and self.ray_cluster.resources().get("GPU", 0):
            settings = self._run.settings
            return Resources(gpus=settings.get(GPUS), accelerator=settings.get(ACCELERATOR))
        return Resources()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or (
            session.testsfailed and not session.config.option.continue_on_collection_errors
        ):
            return None  # pytest's own loop handles that
        by_name: dict[str, KernelItem] = {}
        others: list[pytest.Item] = []
        for item in session.items:
            if isinstance(item, KernelItem) and not item.items[0].backend.unavailable():
                by_name[item.items[0].name] = item
            else:
                others.append(item)
        try:
            self._submit_jobs(list(by_name.values()))
            for number, item in enumerate(others):
                _run_item(session, item, others[number + 1] if number + 1 < len(others) else None)
                self._receive(0)
            for name in self._wait_for(by_name):
                _run_item(session, by_name[name], None)
        except (ClusterError, RecordLogError, ArchiveError) as error:
            raise session.Interrupted(f"--kt-ray: {error}") from error
        return True

    def _submit_jobs(self, items: Sequence[KernelItem]) -> None:
        if not items:
            return
        run, root, folder = self._run, self._run.config.rootpath, self._run.folder.path
        gpus = run.settings.get(GPUS)
        environment = {name: value for name, value in os.environ.items() if name in _FORWARDED_VARIABLES}
        if gpus < 1:
            environment[_FRACTION] = f"{_MAX_MEMORY * gpus:.3f}"
        code = project_code(root, [item.path for item in items])
        setup = JobSetup(
            plan=(folder / "plan.json").read_bytes(),
            worker=run.dispatcher.setup("ray"),
            arguments=run.dispatcher.arguments,
            memory=run.settings.memory,
            code=code,
            environment=environment,
            paths=tuple(path for path in sys.path if Path(path).is_relative_to(root)),
            archive=pack(root, folder) if self.ray_cluster.needs_archive(code, root) else None,
        )
        self.ray_cluster.share(setup)
        log = RecordLog(folder, "ray")
        self._jobs = JobTable(self._split_into_jobs(items), log, self.ray_cluster.submit, self._abandon)
        self._jobs.start()

    # Those on devices come first, and the most expensive of each kind.
    def _split_into_jobs(self, items: Sequence[KernelItem]) -> list[ClusterJob]:
        costs = part_costs(items, {})
        with limit_time(journal := Journal(), self._run.settings.timeout, self._run.reporter.console):
            fingerprints = {item.nodeid: item_fingerprint(item.items, journal) for item in items}
        jobs: list[tuple[bool, float, ClusterJob]] = []
        for needs, group in group_pairs((self._needs(item.items[0].backend), item) for item in items).items():
            parts = {part_of(item): costs[part_of(item)] for item in group}
            # Each job starts a process: as few as possible, but enough for the last ones to end at about the same time.
            job_of = balance(parts, min(len(parts), self._slots(needs) * _JOBS_PER_SLOT))
            by_number: dict[int, ClusterJob] = {}
            totals: Counter[int] = Counter()
            for item in group:
                job = by_number.setdefault(job_of[part_of(item)], ClusterJob({}, needs))
                first = item.items[0]
                request = self._run.dispatcher.request(first, item.nodeid, is_retry=False)
                job.requests[first.name] = replace(request, fingerprint=fingerprints[item.nodeid])
            for part, number in job_of.items():
                totals[number] += math.ceil(parts[part])
            jobs += [(needs == Resources(), -totals[number], job) for number, job in by_number.items()]
        return [job for *_, job in sorted(jobs, key=lambda each: each[:2])]

    def _slots(self, needs: Resources) -> int:
        name, count = needs.scarcest
        return max(1, int(self.ray_cluster.resources().get(name, 0.0) / count))

    def _wait_for(self, names: Iterable[str]) -> Iterator[str]:
        remaining = set(names)
        while remaining:
            assert self._jobs is not None
            for name in [each for each in self._jobs.ended if each in remaining]:
                remaining.discard(name)
                yield name
            if remaining:
                self._receive(_EVERY)

    def _receive(self, seconds: float) -> None:
        if self._jobs is None:
            return
        before, received = set(self._jobs.running()), False
        for number, event in self.ray_cluster.events(seconds):
            received = True
            self._jobs.handle(number, event)
        if self._progress_line is not None:
            for name in set(self._jobs.running()) - before:
                self._progress_line.show_item(name)
        remaining = [job.needs for job in self._jobs.jobs if job.requests]
        if received or not remaining or any(map(self._has, remaining)):
            self._stuck_since = None
            return
        self._stuck_since = self._stuck_since or time.monotonic()
        if time.monotonic() - self._stuck_since > _MAX_WAIT:
            raise ClusterError("no node of the cluster can run the remaining items any more; existing records are kept")

    def _has(self, needs: Resources) -> bool:
        name, count = needs.scarcest
        return self.ray_cluster.resources().get(name, 0.0) >= count

    def _abandon(self, request: ItemRequest, activity: Activity, reason: str) -> ItemResult:
        failure = Failure(Verdict.CRASH, Crashed("", reason))
        return crash_reports.abandon_item(self._run.dispatcher.worker.writer, request.name, activity, failure)

    def run(
        self, parts: Sequence[Item], request: ItemRequest, on_case: Callable[[], None] = lambda: None
    ) -> ItemResult:
        """Waits for an item's end on its node, and returns its result; a RemoteItemError if it could not run."""
        for _ in self._wait_for([request.name]):
            break
        assert self._jobs is not None
        done = self._jobs.ended[request.name]
        print(done.output, end="")
        if done.result is None:
            raise RemoteItemError(done.error)
        return done.result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: Any
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._jobs is not None and call.when == "call" and isinstance(item, KernelItem):
            done = self._jobs.ended.get(item.items[0].name)
            report.duration = done.seconds if done is not None else report.duration
        return report

    def progress(self) -> tuple[int, str]:
        return (self._jobs.log.judged_cases(), "running") if self._jobs is not None else (0, "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if "ray_cluster" in self.__dict__:
            jobs = self._jobs.jobs if self._jobs is not None else ()
            self.ray_cluster.close([number for number, job in enumerate(jobs) if job.requests])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._jobs is None:
            return
        terminalreporter.section("Ray")
        for location, count in sorted(self._jobs.served.items()):
            terminalreporter.write_line(for_terminal(f"{location}: {count} item{'s' * (count != 1)}"))
        for loss in self._jobs.losses:
            terminalreporter.write_line(for_terminal(loss), yellow=True)

    guard_hooks(vars())


def _run_item(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
