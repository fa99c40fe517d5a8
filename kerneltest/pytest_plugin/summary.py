"""The end of a run: reconciliation, summary and report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.failures import RecordError
from kerneltest.core.ids import PairingId
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.core.processes import throttle_gc
from kerneltest.core.verdicts import Gap
from kerneltest.pytest_plugin.hook_guard import guard_hooks
from kerneltest.pytest_plugin.progress import PROGRESS

if TYPE_CHECKING:
    from kerneltest.core.failures import Failure
    from kerneltest.pytest_plugin.run_folder import RunFolder
    from kerneltest.records.journal import Activity
    from kerneltest.records.runs import RunRecords
    from kerneltest.report.text.lines import Line
    from kerneltest.triage.suspects import Suspect


# With its suspects in one line, by their numbers in the run. A report says more than its suspects if its item was not
# run to its end in a session that was, or ran out of time; if pytest's `xfail` marks the item; or if output was
# captured.
def _explained_reports(
    reports: Iterable[Any], run: RunRecords, suspects: Sequence[Suspect], stopped: bool
) -> Iterator[tuple[Any, str]]:
    findings = Counter(record.item for record in run.records if not record.verdict.is_green)
    missing = set() if stopped else set(run.reconciled.missing)
    unended = {each.item for each in run.plan.items if not missing.isdisjoint(each.cells)}
    by_item: dict[str, list[int]] = {}
    explained: Counter[str] = Counter()
    for number, suspect in enumerate(suspects, 1):
        of_items = Counter(record.item for record in suspect.findings)
        explained.update(of_items)
        for item in of_items:
            by_item.setdefault(item, []).append(number)
    for report in reports:
        mine = by_item.get(report.nodeid, [])
        ran_out = ("verdict", Gap.MISSING) in report.user_properties
        has_advice = ran_out or report.nodeid in unended or "xfail" in report.keywords
        is_plain = (
            not report.sections and report.when == "call" and getattr(report.longrepr, "reprcrash", None) is not None
        )
        if mine and is_plain and not has_advice and explained[report.nodeid] == findings[report.nodeid]:
            title = suspects[mine[0] - 1].title
            yield report, f"suspect{'s' * (len(mine) > 1)} {', '.join(map(str, mine))}: {title}"


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run."""

    green: bool  # whether every planned cell has exactly one status, and no finding, and something was compared
    lines: tuple[Line, ...]  # to print, without control characters
    run: RunRecords | None = None  # as read from the folder; None if it cannot be read
    suspects: tuple[Suspect, ...] = ()


def finish(
    folder: Path, *, report: str, failed_tests: Iterable[str] = (), root: str = ".", width: int | None = None,
    verbose: int = 0, stopped: bool = False,
) -> Summary:  # fmt: skip
    """Reconciles a run and writes its page if `report` names its folder; `root` is the folder of node ids."""
    from kerneltest.records.runs import end_run, read_ended
    from kerneltest.report.rerun_commands import pytest_command
    from kerneltest.report.text.lines import Line, LineKind
    from kerneltest.report.text.terminal_summary import summary_lines
    from kerneltest.triage.suspects import suspects_in_run

    with throttle_gc():
        try:
            run = read_ended(folder)
        except RecordError as error:
            return Summary(False, (Line(LineKind.WRONG, for_terminal(f"INCOMPLETE: {error}")),))
        suspects = suspects_in_run(run)
        lines = summary_lines(
            run,
            suspects,
            width,
            report,
            verbose=verbose,
            stopped=stopped,
            rerun=lambda record: pytest_command(run.plan, record.backend, record.item, root),
        )
        shown = [replace(line, text=for_terminal(line.text)) for line in lines]
        try:
            pairings = {item.item for item in run.plan.items}
            end_run(run, tuple(name for name in failed_tests if name not in pairings))
            if report:
                from kerneltest.report.html.page import write_html

                page = write_html(folder / "report.html", [run])
                shown.append(Line(LineKind.PLAIN, f"report: {page}"))
        except (OSError, RecordError) as error:
            problem = f"INCOMPLETE: could not write the end of the run and its report: {error}"
            shown.append(Line(LineKind.WRONG, problem))
            return Summary(False, tuple(shown))
        return Summary(run.reconciled.green, tuple(shown), run, suspects)


