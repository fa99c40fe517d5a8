"""Failures as data: one frozen dataclass for each kind, from which its text is rendered. Nothing parses that text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

_TENSOR = re.compile(r"(tensor|vector|memref)<[^>]*>")
_NUMBER = re.compile(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?")
_SEVERAL = re.compile(r"\[N(, N)*,?\]|\(N(, N)*,?\)|(Nx)+")
_LONGEST = 1000  # characters of foreign text that are looked at


@dataclass(frozen=True, slots=True)
class BaseDetail:
    """A kind of failure. Subclasses add a `kind` by which records tell them apart."""

    @property
    def place(self) -> str:
        """FILE:LINE of the user's source that it points at, or "": its `source`, if it has one."""
        return str(getattr(self, "source", ""))

    @property
    def essence(self) -> str:
        """The same for all failures that have one cause, whatever their shapes, elements and numbers are."""
        return type(self).__name__

    def text(self) -> str:
        """The failure in words. The first line can be read by itself."""
        raise NotImplementedError


def without_numbers(text: str) -> str:
    """Text by JAX, a compiler or a user, without its numbers, shapes and tensor types."""
    return _SEVERAL.sub("N", _NUMBER.sub("N", _TENSOR.sub("a tensor", text[:_LONGEST])))


def first_line(text: str) -> str:
    """The first line of text by JAX or a compiler that is not blank, with the next one if it ends in a colon."""
    first, *others = text.strip().split("\n", 2)
    return " ".join([first, *(line.strip() for line in others[:1])]) if first.endswith(":") else first


def format_place(place: str) -> str:
    """` (FILE:LINE)`, or "" for no place."""
    return f" ({place})" if place else ""


def format_index(index: tuple[int, ...]) -> str:
    """`[3, 4]`."""
    return f"[{', '.join(map(str, index))}]"


def kernel_prefix(kernel: str, target: str = "") -> str:
    """`kernel NAME: ` or `kernel NAME for TARGET: `, or "" for no name."""
    return f"kernel {kernel}{f' for {target}' if target else ''}: " if kernel else ""


# Exceptions, what kerneltest states itself, and what cannot be run here.


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


NUMPY_EVALUATION = "kerneltest's evaluation of the kernel in NumPy"


@dataclass(frozen=True, slots=True)
class Contradicted(BaseDetail):
    """A pass, although another evaluation of the kernel, which is trusted less, is wrong."""

    said: str  # what the other evaluation did instead, as a predicate
    judge: str = "JAX's interpreter"  # ran the case that passes
    other: str = NUMPY_EVALUATION
    kind: Literal["contradicted"] = "contradicted"

    def text(self) -> str:
        return f"judged by {self.judge}, since {self.other} {self.said}"


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


# Wrong uses of memory: accesses out of bounds, races, and elements without a defined value.


class Access(StrEnum):
    """The ways in which memory is accessed."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    BLOCK = "block"
    COPY = "copy"

    @property
    def participle(self) -> str:
        """`read` after "is"."""
        return {Access.LOAD: "read", Access.ATOMIC: "updated"}.get(self, "written")


def _at(place: str) -> str:
    return f" at {place}" if place else ""


@dataclass(frozen=True, slots=True)
class Visit:
    """One program's access to an element."""

    access: Access  # the way in which the element is accessed
    program: tuple[int, ...] = ()  # the program's index along each axis of the grid; () if unknown
    place: str = ""  # FILE:LINE of the access, or ""
    thread: str = ""  # the core or warpgroup that makes it, as text; "" if programs are not divided further

    @property
    def who(self) -> str:
        """`program (3, 1)`, or the thread."""
        if self.thread:
            return self.thread
        return f"program ({', '.join(map(str, self.program))})" if self.program else "a program"

    def text(self) -> str:
        """`written by program (3, 1) at FILE:LINE`."""
        return f"{self.access.participle} by {self.who}{_at(self.place)}"


@dataclass(frozen=True, slots=True)
class IndexOverflow:
    """Integer arithmetic that does not fit its type, on the way to an address or a mask."""

    expression: str  # the operation with its operands, `65,536 x 40,960`
    bits: int  # the result's exact value is at least 2**bits, or less than -(2**bits)
    accessed: int  # offset of the accessed element
    intended: int  # offset of the element that exact arithmetic gives. It equals `accessed` if only the mask differs


