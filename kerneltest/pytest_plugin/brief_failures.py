"""Failures of items in short: the summary tells each suspect once, so that an item names its own by their titles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneltest.records.runs import RunRecords
    from kerneltest.triage.suspect import Suspect

_REPRODUCE = "reproduce: "


def shorten_failures(reports: Iterable[Any], run: RunRecords, suspects: Sequence[Suspect]) -> None:
    """Shortens the reports of items whose findings all belong to suspects that the summary tells in full.

    The report of an item that was not run to its end, or that pytest's `xfail` marks, says more, and is kept.

    The first item of a suspect keeps the command that runs it again. What JUnit XML and other plugins have received by
    the end of a session stays as it was.

    Args:
      reports: pytest's reports of failures.
      run: the run.
      suspects: those that the summary tells.
    """
    findings = Counter(record.item for record in run.records if not record.verdict.is_green)
    missing = set(run.reconciled.missing)
    unended = {each.item for each in run.plan.items if not missing.isdisjoint(each.cells)}
    by_item: dict[str, list[Suspect]] = {}
    explained: Counter[str] = Counter()
    for suspect in suspects:
        of_items = Counter(record.item for record in suspect.findings)
        explained.update(of_items)
        for item in of_items:
            by_item.setdefault(item, []).append(suspect)
    known: set[str] = set()
    for report in reports:
        mine, entry = by_item.get(report.nodeid, ()), _entry(report)
        has_advice = report.nodeid in unended or "xfail" in report.keywords
        if entry is None or not mine or has_advice or explained[report.nodeid] < findings[report.nodeid]:
            continue
        commands = [line for line in entry.lines if line.startswith(_REPRODUCE)]
        is_first = any(suspect.id not in known for suspect in mine)
        entry.lines = [*(f"E   {suspect.title}" for suspect in mine), *(commands if is_first else ())]
        entry.style, entry.reprfileloc = "value", None
        known.update(suspect.id for suspect in mine)


def _entry(report: Any) -> Any:
    """Returns the part of a report that holds its lines; None if it has another form."""
    entries: Sequence[Any] = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", [])
    return entries[0] if report.when == "call" and len(entries) == 1 else None
