"""What a failed item says: for each finding the assertion that does not hold, where, and how to see it again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kerneltest.core.failures import printable
from kerneltest.core.verdicts import Verdict
from kerneltest.records.io import shortened
from kerneltest.records.schema import Record
from kerneltest.report.commands import repro_command
from kerneltest.run.item import Item

_MOST = 5  # findings shown of an item: the first of each verdict and, where values were compared, of each family
_MARK = "E   "  # pytest's, and what editors and CI look for


def headline(findings: Sequence[Record]) -> str:
    """The first finding in one line, and how many more there are."""
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    message, _, _ = first.message.partition("\n")
    return printable(f"{_title(first)}: {message}{more}")


def failure(item: Item, findings: Sequence[Record], root: Path, report: str, command: str) -> list[str]:
    """The findings of an item, in lines, as pytest shows a failure.

    Args:
      item: that failed.
      findings: of the item, at least one.
      root: to which paths are relative.
      report: the run's folder as the user named it; "" if nothing is kept.
      command: that runs the item again.
    """
    count = f"{len(findings)} finding{'s' * (len(findings) > 1)}"
    kernel, oracle = item.pairing.kernel, item.pairing.oracle
    lines = [f"{_MARK}{count}: {_located(kernel, root)} against {_located(oracle, root)} on {item.backend.id}"]
    kinds: dict[tuple[str, str], Record] = {}
    for record in findings:
        # What has no values says the same of every family.
        kinds.setdefault((record.verdict, record.family if record.wrong else ""), record)
    shown = list(kinds.values())[:_MOST]
    for record in shown:
        lines += ["", *(_MARK + line for line in _finding(record))]
        if report and record.evidence is not None and record.evidence.file:
            lines.append(repro_command(report, record.case, record.backend))
    if len(findings) > len(shown):
        lines += ["", f"... and {len(findings) - len(shown)} more"]
    return [printable(line) for line in [*lines, "", f"reproduce: {command}"]]


def _finding(record: Record) -> Iterator[str]:
    yield _title(record)
    yield f"  assert {record.verdict.assertion}" + (
        f": {record.tolerance}" if record.verdict is Verdict.MISMATCH else ""
    )
    yield from (f"  {line}" for line in shortened(record.message).splitlines())
    if record.evidence is not None:
        for path, text in (record.evidence.arguments or {}).items():
            yield from (f"  {line}" for line in f"{path} = {text}".splitlines())


def _title(record: Record) -> str:
    target = f" in {record.target}" if record.target else ""
    return f"{record.verdict}: {record.family}{target}, {record.signature}"


def _located(function: Any, root: Path) -> str:
    """The name of a function, and where it stands if it has a place: a partial has none."""
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__wrapped__", None), "__code__", None)
    name: str = getattr(function, "__name__", type(function).__name__)
    if code is None:
        return name
    path = Path(code.co_filename)
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{name} ({shown}:{code.co_firstlineno})"
