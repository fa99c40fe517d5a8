"""What a run writes down: its plan, a record for each case, and the evidence of a finding."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from kerneltest.core.details import Detail
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import leads_out
from kerneltest.records.strict_json import ReadsSpecialFloats

ANY = "*"  # the dtype, group and family of a backend that a machine lacks: one cell stands for all of them

Float = Annotated[float, ReadsSpecialFloats()]
Element = Annotated[float | int | bool, ReadsSpecialFloats()]  # of an array
Count = Annotated[int, Field(ge=0, lt=2**63)]
StaticValue = bool | int | float | str | None  # of a static argument


def _inside(path: str) -> str:
    if leads_out(path):
        raise ValueError("leads out of the run's folder")
    return path


FileName = Annotated[str, AfterValidator(_inside)]  # relative to the run's folder


class CellKey(NamedTuple):
    """What names a cell: the cases that a report counts together."""

    pairing: str
    backend: str
    dtype: str
    family: str


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an output or of an argument: some rows and columns of its last two axes, the other axes fixed.

    Attributes:
      name: the argument's path, "" for an output.
      dtype, shape: of the whole array.
      origin: index of the first element shown.
      extent: rows and columns shown; one row for an array of one axis.
      blocks: the kernel's block lengths along these two axes, in elements; 0 for none.
      values: row by row, to seven digits.
      expected, bound: likewise, for an output.
      wrong: "1" for each wrong element and "0" for a right one, for an output.

    Raises:
      ValueError: the lengths do not agree with the extent, or the origin with the shape.
    """

    name: str
    dtype: str
    shape: tuple[Count, ...]
    origin: tuple[Count, ...]
    extent: tuple[Count, Count]
    blocks: tuple[Count, Count]
    values: tuple[Element, ...]
    expected: tuple[Element, ...] = ()
    bound: tuple[Float, ...] = ()
    wrong: str = ""

    def __post_init__(self) -> None:
        count = self.extent[0] * self.extent[1]
        lengths = {len(each) for each in (self.values, self.expected, self.bound, self.wrong) if each}
        if lengths - {count} or len(self.origin) != len(self.shape):
            raise ValueError(f"a window of {self.extent} elements does not hold as many")


class SpecialValue(StrEnum):
    """Values among inputs that most inputs do not hold, as a reader sees them."""

    NAN = "a NaN"
    POSITIVE_INFINITY = "+inf"
    NEGATIVE_INFINITY = "-inf"
    SUBNORMAL = "a subnormal number"
    NEAR_LARGEST = "a number near the largest"
    NEGATIVE_ZERO = "a zero of negative sign"
    FALSE = "False"


class Part(StrEnum):
    """How much of an argument a special value fills."""

    SOME = "some elements"
    ROW = "a row"
    ALL = "every element"


@dataclass(frozen=True, slots=True)
class SpecialInput:
    """A special value among a case's inputs.

    Attributes:
      argument: the path of the argument that holds it; "" for any argument.
      value: the value.
      part: how much of the argument it fills; rows lie along the last axis.
    """

    argument: str
    value: SpecialValue
    part: Part = Part.SOME

    def text(self) -> str:
        """`x holds a NaN`, `a row of x holds nothing but -inf`: it reads on after "where"."""
        row = "a row of " if self.part is Part.ROW else ""
        only = "" if self.part is Part.SOME else "nothing but "
        return f"{row}{self.argument or 'an input'} holds {only}{self.value}"


