"""Brief failures: the summary reports each suspect once, and an item only names its own by their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.verdicts import Gap

if TYPE_CHECKING:
    from kerneltest.records.runs import RunRecords
    from kerneltest.triage.suspect import Suspect


class BriefFailures:
    """A pytest plugin that leaves failures out of the section FAILURES if the summary explains them.

    They stay in pytest's counts and in its short summary. JUnit XML and other plugins received them in full before.

    Attributes:
      explained: ids of the reports that are left out, by the objects' identity.
    """

    def __init__(self) -> None:
        self.explained: set[int] = set()
        self._failed: list[Any] = []
        self._reports: list[Any] = []

    def leave_out(
        self, reports: Iterable[Any], run: RunRecords, suspects: Sequence[Suspect], *, stopped: bool = False
    ) -> None:
        """Leaves out the reports of items whose findings all belong to suspects that the summary shows.

        Args:
          reports: pytest's reports of failures.
          run: the run.
          suspects: those that the summary shows, in its order.
          stopped: whether the session was ended before it had run everything, which the summary tells.
        """
        for report, numbers in _explained_reports(reports, run, suspects, stopped):
            report.longrepr.reprcrash.message = f"suspect{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            self.explained.add(id(report))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, object, object]:
        self._reports = terminalreporter.stats.get("failed", [])
        self._failed = self._reports[:]
        self._reports[:] = [report for report in self._failed if id(report) not in self.explained]
        try:
            return (yield)
        finally:
            self.restore()

    def restore(self) -> None:
        """Hands all failures back to pytest, whose short summary follows."""
        self._reports[:] = self._failed


def _explained_reports(
    reports: Iterable[Any], run: RunRecords, suspects: Sequence[Suspect], stopped: bool
) -> Iterator[tuple[Any, list[int]]]:
    """Yields the reports that suspects explain, with the suspects' numbers within their pairing.

    A report says more than its suspects if its item was not run to its end in a session that was, or ran out of time;
    if pytest's `xfail` marks the item; or if output was captured.
    """
    findings = Counter(record.item for record in run.records if not record.verdict.is_green)
    missing = set() if stopped else set(run.reconciled.missing)
    unended = {each.item for each in run.plan.items if not missing.isdisjoint(each.cells)}
    numbers: Counter[str] = Counter()
    by_item: dict[str, list[int]] = {}
    explained: Counter[str] = Counter()
    for suspect in suspects:
        numbers[suspect.pairing] += 1
        of_items = Counter(record.item for record in suspect.findings)
        explained.update(of_items)
        for item in of_items:
            by_item.setdefault(item, []).append(numbers[suspect.pairing])
    for report in reports:
        mine = by_item.get(report.nodeid, [])
        ran_out = ("verdict", Gap.MISSING) in report.user_properties
        has_advice = ran_out or report.nodeid in unended or "xfail" in report.keywords
        is_plain = (
            not report.sections and report.when == "call" and getattr(report.longrepr, "reprcrash", None) is not None
        )
        if mine and is_plain and not has_advice and explained[report.nodeid] == findings[report.nodeid]:
            yield report, mine
