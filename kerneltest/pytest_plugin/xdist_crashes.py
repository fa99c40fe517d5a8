"""Crashes of xdist workers: the case is recorded, and another worker continues with the item."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneltest.core.media import lines_for_terminal
from kerneltest.pytest_plugin.collection import junit_properties

if TYPE_CHECKING:
    from kerneltest.pytest_plugin.dispatch import Dispatcher


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
        if may_continue and _reschedule(scheduler, item):
            report.outcome = "rerun"  # the worker that continues with the item reports the crash
        else:
            report.longrepr = lines_for_terminal(f"{failure}\n{shard} was {activity}; the rest of the item is not run")
            crash_reports.record_crash(self._dispatcher.worker.writer, items, activity, failure)

    def take_properties(self, item: str) -> list[tuple[str, object]] | None:
        """Returns the JUnit XML properties of an item whose worker died, once."""
        return self._properties.pop(item, None)


def _reschedule(scheduler: Any, item: str) -> bool:
    try:
        scheduler.mark_test_pending(item)
    except NotImplementedError:
        return False
    return True