@dataclass(frozen=True, slots=True)
class MemoryFault(BaseDetail):
    """An access outside a buffer, or one whose address or mask is wrong."""

    kernel: str  # the name of the kernel; "" if there is only one
    visit: Visit  # the first wrong access
    buffer: str  # the name of the argument or output
    element: str = ""  # the element as text: `[3, 4]`, or `offset 1024 of 1000 elements`
    # the fault in the words of the tool or interpreter that found it; "" to render it from the other fields
    words: str = ""
    others: tuple[str, ...] = ()  # further faults of the same call, one line each
    count: int = 0  # the number of wrong accesses; 0 if unknown
    hint: str = ""  # a possible cause or remedy, or ""
    overflow: IndexOverflow | None = None  # the index overflow that led to the wrong access, if one did
    undefined_address: bool = False  # whether the address or the mask was computed from memory that was never written
    kind: Literal["memory_fault"] = "memory_fault"

    @property
    def place(self) -> str:
        return self.visit.place

    @property
    def essence(self) -> str:
        return f"{self.visit.access} of {self.buffer}"

    def text(self) -> str:
        return _faults(self, self.hint)

    def sentence(self) -> str:
        access, place = f"{self.visit.access} at {self.buffer}", f", at {self.place}" if self.place else ""
        if self.undefined_address:
            return f"the address or the mask of a {access} was computed from memory that was never written{place}"
        if (wrap := self.overflow) is None:
            return f"{access} {self.element} by {self.visit.who}{place}"
        effect = (
            "is wrongly masked"
            if wrap.accessed == wrap.intended
            else f"accesses offset {wrap.accessed:,} instead of {wrap.intended:,}"
        )
        cause = f"an index wraps around: {wrap.expression} is past 2^{wrap.bits}"
        return f"{cause}, so the {access} by {self.visit.who} {effect}{place}"


@dataclass(frozen=True, slots=True)
class Race(BaseDetail):
    """Two programs or threads access one element, at least one of them writes, and nothing orders them."""

    kernel: str  # the name of the kernel; "" if there is only one
    buffer: str  # the name of the argument, output or scratch memory
    element: str  # the element as text, `[3, 4]`, or ""
    visits: tuple[Visit, ...]  # the two accesses, the later one first; () if unknown
    words: str = ""  # the race in the words of the interpreter that found it; "" to render it from the other fields
    others: tuple[str, ...] = ()  # further faults of the same call, one line each
    count: int = 0  # the number of conflicting accesses; 0 if unknown
    # distinct values that the programs write to the element, at most two; one if all write the same; () if unknown
    values: tuple[str, ...] = ()
    kind: Literal["race"] = "race"

    @property
    def place(self) -> str:
        return next((visit.place for visit in self.visits if visit.place), "")

    @property
    def essence(self) -> str:
        return self.buffer

    def text(self) -> str:
        subject = "all" if len(self.values) == 1 else "programs"
        return _faults(self, f"{subject} write {' and '.join(self.values)}" if self.values else "")

    def sentence(self) -> str:
        match self.visits:
            case (one, other) if (one.access, one.place) == (other.access, other.place):
                visits = f"{one.access.participle} by {one.who} and by {other.who}{_at(one.place)}"
            case _:
                visits = " and ".join(visit.text() for visit in self.visits) or "accessed"
        return f"{self.buffer}{self.element} is {visits}, in no order"


def _faults(found: MemoryFault | Race, remark: str) -> str:
    parts = [found.words or found.sentence(), f"{found.count} in all" if found.count else "", remark]
    lines = "; ".join(filter(None, parts)), *found.others
    return "\n".join(f"{kernel_prefix(found.kernel)}{line}" for line in lines)


class UndefinedCause(StrEnum):
    """Reads whose results are undefined.

    They are reads of an unwritten element, of a block that is partly unwritten, past an array's end, of masked elements
    without `other`, and of elements of `jax.lax.empty` that were never filled.
    """

    UNWRITTEN = "unwritten"
    PARTLY_WRITTEN = "partly written"
    PAST_END = "past end"
    MASKED = "masked"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class UndefinedSource:
    """A read from which undefined elements come."""

    cause: UndefinedCause  # the kind of read
    place: str  # FILE:LINE of the read, or ""
    # the element or buffer that was read, as `x_ref[3]`; "" for a masked load and for `jax.lax.empty`
    element: str = ""

    def text(self) -> str:
        """`x_ref[3] is read at FILE:LINE before anything was written there`."""
        at = _at(self.place)
        return {
            UndefinedCause.UNWRITTEN: f"{self.element} is read{at} before anything was written there",
            UndefinedCause.PARTLY_WRITTEN: f"{self.element} is read{at} before all of it was written",
            UndefinedCause.PAST_END: f"{self.element} is read past the end of its array{at}",
            UndefinedCause.MASKED: f"a masked load without `other`{at}",
            UndefinedCause.EMPTY: f"jax.lax.empty{at} was not filled completely",
        }[self.cause]


