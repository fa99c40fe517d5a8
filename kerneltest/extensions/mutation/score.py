"""The score of a pairing: how many mutants of its kernel its cases find."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from kerneltest.extensions.mutation.trial import Trial, TrialEnd
from kerneltest.records.mutation_scores import MutantCounts, MutantTrial, MutationScore, ScoredMutant


def count_ends(trials: Sequence[Trial]) -> MutantCounts:
    """Returns the counts of some trials by their end."""
    ends = Counter(trial.end for trial in trials)
    return MutantCounts(**{end.value: ends[end] for end in TrialEnd})


def score_of(pairing: str, trials: Sequence[Trial]) -> MutationScore:
    """Returns the score of a pairing for the records of a run.

    Args:
      pairing: its node id.
      trials: of all mutants of its kernel.
    """
    left = tuple(
        MutantTrial(ScoredMutant(each.file, each.line, each.phrase), str(trial.end), trial.note)
        for trial in trials
        for each in [trial.mutant]
        if trial.end in (TrialEnd.SURVIVED, TrialEnd.UNDECIDED)
    )
    return MutationScore(pairing=pairing, mutants=left, **asdict(count_ends(trials)))


def kills_by(trials: Sequence[Trial], attribute: str) -> Counter[str]:
    """Returns the number of mutants that each backend, family or group (`attribute`) found first."""
    return Counter(str(getattr(trial.kill, attribute)) for trial in trials if trial.kill is not None)


def count_disregarded(trials: Sequence[Trial]) -> int:
    """Returns the number of cases that were disregarded because the unchanged kernel has a finding there."""
    return len({case for trial in trials for case in trial.disregarded})
