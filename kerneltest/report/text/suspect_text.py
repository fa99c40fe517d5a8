"""Suspects in words, from which terminals, Markdown, pages and notebooks are rendered; failed items and results."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerneltest.core.details import ErrorCause, Mismatch, first_line
from kerneltest.core.dtypes import Array
from kerneltest.core.failures import escape_surrogates
from kerneltest.core.grouping import group_pairs
from kerneltest.core.ids import ANY, ItemId, PairingId, Place
from kerneltest.core.media import for_terminal
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import Evidence, format_budget, format_pair, instability_note
from kerneltest.records.run_plan import FunctionSource, PairingSummary, innermost_function
from kerneltest.records.schema import Record
from kerneltest.report.rerun_commands import repro_command
from kerneltest.report.text.lines import Line, LineKind, as_lines, truncate
from kerneltest.triage.suspects import Suspect
from kerneltest.triage.symptoms import OF_ROUNDING, Level, cause_of

if TYPE_CHECKING:  # which would load JAX where a summary alone is written
    from kerneltest.execute.item import Item

MOST_SUSPECTS = 20
"""Suspects that a terminal shows; the page shows more."""

_WIDTH = 110  # characters of an argument's value
_MOST_QUOTED = 200  # characters of an error by JAX or a compiler
_MOST_BACKENDS = 4
_MOST_LINES = 11  # of a suspect, below its title
_GAP = "    "  # between a title and its counts


@dataclass(frozen=True, slots=True)
class SuspectText:
    """A suspect in words."""

    title: str  # in one line
    counts: str  # `154 of 1,368 cases on interpret; also simulate:sm_90`
    lines: tuple[Line, ...]  # what the title does not say: the smallest case, the cause, and commands

    @property
    def details(self) -> list[str]:
        return [line.text for line in self.lines]

    @property
    def texts(self) -> list[str]:
        """All of it: the title with the counts, and the details."""
        return [f"{self.title}{_GAP}{self.counts}", *self.details]


def describe_suspect(suspect: Suspect, folder: str = "") -> SuspectText:
    """Returns a suspect in words, with commands if a folder has the run."""
    return SuspectText(suspect.title, _counts(suspect), tuple(islice(_suspect_lines(suspect, folder), _MOST_LINES)))


def _counts(suspect: Suspect) -> str:
    (backend, most), *others = suspect.backends.items()
    if suspect.level is Level.BUILD:
        shown = f"{suspect.signatures.failing} of {suspect.signatures.tried} signatures on {backend}"
    else:
        shown = f"{most:,} of {suspect.tried.get(backend, most):,} cases on {backend}"
    if not others:
        return shown
    more = f" and {len(others) - _MOST_BACKENDS} more" if len(others) > _MOST_BACKENDS else ""
    return f"{shown}; also {', '.join(name for name, _ in others[:_MOST_BACKENDS])}{more}"


def _suspect_lines(suspect: Suspect, folder: str) -> Iterator[Line]:
    title, record, fault = suspect.title, suspect.example, suspect.fault
    evidence = record.shown
    if suspect.known_bug:
        yield Line(LineKind.PLAIN, f"known: {suspect.known_bug}")
    if suspect.level in (Level.BUILD, Level.BROKEN):
        first, quoted = first_line(record.message), record.message.partition("\n")[2]
        facts = [(first, first), (record.signature, f"e.g. {record.signature}")]
        if suspect.level is Level.BUILD and quoted:  # JAX's or a compiler's words, which people search for
            facts.insert(1, (quoted, truncate(first_line(quoted).partition(". ")[0], _MOST_QUOTED)))
        yield from as_lines(LineKind.PLAIN, (line for text, line in facts if text not in title))
    else:
        yield from as_lines(LineKind.PLAIN, _case_lines(suspect, record, evidence))
    if suspect.doubts_oracle:
        counts = (f"{count:,} of {suspect.tried[name]:,} cases on {name}" for name, count in suspect.backends.items())
        yield Line(LineKind.PLAIN, f"check the oracle, too: it differs from the kernel in {' and '.join(counts)}")
        if folder and evidence.script:
            yield Line(LineKind.COMMAND, f"in a notebook: %run {folder}/{evidence.script}")
    if fault is not None:
        what = "root cause" if fault.confirmed else "possible root cause"
        yield Line(LineKind.NOTE, f"{what}: {fault.place}   {fault.operation}")
        if fault.words not in title:
            yield Line(LineKind.PLAIN, f"  {fault.words}")
        if fault.alternatives:
            yield Line(LineKind.PLAIN, f"  or {', '.join(fault.alternatives[:4])}: a change there fixes it as well")
    elif suspect.level is not Level.BUILD and (places := [place for place in suspect.lines[:3] if place not in title]):
        yield Line(LineKind.PLAIN, f"at {', '.join(places)}")
    elif suspect.reproducer is not None and suspect.reproducer.computed:
        computed = ", ".join(suspect.reproducer.computed)
        yield Line(LineKind.PLAIN, f"no tested change corrects the values, which are computed at {computed}")
    if suspect.reproducer is not None and not suspect.reproducer.searched:
        yield Line(LineKind.PLAIN, "the search for the line was cut short: raise --kt-minimize for a longer one")
    if suspect.reproducer is not None and suspect.reproducer.late:
        yield Line(LineKind.PLAIN, "this machine was too slow for the whole search: another run may find more")
    if folder and evidence.file:
        yield Line(LineKind.COMMAND, repro_command(folder, record.case, record.backend))
    if folder and suspect.reproducer is not None and suspect.reproducer.reduced_script:
        script = f"{folder}/{suspect.reproducer.reduced_script}"
        yield Line(LineKind.COMMAND, f"only the failing operations: python {script}")


_PLAIN = re.compile(r"\] (all )?([01.\[\]\s]|True|False)*$")


def _case_lines(suspect: Suspect, record: Record, evidence: Evidence) -> Iterator[str]:
    # The smallest case: its inputs, the shortest first, its result, and what explains it. Of many inputs, those with
    # nothing but zeros and ones, or True and False, are left out.
    arguments = sorted((evidence.arguments or {}).items(), key=lambda pair: len(pair[1]))
    options = ", ".join(f"{name}={value}" for name, value in record.statics.items())
    told = sorted(arguments, key=lambda pair: bool(_PLAIN.search(pair[1])))[: _MOST - bool(options)]
    shown = [f"{path} = {truncate(' '.join(text.split()), _WIDTH)}" for path, text in arguments if (path, text) in told]
    if options:
        shown.append(options)
    first, *rest = shown or [record.signature]
    yield f"{'smallest' if suspect.reproducer is not None else 'for example'}: {first}"
    yield from (f"  {line}" for line in rest)
    message, detail = [line for line in record.message.splitlines() if line], record.detail
    if isinstance(detail, Mismatch) and detail.call:
        yield f"  {detail.call}"
    if evidence.actual is not None:
        place = f" at {list(evidence.index)}" if evidence.index and any(evidence.index) else ""
        got, expected = format_pair(evidence.actual, evidence.expected)
        which = detail.which if isinstance(detail, Mismatch) else ""
        yield f"  {which}got {got}, expected {expected}{place}"
    elif message and message[0] not in suspect.title:
        yield f"  {message[0]}"
    if suspect.diagnosis and (suspect.relation is None or not suspect.diagnosis.startswith(suspect.relation.text())):
        yield f"  {suspect.diagnosis}"
    cause = cause_of(record.detail)
    if suspect.effect in OF_ROUNDING:
        if cause is not None and cause.what is not ErrorCause.FORMULA:
            yield f"  {cause.text()}"
        if bound := format_budget(record.error_budget):
            yield f"  the bound: {bound}"
        if note := instability_note(record.error_budget):
            yield f"  {note}"
    elif cause is not None and cause.what in (ErrorCause.BACKEND, ErrorCause.OVERFLOW, ErrorCause.SPECIAL):
        yield f"  {cause.text()}"  # the title does not say so
    if cause is not None and cause.hint():
        yield f"  {cause.hint()}"


def format_suspects(
    suspects: Sequence[Suspect],
    declared: Mapping[str, PairingSummary],
    folder: str = "",
    width: int | None = None,
    rerun: Callable[[Record], str] | None = None,
) -> Iterator[Line]:
    """Yields the lines of numbered suspects by pairing, with commands for `folder`, or else those of `rerun`."""
    by_pairing = group_pairs((suspect.pairing, (i, suspect)) for i, suspect in enumerate(suspects[:MOST_SUSPECTS], 1))
    for pairing, mine in by_pairing.items():
        count = sum(suspect.pairing == pairing for suspect in suspects)
        of_oracle = all(suspect.example.verdict is Verdict.ORACLE_ERROR for _, suspect in mine)
        head = name_function(pairing, declared.get(pairing), of_oracle=of_oracle)
        yield Line(LineKind.WRONG, f"{count} suspect{'s' * (count > 1)} in {head}")
        for number, suspect in mine:
            text = describe_suspect(suspect, folder)
            whole = Line(LineKind.TITLE, f"{number}  {text.texts[0]}")
            parts = [Line(LineKind.TITLE, f"{number}  {text.title}"), Line(LineKind.TITLE, text.counts).indented()]
            lines = [whole] if width is None or len(whole.text) <= width else parts
            lines += [line.indented() for line in text.lines]
            if rerun is not None and not any(line.kind is LineKind.COMMAND for line in lines):
                lines.append(Line(LineKind.COMMAND, f"reproduce: {rerun(suspect.example)}").indented())
            yield from (part for line in lines for part in line.wrapped(width))
        yield Line(LineKind.PLAIN, "")
    if len(suspects) > MOST_SUSPECTS:
        yield Line(LineKind.WRONG, f"and {len(suspects) - MOST_SUSPECTS} more suspects, which the report shows")


def name_function(pairing: str, declared: PairingSummary | None, *, of_oracle: bool = False) -> str:
    """Returns `softmax (softmax.py:9), pairing test_softmax.py::softmax_oracle`; the pairing if there is no source."""
    source = None if declared is None else declared.oracle if of_oracle else declared.kernel
    definition = _definition(source)
    if definition is None:
        return pairing
    return f"{'oracle ' * of_oracle}{definition[0]} ({definition[1]}), pairing {pairing}"


def kernel_definition(declared: PairingSummary | None) -> tuple[str, Place] | None:
    """Returns the name of a pairing's kernel and the line of its definition; None if it has no source."""
    return _definition(declared.kernel if declared is not None else None)