@dataclass(frozen=True, slots=True)
class Undefined(BaseDetail):
    """Elements of an output that were never written, or that depend on memory that was not."""

    array: str  # `output 0`
    unwritten: bool  # whether the elements themselves were never written
    # count, total: elements
    count: int
    total: int
    first: str  # indices of the first one, as text
    sources: tuple[UndefinedSource, ...] = ()  # the reads that the elements depend on
    sampled: bool = False  # whether only a sample of the elements was checked
    remark: str = ""  # anything else known of them, or ""
    kind: Literal["undefined"] = "undefined"

    @property
    def place(self) -> str:
        return next((source.place for source in self.sources if source.place), "")

    @property
    def essence(self) -> str:
        return f"{self.array} {'unwritten' if self.unwritten else 'uninitialised'}"

    def text(self) -> str:
        elements = "sampled elements" if self.sampled else "elements"
        count = f"{self.count} of {self.total} {elements} of {self.array}"
        state = "were never written" if self.unwritten else "depend on memory never written"
        parts = [f"{count} {state}, the first {self.first}", *(source.text() for source in self.sources)]
        return "; ".join([*parts, self.remark] if self.remark else parts)


# Outputs that are wrong, change from run to run, or are written where inputs are.

SLIGHT = 1 / 16  # an error relative to the larger of both numbers: below it something was rounded, above it lost


class ErrorCause(StrEnum):
    """The cause of wrong values."""

    FORMULA = "formula"
    ROUNDING = "rounding"
    UNSTABLE = "unstable"
    OVERFLOW = "overflow"
    BACKEND = "backend"
    CONSTANT = "constant"
    SPECIAL = "special"


OF_KERNEL = (ErrorCause.UNSTABLE, ErrorCause.OVERFLOW, ErrorCause.CONSTANT)  # of its formula in its own dtypes
_FORMS = "; if it is meant, declare it with forms="
_CAUSES = {
    ErrorCause.FORMULA: "it computes something else: off by {size} times the largest value even without rounding",
    ErrorCause.ROUNDING: "its formula is right, but it rounds {size} times as far as it may",
    ErrorCause.UNSTABLE: f"its formula is right, but loses {{size}} times as much to rounding as the oracle's{_FORMS}",
}
_WITHOUT_SIZE = {
    ErrorCause.FORMULA: "it computes something else even without rounding",
    ErrorCause.ROUNDING: "its formula is right, but a result overflows or is NaN in the kernel's dtypes",
    ErrorCause.OVERFLOW: "its formula is right, but an intermediate result overflows in the kernel's dtypes",
    ErrorCause.UNSTABLE: f"its formula is right, but loses far more to rounding than the oracle's{_FORMS}",
    ErrorCause.CONSTANT: "its formula is right, but {}",
    ErrorCause.SPECIAL: "its formula is right for numbers, but makes NaN of special values (0 * inf, inf - inf): "
    "select values there, or declare domain=kt.interval(finite=True)",
    ErrorCause.BACKEND: "the backend computes something else: evaluated by NumPy, the kernel gives what is expected",
}


@dataclass(frozen=True, slots=True)
class MismatchCause:
    """The cause of wrong values, and its size."""

    what: ErrorCause  # the cause
    # for `formula` the largest error without rounding, relative to the largest value expected of the wrong elements;
    # for `rounding` the largest error / bound; for `unstable` the largest bound of the kernel's formula / that of the
    # oracle's. None if it is infinite, or a value is NaN, and for `overflow`, `backend` and `special`
    size: float | None
    # for `formula` the oracle's functions, if approximations of them could explain the error
    functions: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()  # for `constant`, each in words: `1.702 is rounded to bfloat16`

    def text(self) -> str:
        if self.size is None:
            return _WITHOUT_SIZE[self.what].format(" and ".join(self.constants))
        digits = next((n for n in range(2, 7) if float(f"{self.size:.{n}g}") != 1), 7)  # 1 time would be no error
        rounded = float(f"{self.size:.{digits}g}")
        return _CAUSES[self.what].format(size=f"{rounded:,.0f}" if 10 <= rounded < 1e5 else f"{rounded:.{digits}g}")

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
    depends_on: str = ""  # what bits depend on that may not matter, as in "the batch"; "" if the two runs are alike
    source: str = ""  # FILE:LINE of the choice between the two ways, or ""
    kind: Literal["nondeterministic"] = "nondeterministic"

    @property
    def essence(self) -> str:
        return f"nondeterministic {self.array}"

    def text(self) -> str:
        count = f"{self.differing} of {self.total} elements differ"
        if any(self.how):
            one, other = self.how
            both = f"{self.first} {one} and {self.second} {other}"
            text = f"{kernel_prefix(self.kernel)}{self.array}{format_index(self.index)} is {both}; {count}"
            return f"{text}; the choice between them is at {self.source}" if self.source else text
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


Detail = (
    Mismatch
    | WrongDtype
    | Nondeterministic
    | InputModified
    | MemoryFault
    | Race
    | Undefined
    | NotBuilt
    | ResourceExceeded
    | Raised
    | InternalError
    | Stated
    | Unavailable
    | NoPallasCall
    | Contradicted
    | Crashed
    | Hung
    | DeviceLost
)
