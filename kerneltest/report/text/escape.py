"""Text from records, which may come from anywhere, made harmless where it is shown: a terminal, a Markdown page."""

import re

MOST = 300  # characters of one text on a Markdown page: a job's page may have one MiB in all


def for_terminal(text: str) -> str:
    """One line without control characters: an escape sequence in a record moves no cursor and sets no colour."""
    return "".join(c if c.isprintable() else "�" for c in re.sub(r"[\r\n\t]+", " ", text))


def for_markdown(text: str) -> str:
    """One line, cut off at `MOST`, in which nothing is markup, a link, a mention or the border of a table."""
    shown = for_terminal(text)
    shown = shown if len(shown) <= MOST else shown[: MOST - 1] + "…"
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@:$^-])", r"\\\1", shown)
