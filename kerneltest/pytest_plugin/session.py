"""The end of a run: what a dead worker left, reconciliation, summary and report."""

from dataclasses import dataclass
from pathlib import Path

from kerneltest.core.verdicts import Verdict
from kerneltest.records.io import RecordError, Writer, read_plan
from kerneltest.records.runs import read_runs
from kerneltest.records.schema import PlannedItem, Record
from kerneltest.report.text.terminal import lines


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended, for the terminal.

    Attributes:
      complete: every planned cell has one status and something was compared.
      lines: to print, each with its colour or "".
    """

    complete: bool
    lines: tuple[tuple[str, str], ...]


def record_crash(folder: Path, writer: Writer, node_id: str) -> list[PlannedItem]:
    """Records a crash for each cell of an item whose worker died; cases already recorded stand. Returns the item."""
    died = [item for item in read_plan(folder).items if item.item == node_id]
    for item in died:
        for family in item.families:
            writer.write(
                Record(
                    item=item.item,
                    pairing=item.pairing,
                    backend=item.backend,
                    tier=item.tier,
                    dtype=item.dtype,
                    group=item.group,
                    family=family,
                    signature="*",
                    target="",
                    case="",
                    verdict=Verdict.CRASH,
                    message="the worker process died while it ran this item",
                )
            )
    return died


def finish(folder: Path, *, write_report: bool, width: int | None = None) -> Summary:
    """Reconciles a run with its plan and writes its report.

    Args:
      folder: of the run.
      write_report: whether to write its page.
      width: of the terminal, in columns; None for lines of any length.

    A folder that cannot be read is an incomplete run, not an exception: what was printed before stays.
    """
    try:
        (run,) = read_runs(folder)
    except RecordError as error:
        return Summary(False, ((f"INCOMPLETE: {error}", "red"),))
    told = list(lines(run, width))
    if write_report:
        from kerneltest.report.html.build import write_html

        try:
            told.append((f"report: {write_html(folder / 'report.html', [run])}", ""))
        except OSError as error:
            told.append((f"INCOMPLETE: the report could not be written: {error}", "red"))
            return Summary(False, tuple(told))
    return Summary(run.reconciled.complete, tuple(told))
