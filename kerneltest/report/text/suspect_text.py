"""Suspects as text: title, counts, smallest case and root cause."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerneltest.core.details import ErrorCause, Mismatch
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import escape_surrogates
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import format_budget, instability_note
from kerneltest.records.run_plan import PairingSummary, innermost_function
from kerneltest.records.schema import Element, FaultLocation, Record
from kerneltest.report.rerun_commands import repro_command
from kerneltest.report.text.tables import for_terminal
from kerneltest.triage.suspects import Suspect
from kerneltest.triage.symptoms import OF_ROUNDING, Effect, Level, cause_of

if TYPE_CHECKING:  # which would load JAX where a summary alone is written
    from kerneltest.execute.item import Item

# The line of source that a suspect is shown at, for tools that annotate code.

_MOST_LINE = 2**31  # of a file; records are untrusted


@dataclass(frozen=True, slots=True)
class SuspectLocation:
    """A line of source.

    Attributes:
      file: relative to the repository's root if it lies below, else absolute; with forward slashes.
      line: counted from 1; 0 for the whole file.
    """

    file: str
    line: int = 0

    @property
    def is_inside(self) -> bool:
        """True if the file belongs to the repository."""
        return not Path(self.file).is_absolute()


def locate_suspect(suspect: Suspect, declared: PairingSummary | None) -> SuspectLocation:
    """Returns the line of a kernel that a suspect is about.

    That is the root cause, else the line that its failures name, else the kernel's definition. A kernel without source
    has the file of its pairing.

    Args:
      suspect: the suspect.
      declared: its pairing, as the plan has it; None if no plan does.
    """
    fault = suspect.fault
    for place in (fault.place if fault is not None else "", *suspect.lines):
        if (found := parse_place(place)) is not None:
            return found
    if declared is not None and (definition := kernel_definition(declared)) is not None:
        return _in_repository(declared.kernel.file, definition[1])
    return _in_repository(suspect.pairing.partition("::")[0])


def parse_place(place: str) -> SuspectLocation | None:
    """Returns FILE:LINE as a location; None if it is none."""
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal() or not 0 < len(line) <= len(str(_MOST_LINE)) or not 0 < int(line) < _MOST_LINE:
        return None
    return _in_repository(file, int(line))


def kernel_definition(declared: PairingSummary) -> tuple[str, int] | None:
    """Returns the name of a pairing's kernel and the line of its definition; None if it has no source."""
    for line, text in declared.kernel.parts:
        for offset, words in enumerate(text.splitlines()):
            if words.lstrip().startswith("def "):
                return words.lstrip().removeprefix("def ").partition("(")[0], line + offset
    return None


def _in_repository(file: str, line: int = 0) -> SuspectLocation:
    """Returns a location whose file is relative to the nearest folder with a `.git`, else to the current one."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    path = here / file
    return SuspectLocation((path.relative_to(root) if path.is_relative_to(root) else path).as_posix(), line)


MOST_SUSPECTS = 20
"""Suspects that a terminal shows; the page shows more."""

_WIDTH = 110  # characters of an argument's value
_MOST_BACKENDS = 4
_INDENT = 3  # columns before the lines of a suspect
_GAP = "    "  # between a title and its counts
_COMMANDS = (
    "kerneltest repro ",
    "in a notebook: ",
    "only the failing operations: python ",
    "reproduce: ",
)  # must be copied in one piece
_PLACES = ("root cause: ", "possible root cause: ")


def format_suspects(
    suspects: Sequence[Suspect],
    declared: Mapping[str, PairingSummary],
    folder: str = "",
    width: int | None = None,
    rerun: Callable[[Record], str] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yields lines and their colours ("" for none): suspects by kernel, in the given order.

    Args:
      suspects: the suspects of a run.
      declared: the run's pairings by name.
      folder: the run's folder as the user wrote it; "" if the run is not saved.
      width: of the terminal, in columns; None for lines of any length.
      rerun: returns the shell command that runs a finding's item again, for suspects that have no other command.
    """
    by_pairing: dict[str, list[Suspect]] = {}
    for suspect in suspects[:MOST_SUSPECTS]:
        by_pairing.setdefault(suspect.pairing, []).append(suspect)
    kernels = name_kernels(by_pairing, declared)
    for pairing, mine in by_pairing.items():
        count = sum(suspect.pairing == pairing for suspect in suspects)
        yield f"{count} suspect{'s' * (count > 1)} in {kernels[pairing]}", "red"
        for number, suspect in enumerate(mine, 1):
            first, *others = format_suspect(suspect, folder)
            if rerun is not None and not any(line.startswith(_COMMANDS) for line in others):
                others.append(f"reproduce: {rerun(suspect.example)}")
            for line in (f"{number}  {first}", *(f"{' ' * _INDENT}{line}" for line in others)):
                yield from ((part, _colour(line)) for part in wrap_line(line, width))
        yield "", ""
    if len(suspects) > MOST_SUSPECTS:
        yield f"and {len(suspects) - MOST_SUSPECTS} more suspects, which the report shows", "red"


