"""What a failed item says: for each finding the assertion that does not hold, where, and how to see it again."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kerneltest.core.verdicts import Verdict
from kerneltest.records.schema import Record
from kerneltest.report.text.commands import repro_command
from kerneltest.run.item import Item

_SHOWN = 5  # findings told per item: the first of each verdict and, where values were compared, of each family
_MARK = "E   "  # pytest's, and what editors and CI look for


def headline(found: Sequence[Record]) -> str:
    """The first finding in one line, and how many more there are."""
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{_title(first)}: {first.message.splitlines()[0] if first.message else ''}{more}"


def story(item: Item, found: Sequence[Record], root: Path, report: str, nodeid: str, options: str) -> list[str]:
    """The findings of an item, as pytest shows a failure.

    Args:
      item: that failed.
      found: its findings, at least one.
      root: to which paths are relative.
      report: the run's folder as the user named it; "" if nothing is kept.
      nodeid: what selects the item, from where pytest was started.
      options: of the run, as they stand on a command line.
    """
    findings = f"{len(found)} finding{'s' * (len(found) > 1)}"
    kernel, oracle = item.pairing.kernel, item.pairing.oracle
    lines = [f"{_MARK}{findings}: {_named(kernel, root)} against {_named(oracle, root)} on {item.backend.id}"]
    kinds: dict[tuple[str, str], Record] = {}
    for record in found:
        # What has no values says the same of every family.
        kinds.setdefault((record.verdict, record.family if record.wrong else ""), record)
    shown = list(kinds.values())[:_SHOWN]
    for record in shown:
        lines += ["", *(_MARK + line for line in _finding(record))]
        if report and record.evidence is not None and record.evidence.file:
            lines.append(repro_command(report, record.case, record.backend))
    if len(found) > len(shown):
        lines += ["", f"... and {len(found) - len(shown)} more"]
    return [*lines, "", f"reproduce: pytest -p kerneltest {options} {_quoted(nodeid)}"]


def _finding(record: Record) -> Iterator[str]:
    yield _title(record)
    yield f"  assert {record.verdict.assertion}" + (
        f": {record.tolerance}" if record.verdict is Verdict.MISMATCH else ""
    )
    yield from (f"  {line}" for line in record.message.splitlines())
    if record.evidence is not None:
        for path, text in (record.evidence.arguments or {}).items():
            yield from (f"  {line}" for line in f"{path} = {text}".splitlines())


def _title(record: Record) -> str:
    target = f" in {record.target}" if record.target else ""
    return f"{record.verdict}: {record.family}{target}, {record.signature}"


def _named(function: Any, root: Path) -> str:
    """A function and where it stands, if it has a place: a partial has none."""
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__wrapped__", None), "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if code is None:
        return name
    path = Path(code.co_filename)
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{name} ({shown}:{code.co_firstlineno})"


def _quoted(nodeid: str) -> str:
    """A node id for a shell, in the double quotes that every shell and Windows take where these are enough."""
    return shlex.quote(nodeid) if any(c in nodeid for c in '"$`\\!') else f'"{nodeid}"'
