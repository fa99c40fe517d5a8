"""The result of a mutation test as text and as data."""

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from kerneltest.extensions.mutation.advice import Advice
from kerneltest.extensions.mutation.score import count_ends, kills_by
from kerneltest.extensions.mutation.trial import Trial, TrialEnd

_SHOWN = 6  # families that are named


def format_result(pairing: str, trials: Sequence[Trial], advice: Sequence[Advice], *, all_of_them: bool) -> list[str]:
    """Returns the lines that show a pairing's score, its survivors by line, and what would find them.

    Args:
      pairing: its name.
      trials: of its mutants, ordered by place.
      advice: changes that find survivors.
      all_of_them: whether to list all mutants, not only survivors.
    """
    seconds = sum(trial.seconds for trial in trials)
    lines = [f"{pairing}: {count_ends(trials)} ({seconds:.1f} s)"]
    by_family = kills_by(trials, "family").most_common()
    if by_family:
        rest = sum(count for _, count in by_family[_SHOWN:])
        named = [f"{name} {count}" for name, count in by_family[:_SHOWN]] + [f"others {rest}"] * bool(rest)
        lines.append(f"  found first by: {', '.join(named)}")
    left = (TrialEnd.SURVIVED, TrialEnd.UNDECIDED)
    listed = [trial for trial in trials if all_of_them or trial.end in left]
    for place, group in groupby(listed, key=lambda trial: trial.mutant.place):
        source = linecache.getline(*_file_and_line(place)).strip()
        lines.append(f"  {place}  {source}".rstrip())
        lines += [f"    {line}" for trial in group for line in _format_trial(trial)]
    lines += [f"  To find more: {each}" for each in advice]
    return lines


def _file_and_line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line)


def _format_trial(trial: Trial) -> Iterator[str]:
    mutant = trial.mutant
    yield f"{trial.end}: {mutant.phrase} ({mutant.operator}, column {mutant.column})"
    if trial.kill is not None:
        kill = trial.kill
        yield f"  by {kill.family} on {kill.backend}: {kill.verdict} at {kill.signature}"
    if trial.note:
        yield f"  {trial.note}"


def result_as_data(pairing: str, trials: Sequence[Trial], advice: Sequence[Advice]) -> dict[str, Any]:
    """Returns a result in a form that JSON can hold."""
    score = count_ends(trials)
    return {
        "pairing": pairing,
        "score": score.share,
        **asdict(score),
        "mutants": [asdict(trial) for trial in trials],
        "advice": [{"text": each.text, "found": len(each.found), "of": each.of} for each in advice],
    }
