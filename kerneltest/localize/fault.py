"""Where the wrong values of a failing case come from: the one line at which a small experiment makes them right."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kerneltest.declare.pairing import Pairing
from kerneltest.execute.item import Outcome
from kerneltest.localize.mutants import Idea, ideas
from kerneltest.localize.mutation_test import Changed
from kerneltest.localize.replay import Trial, trials, trials_until
from kerneltest.localize.special_origin import Origin, origin
from kerneltest.plan.explicit import AnyCase, DrawnCase
from kerneltest.records.schema import Birth


def birth(
    pairing: Pairing,
    case: DrawnCase,
    outcome: Outcome,
    target: str = "sm_90",
    seconds: float = 5.0,
    also: Sequence[AnyCase] = (),
    more: Sequence[AnyCase] = (),
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
      more: failing cases on which a change is tried that makes these right.
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
    family = outcome.record.family
    changed = _changed(tried, deadline, lambda: trials_until(pairing, more, family, target, deadline))
    if special is not None and (changed is None or (explains and not changed.certain)):
        return _born(special, certain=False)
    return changed


def _born(special: Origin, *, certain: bool) -> Birth:
    return Birth(special.source.place, special.source.text, special.words, certain, special.others)


def _changed(tried: Sequence[Trial], deadline: float, more: Callable[[], Iterator[Trial]]) -> Birth | None:
    """The change that takes least of those that make every trial right; else of those that make some right.

    A change that leaves right what was right, and makes only a part of what was wrong right, tells of two bugs.
    """
    wrong = [trial for trial in tried if trial.is_wrong]
    right = [trial for trial in tried if not trial.is_wrong]
    whole: list[Idea] = []
    careless: list[Idea] = []
    part: list[tuple[Idea, int]] = []
    complete = True
    for idea in ideas(tried[0].experiment):
        if time.monotonic() > deadline:
            complete = False
            break
        made: dict[int, list[Changed]] = {}
        if not _repairs(wrong[0], idea, made):
            continue
        left = sum(not _repairs(trial, idea, made) for trial in wrong[1:])
        kept = all(_repairs(trial, idea, made) for trial in right)
        if not left:
            (whole if kept else careless).append(idea)
        elif kept and len(wrong) - left >= _MENDED:
            part.append((idea, left))
    fewest = min((left for _, left in part), default=0)
    hits = whole or [idea for idea, left in part if left == fewest]
    if not hits:
        return _named(careless, "what was wrong is right, and what was right is not") if careless else None
    wrong += [trial for trial in more() if trial.is_wrong]
    leaves = {id(hit): _left(wrong, hit) for hit in hits[:_MOST_HITS]}
    fewest = min(map(len, leaves.values()))
    hits = [hit for hit in hits[:_MOST_HITS] if len(leaves[id(hit)]) == fewest]
    if not fewest:
        found = _named(hits, "the result is right")
        return replace(found, certain=found.certain and complete)
    left_wrong = leaves[id(hits[0])]
    found = _named(hits, f"{len(wrong) - fewest} of {len(wrong)} wrong results are right")
    explained = dict.fromkeys(trial.case.id for trial in wrong if trial.case.id not in left_wrong)
    return replace(found, explained=tuple(explained), unexplained=tuple(left_wrong))


def _left(wrong: Sequence[Trial], idea: Idea) -> dict[str, None]:
    """Ids of the cases that stay wrong."""
    made: dict[int, list[Changed]] = {}
    return dict.fromkeys(trial.case.id for trial in wrong if not _repairs(trial, idea, made))


_MOST_HITS = 8  # ideas that are tried on more cases
_MENDED = 3  # wrong trials that a change makes right, before it is thought to be what one of two bugs lacks


def _named(hits: Sequence[Idea], result: str) -> Birth:
    """The idea that takes least; it is certain where all are about one line."""
    least = [hit for hit in hits if hit.reach == min(hit.reach for hit in hits)]
    best = least[-1 if least[0].reach > 2 else 0]  # of two uses of one value the later one is likelier the slip
    others = tuple(dict.fromkeys(hit.place for hit in hits if hit.place != best.place))
    # A number that stands there by name may be wrong where it was named, and the same change mends that.
    certain = not others and result == "the result is right" and all(hit.said for hit in hits)
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
