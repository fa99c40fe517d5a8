"""Exceptions, what kerneltest states itself, and what cannot be run here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kerneltest.core.details.base import BaseDetail, format_place, without_numbers


@dataclass(frozen=True, slots=True)
class Raised(BaseDetail):
    """An exception.

    Attributes:
      who: raised it: `the kernel`, `oracle NAME`, `backend ID`.
      error: the exception's type.
      said: its text.
      phase: what was being done, as in `while traced for m=1,n=3`; "" for nothing in particular.
      source: FILE:LINE of the user's source, or "".
    """

    who: str
    error: str
    said: str
    phase: str = ""
    source: str = ""
    kind: Literal["raised"] = "raised"

    @property
    def place(self) -> str:
        return self.source

    @property
    def essence(self) -> str:
        return f"{self.error}: {without_numbers(self.said.partition(chr(10))[0])}"

    def text(self) -> str:
        phase = f" {self.phase}" if self.phase else ""
        return f"{self.who} raised {self.error}{phase}: {self.said}{format_place(self.source)}"


@dataclass(frozen=True, slots=True)
class Stated(BaseDetail):
    """A failure for which no other kind exists: a sentence with values in it.

    Attributes:
      sentence: with a place for each value, as `str.format` has it.
      values: by name; they change from case to case.
      source: FILE:LINE of the user's source, or ""; added to the text unless a value shows it.
    """

    sentence: str
    values: Mapping[str, int | str] = field(default_factory=dict, hash=False)
    source: str = ""
    kind: Literal["stated"] = "stated"

    @property
    def place(self) -> str:
        return self.source

    @property
    def essence(self) -> str:
        return self.sentence

    def text(self) -> str:
        words = self.sentence.format(**self.values) if self.values else self.sentence
        return words if self.source in words else words + format_place(self.source)


@dataclass(frozen=True, slots=True)
class Unavailable(BaseDetail):
    """Something that cannot be run on this machine, or was left out.

    Attributes:
      reason: in words.
      left_out: whether it could be run and was left out to keep to a budget of time.
    """

    reason: str
    left_out: bool = False
    kind: Literal["unavailable"] = "unavailable"

    @property
    def essence(self) -> str:
        return "left out" if self.left_out else without_numbers(self.reason)

    def text(self) -> str:
        return f"left out: {self.reason}" if self.left_out else self.reason


@dataclass(frozen=True, slots=True)
class NoPallasCall(BaseDetail):
    """A call that takes another way than through a kernel. It may pass, but it tests no kernel.

    Attributes:
      signature: of the call.
    """

    signature: str
    kind: Literal["no_pallas_call"] = "no_pallas_call"

    def text(self) -> str:
        return f"never reaches a Pallas call for {self.signature}"


ISSUES = "https://github.com/kerneltest/kerneltest/issues"


@dataclass(frozen=True, slots=True)
class InternalError(BaseDetail):
    """An exception of kerneltest, which says nothing about the kernel.

    Attributes:
      doing: what kerneltest was doing, as a participle: `judging its outputs`.
      error: the exception's type.
      said: its text.
      source: FILE:LINE in kerneltest that raised.
      trace: the innermost frames of the traceback, for a report.
    """

    doing: str
    error: str
    said: str
    source: str
    trace: tuple[str, ...] = ()
    kind: Literal["internal_error"] = "internal_error"

    @property
    def place(self) -> str:
        return self.source

    @property
    def essence(self) -> str:
        return f"{self.error} at {self.source}"

    def text(self) -> str:
        return (
            f"kerneltest raised {self.error} while {self.doing}: {self.said}{format_place(self.source)}\n"
            f"This is not the kernel's fault. Please report it at {ISSUES}"
        )

    def report_text(self) -> str:
        """Returns the text of a report: the exception, where it was raised, and the frames around it."""
        return "\n".join([f"{self.error} while {self.doing}: {self.said}", *(f"  {frame}" for frame in self.trace)])
