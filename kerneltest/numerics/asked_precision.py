"""A machine's arithmetic with all that samples asked about it: the same answers make the same samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kerneltest.core.precision import Precision

# By the name of an attribute of `Precision`, and the function or dtype that was looked up in it, or "".
Answers = Mapping[tuple[str, str], Any]


@dataclass(slots=True)
class AskedPrecision:
    """The arithmetic of a backend, with a note of all that was asked about it.

    Attributes:
      precision: the arithmetic.
      answers: all answers that mattered so far.
    """

    precision: Precision
    answers: dict[tuple[str, str], Any] = field(default_factory=dict, init=False)

    def ask(self, attribute: str, key: str = "") -> Any:
        """Returns an attribute of the arithmetic, or what it has for a key: None or False for nothing."""
        answer = self.answers[attribute, key] = _look_up(self.precision, attribute, key)
        return answer

    def may_flush(self) -> bool:
        """Returns whether the machine flushes subnormal results; `note_flushing` tells if it met one."""
        return self.precision.flushes or bool(self.ask("flushes"))

    def note_flushing(self) -> None:
        """Notes that it mattered whether the machine flushes."""
        self.ask("flushes")


def would_answer(precision: Precision, answers: Answers) -> bool:
    """Checks whether a machine would give the same answers."""
    return all(_look_up(precision, *question) == answer for question, answer in answers.items())


def _look_up(precision: Precision, attribute: str, key: str) -> Any:
    found = getattr(precision, attribute)
    if isinstance(found, Mapping):
        return found.get(key)
    return key in found if isinstance(found, frozenset) else found