class Reporter:
    """A pytest plugin that reports how the run ended.

    The summary reports each suspect once. Failures that it explains are left out of pytest's section FAILURES; they
    stay in pytest's counts and in its short summary, and JUnit XML and other plugins have received them in full.
    """

    def __init__(self, config: pytest.Config, folder: RunFolder, report: str) -> None:
        self.summary: Summary | None = None  # of the run; None before its end
        self.failed_tests: dict[str, None] = {}  # node ids of what failed, pairings included, in order
        self.console = os.dup(2)  # file descriptor of standard error, duplicated before pytest captures that
        self._config, self._folder, self._report = config, folder, report
        self._shown: set[str] = set()  # the first findings of items
        self._explained: set[int] = set()  # ids of the reports that are left out, by the objects' identity
        self._failed: list[Any] = []
        self._reports: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.failed_tests[report.nodeid] = None

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, object, object]:
        self._reports = terminalreporter.stats.get("failed", [])
        self._failed = self._reports[:]
        self._reports[:] = [report for report in self._failed if id(report) not in self._explained]
        try:
            return (yield)
        finally:
            self._reports[:] = self._failed

    def show_finding(self, item: str, finding: str) -> None:
        """Shows the first finding of an item at once, unless the run is quiet or has shown an equal one."""
        plugins = self._config.pluginmanager
        reporter: Any = plugins.getplugin("terminalreporter")
        if reporter is None or self._config.option.verbose < 0 or finding in self._shown:
            return
        self._shown.add(finding)
        capture: Any = plugins.getplugin("capturemanager")
        progress: Any = plugins.getplugin(PROGRESS)
        with ExitStack() as stack:
            if capture is not None:
                stack.enter_context(capture.global_and_fixture_disabled())
            if progress is not None:
                stack.enter_context(progress.hide())
            reporter.ensure_newline()
            reporter.write_line(for_terminal(f"first finding in {PairingId.parse(item).own_name}: {finding}"), red=True)

    def finish(self, session: pytest.Session) -> Summary:
        """Ends the run and returns its summary. pytest then shows only the failures that the summary does not."""
        from kerneltest.report.text.suspect_text import MOST_SUSPECTS

        config, option = self._config, self._config.option
        reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        # xdist also uses the exit code of an interrupted session for `-x`.
        was_interrupted = session.exitstatus == pytest.ExitCode.INTERRUPTED
        stopped = bool(session.shouldfail or session.shouldstop) or was_interrupted
        for claim in self._folder.path.glob("suspect-*.claim"):
            claim.unlink(missing_ok=True)
        summary = finish(
            self._folder.path,
            report=self._report,
            failed_tests=self.failed_tests,
            root=os.path.relpath(config.rootpath, config.invocation_params.dir),
            width=config.get_terminal_writer().fullwidth if reporter is not None and reporter.isatty else None,
            verbose=option.verbose,
            stopped=stopped,
        )
        may_shorten = option.verbose <= 0 and option.tbstyle not in ("long", "line")
        if reporter is not None and summary.run is not None and may_shorten:
            failed, shown = reporter.stats.get("failed", ()), summary.suspects[:MOST_SUSPECTS]
            for report, words in _explained_reports(failed, summary.run, shown, stopped):
                report.longrepr.reprcrash.message = for_terminal(words)
                self._explained.add(id(report))
        self.summary = summary
        return summary

    def write_summary(self, terminalreporter: Any) -> None:
        """Writes the summary in a section of its own; a quiet session only gets a section if there is a finding."""
        self._reports[:] = self._failed  # all failures, for pytest's short summary, which follows
        if self.summary is None:
            return
        if terminalreporter.config.option.verbose >= 0 or not self.summary.green:
            terminalreporter.write_sep("=", "kerneltest", bold=True)
        for line in self.summary.lines:
            terminalreporter.write_line(line.text, **({line.kind.value: True} if line.kind else {}))

    def abandon_run(self, activity: Activity, failure: Failure) -> None:
        """Writes the summary to the console and releases the folder, since this process is about to be ended."""
        summary = finish(self._folder.path, report=self._report, failed_tests=self.failed_tests)
        lines = [
            lines_for_terminal(f"kerneltest ended this process: {failure}"),
            lines_for_terminal(f"It was {activity}."),
            *(line.text for line in summary.lines),
        ]
        os.write(self.console, ("\n" + "\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
        self._folder.release()

    def close(self) -> None:
        os.close(self.console)

    guard_hooks(vars())
