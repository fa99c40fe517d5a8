"""Processes and devices that die."""

from dataclasses import dataclass
from typing import Literal

from kerneltest.core.details.base import BaseDetail, format_place, without_numbers


@dataclass(frozen=True, slots=True)
class Crashed(BaseDetail):
    """The process died.

    Attributes:
      phase: what it was doing; "" where that is not known.
      cause: how it died, in words.
    """

    phase: str
    cause: str
    kind: Literal["crashed"] = "crashed"

    @property
    def essence(self) -> str:
        return f"crashed while {self.phase}: {without_numbers(self.cause)}"

    def text(self) -> str:
        return f"the process died while {self.phase}: {self.cause}" if self.phase else self.cause


@dataclass(frozen=True, slots=True)
class Hung(BaseDetail):
    """No answer in time.

    Attributes:
      words: what did not answer, and for how long.
      source: FILE:LINE at which it waits, or ""; added to the text unless the words show it.
    """

    words: str
    source: str = ""
    kind: Literal["hung"] = "hung"

    @property
    def place(self) -> str:
        return self.source

    @property
    def essence(self) -> str:
        return f"hung: {without_numbers(self.words)}"

    def text(self) -> str:
        return self.words if self.source in self.words else self.words + format_place(self.source)


@dataclass(frozen=True, slots=True)
class DeviceLost(BaseDetail):
    """A device error that poisons the process: nothing runs on the device from then on.

    Attributes:
      error: the exception's type.
      said: its text.
      who: raised it.
    """

    error: str
    said: str
    who: str = "the kernel"
    kind: Literal["device_lost"] = "device_lost"

    @property
    def essence(self) -> str:
        return f"device lost: {without_numbers(self.said.partition(chr(10))[0])}"

    def text(self) -> str:
        return f"{self.who} raised {self.error}: {self.said}"
