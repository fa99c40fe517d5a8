"""What a failed item says: its suspects, each with its smallest case, and how to see them again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneltest.core.failures import escape_surrogates
from kerneltest.execute.item import Item
from kerneltest.records.schema import Record
from kerneltest.report.text.suspects import told
from kerneltest.triage.suspects import Suspect

_MOST = 5  # suspects of an item
_MARK = "E   "  # pytest's, and what editors and CI look for


def headline(findings: Sequence[Record], suspects: Sequence[Suspect]) -> str:
    """The first suspect in one line, and how many more there are; the first finding where nothing is suspected."""
    if not suspects:
        return escape_surrogates(f"{_title(findings[0])}: {findings[0].message.partition(chr(10))[0]}")
    more = f" (and {len(suspects) - 1} more)" if len(suspects) > 1 else ""
    return escape_surrogates(f"{suspects[0].title}{more}")


def failure(
    item: Item,
    findings: Sequence[Record],
    suspects: Sequence[Suspect],
    root: Path,
    report: str,
    command: str,
    *,
    cases: bool,
) -> list[str]:
    """The suspects that show in an item, in lines, as pytest shows a failure.

    Args:
      item: that failed.
      findings: of the item, at least one.
      suspects: that show in it.
      root: to which paths are relative.
      report: the run's folder as the user named it; "" if nothing is kept.
      command: that runs the item again.
      cases: whether to show single cases as well.
    """
    kernel, oracle = item.pairing.kernel, item.pairing.oracle
    count = f"{len(findings)} finding{'s' * (len(findings) > 1)}"
    lines = [f"{_MARK}{count}: {_located(kernel, root)} against {_located(oracle, root)} on {item.backend.id}"]
    for suspect in suspects[:_MOST]:
        lines += ["", *(_MARK + line for line in told(suspect, report))]
        elsewhere = dict.fromkeys(r.item for r in suspect.findings if r.item != item.name)
        if elsewhere:
            shown = ", ".join(each.rpartition("[")[2].rstrip("]") for each in list(elsewhere)[:_MOST])
            lines.append(f"{_MARK}  the same in {shown}" + ", ..." * (len(elsewhere) > _MOST))
        mine = [record for record in suspect.findings if record.item == item.name]
        for record in mine if cases else []:
            lines.append(f"{_MARK}  {_title(record)}: {record.message.partition(chr(10))[0]}")
    if len(suspects) > _MOST:
        lines += ["", f"... and {len(suspects) - _MOST} more suspects"]
    whole = [record for record in findings if not record.case]
    lines += [f"{_MARK}{record.verdict}: {record.family}: {record.message}" for record in whole]
    return [escape_surrogates(line) for line in [*lines, "", f"reproduce: {command}"]]


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
