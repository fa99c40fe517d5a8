"""One kernel with a bug."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.broken import Edited

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Variant(Edited):
    """One bug.

    Attributes:
      bug: in words, unique in its family.
      pairing: `suite.name` of a pairing whose declared inputs it is wrong for.
      function: the kernel's name in its module.
      edits: pairs of source text, each of which occurs once, and what replaces it.
      numeric: the results are of too little precision, and not of the wrong elements.
    """

    bug: str
    pairing: str
    function: str
    edits: Edits
    numeric: bool = False

    @property
    def name(self) -> str:
        return f"{self.pairing}: {self.bug}"


def variants(pairing: str, function: str, bugs: Sequence[tuple[str, str, str]], numeric: bool = False) -> list[Variant]:
    """Those of one pairing, each of one edit: the bug, the text and what replaces it."""
    return [Variant(bug, pairing, function, ((old, new),), numeric) for bug, old, new in bugs]
