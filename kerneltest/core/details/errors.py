"""Exceptions, what kerneltest states itself, and what cannot be run here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from kerneltest.core.details.base import BaseDetail, first_line, format_place, kernel_prefix, without_numbers


@dataclass(frozen=True, slots=True)
class Raised(BaseDetail):
    """An exception."""

    who: str  # raised it: `the kernel`, `oracle NAME`, `backend ID`
    error: str  # the exception's type
    said: str  # its text
    phase: str = ""  # what was being done, as in `while traced for m=1,n=3`; "" for nothing in particular
    source: str = ""  # FILE:LINE of the user's source, or ""
    hint: str = ""  # what to do, or ""
    kind: Literal["raised"] = "raised"

    @property
    def essence(self) -> str:
        return f"{self.error}: {without_numbers(self.said.partition(chr(10))[0])}"

    def text(self) -> str:
        phase = f" {self.phase}" if self.phase else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.who} raised {self.error}{phase}: {self.said}{format_place(self.source)}{hint}"


@dataclass(frozen=True, slots=True)
class Stated(BaseDetail):
    """A failure for which no other kind exists: a sentence with values in it."""

    sentence: str  # with a place for each value, as `str.format` has it
    values: Mapping[str, int | str] = field(default_factory=dict, hash=False)  # by name; they change from case to case
    source: str = ""  # FILE:LINE of the user's source, or ""; added to the text unless a value shows it
    kind: Literal["stated"] = "stated"

    @property
    def essence(self) -> str:
        return self.sentence

    def text(self) -> str:
        words = self.sentence.format(**self.values) if self.values else self.sentence
        return words if self.source in words else words + format_place(self.source)


@dataclass(frozen=True, slots=True)
class Unavailable(BaseDetail):
    """Something that cannot be run on this machine, or was left out."""

    reason: str  # in words
    left_out: bool = False  # whether it could be run and was left out to keep to a budget of time
    skipped: bool = False  # whether pytest skipped it, for a mark or for another plugin
    kind: Literal["unavailable"] = "unavailable"

    @property
    def essence(self) -> str:
        return "left out" if self.left_out else without_numbers(self.reason)

    def text(self) -> str:
        return f"left out: {self.reason}" if self.left_out else self.reason


@dataclass(frozen=True, slots=True)
class NoPallasCall(BaseDetail):
    """A call that takes another way than through a kernel. It may pass, but it tests no kernel."""

    signature: str  # of the call
    kind: Literal["no_pallas_call"] = "no_pallas_call"

    def text(self) -> str:
        return f"never reaches a Pallas call for {self.signature}"


ISSUES = "https://github.com/kerneltest/kerneltest/issues"


@dataclass(frozen=True, slots=True)
class Contradicted(BaseDetail):
    """A pass by JAX's interpreter, which contradicts what kerneltest itself made of the kernel in NumPy."""

    said: str  # what the evaluation in NumPy did instead, as a predicate
    kind: Literal["contradicted"] = "contradicted"

    def text(self) -> str:
        return f"judged by JAX's interpreter, since kerneltest's evaluation of the kernel in NumPy {self.said}"


@dataclass(frozen=True, slots=True)
class InternalError(BaseDetail):
    """An exception of kerneltest, which says nothing about the kernel."""

    doing: str  # what kerneltest was doing, as a participle: `judging its outputs`
    error: str  # the exception's type
    said: str  # its text
    source: str  # FILE:LINE in kerneltest that raised
    trace: tuple[str, ...] = ()  # the innermost frames of the traceback, for a report
    kind: Literal["internal_error"] = "internal_error"

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


def _with_quotation(words: str, said: str) -> str:
    """Words, and below them the first line of a compiler's own text, if there is any."""
    return "\n".join(filter(None, [words, first_line(said)]))


# Kernels that do not lower or compile, or need more than a target has.


