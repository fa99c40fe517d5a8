"""The end of a run: reconciliation, summary and report."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneltest.pytest_plugin.brief_failures import shorten_failures

if TYPE_CHECKING:
    import pytest

    from kerneltest.core.failures import Failure
    from kerneltest.pytest_plugin.run_folder import RunFolder
    from kerneltest.records.journal import Activity
    from kerneltest.records.runs import RunRecords as RecordedRun
    from kerneltest.triage.suspect import Suspect


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run.

    Attributes:
      complete: whether every planned cell has exactly one status and something was compared.
      green: whether it is complete and has no findings.
      lines: to print, each with its colour or "".
      run: as read from the folder; None if it cannot be read.
      suspects: of the run.
    """

    complete: bool
    green: bool
    lines: tuple[tuple[str, str], ...]
    run: RecordedRun | None = None
    suspects: tuple[Suspect, ...] = ()


def finish(folder: Path, *, report: str, width: int | None = None, failed_tests: Iterable[str] = ()) -> Summary:
    """Reconciles a run with its plan and writes its report.

    A folder that cannot be read makes the run incomplete and raises nothing, so that earlier output stays visible.

    Args:
      folder: of the run.
      report: the folder as the user named it, for the run's page; "" to write none.
      width: of the terminal, in columns; None for lines of any length.
      failed_tests: node ids of what failed, pairings included.
    """
    from kerneltest.core.runtime import throttle_gc
    from kerneltest.records.files import RecordError
    from kerneltest.records.runs import end_run, read_running
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.report.text.terminal_summary import summary_lines
    from kerneltest.triage.suspects import suspects_in_run

    with throttle_gc():
        try:
            run = read_running(folder)
        except RecordError as error:
            return Summary(False, False, ((for_terminal(f"INCOMPLETE: {error}"), "red"),))
        suspects = suspects_in_run(run)
        shown = [(for_terminal(line), colour) for line, colour in summary_lines(run, suspects, width, report)]
        try:
            pairings = {item.item for item in run.plan.items}
            end_run(run, tuple(name for name in failed_tests if name not in pairings))
            if report:
                from kerneltest.report.html.render_page import write_html

                shown.append((f"report: {write_html(folder / 'report.html', [run])}", ""))
        except (OSError, RecordError) as error:
            shown.append((f"INCOMPLETE: could not write the end of the run and its report: {error}", "red"))
            return Summary(False, False, tuple(shown))
        return Summary(run.reconciled.complete, run.reconciled.green, tuple(shown), run, suspects)


class Reporter:
    """Reports how the run ended.

    Attributes:
      summary: of the run; None before its end.
      failed_tests: node ids of what failed, pairings included, in order.
      console: file descriptor of standard error, duplicated before pytest captures that.
    """

    def __init__(self, folder: RunFolder, report: str) -> None:
        """Initialises the instance.

        Args:
          folder: of the run.
          report: the folder as the user named it, or "".
        """
        self.summary: Summary | None = None
        self.failed_tests: dict[str, None] = {}
        self.console = os.dup(2)
        self._folder, self._report = folder, report

    def finish(self, config: pytest.Config) -> Summary:
        """Ends the run, shortens the failures that pytest is about to show, and returns the summary."""
        from kerneltest.report.text.suspect_text import MOST_SUSPECTS

        terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        width = config.get_terminal_writer().fullwidth if terminal is not None and terminal.isatty else None
        self.summary = finish(self._folder.path, report=self._report, width=width, failed_tests=self.failed_tests)
        if terminal is not None and self.summary.run is not None and config.option.verbose == 0:
            shown = self.summary.suspects[:MOST_SUSPECTS]
            shorten_failures(terminal.stats.get("failed", ()), self.summary.run, shown)
        return self.summary

    def abandon_run(self, activity: Activity, failure: Failure) -> None:
        """Writes the summary to the console and releases the folder, since this process is about to be ended."""
        from kerneltest.report.text.tables import lines_for_terminal

        summary = finish(self._folder.path, report=self._report, failed_tests=self.failed_tests)
        lines = [
            lines_for_terminal(f"kerneltest ended this process: {failure}"),
            lines_for_terminal(f"It was {activity}."),
            *(line for line, _ in summary.lines),
        ]
        os.write(self.console, ("\n" + "\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
        self._folder.release()

    def close(self) -> None:
        """Closes the console."""
        os.close(self.console)