class PatternKind(StrEnum):
    """How wrong elements lie in an output."""

    EVERYWHERE = "everywhere"
    PAST_THE_LAST_FULL_BLOCK = "past the last full block"
    SHIFTED = "shifted"
    ONE_BLOCK = "one block"
    ONE_INDEX = "one index"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Where the wrong elements of an output lie.

    Attributes:
      kind: the rule that they follow.
      axis: the axis that it is about; "" for all.
      number: the first index past the last full block, the block or the index they lie in, or by how many blocks the
        output is shifted: positive if it holds elements from further on.
      blocks: how many blocks the axis has, for `ONE_BLOCK`.
    """

    kind: PatternKind
    axis: str = ""
    number: int = 0
    blocks: Count = 0

    def text(self) -> str:
        """The pattern in words, numbers included."""
        match self.kind:
            case PatternKind.PAST_THE_LAST_FULL_BLOCK:
                return f"{self.brief()} (from {self.number} on)"
            case PatternKind.SHIFTED:
                count = abs(self.number)
                where = "further on" if self.number > 0 else "further back"
                return f"holds what belongs {count} block{'s' * (count > 1)} of {self.axis} {where}"
            case PatternKind.ONE_BLOCK:
                return f"only in block {self.number} of {self.axis} ({self.blocks} blocks)"
            case PatternKind.ONE_INDEX:
                return f"only where {self.axis} is {self.number}"
            case PatternKind.EVERYWHERE:
                return self.brief()

    def brief(self) -> str:
        """The pattern in words that hold for all cases of one bug; "" if there are none."""
        if self.kind is PatternKind.PAST_THE_LAST_FULL_BLOCK:
            return f"only past the last full block of {self.axis}"
        return "every element" if self.kind is PatternKind.EVERYWHERE else ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows a finding.

    Attributes:
      output: which output, counted from 0.
      index: the worst element.
      block: the block it lies in, as `m=1 n=0`.
      wrong_blocks: how many blocks hold a wrong element, and how many there are.
      pattern: where the wrong elements lie; None where no rule fits.
      actual, expected, bound: at that element.
      arguments: an excerpt of each array argument, as text.
      file: where the arguments are saved, relative to the run's folder; "" if they are not.
      diagnosis: what the wrong elements look like, in words.
      script: a script that shows the finding again, relative to the run's folder; "" if there is none.
      window: the output around the worst element; pytest keeps the first of each verdict and family of an item.
      inputs: the arguments around it.
      stderr: what a compiler that died wrote last.
      otherwise: what of the kernel may come out otherwise where it is lowered, as `jaxprs.walk.lowered_otherwise` says.
    """

    output: Count = 0
    index: tuple[Count, ...] = ()
    block: str = ""
    wrong_blocks: tuple[Count, Count] = (0, 0)
    pattern: Pattern | None = None
    actual: Element | None = None
    expected: Element | None = None
    bound: Float = 0.0
    arguments: Mapping[str, str] | None = None
    file: FileName = ""
    diagnosis: str = ""
    script: FileName = ""
    window: Window | None = None
    inputs: tuple[Window, ...] = ()
    stderr: str = ""
    otherwise: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetPart:
    """What makes a part of a bound.

    Attributes:
      words: what errs: "TF32 rounding of the operands of `q @ k.T`".
      file: of the oracle's operation, relative to the folder that pytest ran in, where it lies below; "" for no one
        operation.
      line: in it, counted from 1; 0 for no one operation.
      part: of the bound, between 0 and 1: the mean over an output's elements.
      amplified: how many times as far as a rounding of the oracle's inputs it moves the result, in the median, where it
        is the rounding of an elementwise operation; else 0.
    """

    words: str
    file: str
    line: Count
    part: Annotated[Float, Field(ge=0, le=1)]
    amplified: Annotated[Float, Field(ge=0)] = 0.0


@dataclass(frozen=True, slots=True)
class Record:
    """One case on one backend, or one cell that could not be served at all.

    Attributes:
      item: what selects it in pytest.
      pairing, backend, dtype, group, family: the cell it belongs to.
      tier: of the backend.
      signature: of the case, in words; "*" for a whole cell.
      dims, dtypes, statics: the signature's lengths by dim, dtypes by leaf, and values by static argument, as
        `Signature.static_values` returns them.
      special_inputs: the special values among its inputs.
      asked, unasked: elements of which the oracle asks something, and nothing (`kt.defined`).
      target: the argument that the family disturbs; "" for all, and for a whole cell.
      case: the case's id; "" for a whole cell.
      verdict: how it ended.
      detail: the failure as data; None for a pass.
      message: the failure in words, as they follow from `detail`, and remarks.
      compared, wrong: elements; kernels where a tier gives no values.
      used: the largest error as a fraction of its bound; None if no element had a bound.
      ulps: finite floats by distance in units in the last place, as `judge.compare.ulp_histogram` counts them.
      budget: what makes the bound, the largest part first, of findings, of cases whose bound says nothing, and of each
        case that uses up more of its bound than those of its family before it in the item.
      tolerance: the error model, or `bit for bit`.
      seconds: to run and judge the case, without compiling.
      evidence: for findings.
      facts: by kernel, what its compiler tells.
      advice: what in those facts its author may want to change.
      files: artifacts kept, relative to the run's folder.
      kept: when the run began that found it, where that was an earlier one of the same code; "" for this run.
    """

    item: str
    pairing: str
    backend: str
    tier: Tier
    dtype: str
    group: str
    family: str
    signature: str
    target: str
    case: str
    verdict: Verdict
    message: str = ""
    detail: Detail | None = None
    compared: Count = 0
    wrong: Count = 0
    used: Float | None = None
    tolerance: str = ""
    seconds: Float = 0.0
    evidence: Evidence | None = None
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    files: tuple[FileName, ...] = ()
    ulps: tuple[Count, ...] = ()
    dims: Mapping[str, Count] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    statics: Mapping[str, StaticValue] = field(default_factory=dict)
    special_inputs: tuple[SpecialInput, ...] = ()
    asked: Count = 0
    unasked: Count = 0
    budget: tuple[BudgetPart, ...] = ()
    kept: str = ""

    @property
    def cell(self) -> CellKey:
        return CellKey(self.pairing, self.backend, self.dtype, self.family)


