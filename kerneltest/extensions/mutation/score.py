"""The score of a pairing: how many mutants of its kernel its cases find."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kerneltest.extensions.mutation.trial import Trial, TrialEnd


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of mutants.

    Attributes:
      killed, survived, equivalent, undecided, invalid: the number of mutants with this end.
    """

    killed: int
    survived: int
    equivalent: int
    undecided: int
    invalid: int

    @property
    def share(self) -> float | None:
        """Killed mutants among those that were killed or survived; None if there are none."""
        judged = self.killed + self.survived
        return self.killed / judged if judged else None

    def __str__(self) -> str:
        share = (
            "no mutant could be judged" if self.share is None else f"{self.killed} of {self.killed + self.survived} "
        )
        share += "" if self.share is None else f"mutants found, {self.share:.1%}"
        rest = (TrialEnd.EQUIVALENT, TrialEnd.UNDECIDED, TrialEnd.INVALID)
        return "; ".join([share, *(f"{count} {end}" for end in rest if (count := getattr(self, end)))])


def score_of(trials: Sequence[Trial]) -> Score:
    """Returns the score of some trials."""
    ends = Counter(trial.end for trial in trials)
    return Score(**{end.value: ends[end] for end in TrialEnd})


def kills_by(trials: Sequence[Trial], attribute: str) -> Counter[str]:
    """Returns the number of mutants that each backend, family or group (`attribute`) found first."""
    return Counter(str(getattr(trial.kill, attribute)) for trial in trials if trial.kill is not None)
