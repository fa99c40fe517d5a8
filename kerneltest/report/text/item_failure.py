"""The message of a failed item: its suspects, each with its smallest case, and the command that runs it again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kerneltest.core.failures import escape_surrogates
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.item import Item
from kerneltest.records.schema import Record
from kerneltest.records.sources import innermost_function
from kerneltest.report.text.suspect_text import format_suspect
from kerneltest.triage.suspect import Suspect

_MOST = 5  # suspects of an item
_MARK = "E   "  # pytest's prefix, which editors and CI look for


def headline(findings: Sequence[Record], suspects: Sequence[Suspect]) -> str:
    """Formats the first suspect in one line, with the number of further ones; the first finding if none exists."""
    if not suspects:
        return escape_surrogates(f"{_title(findings[0])}: {findings[0].message.partition(chr(10))[0]}")
    more = f" (and {len(suspects) - 1} more)" if len(suspects) > 1 else ""
    return escape_surrogates(f"{suspects[0].title}{more}")


def format_failure(
    item: Item,
    findings: Sequence[Record],
    suspects: Sequence[Suspect],
    root: Path,
    report: str,
    command: str,
    *,
    cases: bool,
) -> list[str]:
    """Formats the suspects of a failed item as lines of a pytest failure.

    Args:
      item: the failed item.
      findings: its findings and internal errors, at least one.
      suspects: the suspects with findings in the item.
      root: the folder to which shown paths are relative.
      report: the run's folder as the user wrote it; "" if the run is not saved.
      command: the shell command that runs the item again.
      cases: whether to list the cases of each suspect.
    """
    kernel, oracle = item.pairing.kernel, item.pairing.oracle
    internal = [record for record in findings if record.verdict is Verdict.INTERNAL_ERROR]
    findings = [record for record in findings if record.verdict is not Verdict.INTERNAL_ERROR]
    count = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
    names = f"{name_with_location(kernel, root)} against {name_with_location(oracle, root)}"
    lines = [f"{_MARK}{count}: {names} on {item.backend.id}"]
    for suspect in suspects[:_MOST]:
        lines += ["", *(_MARK + line for line in format_suspect(suspect, report))]
        elsewhere = dict.fromkeys(r.item for r in suspect.findings if r.item != item.name)
        if elsewhere:
            shown = ", ".join(each.rpartition("[")[2].rstrip("]") for each in list(elsewhere)[:_MOST])
            lines.append(f"{_MARK}  also in {shown}" + ", ..." * (len(elsewhere) > _MOST))
        mine = [record for record in suspect.findings if record.item == item.name]
        for record in mine if cases else []:
            lines.append(f"{_MARK}  {_title(record)}: {record.message.partition(chr(10))[0]}")
    if len(suspects) > _MOST:
        lines += ["", f"... and {len(suspects) - _MOST} more suspects"]
    whole = [record for record in findings if not record.case]
    lines += [f"{_MARK}{record.verdict}: {record.family}: {record.message}" for record in whole]
    lines += [f"{_MARK}{line}" for line in _format_internal(internal)]
    return [escape_surrogates(line) for line in [*lines, "", f"reproduce: {command}"]]


def _format_internal(records: Sequence[Record]) -> Iterator[str]:
    """Yields the message of each distinct internal error, with the number of cases that it ended."""
    distinct: dict[str, list[Record]] = {}
    for record in records:
        distinct.setdefault(record.detail.essence if record.detail else record.message, []).append(record)
    for same in distinct.values():
        cases = sum(bool(record.case) for record in same)
        yield from ("", f"{same[0].verdict}{f' in {cases} case' + 's' * (cases > 1) if cases else ''}:")
        yield from same[0].message.splitlines()


def _title(record: Record) -> str:
    target = f" in {record.target}" if record.target else ""
    return f"{record.verdict}: {record.family}{target}, {record.signature}"


def name_with_location(function: object, root: Path) -> str:
    """Returns the name of a function with the source location of the one that decorators and partials wrap."""
    innermost = innermost_function(function)
    code = getattr(innermost, "__code__", None)
    name: str = getattr(innermost, "__name__", type(innermost).__name__)
    if code is None:
        return name
    path = Path(code.co_filename)
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{name} ({shown}:{code.co_firstlineno})"