@dataclass(frozen=True, slots=True)
class Birth:
    """Where a wrong value comes from, as experiments on the simulated kernel show.

    Attributes:
      place: file and line.
      operation: the source text there, or what is computed.
      words: what happens there: `-inf - -inf is nan, in program (5, 0)`.
      certain: a change at this line alone makes the case right.
      others: further lines at which a change does.
      explained, unexplained: ids of failing cases that the change makes right, and leaves wrong, where there are both:
        these are of another bug, it seems.
    """

    place: str
    operation: str
    words: str
    certain: bool
    others: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest case found that fails as a recorded one does.

    Attributes:
      origin: the id of the recorded case.
      record: of the smallest case; it is none of the run's own.
      unusual: elements of its inputs that are neither 0 nor 1.
      tries: cases that were judged to find it.
      complete: whether nothing smaller was left to try when the time was over.
      birth: where its wrong values come from; None where no experiment showed that.
      cut: a script of the few operations that do not lower, relative to the run's folder; "" if there is none.
    """

    origin: str
    record: Record
    unusual: Count
    tries: Count
    complete: bool
    birth: Birth | None = None
    cut: FileName = ""


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """What one pytest item will do.

    Attributes:
      item: its node id.
      pairing, backend, tier, dtype, group: its parts; dtype and group are "*" where this machine lacks the backend.
      families: cases by family.
      digests: of the ids of these cases, as `digest` gives it, by family; none where ids follow from the run itself.
    """

    item: str
    pairing: str
    backend: str
    tier: Tier
    dtype: str
    group: str
    families: Mapping[str, Count]
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> Mapping[CellKey, int]:
        """Cases by cell."""
        return {CellKey(self.pairing, self.backend, self.dtype, name): count for name, count in self.families.items()}


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A backend that is not for a kernel: it is planned no items.

    Attributes:
      pairing, backend: which.
      reason: why.
      cases: how many cases it would have had.
    """

    pairing: str
    backend: str
    reason: str
    cases: Count


def digest(cases: Iterable[str]) -> str:
    """Twelve hexadecimal digits that stand for a set of case ids, in any order."""
    return hashlib.sha256(" ".join(sorted(cases)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run, written last: without it, the run counts as cut off.

    Attributes:
      run: the run's id, as in its plan.
      records: how many it has written.
    """

    run: str
    records: Count


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a function and of those in its file that it names.

    Attributes:
      file: relative to the folder that pytest ran in, where it lies below.
      parts: number of the first line, and text, in the file's order; none where Python has no source.
    """

    file: str
    parts: tuple[tuple[Count, str], ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A pairing as it is declared.

    Attributes:
      declaration: arguments, dims and semantics by name, in words.
      kernel, oracle: their sources.
      blocks: the kernel's block length by dim, in elements.
    """

    declaration: Mapping[str, str]
    kernel: Source
    oracle: Source
    blocks: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's plan, written before anything is run.

    Attributes:
      items: in order.
      seed, depth: of the run.
      fuzz: how many cases were drawn for each pairing and dtype.
      prove: whether kernels were also proved over all sizes.
      sanitize: the tools under which device cases were also run.
      orders: in how many random orders simulators also ran programs.
      budget: seconds for each pairing and backend, beyond which cases are left out; 0 for no limit.
      shard: which part of a run it is, as `2/3`; "" for all of it.
      whole: of a shard, digits that stand for the items of all shards.
      run: the run's id.
      problems: what was wrong with the collection, such as a pairing that nothing holds.
      started: when, in UTC, as ISO 8601 writes it; "" if unknown. It orders the runs of a report.
      pairings: how each pairing is declared.
      environment: versions and devices.
      unavailable: backends that this machine lacks, to the reason.
      not_applicable: backends that are not for a pairing's kernel.
      xfail: pairing to its declared xfails, as text.
    """

    items: tuple[PlannedItem, ...]
    seed: int
    depth: str
    environment: Mapping[str, str]
    unavailable: Mapping[str, str]
    xfail: Mapping[str, tuple[str, ...]]
    not_applicable: tuple[NotApplicable, ...] = ()
    fuzz: Count = 0
    prove: bool = False
    sanitize: tuple[str, ...] = ()
    orders: Count = 0
    budget: Count = 0
    shard: str = ""
    whole: str = ""
    run: str = ""
    problems: tuple[str, ...] = ()
    started: str = ""
    pairings: Mapping[str, Declared] = field(default_factory=dict)
