"""Tables for terminals and Markdown, and the fields of the matrix as words or signs."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from kerneltest.core.media import for_terminal
from kerneltest.core.verdicts import Ending, Verdict
from kerneltest.report.matrix import Field
from kerneltest.report.text.lines import for_markdown


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats a table with columns as wide as their content; returns its lines, the headings first."""
    shown = [[for_terminal(text) for text in row] for row in (headings, *rows)]
    return [line.rstrip() for line in tabulate(shown, tablefmt="plain", disable_numparse=True).splitlines()]


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a Markdown table; all texts are escaped."""
    shown = [[for_markdown(text) for text in row] for row in rows]
    return str(tabulate(shown, [for_markdown(text) for text in headings], tablefmt="pipe", disable_numparse=True))


def field_words(field: Field) -> str:
    """Formats a field as words: `54 pass, 54 compile_error (gfx942 sm_90)`; "" if nothing was planned."""
    words = []
    for ending, count in field.counts.items():
        targets = [target for target in field.targets[ending] if target and ending is not Verdict.PASS]
        on = f" ({' '.join(targets)})" if targets else ""
        words.append(f"{ending}{on}" if ending is Verdict.UNAVAILABLE else f"{count} {ending}{on}")
    return ", ".join(words)


def field_signs(field: Field) -> str:
    """Formats a field as signs: `✓54 ✗54`; "" if nothing was planned."""
    signs: Counter[str] = Counter()
    for ending, count in field.counts.items():
        signs[_sign(ending)] += count
    absent = Verdict.UNAVAILABLE.letter
    return " ".join(sign if sign == absent else f"{sign}{count}" for sign, count in signs.items())


def signs_legend(fields: Iterable[Field]) -> str:
    """Formats what the signs of some fields mean: `✓ pass  ✗ finding; numbers: cases`."""
    found = {_sign(ending): ending for field in fields for ending in field.counts}
    words = {sign: "finding" if sign == "✗" else ending.replace("_", " ") for sign, ending in found.items()}
    return "  ".join(f"{sign} {word}" for sign, word in words.items()) + "; numbers: cases"


def _sign(ending: Ending) -> str:
    return "✗" if ending.is_finding and isinstance(ending, Verdict) else ending.letter