def _colour(line: str) -> str:
    """Returns the colour of a suspect's line: titles, places and commands stand out; "" for others."""
    text = line.lstrip()
    if len(text) == len(line):
        return "bold"
    return "cyan" if text.startswith(_COMMANDS) else "yellow" if text.startswith(_PLACES) else ""


def wrap_line(line: str, width: int | None) -> list[str]:
    """Wraps a line at a width, with a hanging indent. Counts get a line of their own; commands stay whole."""
    if width is None or len(line) <= width or line.lstrip().startswith(_COMMANDS):
        return [line]
    title, gap, counts = line.partition(_GAP)
    parts = [title, f"{' ' * _INDENT}{counts}"] if gap and title.strip() else [line]
    return [
        piece
        for part in parts
        for piece in textwrap.wrap(
            part,
            width,
            subsequent_indent=" " * (max(_INDENT, len(part) - len(part.lstrip())) + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def name_kernels(pairings: Iterable[str], declared: Mapping[str, PairingSummary]) -> dict[str, str]:
    """Returns the kernel of each pairing with its location, and the pairing as well if several have the same kernel."""
    kernels = {pairing: kernel_with_location(pairing, declared.get(pairing)) for pairing in pairings}
    count = Counter(kernels.values())
    return {name: f"{kernel}, pairing {name}" if count[kernel] > 1 else kernel for name, kernel in kernels.items()}


def kernel_with_location(pairing: str, declared: PairingSummary | None) -> str:
    """Returns `softmax (test_softmax.py:9)`; the pairing's name if the kernel has no source."""
    definition = kernel_definition(declared) if declared is not None else None
    if declared is None or definition is None:
        return pairing
    return f"{definition[0]} ({declared.kernel.file}:{definition[1]})"


def format_suspect(suspect: Suspect, folder: str = "") -> list[str]:
    """Formats a suspect in at most twelve lines. The first is its title with counts; the others do not repeat it."""
    title = suspect.title
    lines = [f"{title}{_GAP}{format_counts(suspect)}"]
    lines += [f"known: {suspect.known_bug}"] if suspect.known_bug else []
    record = suspect.example
    if suspect.level in (Level.BUILD, Level.BROKEN):
        first, _, _ = record.message.partition("\n")
        lines += [first] if first not in title else []
        lines += [f"e.g. {record.signature}"] if record.signature not in title else []
    else:
        lines += format_case(suspect)
    fault = suspect.fault
    if suspect.everywhere and suspect.effect is Effect.WRONG:
        lines.append("is the oracle right? Nearly no case agrees with it, on any backend")
        if folder and record.evidence is not None and record.evidence.script:
            lines.append(f"in a notebook: %run {folder}/{record.evidence.script}")
    if fault is not None:
        lines += format_fault(fault)
    elif suspect.level is not Level.BUILD and (places := [each for each in suspect.lines[:3] if each not in title]):
        lines.append(f"at {', '.join(places)}")
    if folder and record.evidence is not None and record.evidence.file:
        lines.append(repro_command(folder, record.case, record.backend))
    if folder and suspect.reproducer is not None and suspect.reproducer.reduced_script:
        lines.append(f"only the failing operations: python {folder}/{suspect.reproducer.reduced_script}")
    return lines[:12]


def format_counts(suspect: Suspect) -> str:
    """Formats counts: `154 of 1,368 cases on interpret; also simulate:sm_90`."""
    (backend, most), *others = suspect.backends.items()
    if suspect.level is Level.BUILD:
        shown = f"{suspect.signatures.failing} of {suspect.signatures.tried} signatures on {backend}"
    else:
        shown = f"{most:,} of {suspect.tried.get(backend, most):,} cases on {backend}"
    if not others:
        return shown
    names = [name for name, _ in others[:_MOST_BACKENDS]]
    more = f" and {len(others) - _MOST_BACKENDS} more" if len(others) > _MOST_BACKENDS else ""
    return f"{shown}; also {', '.join(names)}{more}"


def format_case(suspect: Suspect) -> list[str]:
    """Formats the inputs of a suspect's smallest case, the shortest first, its result, and what explains it."""
    record, label = suspect.example, "smallest" if suspect.reproducer is not None else "for example"
    evidence = record.evidence
    arguments = sorted((evidence.arguments or {}).items(), key=lambda pair: len(pair[1])) if evidence else []
    options = ", ".join(f"{name}={value}" for name, value in record.statics.items())
    shown = [f"{path} = {_one_line(text)}" for path, text in arguments]
    first, *rest = [*shown, *([options] if options else [])] or [record.signature]
    lines = [f"{label}: {first}", *(f"  {line}" for line in rest[:4])]
    message = [line for line in record.message.splitlines() if line]
    if evidence is not None and evidence.actual is not None:
        place = f" at {list(evidence.index)}" if evidence.index and any(evidence.index) else ""
        got, expected = format_pair(evidence.actual, evidence.expected)
        which = record.detail.which if isinstance(record.detail, Mismatch) else ""
        lines.append(f"  {which}got {got}, expected {expected}{place}")
    elif message and message[0] not in suspect.title:
        lines.append(f"  {message[0]}")
    lines += [f"  {suspect.diagnosis}"] if suspect.diagnosis else []
    return lines + (_format_rounding(record) if suspect.effect in OF_ROUNDING else _format_cause(record))


def _format_cause(record: Record) -> list[str]:
    """Formats what a title does not say: that a backend computes something else than the kernel, or an overflow."""
    cause = cause_of(record.detail)
    told = cause is not None and cause.what in (ErrorCause.BACKEND, ErrorCause.OVERFLOW)
    return [f"  {cause.text()}"] if cause is not None and told else []


def _format_rounding(record: Record) -> list[str]:
    """Formats how far a result that is not precise enough is rounded, and what its bound is made of."""
    cause = cause_of(record.detail)
    lines = [f"  {cause.text()}"] if cause is not None and cause.what is not ErrorCause.FORMULA else []
    if bound := format_budget(record.error_budget):
        lines.append(f"  the bound: {bound}")
    return lines + ([f"  {remark}"] if (remark := instability_note(record.error_budget)) else [])


def format_pair(got: Element | None, expected: Element | None) -> tuple[str, str]:
    """Formats two numbers with four digits, or as many as show how they differ; integers and booleans as they are."""
    texts = ("", "")
    for digits in (4, 6, 9, 17):
        one, other = (f"{each:.{digits}g}" if isinstance(each, float) else str(each) for each in (got, expected))
        texts = one, other
        if one != other:
            break
    return texts


def format_fault(fault: FaultLocation) -> list[str]:
    """Formats the location that wrong values come from."""
    title = "root cause" if fault.confirmed else "possible root cause"
    lines = [f"{title}: {fault.place}   {fault.operation}", f"  {fault.words}"]
    if fault.alternatives:
        lines.append(f"  or {', '.join(fault.alternatives[:4])}: a change there fixes it as well")
    return lines


def _one_line(text: str) -> str:
    """Formats the text of an array as one line, truncated to `_WIDTH` characters."""
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


# The message of a failed item: its suspects, each with its smallest case, and the command that runs it again.

_MOST = 5  # suspects of an item
_MARK = "E   "  # pytest's prefix, which editors and CI look for


def headline(findings: Sequence[Record], suspects: Sequence[Suspect]) -> str:
    """Formats the first suspect in one line, with the number of further ones; the first finding if none exists."""
    if not suspects:
        return escape_surrogates(f"{_title(findings[0])}: {findings[0].message.partition(chr(10))[0]}")
    more = f" (and {len(suspects) - 1} more)" if len(suspects) > 1 else ""
    return escape_surrogates(f"{suspects[0].title}{more}")


def format_failure(
    item: "Item",
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


# The result of `kt.check` and its findings as text, for a console or a notebook.

_LINE_WIDTH = 100  # columns
_MOST_LINES = 24  # of a console
_MOST_TEXT = 200  # characters of a line
_MOST_MESSAGE = 6  # lines of a finding's message


def format_result(headline: str, suspects: Sequence[Suspect], remarks: Sequence[str]) -> str:
    """Formats a result on one screen: its headline, its suspects, and remarks on what was not run.

    Args:
      headline: the result in one line.
      suspects: its suspects, the most telling first.
      remarks: further lines.
    """
    shown = [line for line, _ in format_suspects(suspects, {}, width=_LINE_WIDTH)]
    lines = [headline, *shown, *remarks]
    more = len(lines) - _MOST_LINES
    if more > 0:
        lines = [*lines[: _MOST_LINES - 1], f"and {more + 1} more lines: see .suspects and .findings"]
    return "\n".join(map(_shorten, lines)).rstrip()


def format_finding(record: Record, arguments: Mapping[str, Array]) -> list[str]:
    """Formats a finding: its verdict, its inputs, and the worst element of the output.

    Args:
      record: of the finding.
      arguments: its inputs, by path.
    """
    lines = [f"{record.verdict} on {record.backend}: {record.family}, {record.signature}"]
    lines += [line for line in record.message.splitlines() if line][:_MOST_MESSAGE]
    for path, value in arguments.items():
        text = np.array2string(value, threshold=16, edgeitems=2)
        lines.append(f"{path} = {value.dtype}{list(value.shape)} {' '.join(text.split())}")
    evidence = record.evidence
    if evidence is not None and evidence.actual is not None:
        got, expected = format_pair(evidence.actual, evidence.expected)
        lines.append(f"got {got}, expected {expected} at {list(evidence.index)}")
    return list(map(_shorten, lines))


def _shorten(line: str) -> str:
    shown = for_terminal(line)
    return shown if len(shown) <= _MOST_TEXT else f"{shown[: _MOST_TEXT - 1]}…"
