"""Records: one line for each case, and reproducers of findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from kerneltest.core.details import Detail
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import BudgetPart, Count, Evidence, FileName, Float, SpecialInput, ValueRelation
from kerneltest.records.run_plan import CellKey

StaticValue = bool | int | float | str | None  # of a static argument


@dataclass(frozen=True, slots=True)
class ExpectedValues:
    """The expected values of a case, as far as they tell how much it asks."""

    finite: Count  # number of elements that are defined and expected to be finite
    # least, greatest: of these; 0 if there are none
    least: Float = 0.0
    greatest: Float = 0.0
    visible: Float = 0.0  # the smallest relative error that their bounds do not admit everywhere
    coarse: Count = 0  # number of those that are normal numbers and whose bound exceeds a tenth of them
    narrow: str = ""  # the dtype below float64 in which the oracle returned an output, if nothing declares it; else ""
    # single, static: what of the kernel had a single state in the cases of the signature so far, in words: such as a
    # mask that is full, None if that is unknown; and what no value changes, such as a grid of one program
    single: tuple[str, ...] | None = None
    static: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FormulaAnswer:
    """The answer to the question whether a kernel's formula is right, with its floats promoted to float64."""

    compared: Count = 0  # number of elements that were compared with the oracle's
    bound_fraction: Float | None = None  # the largest error as a fraction of its bound; None if no element had one
    unanswered: str = ""  # the reason why the question could not be asked, or ""
    # how far it is off where only the rounding to float32 admits that, in ulps; 0.0 for the oracle's formula
    ulps: Float = 0.0


_NO_EVIDENCE = Evidence()


@dataclass(frozen=True, slots=True)
class Record:
    """One case on one backend, or one cell that could not be served at all."""

    item: str  # what selects it in pytest
    # pairing, backend, dtype, group, family: the cell it belongs to
    pairing: str
    backend: str
    tier: Tier  # of the backend
    dtype: str
    group: str
    family: str
    signature: str  # of the case, in words; "*" for a whole cell
    target: str  # the argument that the family disturbs; "" for all, and for a whole cell
    case: str  # the case's id; "" for a whole cell
    verdict: Verdict  # how it ended
    message: str = ""  # the failure in words, as they follow from `detail`, and remarks
    detail: Annotated[Detail, Field(discriminator="kind")] | None = None  # the failure as data; None for a pass
    # compared, wrong: elements; kernels where a tier gives no values
    compared: Count = 0
    wrong: Count = 0
    bound_fraction: Float | None = None  # the largest error as a fraction of its bound; None if no element had a bound
    tolerance: str = ""  # the error model, or `bit for bit`
    seconds: Float = 0.0  # to run and judge the case, without compiling
    evidence: Evidence | None = None  # for findings
    # by kernel, what its compiler tells
    compiler_metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    advice: tuple[str, ...] = ()  # what in those facts its author may want to change
    files: tuple[FileName, ...] = ()  # artifacts kept, relative to the run's folder
    # finite floats by distance in units in the last place, as `judge.compare.ulp_histogram` counts them
    ulps: tuple[Count, ...] = ()
    # dims, dtypes, statics: the signature's lengths by dim, dtypes by leaf, and values by static argument, as
    # `Signature.static_values` returns them
    dims: Mapping[str, Count] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    statics: Mapping[str, StaticValue] = field(default_factory=dict)
    special_inputs: tuple[SpecialInput, ...] = ()  # the special values among its inputs
    # defined, undefined: elements of which the oracle asks something, and nothing (`kt.defined`)
    defined: Count = 0
    undefined: Count = 0
    # the parts of the bound, largest first, for findings, for cases with a vacuous bound, and for each case that uses
    # up more of its bound than those of its family before it in the item
    error_budget: tuple[BudgetPart, ...] = ()
    # when the run began that found it, where that was an earlier one of the same code; "" for this run
    reused_from: str = ""
    expected: ExpectedValues | None = None  # what the oracle expects of the plain call; None if it was not compared
    formula: FormulaAnswer | None = None  # whether the kernel's formula is right; None if that was not asked
    doubted: Count = 0  # elements that are not compared, since the oracle itself loses its digits in them

    @property
    def shown(self) -> Evidence:
        """The evidence; an empty one if none was recorded."""
        return self.evidence or _NO_EVIDENCE

    @property
    def cell(self) -> CellKey:
        return CellKey(self.pairing, self.backend, self.dtype, self.family)