class Stage(StrEnum):
    """The steps from a kernel to something that runs, of which one failed."""

    LOWER = "lower"
    COMPILE = "compile"
    SIMULATE = "simulate"


@dataclass(frozen=True, slots=True)
class NotBuilt(BaseDetail):
    """A kernel that does not lower or compile, or that the simulator does not support."""

    stage: Stage  # at which it stopped. A kernel that does not lower fails at every later tier as well
    kernel: str  # whose call it is; "" where that is not known
    error: str  # the type of the exception; "" where a compiler only printed text
    said: str  # JAX's or the compiler's own text
    primitive: str = ""  # that has no lowering, or at which it stopped; "" where that is not known
    meaning: str = ""  # of it for the kernel's author, in words; "" where no rule knows it
    hint: str = ""  # what to write instead, or ""
    source: str = ""  # FILE:LINE of the user's source, or ""
    target: str = ""  # that it was compiled for; "" where a message need not name it
    kind: Literal["not_built"] = "not_built"

    @property
    def essence(self) -> str:
        return without_numbers(first_line(self.said))

    def text(self) -> str:
        primitive = f"primitive {self.primitive}: " if self.primitive else ""
        error = f"{self.error}: " if self.error else ""
        words, quoted = (self.meaning, self.said) if self.meaning else (f"{primitive}{error}{self.said}", "")
        words += format_place(self.source) + (f"; {self.hint}" if self.hint else "")
        return kernel_prefix(self.kernel, self.target) + _with_quotation(words, quoted)


@dataclass(frozen=True, slots=True)
class ResourceExceeded(BaseDetail):
    """A kernel that needs more memory, registers or threads than the target has."""

    stage: Stage  # at which that was found
    kernel: str  # whose call it is, or ""
    resource: str  # `shared memory`, `VMEM`, `threads`, `elements of an array`
    # needed, available: in `unit`; None where they are not known
    needed: int | None
    available: int | None
    unit: str  # `B`, or "" for a count
    words: str  # the failure in words, without the kernel's name
    said: str = ""  # the compiler's own text, or ""
    source: str = ""  # FILE:LINE of the user's source, or ""
    target: str = ""  # that it was compiled for; "" where a message need not name it
    kind: Literal["resource_exceeded"] = "resource_exceeded"

    @property
    def essence(self) -> str:
        return f"needs more {self.resource} than there is"

    def text(self) -> str:
        words = self.words + format_place(self.source)
        return kernel_prefix(self.kernel, self.target) + _with_quotation(words, self.said)


# Processes and devices that die.


@dataclass(frozen=True, slots=True)
class Crashed(BaseDetail):
    """The process died."""

    phase: str  # what it was doing; "" where that is not known
    cause: str  # how it died, in words
    kind: Literal["crashed"] = "crashed"

    @property
    def essence(self) -> str:
        return f"crashed while {self.phase}: {without_numbers(self.cause)}"

    def text(self) -> str:
        return f"the process died while {self.phase}: {self.cause}" if self.phase else self.cause


@dataclass(frozen=True, slots=True)
class Hung(BaseDetail):
    """No answer in time."""

    words: str  # what did not answer, and for how long
    source: str = ""  # FILE:LINE at which it waits, or ""; added to the text unless the words show it
    kind: Literal["hung"] = "hung"

    @property
    def essence(self) -> str:
        return f"hung: {without_numbers(self.words)}"

    def text(self) -> str:
        return self.words if self.source in self.words else self.words + format_place(self.source)


@dataclass(frozen=True, slots=True)
class DeviceLost(BaseDetail):
    """A device error that poisons the process: nothing runs on the device from then on."""

    error: str  # the exception's type
    said: str  # its text
    who: str = "the kernel"  # raised it
    kind: Literal["device_lost"] = "device_lost"

    @property
    def essence(self) -> str:
        return f"device lost: {without_numbers(self.said.partition(chr(10))[0])}"

    def text(self) -> str:
        return f"{self.who} raised {self.error}: {self.said}"
