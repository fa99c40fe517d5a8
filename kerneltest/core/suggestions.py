"""Suggestions for names that are unknown."""

import difflib
from collections.abc import Iterable

_CUTOFF = 0.5  # `fp16` and `float16` have a ratio of 0.55


def suggest(given: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'float16'?` for the known name that is closest to a given one, or ""."""
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=_CUTOFF)
    return f"; did you mean {close[0]!r}?" if close else ""
