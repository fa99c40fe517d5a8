"""The end of a run: reconciliation, summary and report."""

from dataclasses import dataclass
from pathlib import Path

from kerneltest.core.runtime import seldom_collected
from kerneltest.records.io import RecordError
from kerneltest.records.runs import Run, end_run, read_running
from kerneltest.report.text.terminal import lines


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended, for the terminal.

    Attributes:
      complete: every planned cell has one status and something was compared.
      green: that, and there is no finding.
      lines: to print, each with its colour or "".
      run: as it was read; None where it cannot be.
    """

    complete: bool
    green: bool
    lines: tuple[tuple[str, str], ...]
    run: Run | None = None


@seldom_collected()
def finish(folder: Path, *, report: str, width: int | None = None) -> Summary:
    """Reconciles a run with its plan and writes its report.

    Args:
      folder: of the run.
      report: the folder as the user named it, where the run's page goes; "" for none.
      width: of the terminal, in columns; None for lines of any length.

    A folder that cannot be read is an incomplete run, not an exception: what was printed before stays.
    """
    try:
        run = read_running(folder)
    except RecordError as error:
        return Summary(False, False, ((f"INCOMPLETE: {error}", "red"),))
    told = list(lines(run, width, report))
    try:
        end_run(run)
        if report:
            from kerneltest.report.html.build import write_html

            told.append((f"report: {write_html(folder / 'report.html', [run])}", ""))
    except (OSError, RecordError) as error:
        told.append((f"INCOMPLETE: the run's end and its report could not be written: {error}", "red"))
        return Summary(False, False, tuple(told))
    return Summary(run.reconciled.complete, run.reconciled.green, tuple(told), run)
