"""Evidence of a finding: the worst element, the pattern of wrong elements, and the arrays around them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from kerneltest.core.files import escapes_folder
from kerneltest.core.source_location import relative_path
from kerneltest.numerics.spread import ErrorShare
from kerneltest.records.files import ReadsSpecialFloats

Float = Annotated[float, ReadsSpecialFloats()]
Element = Annotated[float | int | bool, ReadsSpecialFloats()]  # of an array
Count = Annotated[int, Field(ge=0, lt=2**63)]


def _inside(path: str) -> str:
    if escapes_folder(path):
        raise ValueError("leads out of the run's folder")
    return path


EVERY_ELEMENT = "every element"
"""A pattern of wrong elements in words."""

FileName = Annotated[str, AfterValidator(_inside)]  # relative to the run's folder


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an output or of an argument: some rows and columns of its last two axes, the other axes fixed.

    ValueError if the lengths do not agree with the extent, or the origin with the shape.
    """

    name: str  # the argument's path, "" for an output
    # dtype, shape: of the whole array
    dtype: str
    shape: tuple[Count, ...]
    origin: tuple[Count, ...]  # index of the first element shown
    extent: tuple[Count, Count]  # rows and columns shown; one row for an array of one axis
    blocks: tuple[Count, Count]  # the kernel's block lengths along these two axes, in elements; 0 for none
    values: tuple[Element, ...]  # row by row, to seven digits
    # expected, bound: likewise, for an output
    expected: tuple[Element, ...] = ()
    bound: tuple[Float, ...] = ()
    wrong: str = ""  # "1" for each wrong element and "0" for a right one, for an output

    def __post_init__(self) -> None:
        count = self.extent[0] * self.extent[1]
        lengths = {len(each) for each in (self.values, self.expected, self.bound, self.wrong) if each}
        if lengths - {count} or len(self.origin) != len(self.shape):
            raise ValueError(f"a window of {self.extent} elements does not hold as many")


ERROR_LIMITS = (0.0, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0, 1e4)
"""The levels of error / bound in an `ErrorMap`: each ends at its limit, and one more has no end."""

ERROR_LEVELS = ".0123456789AS"
"""The signs of an `ErrorMap`: nothing is asked, the levels of `ERROR_LIMITS`, and a wrong class (NaN, infinity)."""


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """Error / bound over a whole output, in tiles; ValueError for other levels than tiles have."""

    shape: tuple[Count, ...]  # of the output; rows are counted along all of its axes but the last
    tiles: tuple[Count, Count]  # rows and columns of tiles
    tile: tuple[Count, Count]  # rows and columns of elements in a tile; the last ones may have fewer
    levels: str  # the highest level in each tile, row by row, by its sign in `ERROR_LEVELS`

    def __post_init__(self) -> None:
        if len(self.levels) != self.tiles[0] * self.tiles[1] or set(self.levels) - set(ERROR_LEVELS):
            raise ValueError(f"a map of {self.tiles} tiles does not hold as many levels")


class SpecialValue(StrEnum):
    """Values among inputs that most inputs do not hold, as a reader sees them."""

    NAN = "a NaN"
    POSITIVE_INFINITY = "+inf"
    NEGATIVE_INFINITY = "-inf"
    SUBNORMAL = "a subnormal number"
    NEAR_LARGEST = "a number near the largest"
    NEGATIVE_ZERO = "a zero of negative sign"
    FALSE = "False"
    ZERO = "a zero"
    NEGATIVE = "a negative number"
    EMPTY_PART = "an empty part"
    REPEATED = "a number twice"
    NOT_FULL = "a number below"
    NO_MULTIPLE = "a number that is not a multiple of"
    PART_IS_NO_MULTIPLE = "a part whose length is not a multiple of"

    @property
    def plural(self) -> str:
        """The value in words that follow "nothing but" and "no"."""
        return _PLURALS.get(self.value, self.value.removeprefix("a "))


OF_COUNTS = frozenset(
    {SpecialValue.EMPTY_PART, SpecialValue.NOT_FULL, SpecialValue.NO_MULTIPLE, SpecialValue.PART_IS_NO_MULTIPLE}
)
"""Values of integers that count the elements of an axis, or divide it into parts."""

_PLURALS = {"a zero": "zeros", "a negative number": "negative numbers"}


class FillExtent(StrEnum):
    """The part of an argument that a special value fills."""

    SOME = "some elements"
    BLOCK = "a block"
    FIRST_BLOCK = "the first block"
    ROW = "a row"
    ALL = "every element"


