"""Suggestions for names that are unknown."""

import difflib
from collections.abc import Iterable

ABBREVIATED = 0.5
"""The cutoff for names that users abbreviate: `fp16` and `float16` have a ratio of 0.55."""


def suggest(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns `; did you mean 'float16'?` for the known name that is closest to a given one, or "".

    Args:
      given: the unknown name.
      known: the names to choose from.
      cutoff: the least ratio of similarity, as `difflib` defines it.
    """
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""
