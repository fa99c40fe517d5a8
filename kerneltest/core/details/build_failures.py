"""Kernels that do not lower or compile, or need more than a target has."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kerneltest.core.details.base import BaseDetail, format_place, kernel_prefix, without_numbers


class Stage(StrEnum):
    """The steps from a kernel to something that runs, of which one failed."""

    LOWER = "lower"
    COMPILE = "compile"
    SIMULATE = "simulate"


@dataclass(frozen=True, slots=True)
class NotBuilt(BaseDetail):
    """A kernel that does not lower or compile, or that the simulator does not support.

    Attributes:
      stage: at which it stopped. A kernel that does not lower fails at every later tier as well.
      kernel: whose call it is; "" where that is not known.
      error: the type of the exception; "" where a compiler only printed text.
      said: JAX's or the compiler's own text.
      primitive: that has no lowering, or at which it stopped; "" where that is not known.
      meaning: of it for the kernel's author, in words; "" where no rule knows it.
      hint: what to write instead, or "".
      source: FILE:LINE of the user's source, or "".
      target: that it was compiled for; "" where a message need not name it.
    """

    stage: Stage
    kernel: str
    error: str
    said: str
    primitive: str = ""
    meaning: str = ""
    hint: str = ""
    source: str = ""
    target: str = ""
    kind: Literal["not_built"] = "not_built"

    @property
    def place(self) -> str:
        return self.source

    @property
    def essence(self) -> str:
        return without_numbers(self.said.strip().partition("\n")[0])

    def text(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        if self.meaning:
            first = self.said.strip().partition("\n")[0]
            return f"{kernel_prefix(self.kernel, self.target)}{self.meaning}{format_place(self.source)}{hint}" + (
                f"\n{first}" if first else ""
            )
        primitive = f"primitive {self.primitive}: " if self.primitive else ""
        error = f"{self.error}: " if self.error else ""
        return (
            f"{kernel_prefix(self.kernel, self.target)}{primitive}{error}{self.said}{format_place(self.source)}{hint}"
        )


@dataclass(frozen=True, slots=True)
class ResourceExceeded(BaseDetail):
    """A kernel that needs more memory, registers or threads than the target has.

    Attributes:
      stage: at which that was found.
      kernel: whose call it is, or "".
      resource: `shared memory`, `VMEM`, `threads`, `elements of an array`.
      needed, available: in `unit`; None where they are not known.
      unit: `B`, or "" for a count.
      words: the failure in words, without the kernel's name.
      said: the compiler's own text, or "".
      source: FILE:LINE of the user's source, or "".
      target: that it was compiled for; "" where a message need not name it.
    """

    stage: Stage
    kernel: str
    resource: str
    needed: int | None
    available: int | None
    unit: str
    words: str
    said: str = ""
    source: str = ""
    target: str = ""
    kind: Literal["resource_exceeded"] = "resource_exceeded"

    @property
    def place(self) -> str:
        return self.source

    @property
    def essence(self) -> str:
        return f"needs more {self.resource} than there is"

    def text(self) -> str:
        first = self.said.strip().partition("\n")[0]
        return f"{kernel_prefix(self.kernel, self.target)}{self.words}{format_place(self.source)}" + (
            f"\n{first}" if first else ""
        )