@dataclass(frozen=True, slots=True)
class SpecialInput:
    """A special value among a case's inputs."""

    argument: str  # the path of the argument that holds it; "" for any argument
    value: SpecialValue  # the value
    # how much of the argument it fills; rows lie along the last axis, and blocks are parts of them
    part: FillExtent = FillExtent.SOME
    of: str = ""  # the length that the value is compared with, in words that follow it; "" for most values

    def text(self) -> str:
        """`x holds a NaN`, `a row of x holds nothing but -inf`: it reads on after "where"."""
        row = f"{self.part} of " if self.part not in (FillExtent.SOME, FillExtent.ALL) else ""
        what = self.value if self.part is FillExtent.SOME else f"nothing but {self.value.plural}"
        return f"{row}{self.argument or 'an input'} holds {what} {self.of}".rstrip()


class PatternKind(StrEnum):
    """A pattern that the wrong elements of an output make."""

    EVERYWHERE = "everywhere"
    PAST_THE_LAST_FULL_BLOCK = "past the last full block"
    SHIFTED = "shifted"
    ONE_BLOCK = "one block"
    ONE_INDEX = "one index"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern that the wrong elements of an output make."""

    kind: PatternKind  # the rule that they follow
    axis: str = ""  # the axis that it is about; "" for all
    # the first index past the last full block, the block or the index they lie in, or by how many blocks the output is
    # shifted: positive if it holds elements from further on
    number: int = 0
    blocks: Count = 0  # how many blocks the axis has, for `ONE_BLOCK`

    def text(self) -> str:
        match self.kind:
            case PatternKind.PAST_THE_LAST_FULL_BLOCK:
                return f"only past the last full block of {self.axis} (from {self.number} on)"
            case PatternKind.SHIFTED:
                count = abs(self.number)
                where = "further on" if self.number > 0 else "further back"
                return f"holds what belongs {count} block{'s' * (count > 1)} of {self.axis} {where}"
            case PatternKind.ONE_BLOCK:
                return f"only in block {self.number} of {self.axis} ({self.blocks} blocks)"
            case PatternKind.ONE_INDEX:
                return f"only where {self.axis} is {self.number}"
            case PatternKind.EVERYWHERE:
                return EVERY_ELEMENT


@dataclass(frozen=True, slots=True)
class AxisFootprint:
    """The indices along one axis of an output at which any element is wrong."""

    axis: str  # the dim, or `axis 0`, `axis 1`, ... if that is unknown
    length: Count
    block: Count  # the kernel's block length along the axis, in elements; 0 for none
    # where they start and end, in turns; () for all indices, and None where there are too many to record
    runs: tuple[Count, ...] | None = ()

    @property
    def bits(self) -> int | None:
        """The indices as the bits of a number; None if they were not recorded."""
        if self.runs is None:
            return None
        ends = self.runs or (0, self.length)
        return sum((1 << end) - (1 << start) for start, end in zip(ends[::2], ends[1::2], strict=True))


class RelationKind(StrEnum):
    """The relation of wrong elements to the expected ones, or to those expected for other arguments."""

    words: str  # a clause, or the end of one; `ValueRelation.text` fills it in

    def __new__(cls, value: str, words: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    OPPOSITE = "opposite", "each has the opposite sign"
    FACTOR = "factor", "each is {number} times the expected value"
    FACTORS = "factors", "along {axis}, each is the expected value times one factor"
    OFFSET = "offset", "each is {size} too {large}"
    CONSTANT = "constant", "each is {number}"
    FUNCTION = "function", "each is {name}"
    CHANGE = "change", "{argument} changes by {number} times as much as expected"
    NARROW = "narrow", "each is a {name} number"
    TIE = "tie", "each points to another of equal elements of {argument}"
    OTHER_OUTPUT = "other output", "it is the expected output {number}"
    TRANSPOSED = "transposed", "with its axes in the order {name}"
    REVERSED = "reversed", "reversed along {axis}"
    MOVED = "moved", "{places} of {axis} further {on}"
    MOVED_BLOCKS = "moved blocks", "{blocks} of {axis} further {on}"
    ROLLED = "rolled", "{places} of {axis} further {on}, around its end"
    FIRST_INDEX = "first index", "at index 0 of {axis}"
    FIRST_BLOCK = "first block", "in the first {block} of {axis}"
    HALVES = "halves", "in the other half of {axis}"
    PAIRS = "pairs", "of the other element of each pair along {axis}"
    OMITTED = "omitted", "the sum omits the {name} of {axis}"
    COUNTED_TWICE = "counted twice", "the sum counts twice the {name} of {axis}"
    REPLACED = "replaced", "as if {argument} were {name}"
    LAID_OUT = "laid out", "as if {axis} were laid out as {name}"
    EXCHANGED = "exchanged", "as if {argument} and {name} were exchanged"
    OPTION = "option", "as if {argument} were {name}"
    UNWRITTEN = "unwritten", "unwritten elements"
    UNFILLED = "unfilled", "values of jax.lax.empty that is never filled"
    PAST_END = "past end", "values read past the end of an array"
    UNORDERED = "unordered", "results that depend on the order of programs"


# Relations whose words say where elements are read: of those in `_WHOLE` the whole output, of the others each element.
_WHOLE = (RelationKind.TRANSPOSED, RelationKind.REVERSED)
_READ = (
    *_WHOLE, RelationKind.MOVED, RelationKind.MOVED_BLOCKS, RelationKind.ROLLED, RelationKind.FIRST_INDEX,
    RelationKind.FIRST_BLOCK, RelationKind.HALVES, RelationKind.PAIRS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueRelation:
    """The relation of wrong elements to the expected ones, or to those expected for other arguments."""

    kind: RelationKind
    argument: str = ""  # the argument that would explain them if it were changed; "" for the output
    axis: str = ""  # the axis along which elements are moved
    number: float = 0.0  # the factor, the difference, or the number of places
    # the function, the dtype, the part, the other argument, the option, or the option that is the length of a block
    name: str = ""

    def text(self) -> str:
        words, size, off = self.kind.words, abs(self.number), self.number - 1
        if self.kind is RelationKind.FACTOR and abs(off) < _NEARLY_ONE:
            words = f"each is too {'large' if off > 0 else 'small'} by {abs(off):.2g} of the expected value"
        elif self.kind is RelationKind.CHANGE and self.number in (0, -1):
            words = "{argument} changes in the opposite direction" if self.number else "each is the value of {argument}"
        elif self.kind in _READ:
            output = "it is the expected output" if self.kind in _WHOLE else "each is the expected value"
            words = f"{'as if {argument} were read' if self.argument else output} {words}"
        block = f"{self.name} elements" if self.name and "block" not in self.name else "block"
        several = "s" * (size > 1)
        return words.format(
            argument=self.argument,
            axis=self.axis,
            name=self.name,
            number=f"{self.number:.4g}",
            size=f"{size:.4g}",
            large="large" if self.number > 0 else "small",
            on="on" if self.number > 0 else "back",
            block=block,
            places=f"{size:g} place{several}",
            blocks=f"{size:g} {block}{several * (block == 'block')}",
        )


OF_NUMBERS = frozenset(
    {RelationKind.CONSTANT, RelationKind.FACTOR, RelationKind.FACTORS, RelationKind.OFFSET, RelationKind.FUNCTION}
)
"""Relations that say what the wrong numbers are, and not which mistake makes them."""

OF_MEMORY = frozenset({RelationKind.UNWRITTEN, RelationKind.UNFILLED, RelationKind.PAST_END, RelationKind.UNORDERED})
"""Relations to no expected value: what wrong elements hold is undefined, and their texts are nouns."""

_NEARLY_ONE = 1e-2  # relative error below which its size is said instead of the factor


def format_pair(got: Element | None, expected: Element | None, least: int = 4) -> tuple[str, str]:
    """Formats two numbers with as many digits as show how they differ; integers and booleans as they are."""
    for digits in (least, 6, 9, 17):
        one, other = (f"{value:.{digits}g}" if isinstance(value, float) else str(value) for value in (got, expected))
        if one != other:
            break
    return one, other


EXTREMES = ("maximum", "minimum")
"""Operations of JAX that keep NaN, and that a lowering may replace by one that drops it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a finding."""

    output: Count = 0  # the number of the output, counted from 0
    index: tuple[Count, ...] = ()  # the worst element
    block: str = ""  # the block that the worst element lies in, as `m=1 n=0`
    wrong_blocks: tuple[Count, Count] = (0, 0)  # number of blocks with a wrong element, and number of all blocks
    pattern: Pattern | None = None  # where the wrong elements lie; None where no rule fits
    # actual, expected, bound: at that element
    actual: Element | None = None
    expected: Element | None = None
    bound: Float = 0.0
    arguments: Mapping[str, str] | None = None  # an excerpt of each array argument, as text
    file: FileName = ""  # where the arguments are saved, relative to the run's folder; "" if they are not
    diagnosis: str = ""  # a likely mistake that explains the wrong elements, in words
    script: FileName = ""  # a script that reproduces the finding, relative to the run's folder; "" if there is none
    # the output around the worst element; pytest keeps the first of each verdict and family of an item
    window: Window | None = None
    inputs: tuple[Window, ...] = ()  # the arguments around it
    stderr: str = ""  # the last output of a compiler that died
    # operations whose lowered results may differ, as `trace.walk.lowering_differences` lists them, and the one of
    # `EXTREMES` by which a NaN became a number
    otherwise: tuple[str, ...] = ()
    errors: ErrorMap | None = None  # error / bound over the whole output, where there is a window
    footprint: tuple[AxisFootprint, ...] = ()  # the indices along each axis of the output at which elements are wrong

    def without_pictures(self) -> "Evidence":
        return replace(self, window=None, inputs=(), errors=None)


@dataclass(frozen=True, slots=True)
class BudgetPart:
    """A part of a bound."""

    words: str  # the source of error: "TF32 rounding of the operands of `q @ k.T`"
    file: str  # file of the oracle's operation, relative to the folder that pytest ran in if it lies below; "" for none
    line: Count  # the operation's line, counted from 1; 0 for none
    part: Annotated[Float, Field(ge=0, le=1)]  # share of the bound, from 0 to 1: the mean over an output's elements
    # for the rounding of an elementwise operation, how many times as far as a rounding of the oracle's inputs it moves
    # the result, in the median; else 0
    amplified: Annotated[Float, Field(ge=0)] = 0.0


# Error budgets: the parts of a bound as records keep them, and in words.

_MOST, _LEAST = 5, 0.01  # parts that a record keeps, and the smallest part
_MOST_SHOWN, _LEAST_SHOWN = 3, 0.05  # parts that a line shows, and the smallest part
_UNSTABLE = 32.0  # amplification of a rounding; a function with an error of 16 ulps stays below it


def budget_parts(shares: Iterable[ErrorShare]) -> tuple[BudgetPart, ...]:
    """Returns the largest parts of a bound, largest first; many small ones make up the rest."""
    return tuple(
        BudgetPart(
            share.source.description,
            relative_path(share.source.origin.file),
            share.source.origin.line,
            round(share.part, 4),
            float(f"{share.amplified:.3g}") if share.source.kind == "rounding" else 0.0,
        )
        for share in list(shares)[:_MOST]
        if share.part >= _LEAST
    )


def format_budget(parts: Sequence[BudgetPart]) -> str:
    """Formats parts: `72% TF32 rounding of the operands of `q @ k.T` (test_attention.py:12), 20% ...`."""
    shown_parts = [part for part in parts[:_MOST_SHOWN] if part.part >= _LEAST_SHOWN]
    return ", ".join(f"{part.part:.0%} {_format_part(part)}" for part in shown_parts)


def instability_note(parts: Sequence[BudgetPart]) -> str:
    """Returns a note on the oracle's operation that amplifies rounding most, and what to do; "" if none does."""
    worst = max(parts, key=lambda part: part.amplified, default=None)
    if worst is None or worst.amplified < _UNSTABLE:
        return ""
    return (
        f"{_format_part(worst)} moves the result {worst.amplified:.3g} times as far as a rounding of the inputs does: "
        "a formula that cancels less there, if there is one, makes the bound tighter"
    )


def vacuous_bound_note(shares: Sequence[ErrorShare], tolerance: str) -> str:
    """Returns a note on why a bound is vacuous, and what to do about it."""
    problem, parts = f"the bound by {tolerance} is so wide that zeros would pass", budget_parts(shares)
    if not parts:
        return f"{problem}: choose a tighter error model"
    return f"{problem}: {format_budget(parts)}\n{instability_note(parts) or _advice(shares[0])}"


def _advice(largest: ErrorShare) -> str:
    if largest.source.kind.endswith(" operands"):
        return (
            "if the kernel asks for full precision of its products, name the static argument that does: "
            "kt.tolerance.rounding(precision=NAME)"
        )
    return "give values that cancel less (domain=), or a closed form of the bound, such as kt.tolerance.reduction"


def _format_part(part: BudgetPart) -> str:
    return f"{part.words} ({PurePosixPath(part.file).name}:{part.line})" if part.file else part.words
