"""Outputs that are wrong, change from run to run, or are written where inputs are."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kerneltest.core.details.base import BaseDetail, format_index, kernel_prefix

SLIGHT = 1 / 16  # an error relative to the larger of both numbers: below it something was rounded, above it lost


class ErrorCause(StrEnum):
    """The cause of wrong values."""

    FORMULA = "formula"
    """The kernel computes something else, even without rounding."""

    ROUNDING = "rounding"
    """The formula is right, and the kernel rounds more than it must."""

    UNSTABLE = "unstable"
    """The formula is right, and loses more to rounding than the oracle's does."""

    OVERFLOW = "overflow"
    """The formula is right, and one of its intermediate results is too large for the kernel's dtypes."""

    BACKEND = "backend"
    """The kernel is right if NumPy evaluates it: the backend computes something else."""


_FORMS = "; if it is meant, declare it with forms="
_CAUSES = {
    ErrorCause.FORMULA: "it computes something else: off by {size} of the largest value even without rounding",
    ErrorCause.ROUNDING: "its formula is right, but it rounds {size} times as far as it may",
    ErrorCause.UNSTABLE: f"its formula is right, but loses {{size}} times as much to rounding as the oracle's{_FORMS}",
}
_WITHOUT_SIZE = {
    ErrorCause.FORMULA: "it computes something else even without rounding",
    ErrorCause.ROUNDING: "its formula is right, but a result overflows or is NaN in the kernel's dtypes",
    ErrorCause.OVERFLOW: "its formula is right, but an intermediate result overflows in the kernel's dtypes",
    ErrorCause.UNSTABLE: f"its formula is right, but loses far more to rounding than the oracle's{_FORMS}",
    ErrorCause.BACKEND: "the backend computes something else: evaluated by NumPy, the kernel gives what is expected",
}


@dataclass(frozen=True, slots=True)
class MismatchCause:
    """The cause of wrong values, and its size."""

    what: ErrorCause  # the cause
    # for `formula` the largest error without rounding, relative to the largest value expected of the wrong elements;
    # for `rounding` the largest error / bound; for `unstable` the largest bound of the kernel's formula / that of the
    # oracle's. None if it is infinite, or a value is NaN, and for `overflow` and `backend`
    size: float | None
    # for `formula` the oracle's functions, if approximations of them could explain the error
    functions: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns the cause in words."""
        if self.size is None:
            return _WITHOUT_SIZE[self.what]
        rounded = float(f"{self.size:.2g}")
        return _CAUSES[self.what].format(size=f"{rounded:,.0f}" if 10 <= rounded < 1e5 else f"{rounded:.2g}")

    def hint(self) -> str:
        """Returns how to declare an approximation, or ""."""
        if not self.functions:
            return ""
        return (
            f"if the kernel approximates {' or '.join(self.functions)} on purpose, declare the error relative to the "
            f'function: tolerance=kt.tolerance.rounding(functions={{"{self.functions[0]}": 1e-4}})'
        )


@dataclass(frozen=True, slots=True)
class Mismatch(BaseDetail):
    """Elements that differ from the oracle's by more than their bound."""

    call: str  # how the kernel was called, as an invariant words it; "" for a plain call
    output: int  # which output, counted from 0
    # the argument with respect to which the output is a gradient; "" for an output of the kernel itself
    gradient_of: str
    # wrong, total: elements
    wrong: int
    total: int
    pattern: str  # where the wrong elements lie, in words; "" for nowhere in particular
    index: tuple[int, ...]  # of the worst element
    block: str  # the block that it lies in, as `m=1 n=0`; "" where the kernel has none
    comparison: str  # the worst element beside its expectation, in words
    remarks: tuple[str, ...] = ()  # further lines: a diagnosis, special values among the inputs
    cause: MismatchCause | None = None  # of the wrong values; None if it is unknown
    kind: Literal["mismatch"] = "mismatch"

    @property
    def essence(self) -> str:
        return f"gradient by {self.gradient_of}" if self.gradient_of else f"output {self.output}"

    @property
    def which(self) -> str:
        """The output in words, if it is not the only or the first one: `output 1: `."""
        return f"by {self.gradient_of}: " if self.gradient_of else f"output {self.output}: " if self.output else ""

    def text(self) -> str:
        call = f"{self.call}: " if self.call else ""
        pattern = f", {self.pattern}" if self.pattern else ""
        block = f", block {self.block}" if self.block else ""
        cause = [*filter(None, (self.cause.text(), self.cause.hint()))] if self.cause is not None else []
        if not self.index:  # a scalar
            return "\n".join([f"{call}{self.which}wrong value: {self.comparison}", *cause, *self.remarks])
        first = (
            f"{call}{self.which}{self.wrong} of {self.total} elements wrong{pattern}; "
            f"worst at {format_index(self.index)}{block}: {self.comparison}"
        )
        return "\n".join([first, *cause, *self.remarks])


@dataclass(frozen=True, slots=True)
class WrongDtype(BaseDetail):
    """An output of another dtype than it should have."""

    output: int  # the number of the output
    found: str  # its dtype
    why: str  # the reason why that is wrong, in words
    kind: Literal["wrong_dtype"] = "wrong_dtype"

    @property
    def essence(self) -> str:
        return f"output {self.output} is {self.found}"

    def text(self) -> str:
        return f"output {self.output} is {self.found}, but {self.why}"


@dataclass(frozen=True, slots=True)
class Nondeterministic(BaseDetail):
    """The same inputs gave different bits."""

    array: str  # `output 0`, or the buffer in memory
    index: tuple[int, ...]  # the first element that differs
    # first, second: its two values, as text
    first: str
    second: str
    # differing, total: elements
    differing: int
    total: int
    # what differed between the two runs: "with programs in order", "in another order"; "" for nothing
    how: tuple[str, str] = ("", "")
    kernel: str = ""  # the name of the kernel whose memory `array` is; "" for an output
    kind: Literal["nondeterministic"] = "nondeterministic"

    @property
    def essence(self) -> str:
        return f"nondeterministic {self.array}"

    def text(self) -> str:
        count = f"{self.differing} of {self.total} elements differ"
        if any(self.how):
            one, other = self.how
            both = f"{self.first} {one} and {self.second} {other}"
            return f"{kernel_prefix(self.kernel)}{self.array}{format_index(self.index)} is {both}; {count}"
        place = format_index(self.index)
        return f"{self.array}: the same inputs gave {self.first} and then {self.second} at {place}; {count}"


@dataclass(frozen=True, slots=True)
class InputModified(BaseDetail):
    """The kernel wrote to an input."""

    argument: int  # which of its array arguments, counted from 0
    kind: Literal["input_modified"] = "input_modified"

    @property
    def essence(self) -> str:
        return f"array argument {self.argument} modified"

    def text(self) -> str:
        return f"the kernel wrote to its array argument {self.argument}"
