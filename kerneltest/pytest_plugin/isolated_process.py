"""The isolated process: it collects the items of the session again, and runs those that its supervisor requests."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from kerneltest.core.processes import depend_on_parent
from kerneltest.execute.item import Item
from kerneltest.execute.planning import plan_entry
from kerneltest.pytest_plugin.crash_log import output_file
from kerneltest.pytest_plugin.crash_reports import UncollectedError
from kerneltest.pytest_plugin.executor import ItemRequest, ItemResult, PytestArguments, WorkerSetup
from kerneltest.pytest_plugin.recollection import PROBLEMS, ItemsByName, collect
from kerneltest.pytest_plugin.worker import ItemWorker
from kerneltest.records.record_files import read_plan
from kerneltest.records.run_plan import Plan
from kerneltest.records.sources import describe_pairing
from kerneltest.trace.jax_environment import jax_environment, jax_settings

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
        file = self._setup.root / name.partition("::")[0]
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
    unavailable = collected.get(f"{name.rpartition('-')[0]}]")
    if unavailable:
        return f"{name} cannot run in the isolated process: {unavailable[0].backend.unavailable()}"
    if problem := PROBLEMS.get(name.rpartition("[")[0]):
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
