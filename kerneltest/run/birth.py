"""Where the wrong values of a failing case come from: the one line at which a small experiment makes them right."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.backends.simulate.experiment import Changed, Experiment, Run
from kerneltest.backends.simulate.ideas import Idea, ideas
from kerneltest.backends.simulate.ir import Operation
from kerneltest.backends.simulate.watching import Sighting, arithmetic, healed
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison, compare
from kerneltest.plan.cases import Case, slot_of
from kerneltest.plan.drawn import AnyCase, DrawnCase
from kerneltest.plan.families import FAMILIES
from kerneltest.run.asked import Asked, Share, Variation
from kerneltest.run.cache import Cache
from kerneltest.run.item import Outcome
from kerneltest.run.variations import INVARIANTS


@dataclass(frozen=True, slots=True)
class Birth:
    """Where wrong values come from, as experiments have shown.

    Attributes:
      place: the line, as FILE:LINE.
      operation: what is computed there, in the words of the source.
      words: what happens there, or what made the result right.
      certain: an experiment at this place, and at no other line, made every wrong element right and left every right
        one right.
      others: further lines at which one did so too.
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
    """Where the wrong values of a failing case come from; None where nothing was shown.

    Args:
      pairing: what failed.
      case: a failing case, as small as can be.
      outcome: how it ended.
      target: what the kernel is lowered for, to be run in the simulator.
      seconds: how long to try.
      also: further cases, failing and passing: an experiment must make all of them right.
    """
    deadline = time.monotonic() + seconds
    cache = Cache()
    try:
        cases = [case, *also, *_telling(pairing, [case, *also])]
        trials = list(_trials(pairing, cases, outcome.record.family, TARGETS[target], cache))
    finally:
        cache.pool.close()
    if not trials or trials[0].case is not case or not trials[0].is_wrong:
        return None
    special = _special(trials)
    if special is not None and special[0].certain:
        return special[0]
    changed = _changed(trials, deadline)
    if special is not None and (changed is None or (special[1] and not changed.certain)):
        return special[0]
    return changed


def _explains(trials: Sequence["Trial"]) -> bool:
    """Whether NaN and infinities are all that is wrong."""
    return all(trial.is_special for trial in trials if trial.is_wrong)


_SIGNATURES = 4
_TELLING = ("position_coded", "normal")  # families in which hardly two values are the same


def _telling(pairing: Pairing, cases: Sequence[AnyCase]) -> Iterator[Case]:
    """Cases for the same lengths in which a change that happens to suit a plain case does not go unnoticed."""
    for signature in list(dict.fromkeys(case.signature for case in cases))[:_SIGNATURES]:
        slots = [slot_of(pairing, signature, path, leaf, i) for i, (path, leaf) in enumerate(pairing.leaves.items())]
        for family in map(FAMILIES.__getitem__, _TELLING):
            if any(family.applies(slot) for slot in slots):
                yield Case(cases[0].pairing_id, pairing.name, signature, family, "", 0)


class Trial:
    """A case, how it comes out, and what it should be."""

    def __init__(self, case: AnyCase, variation: Variation, experiment: Experiment, asked: Asked) -> None:
        self.case, self.variation, self.experiment, self.asked = case, variation, experiment, asked
        self.plain = experiment.run(variation.leaves)
        self.comparisons = self.judged(self.plain)

    def judged(self, run: Run) -> list[tuple[Share, list[Comparison]]]:
        """Each share of the outputs against what it should be."""
        from kerneltest.core.dtypes import TF32
        from kerneltest.declare.bounds import Precision

        precision = Precision(dot_input=TF32 if self.variation.traced.reduced_dots else None)
        result = []
        for share in self.variation.shares:
            taken = share.take(run.outputs)
            wanted = share.wanted(taken, precision)
            signed = wanted.bitwise or self.asked.pairing.signed_zeros
            both = [compare(a, v, b, signed_zeros=signed) for a, v, b in zip(taken, wanted.values, wanted.bounds, strict=True)]
            result.append((share, both))
        return result

    def is_right(self, run: Run) -> bool:
        """Whether nothing is wrong, undefined or done to memory that must not be."""
        undefined = any(mask is not None and mask.any() for mask in run.undefined)
        return not run.faults and not undefined and not any(c.wrong.any() for _, cs in self.judged(run) for c in cs)

    @property
    def is_wrong(self) -> bool:
        return not self.is_right(self.plain)

    @property
    def has_wrong_special(self) -> bool:
        """Whether an element is NaN or infinite that should be a number."""
        return any(unduly_special(c).any() for _, cs in self.comparisons for c in cs)

    @property
    def lacks_nan(self) -> bool:
        """Whether an element is no NaN that should be one."""
        return any(nan_lost(c).any() for _, cs in self.comparisons for c in cs)

    @property
    def is_special(self) -> bool:
        """Whether every wrong element is one of these."""
        every = [c.wrong & ~unduly_special(c) & ~nan_lost(c) for _, cs in self.comparisons for c in cs]
        return not self.plain.faults and not any(each.any() for each in every)


