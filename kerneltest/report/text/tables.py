"""Tables as text, and the fields of the matrix in words or, where room is scarce, in signs."""

import re
from collections import Counter
from collections.abc import Sequence

from tabulate import tabulate

from kerneltest.core.verdicts import Ending, Verdict
from kerneltest.report.matrix import Field

MOST = 300  # characters of one text on a Markdown page: a job's page may have one MiB in all


def for_terminal(text: str) -> str:
    """One line without control characters: an escape sequence in a record moves no cursor and sets no colour."""
    return "".join(c if c.isprintable() else "�" for c in re.sub(r"[\r\n\t]+", " ", text))


def for_markdown(text: str) -> str:
    """One line, cut off at `MOST`, in which nothing is markup, a link, a mention or the border of a table."""
    shown = for_terminal(text)
    shown = shown if len(shown) <= MOST else shown[: MOST - 1] + "…"
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@:$^-])", r"\\\1", shown)


SIGNS_EXPLAINED = (
    "✓ pass  ≈ xfail  – unavailable  ✗ finding  ? no verdict  ∅ nothing compared  · nothing asked; a number: cases"
)


def terminal_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, the headings first, with columns as wide as what they hold."""
    shown = [[for_terminal(text) for text in row] for row in (headings, *rows)]
    return [line.rstrip() for line in tabulate(shown, tablefmt="plain", disable_numparse=True).splitlines()]


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a Markdown page; all texts stay text."""
    shown = [[for_markdown(text) for text in row] for row in rows]
    return str(tabulate(shown, [for_markdown(text) for text in headings], tablefmt="pipe", disable_numparse=True))


def in_words(field: Field) -> str:
    """`54 pass, 54 compile_error (gfx942 sm_90)`; "" where nothing was planned."""
    return ", ".join(_words(field, ending, count) for ending, count in field.counts.items())


def _words(field: Field, ending: Ending, count: int) -> str:
    targets = [target for target in field.targets[ending] if target and ending is not Verdict.PASS]
    on = f" ({' '.join(targets)})" if targets else ""
    return f"{ending}{on}" if ending is Verdict.UNAVAILABLE else f"{count} {ending}{on}"


def in_signs(field: Field) -> str:
    """`✓54 ✗54`; "" where nothing was planned."""
    signs: Counter[str] = Counter()
    for ending, count in field.counts.items():
        signs["✗" if ending.is_finding and isinstance(ending, Verdict) else ending.letter] += count
    absent = Verdict.UNAVAILABLE.letter
    return " ".join(sign if sign == absent else f"{sign}{count}" for sign, count in signs.items())
