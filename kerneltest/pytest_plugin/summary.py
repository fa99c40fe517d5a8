"""The end of a run: reconciliation, summary and report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerneltest.core.failures import Failure
    from kerneltest.pytest_plugin.run_folder import RunFolder
    from kerneltest.records.journal import Activity
    from kerneltest.records.runs import RunRecords as RecordedRun


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run.

    Attributes:
      complete: whether every planned cell has exactly one status and something was compared.
      green: whether it is complete and has no findings.
      lines: to print, each with its colour or "".
      run: as read from the folder; None if it cannot be read.
    """

    complete: bool
    green: bool
    lines: tuple[tuple[str, str], ...]
    run: RecordedRun | None = None


def finish(folder: Path, *, report: str, width: int | None = None) -> Summary:
    """Reconciles a run with its plan and writes its report.

    A folder that cannot be read makes the run incomplete and raises nothing, so that earlier output stays visible.

    Args:
      folder: of the run.
      report: the folder as the user named it, for the run's page; "" to write none.
      width: of the terminal, in columns; None for lines of any length.
    """
    from kerneltest.core.runtime import throttle_gc
    from kerneltest.records.files import RecordError
    from kerneltest.records.runs import end_run, read_running
    from kerneltest.report.text.tables import for_terminal
    from kerneltest.report.text.terminal_summary import summary_lines

    with throttle_gc():
        try:
            run = read_running(folder)
        except RecordError as error:
            return Summary(False, False, ((for_terminal(f"INCOMPLETE: {error}"), "red"),))
        shown = [(for_terminal(line), colour) for line, colour in summary_lines(run, width, report)]
        try:
            end_run(run)
            if report:
                from kerneltest.report.html.render_page import write_html

                shown.append((f"report: {write_html(folder / 'report.html', [run])}", ""))
        except (OSError, RecordError) as error:
            shown.append((f"INCOMPLETE: could not write the end of the run and its report: {error}", "red"))
            return Summary(False, False, tuple(shown))
        return Summary(run.reconciled.complete, run.reconciled.green, tuple(shown), run)


class Reporter:
    """Reports how the run ended.

    Attributes:
      summary: of the run; None before its end.
      console: file descriptor of standard error, duplicated before pytest captures that.
    """

    def __init__(self, folder: RunFolder, report: str) -> None:
        """Initialises the instance.

        Args:
          folder: of the run.
          report: the folder as the user named it, or "".
        """
        self.summary: Summary | None = None
        self.console = os.dup(2)
        self._folder, self._report = folder, report

    def finish(self, *, width: int | None) -> Summary:
        """Ends the run and returns its summary; `width` is the terminal's, or None."""
        self.summary = finish(self._folder.path, report=self._report, width=width)
        return self.summary

    def abandon_run(self, activity: Activity, failure: Failure) -> None:
        """Writes the summary to the console and releases the folder, since this process is about to be ended."""
        from kerneltest.report.text.tables import lines_for_terminal

        summary = finish(self._folder.path, report=self._report)
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
