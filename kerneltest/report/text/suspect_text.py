"""Suspects as text: title, counts, smallest case and root cause."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kerneltest.core.details import ErrorCause, Mismatch
from kerneltest.records.error_budget_text import format_budget, instability_note
from kerneltest.records.run_plan import PairingSummary
from kerneltest.records.schema import Element, FaultLocation, Record
from kerneltest.report.rerun_commands import repro_command
from kerneltest.report.suspect_location import kernel_definition
from kerneltest.triage.suspect import Suspect
from kerneltest.triage.symptoms import OF_ROUNDING, Effect, Level, cause_of

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
