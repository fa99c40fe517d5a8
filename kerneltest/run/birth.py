"""Where the wrong values of a failing case come from: the one line at which a small experiment makes them right."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kerneltest.backends.simulate.experiment import Changed
from kerneltest.backends.simulate.ideas import Idea, ideas
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.drawn import AnyCase, DrawnCase
from kerneltest.run.item import Outcome
from kerneltest.run.specials import Origin, origin
from kerneltest.run.trials import Trial, trials


@dataclass(frozen=True, slots=True)
class Birth:
    """Where wrong values come from, as experiments have shown.

    Attributes:
      place: the line, as FILE:LINE.
      operation: what is computed there, in the words of the source.
      words: what happens there, or what made the result right.
      certain: an experiment at this place, and at no other line, made every wrong element right and left every right
        one right; for a NaN, it is born (or lost) there and nowhere else, and nothing else is wrong.
      others: further lines at which an experiment did so too.
    """

    place: str
    operation: str
    words: str
    certain: bool
    others: tuple[str, ...]


def birth(
    pairing: Pairing,
    case: DrawnCase,
    outcome: Outcome,
    target: str = "sm_90",
    seconds: float = 5.0,
    also: Sequence[AnyCase] = (),
) -> Birth | None:
    """Where the wrong values of a failing case come from; None where no experiment shows it.

    The kernel is lowered, run in the simulator, and run again with one thing changed at a time.

    Args:
      pairing: what failed.
      case: a failing case, as small as can be.
      outcome: how it ended.
      target: what the kernel is lowered for.
      seconds: how long to try.
      also: further cases, failing and passing, best of other lengths: an experiment must make all of them right.
    """
    deadline = time.monotonic() + seconds
    tried = trials(pairing, [case, *also], outcome.record.family, target)
    if not tried or not tried[0].is_wrong:
        return None
    special = origin(tried[0])
    # An overflow may be of values that were wrong before, and a NaN need not be all that is wrong.
    explains = special is not None and not special.is_overflow and all(t.is_special for t in tried if t.is_wrong)
    if special is not None and explains and not special.others:
        return _born(special, certain=True)
    changed = _changed(tried, deadline)
    if special is not None and (changed is None or (explains and not changed.certain)):
        return _born(special, certain=False)
    return changed


def _born(special: Origin, *, certain: bool) -> Birth:
    return Birth(special.source.place, special.source.text, special.words, certain, special.others)


def _changed(tried: Sequence[Trial], deadline: float) -> Birth | None:
    """The change that takes least of those that make every trial right; else, of those that do where it was wrong."""
    wrong = [trial for trial in tried if trial.is_wrong]
    right = [trial for trial in tried if not trial.is_wrong]
    whole: list[Idea] = []
    partial: list[Idea] = []
    complete = True
    for idea in ideas(tried[0].experiment):
        if time.monotonic() > deadline:
            complete = False
            break
        made: dict[int, list[Changed]] = {}
        if all(_repairs(trial, idea, made) for trial in wrong):
            kept = all(_repairs(trial, idea, made) for trial in right)
            (whole if kept else partial).append(idea)
    hits = whole or partial
    if not hits:
        return None
    least = [hit for hit in hits if hit.reach == min(hit.reach for hit in hits)]
    best = least[-1 if least[0].reach > 2 else 0]  # of two uses of one value the later one is likelier the slip
    others = tuple(dict.fromkeys(hit.place for hit in hits if hit.place != best.place))
    # A number that stands there by name may be wrong where it was named, and the same change mends that.
    certain = complete and bool(whole) and not others and all(hit.said for hit in hits)
    result = "the result is right" if whole else "what was wrong is right, and what was right is not"
    return Birth(best.place, best.operation, f"{best.words} {result}", certain, others)


def _repairs(trial: Trial, idea: Idea, made: dict[int, list[Changed]]) -> bool:
    """Whether a change makes a trial right; of lengths for which it cannot be made, or need not, it says nothing."""
    key = id(trial.experiment)
    if key not in made:
        try:
            made[key] = list(idea.make(trial.experiment))
        except Exception:  # a change may make nonsense
            return False
    ways = made[key]
    if not ways or (len(ways) > 1 and not trial.is_wrong):
        return True
    runs = (trial.attempt(changed) for changed in ways)
    return any(run is not None and trial.is_right(run) for run in runs)