def unduly_special(comparison: Comparison) -> Array:
    """Which elements are NaN and should not be, or infinite and should be finite."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    got = comparison.actual.astype(np.float64)
    wanted = comparison.expected
    return np.asarray(comparison.wrong & ((np.isnan(got) & ~np.isnan(wanted)) | (np.isinf(got) & np.isfinite(wanted))))


def nan_lost(comparison: Comparison) -> Array:
    """Which elements should be NaN and are not."""
    if not is_float(comparison.actual.dtype):
        return np.zeros(comparison.wrong.shape, bool)
    return np.asarray(comparison.wrong & np.isnan(comparison.expected) & ~np.isnan(comparison.actual.astype(np.float64)))


def _trials(
    pairing: Pairing, cases: Sequence[AnyCase], family: str, target: Target, cache: Cache
) -> Iterator[Trial]:
    experiments: dict[int, Experiment] = {}
    (backend,) = resolve([f"simulate:{target}"])
    for case in cases:
        try:
            traced = cache.traced(pairing, case.signature)
            expectation, _ = cache.expected(pairing, case, traced)
            arguments = cache.arguments(pairing, case)
            asked = Asked(pairing, case, backend, traced, arguments, expectation, cache, 0)
            if family in INVARIANTS:
                variations = tuple(INVARIANTS[family].vary(asked))
            else:
                variations = (Variation(traced, asked.leaves, (Share("", asked.by_oracle()),)),)
            for variation in variations:
                key = id(variation.traced)
                if key not in experiments:
                    experiments[key] = Experiment(variation.traced, target, dict(case.signature.dims))
                yield Trial(case, variation, experiments[key], asked)
        except Failure:
            continue


# NaN and infinities


def _special(trials: Sequence[Trial]) -> tuple[Birth, bool] | None:
    """The first operation at which NaN or an infinity appears, or NaN is lost, that makes the wrong elements so.

    Also whether that is all there is to explain: an overflow of wrong values is not.
    """
    trial = trials[0]
    if trial.plain.faults or any(mask is not None and mask.any() for mask in trial.plain.undefined):
        return None
    got = trial.has_wrong_special
    if not got and not trial.lacks_nan:
        return None
    seen = [
        (number, sighting)
        for number, sighting in trial.experiment.watch(trial.variation.leaves)
        if (sighting.kind == "lost") != got
        and trial.experiment.specimens[number].listing.sources[sighting.operation].place
    ]
    hits = [each for each in seen if _cures(trial, [each], got)]
    if not hits:
        hits = _together(trial, seen, got)
        if not hits:
            return None
    number, sighting = hits[0]
    specimen = trial.experiment.specimens[number]
    listing = specimen.listing
    source = listing.sources[sighting.operation]
    program = specimen.simulation().simulation.launch.watch.program(sighting.program)
    places = [trial.experiment.specimens[n].listing.sources[s.operation].place for n, s in hits]
    others = tuple(dict.fromkeys(place for place in places if place != source.place))
    words = f"{arithmetic(listing.operations[sighting.operation], sighting)}, in {program}"
    explains = _explains(trials) and sighting.kind != "inf"
    return Birth(source.place, source.text, words, explains and not others, others), explains


def _together(trial: Trial, seen: Sequence[tuple[int, Sighting]], got: bool) -> list[tuple[int, Sighting]]:
    """The operations that must all be healed, where one alone is not enough."""
    kept = list(seen)
    if not _cures(trial, kept, got):
        return []
    for each in reversed(seen):
        fewer = [other for other in kept if other is not each]
        if fewer and _cures(trial, fewer, got):
            kept = fewer
    return kept


def _cures(trial: Trial, sightings: Sequence[tuple[int, Sighting]], got: bool) -> bool:
    """Whether the wrong elements are numbers (or NaN, where that was lost) once some operations are healed."""
    for value in (0.0, 1.0) if got else (np.nan,):
        edits: dict[int, dict[int, Sequence[Operation]]] = {}
        for number, sighting in sightings:
            op = trial.experiment.specimens[number].listing.operations[sighting.operation]
            edits.setdefault(number, {})[sighting.operation] = healed(op, sighting.kind, value)
        specimens = trial.experiment.specimens
        calls = {number: specimens[number].simulation(specimens[number].listing.changed(e)) for number, e in edits.items()}
        run = _attempt(trial, Changed(calls))
        if run is not None and _is_cured(trial, run, got):
            return True
    return False


def _is_cured(trial: Trial, run: Run, got: bool) -> bool:
    for (_, before), (_, after) in zip(trial.comparisons, trial.judged(run), strict=True):
        for a, b in zip(before, after, strict=True):
            left = unduly_special(a) & unduly_special(b) if got else nan_lost(a) & nan_lost(b)
            if left.any():
                return False
    return True


# Changes


def _changed(trials: Sequence[Trial], deadline: float) -> Birth | None:
    hits: list[Idea] = []
    complete = True
    for idea in ideas(trials[0].experiment):
        if time.monotonic() > deadline:
            complete = False
            break
        made: dict[int, list[Changed]] = {}
        if all(_repairs(trial, idea, made) for trial in trials):
            hits.append(idea)
    if not hits:
        return None
    least = min(hit.reach for hit in hits)
    nearest = [hit for hit in hits if hit.reach == least]
    best = nearest[-1 if least > 2 else 0]  # of two uses of one value the later one is likelier the slip
    others = tuple(dict.fromkeys(hit.place for hit in hits if hit.place != best.place))
    words = f"{best.words} the result is right"
    return Birth(best.place, best.operation, words, complete and best.said and not others, others)


def _repairs(trial: Trial, idea: Idea, made: dict[int, list[Changed]]) -> bool:
    """Whether a change makes a case right; one that it cannot be made for says nothing."""
    experiment = trial.experiment
    if id(experiment) not in made:
        try:
            made[id(experiment)] = list(idea.make(experiment))
        except Exception:  # a change may make nonsense
            return False
    ways = made[id(experiment)]
    if not ways or (len(ways) > 1 and not trial.is_wrong):
        return True
    runs = (_attempt(trial, changed) for changed in ways)
    return any(run is not None and trial.is_right(run) for run in runs)


def _attempt(trial: Trial, changed: Changed) -> Run | None:
    try:
        return trial.experiment.run(trial.variation.leaves, changed)
    except Exception:  # a change may make nonsense
        return None