@dataclass(frozen=True, slots=True)
class FaultLocation:
    """The location of a fault, as experiments on the simulated or evaluated kernel show it."""

    place: str  # FILE:LINE
    operation: str  # the source text there, or the operation computed
    words: str  # what happens there: `-inf - -inf is nan, in program (5, 0)`
    confirmed: bool  # whether an edit at this line, and only there, repairs the case
    alternatives: tuple[str, ...] = ()  # further lines at which an edit repairs it
    # explained, unexplained: ids of failing cases that the edit repairs and does not repair, if there are both; the
    # latter probably have another cause. Cases are in both if it repairs their use of memory and leaves values wrong.
    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    # what goes wrong there, as experiments confirm it, in words that follow "from": `0 / 0`, `a rounding to bfloat16`
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ConfirmedCondition:
    """The condition of a suspect, each clause of which cases made for it confirmed on both sides."""

    # on signatures: `n is not a multiple of 8`; "" if each one that was tried fails; None if none is confirmed
    words: str | None
    cases: Count  # number of cases that were judged
    excluded: tuple[str, ...]  # the planned signatures that do not fulfil it, and the ids of the planned cases
    inputs: str | None = None  # the same on inputs: `x holds a NaN`


@dataclass(frozen=True, slots=True)
class ConfirmedRelation:
    """The relation of a suspect's wrong elements to the expected ones, as further runs of some cases confirm it."""

    relation: ValueRelation
    # cases, shown: number of cases whose wrong elements all follow it, the smallest one included, and of those that
    # have enough different values to show it
    cases: Count
    shown: Count


@dataclass(frozen=True, slots=True)
class Reproducer:
    """The smallest case found that fails as a recorded one does."""

    origin: str  # the id of the recorded case
    record: Record  # the record of the smallest case, which is not one of the run's cases
    nontrivial: Count  # number of elements of its inputs that are neither 0 nor 1
    attempts: Count  # number of cases judged to find it
    complete: bool  # whether no smaller candidate was left when the search ended
    fault: FaultLocation | None = None  # the location of the fault; None if no experiment found it
    # a script of the operations that do not lower, relative to the run's folder; "" if there is none
    reduced_script: FileName = ""
    condition: ConfirmedCondition | None = None  # the condition on signatures, as experiments confirm it
    relation: ConfirmedRelation | None = None  # what wrong elements hold; None if no relation explains them
    # if no fault was located, the lines that only compute wrong values, if few: FILE:LINE
    computed: tuple[str, ...] = ()
    searched: bool = True  # whether the search for the location of the fault ended by itself
    late: bool = False  # whether time ended a search, so that another run may find more


# Mutation scores: how many mutants of its kernel, each with one small bug, a pairing finds.


@dataclass(frozen=True, slots=True)
class MutantCounts:
    """Counts of the mutants of a kernel by their end."""

    # killed, survived, equivalent, undecided, invalid: the number of mutants with this end
    killed: Count = 0
    survived: Count = 0
    equivalent: Count = 0
    undecided: Count = 0
    invalid: Count = 0

    @property
    def share(self) -> float | None:
        """The score: killed mutants among those that were killed or survived; None if there are none."""
        judged = self.killed + self.survived
        return self.killed / judged if judged else None

    def __str__(self) -> str:
        judged = "no mutant could be judged"
        if self.share is not None:
            judged = f"{self.killed} of {self.killed + self.survived} mutants found, {self.share:.1%}"
        rest = [f"{count} {end}" for end in ("equivalent", "undecided", "invalid") if (count := getattr(self, end))]
        return "; ".join([judged, *rest])


@dataclass(frozen=True, slots=True)
class ScoredMutant:
    """A mutant: the place of its change, and the change in words."""

    file: str
    line: Count
    phrase: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class MutantTrial:
    """A mutant, its end, and where a survivor differs most."""

    mutant: ScoredMutant
    end: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class MutationAdvice:
    """A change of a declaration in words, and how many of the remaining mutants it finds."""

    text: str
    found: Count
    of: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore(MutantCounts):
    """The mutants of a pairing's kernel."""

    pairing: str  # its node id
    problem: str = ""  # why it has no mutants; "" if it has some
    # mutants with their ends; a run keeps only those that survived or are undecided
    mutants: tuple[MutantTrial, ...] = ()
    advice: tuple[MutationAdvice, ...] = ()  # changes that find survivors; a run tries none

    @property
    def survivors(self) -> tuple[MutantTrial, ...]:
        return tuple(trial for trial in self.mutants if trial.end == "survived")