def _definition(source: FunctionSource | None) -> tuple[str, Place] | None:
    for line, text in source.parts if source is not None else ():
        for offset, words in enumerate(text.splitlines()):
            if source is not None and words.lstrip().startswith("def "):
                name = words.lstrip().removeprefix("def ").partition("(")[0]
                return name, Place(source.file, line + offset)
    return None


def locate_suspect(suspect: Suspect, declared: PairingSummary | None) -> Place:
    """Returns the line of a kernel that a suspect is about: its root cause, its failures', or its definition; or 0."""
    fault = suspect.fault
    for text in (fault.place if fault is not None else "", *suspect.lines):
        if (place := Place.parse(text)) is not None:
            return in_repository(place)
    definition = kernel_definition(declared)
    return in_repository(definition[1] if definition else Place(PairingId.parse(suspect.pairing).file, 0))


def in_repository(place: Place) -> Place:
    """Returns a place with its file relative to the nearest folder with a `.git`, or else absolute."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    path = here / place.file
    return Place((path.relative_to(root) if path.is_relative_to(root) else path).as_posix(), place.line)


# The message of a failed item: its suspects, each with its smallest case, and the command that runs it again.

_MOST = 5  # suspects of an item, and inputs of a case
_MARK = "E   "  # pytest's prefix, which editors and CI look for


def headline(findings: Sequence[Record], suspects: Sequence[Suspect]) -> str:
    """Formats the first suspect in one line, with the number of further ones; the first finding if none exists."""
    if not suspects:
        return escape_surrogates(_finding_line(findings[0]))
    more = f" (and {len(suspects) - 1} more)" if len(suspects) > 1 else ""
    return escape_surrogates(f"{suspects[0].title}{more}")


def _finding_line(record: Record) -> str:
    target = f" in {record.target}" if record.target else ""
    place = "" if record.family == ANY else f"{record.family}{target}, {record.signature}"
    said = record.message.partition(chr(10))[0]
    if record.verdict is Verdict.INTERNAL_ERROR:  # the reason first: pytest cuts the line
        return f"{said} ({place})" if place else said
    return f"{record.verdict}: {f'{place}: ' if place else ''}{said}"


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
    """Formats the suspects of a failed item as lines of a pytest failure; with `cases`, each with its cases."""
    others = [record for record in findings if record.verdict is not Verdict.INTERNAL_ERROR]
    internal = group_pairs(
        (record.detail.essence if record.detail else record.message, record)
        for record in findings
        if record.verdict is Verdict.INTERNAL_ERROR
    )
    names = " against ".join(name_with_location(each, root) for each in (item.pairing.kernel, item.pairing.oracle))
    lines = [f"{_MARK}{len(others)} finding{'s' * (len(others) != 1)}: {names} on {item.backend.id}"]
    for suspect in suspects[:_MOST]:
        lines += ["", *(_MARK + line for line in describe_suspect(suspect, report).texts)]
        elsewhere = dict.fromkeys(record.item for record in suspect.findings if record.item != item.name)
        if elsewhere:
            shown = ", ".join(ItemId.parse(name).part for name in list(elsewhere)[:_MOST])
            lines.append(f"{_MARK}  also in {shown}" + ", ..." * (len(elsewhere) > _MOST))
        mine = [record for record in suspect.findings if cases and record.item == item.name]
        lines += [f"{_MARK}  {_finding_line(record)}" for record in mine]
    if len(suspects) > _MOST:
        lines += ["", f"... and {len(suspects) - _MOST} more suspects"]
    for record in others:
        family = "" if record.family == ANY else f"{record.family}: "
        lines += [f"{_MARK}{record.verdict}: {family}{record.message}"] * (not record.case)
    for same in internal.values():
        count = sum(bool(record.case) for record in same)
        where = f" in {count} case{'s' * (count > 1)}" if count else ""
        lines += [_MARK, f"{_MARK}{same[0].verdict}{where}:"]
        lines += [f"{_MARK}{line}" for line in same[0].message.splitlines()]
    return [escape_surrogates(line) for line in [*lines, "", f"reproduce: {command}"]]


def name_with_location(function: object, root: Path) -> str:
    """Returns the name of a function with the source location of the one that decorators and partials wrap."""
    innermost = innermost_function(function)
    code = getattr(innermost, "__code__", None)
    name: str = getattr(innermost, "__name__", type(innermost).__name__)
    if code is None:
        return name
    path = Path(code.co_filename)
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{name} ({Place(str(shown), code.co_firstlineno)})"


# The result of `kt.check` and its findings as text, for a console or a notebook.

_LINE_WIDTH = 100  # columns
_MOST_OF_A_RESULT = 24  # lines of a console
_MOST_TEXT = 200  # characters of a line
_MOST_MESSAGE = 6  # lines of a finding's message


def format_result(headline: str, suspects: Sequence[Suspect], remarks: Sequence[str]) -> str:
    """Formats a result on one screen: its headline, its suspects, and remarks on what was not run."""
    shown = [line.text for line in format_suspects(suspects, {}, width=_LINE_WIDTH)]
    lines = [headline, *shown, *remarks]
    more = len(lines) - _MOST_OF_A_RESULT
    if more > 0:
        lines = [*lines[: _MOST_OF_A_RESULT - 1], f"and {more + 1} more lines: see .suspects and .findings"]
    return "\n".join(truncate(for_terminal(line), _MOST_TEXT) for line in lines).rstrip()


def format_finding(record: Record, arguments: Mapping[str, Array]) -> list[str]:
    """Formats a finding: its verdict, its inputs by path, and the worst element of the output."""
    lines = [f"{record.verdict} on {record.backend}: {record.family}, {record.signature}"]
    lines += [line for line in record.message.splitlines() if line][:_MOST_MESSAGE]
    for path, value in arguments.items():
        text = np.array2string(value, threshold=16, edgeitems=2)
        lines.append(f"{path} = {value.dtype}{list(value.shape)} {' '.join(text.split())}")
    evidence = record.shown
    if evidence.actual is not None:
        got, expected = format_pair(evidence.actual, evidence.expected)
        lines.append(f"got {got}, expected {expected} at {list(evidence.index)}")
    return [truncate(for_terminal(line), _MOST_TEXT) for line in lines]
