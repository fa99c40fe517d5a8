"""Text from records, which may come from anywhere, made harmless where it is shown: a terminal, a Markdown page."""

import re


def for_terminal(text: str) -> str:
    """One line without control characters: an escape sequence in a record moves no cursor and sets no colour."""
    return "".join(c if c.isprintable() else "�" for c in re.sub(r"[\r\n\t]+", " ", text))


def for_markdown(text: str) -> str:
    """One line in which nothing is markup, a link, a mention or the border of a table."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@:$^-])", r"\\\1", for_terminal(text))
