"""Mutation scores: how many mutants of its kernel, each with one small bug, a pairing finds."""

from dataclasses import dataclass

from kerneltest.records.evidence import Count


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
