"""The way of foreign text to a terminal, which is also the log of a CI job.

Kernels, records and files choose text. Whatever prints it uses one of these functions. `for_markdown` in
`report.text.lines`, `_command` in `report.sarif` and the `finalize` of the page's templates serve the other media.
"""

import re

_STARTS_COMMAND = re.compile(r"^(\s*):(?=:)|##(?=\w*\[)")  # of GitHub, whatever the stream; and of older runners


def for_terminal(text: str) -> str:
    """Returns text as one line without control characters or workflow commands, so that it cannot act as a command."""
    line = printable(re.sub(r"[\r\n\t]+", " ", text))
    return _STARTS_COMMAND.sub(lambda found: f"{found[0]} ", line)


def lines_for_terminal(text: str) -> str:
    """Returns text as `for_terminal` does, with the ends of its lines."""
    return "\n".join(map(for_terminal, text.split("\n")))


def printable(text: str, kept: str = "") -> str:
    """Returns text with a replacement for each control or bidirectional character, lone surrogate or odd space."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)
