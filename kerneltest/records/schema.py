"""Records: one line for each case, and reproducers of findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from kerneltest.core.details import Detail
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import BudgetPart, Count, Evidence, FileName, Float, Magnitudes, SpecialInput
from kerneltest.records.run_plan import CellKey

StaticValue = bool | int | float | str | None  # of a static argument


@dataclass(frozen=True, slots=True)
class ExpectedValues:
    """The expected values of a case, as far as they tell how much it asks.

    Attributes:
      finite: number of elements that are defined and expected to be finite.
      least, greatest: of these; 0 if there are none.
      visible: the smallest relative error that their bounds do not admit everywhere.
      coarse: number of those that are normal numbers and whose bound exceeds a tenth of them.
      narrow: the dtype below float64 in which the oracle returned an output, if nothing declares it; else "".
    """

    finite: Count
    least: Float = 0.0
    greatest: Float = 0.0
    visible: Float = 0.0
    coarse: Count = 0
    narrow: str = ""


@dataclass(frozen=True, slots=True)
class FormulaAnswer:
    """The answer to the question whether a kernel's formula is right, with its floats promoted to float64.

    Attributes:
      compared: number of elements that were compared with the oracle's.
      bound_fraction: the largest error as a fraction of its bound; None if no element had one.
      unanswered: the reason why the question could not be asked, or "".
      ulps: how far it is off where only the rounding to float32 admits that, in ulps; 0.0 for the oracle's formula.
    """

    compared: Count = 0
    bound_fraction: Float | None = None
    unanswered: str = ""
    ulps: Float = 0.0


_NO_EVIDENCE = Evidence()


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
      magnitudes: the binades of the numbers in its inputs of data.
      defined, undefined: elements of which the oracle asks something, and nothing (`kt.defined`).
      target: the argument that the family disturbs; "" for all, and for a whole cell.
      case: the case's id; "" for a whole cell.
      verdict: how it ended.
      detail: the failure as data; None for a pass.
      message: the failure in words, as they follow from `detail`, and remarks.
      compared, wrong: elements; kernels where a tier gives no values.
      bound_fraction: the largest error as a fraction of its bound; None if no element had a bound.
      ulps: finite floats by distance in units in the last place, as `judge.compare.ulp_histogram` counts them.
      error_budget: the parts of the bound, largest first, for findings, for cases with a vacuous bound, and for each
        case that uses up more of its bound than those of its family before it in the item.
      tolerance: the error model, or `bit for bit`.
      seconds: to run and judge the case, without compiling.
      evidence: for findings.
      compiler_metrics: by kernel, what its compiler tells.
      advice: what in those facts its author may want to change.
      files: artifacts kept, relative to the run's folder.
      expected: what the oracle expects of the plain call; None if it was not compared.
      formula: whether the kernel's formula is right; None if that was not asked.
      doubted: elements that are not compared, since the oracle itself loses its digits in them.
      reused_from: when the run began that found it, where that was an earlier one of the same code; "" for this run.
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
    detail: Annotated[Detail, Field(discriminator="kind")] | None = None
    compared: Count = 0
    wrong: Count = 0
    bound_fraction: Float | None = None
    tolerance: str = ""
    seconds: Float = 0.0
    evidence: Evidence | None = None
    compiler_metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    files: tuple[FileName, ...] = ()
    ulps: tuple[Count, ...] = ()
    dims: Mapping[str, Count] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    statics: Mapping[str, StaticValue] = field(default_factory=dict)
    special_inputs: tuple[SpecialInput, ...] = ()
    magnitudes: tuple[Magnitudes, ...] = ()
    defined: Count = 0
    undefined: Count = 0
    error_budget: tuple[BudgetPart, ...] = ()
    reused_from: str = ""
    expected: ExpectedValues | None = None
    formula: FormulaAnswer | None = None
    doubted: Count = 0

    @property
    def shown(self) -> Evidence:
        """The evidence; an empty one if none was recorded."""
        return self.evidence or _NO_EVIDENCE

    @property
    def cell(self) -> CellKey:
        return CellKey(self.pairing, self.backend, self.dtype, self.family)


@dataclass(frozen=True, slots=True)
class FaultLocation:
    """The location of a fault, as experiments on the simulated or evaluated kernel show it.

    Attributes:
      place: FILE:LINE.
      operation: the source text there, or the operation computed.
      words: what happens there: `-inf - -inf is nan, in program (5, 0)`.
      confirmed: whether an edit at this line, and only there, repairs the case.
      alternatives: further lines at which an edit repairs it.
      explained, unexplained: ids of failing cases that the edit repairs and does not repair, if there are both; the
        latter probably have another cause.
    """

    place: str
    operation: str
    words: str
    confirmed: bool
    alternatives: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmedCondition:
    """The condition of a suspect on signatures, each clause of which cases made for it confirmed on both sides.

    Attributes:
      words: `n is not a multiple of 8`; "" if every signature that was tried fails.
      cases: number of cases that were judged.
      excluded: the planned signatures that do not fulfil it.
    """

    words: str
    cases: Count
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reproducer:
    """The smallest case found that fails as a recorded one does.

    Attributes:
      origin: the id of the recorded case.
      record: the record of the smallest case, which is not one of the run's cases.
      nontrivial: number of elements of its inputs that are neither 0 nor 1.
      attempts: number of cases judged to find it.
      complete: whether no smaller candidate was left when the search ended.
      fault: the location of the fault; None if no experiment found it.
      reduced_script: a script of the operations that do not lower, relative to the run's folder; "" if there is none.
      condition: the condition on signatures, as experiments confirm it; None if none did.
    """

    origin: str
    record: Record
    nontrivial: Count
    attempts: Count
    complete: bool
    fault: FaultLocation | None = None
    reduced_script: FileName = ""
    condition: ConfirmedCondition | None = None


# Mutation scores: how many mutants of its kernel, each with one small bug, a pairing finds.


@dataclass(frozen=True, slots=True)
class MutantCounts:
    """Counts of the mutants of a kernel by their end.

    Attributes:
      killed, survived, equivalent, undecided, invalid: the number of mutants with this end.
    """

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
        """FILE:LINE."""
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
    """The mutants of a pairing's kernel.

    Attributes:
      pairing: its node id.
      problem: why it has no mutants; "" if it has some.
      mutants: mutants with their ends; a run keeps only those that survived or are undecided.
      advice: changes that find survivors; a run tries none.
    """

    pairing: str
    problem: str = ""
    mutants: tuple[MutantTrial, ...] = ()
    advice: tuple[MutationAdvice, ...] = ()

    @property
    def survivors(self) -> tuple[MutantTrial, ...]:
        """The mutants that survived."""
        return tuple(trial for trial in self.mutants if trial.end == "survived")
