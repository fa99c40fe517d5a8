"""pytest's loop over items that run on a cluster: each is reported as it ends, in whatever order that is."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.backends.remote import Elsewhere
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.item import Item
from kerneltest.extensions.ray.code import code_of
from kerneltest.extensions.ray.events import Needs, Orders
from kerneltest.extensions.ray.jobs import Job, Jobs
from kerneltest.extensions.ray.ray_client import Fleet, FleetError
from kerneltest.extensions.ray.record_log import Ledger, LedgerError
from kerneltest.extensions.ray.source_archive import ShippingError, packed
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.item import KernelItem
from kerneltest.pytest_plugin.sharding import costs_of, part_of
from kerneltest.pytest_plugin.shards import shared_out
from kerneltest.pytest_plugin.worker import Ended, Task
from kerneltest.records.journal import Doing
from kerneltest.trace.tracing import SETTINGS

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend
    from kerneltest.pytest_plugin.progress import Live
    from kerneltest.pytest_plugin.run import Run

_EVERY = 0.5  # seconds to wait for news
_ALONE_FOR = 60.0  # seconds without a node that could run anything, before the run is ended
_JOBS_OF_A_PLACE = 4
_DEVICES = {"cuda": "GPU", "rocm": "GPU", "tpu": "TPU"}  # as Ray counts them
_FRACTION, _MOST_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.9  # of a GPU's, for all that share it
_PASSED_ON = {*(name.upper() for name in SETTINGS), "PYTEST_ADDOPTS"}


class ElsewhereError(Exception):
    """An item that could not be run on a node; says why."""


class Loop:
    """A plugin that runs pairings on a cluster, and all else here."""

    def __init__(self, run: Run, live: Live | None) -> None:
        """Args:
        run: of the session.
        live: shows each item that begins.
        """
        self._of, self._live = run, live
        self._jobs: Jobs | None = None
        self._alone_since: float | None = None

    @cached_property
    def fleet(self) -> Fleet:
        """The cluster, from when it is first needed."""
        fleet = Fleet(self._of.ray)
        types = [each.partition(":")[2] for each in fleet.resources() if each.startswith("accelerator_type:")]
        if self._of.accelerator and self._of.accelerator not in types:
            there = f"there is {', '.join(sorted(types))}" if types else "there is none of any type"
            raise FleetError(f"no node has a GPU of type {self._of.accelerator}; {there}")
        return fleet

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        try:
            assert self.fleet
            assert self._of.backends  # for which the nodes are asked
        except FleetError as error:
            raise pytest.UsageError(f"--kt-ray: {error}") from error

    def served(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """Backends as the nodes can serve them: which devices there are, the nodes say."""
        resources = self.fleet.resources()
        found: dict[str, tuple[str, Mapping[str, str]]] = {}
        asked: defaultdict[Needs, list[str]] = defaultdict(list)
        for backend in backends:
            kind = _DEVICES.get(backend.id)
            if kind and resources.get(kind, 0):
                asked[self._needs(backend)].append(backend.id)
            elif kind:
                found[backend.id] = f"no node of the cluster has a {kind}", {}
        for needs, ids in asked.items():
            found |= self.fleet.devices(ids, needs)
        return tuple(Elsewhere(each, *found[each.id]) if each.id in found else each for each in backends)

    def _needs(self, backend: Backend) -> Needs:
        if _DEVICES.get(backend.id) == "TPU":
            return Needs(tpus=1)
        if backend.tier is Tier.DEVICE and self.fleet.resources().get("GPU", 0):
            return Needs(gpus=self._of.gpus, accelerator=self._of.accelerator)
        return Needs()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or (
            session.testsfailed and not session.config.option.continue_on_collection_errors
        ):
            return None  # pytest says so itself
        by_name: dict[str, KernelItem] = {}
        others: list[pytest.Item] = []
        for item in session.items:
            # Of a backend that no node can serve there is nothing to run.
            if isinstance(item, KernelItem) and not item.items[0].backend.unavailable():
                by_name[item.items[0].name] = item
            else:
                others.append(item)
        try:
            self._begin(list(by_name.values()))
            for number, item in enumerate(others):
                _run(session, item, others[number + 1] if number + 1 < len(others) else None)
                self._hear(0)
            for name in self._ended(by_name):
                _run(session, by_name[name], None)
        except (FleetError, LedgerError, ShippingError) as error:
            raise session.Interrupted(f"--kt-ray: {error}") from error
        return True

    def _begin(self, items: Sequence[KernelItem]) -> None:
        if not items:
            return
        run = self._of
        root = run.config.rootpath
        passed_on = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        code = code_of(root, [item.path for item in items])
        orders = Orders(
            run.home.run,
            (run.folder / "plan.json").read_bytes(),
            run.setup("ray"),
            run.arguments,
            run.memory,
            code,
            {**passed_on, **({_FRACTION: f"{_MOST_MEMORY * run.gpus:.3f}"} if run.gpus < 1 else {})},
            tuple(path for path in sys.path if Path(path).is_relative_to(root)),
            packed(root, run.folder) if self.fleet.inspect(code, root) else None,
        )
        self.fleet.begin(orders)
        self._jobs = Jobs(self._cut(items), Ledger(run.folder, "ray"), self.fleet.submit, self._given_up)
        self._jobs.start()

    def _cut(self, items: Sequence[KernelItem]) -> list[Job]:
        """The jobs: the costliest first, and those on devices before the others."""
        costs = costs_of(items, {})
        by_needs: defaultdict[Needs, list[KernelItem]] = defaultdict(list)
        for item in items:
            by_needs[self._needs(item.items[0].backend)].append(item)
        jobs: list[tuple[bool, float, Job]] = []
        for needs, group in by_needs.items():
            parts = {part_of(item): costs[part_of(item)] for item in group}
            # Each job starts a process: few of them, and enough for the last ones to end at about the same time.
            chosen = shared_out(parts, min(len(parts), self._places(needs) * _JOBS_OF_A_PLACE))
            made: dict[int, Job] = {}
            spent: Counter[int] = Counter()
            for item in group:
                job = made.setdefault(chosen[part_of(item)], Job({}, needs))
                job.tasks[item.items[0].name] = self._of.task(item.items[0], item.nodeid, again=False)
            for part, number in chosen.items():
                spent[number] += math.ceil(parts[part])
            jobs += [(needs == Needs(), -spent[number], job) for number, job in made.items()]
        return [job for *_, job in sorted(jobs, key=lambda each: each[:2])]

    def _places(self, needs: Needs) -> int:
        """How many jobs with these needs run at a time."""
        there = self.fleet.resources()
        if needs.tpus:
            return max(1, int(there.get("TPU", 0) / needs.tpus))
        return max(1, int(there.get("GPU", 0) / needs.gpus if needs.gpus else there.get("CPU", 0)))

    def _ended(self, names: Iterable[str]) -> Iterator[str]:
        """The items as they end."""
        left = set(names)
        while left:
            assert self._jobs is not None
            for name in [each for each in self._jobs.ended if each in left]:
                left.discard(name)
                yield name
            if left:
                self._hear(_EVERY)

    def _hear(self, seconds: float) -> None:
        """Takes in what comes within some seconds.

        Raises:
          FleetError: nothing will come any more.
        """
        if self._jobs is None:
            return
        before, heard = set(self._jobs.running()), False
        for number, event in self.fleet.events(seconds):
            heard = True
            self._jobs.take(number, event)
        if self._live is not None:
            for name in set(self._jobs.running()) - before:
                self._live.begin(name)
        left = [job.needs for job in self._jobs.jobs if job.tasks]
        if heard or not left or any(map(self._is_there, left)):
            self._alone_since = None
            return
        self._alone_since = self._alone_since or time.monotonic()
        if time.monotonic() - self._alone_since > _ALONE_FOR:
            raise FleetError("no node of the cluster is left that could run what is left; what was recorded stays")

    def _is_there(self, needs: Needs) -> bool:
        """Whether the cluster has what a job asks for."""
        name, count = ("TPU", needs.tpus) if needs.tpus else ("GPU", needs.gpus) if needs.gpus else ("CPU", 1)
        return self.fleet.resources().get(name, 0.0) >= count

    def _given_up(self, task: Task, doing: Doing, words: str) -> Ended:
        failure = Failure(Verdict.CRASH, words)
        planned = crash_reports.planned(self._of.folder, task.name)
        crash_reports.record(self._of.process.writer, planned, doing, failure)
        families = tuple(family for item in planned for family in item.families)
        return Ended(str(Verdict.CRASH), families, words, f"{words}\nIt was {doing}; the rest of the item is not run.")

    def run(self, parts: Sequence[Item], task: Task, judged: Callable[[], None] = lambda: None) -> Ended:
        """How an item ended on its node, with what it wrote, as `Process.run` tells it; waits for that.

        Raises:
          ElsewhereError: it could not be run there.
        """
        for _ in self._ended([task.name]):
            break
        assert self._jobs is not None
        done = self._jobs.ended[task.name]
        print(done.said, end="")
        if done.ended is None:
            raise ElsewhereError(done.why_not)
        return done.ended

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: Any
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._jobs is not None and call.when == "call" and isinstance(item, KernelItem):
            done = self._jobs.ended.get(item.items[0].name)
            report.duration = done.seconds if done is not None else report.duration
        return report

    def doing(self) -> tuple[int, str]:
        """Cases judged of the items that run, and the cluster in words."""
        if self._jobs is None:
            return 0, ""
        return self._jobs.ledger.judged(), f"{self.fleet.words()}, running"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if "fleet" in self.__dict__:
            jobs = self._jobs.jobs if self._jobs is not None else ()
            self.fleet.close([number for number, job in enumerate(jobs) if job.tasks])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._jobs is None:
            return
        terminalreporter.section("Ray")
        for place, count in sorted(self._jobs.served.items()):
            terminalreporter.write_line(f"{place}: {count} item{'s' * (count != 1)}")
        for words in self._jobs.losses:
            terminalreporter.write_line(words, yellow=True)


def _run(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> None:
    """As pytest's own loop runs an item."""
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
