"""Where the wrong values of a failing case come from: the one line at which a small experiment makes them right."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.registry import resolve
from kerneltest.backends.simulate.changes import Change, changes
from kerneltest.backends.simulate.experiment import Experiment, Prepared, Run
from kerneltest.backends.simulate.watching import Sighting, arithmetic, healed
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS, Target
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison, compare
from kerneltest.plan.drawn import AnyCase, DrawnCase
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
        trials = list(_trials(pairing, [case, *also], outcome.record.family, TARGETS[target], cache))
    finally:
        cache.pool.close()
    if not trials or trials[0].case is not case or not trials[0].is_wrong:
        return None
    return _special(trials[0]) or _changed(trials, deadline)


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
    def wrong(self) -> list[Comparison]:
        """The outputs that are wrong."""
        return [c for _, cs in self.comparisons for c in cs if c.wrong.any()]


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


def _special(trial: Trial) -> Birth | None:
    """The first operation at which NaN or an infinity appears, or NaN is lost, that makes the wrong elements so."""
    if trial.plain.faults or any(mask is not None and mask.any() for mask in trial.plain.undefined):
        return None
    got = any((c.wrong & ~np.isfinite(c.actual.astype(np.float64)) & np.isfinite(c.expected.astype(np.float64))).any()
              for c in trial.wrong if is_float(c.actual.dtype))  # fmt: skip
    lost = any((c.wrong & np.isnan(c.expected) & ~np.isnan(c.actual.astype(np.float64))).any()
               for c in trial.wrong if is_float(c.actual.dtype))  # fmt: skip
    if not got and not lost:
        return None
    _, sightings = trial.experiment.watch(trial.variation.leaves)
    hits: list[tuple[int, Sighting]] = []
    for number, sighting in sightings:
        if (sighting.kind == "lost") == got and got:
            continue
        if sighting.kind != "lost" and not got:
            continue
        specimen = trial.experiment.specimens[number]
        op = specimen.listing.operations[sighting.operation]
        if not specimen.listing.sources[sighting.operation].place:
            continue
        for value in (0.0, 1.0) if got else (np.nan,):
            body = specimen.listing.changed({sighting.operation: healed(op, sighting.kind, value)})
            run = _attempt(trial, {number: specimen.simulation(body)})
            if run is not None and _is_cured(trial, run, got):
                hits.append((number, sighting))
                break
    if not hits:
        return None
    number, sighting = hits[0]
    specimen = trial.experiment.specimens[number]
    listing = specimen.listing
    source = listing.sources[sighting.operation]
    op = listing.operations[sighting.operation]
    program = specimen.simulation().simulation.launch.watch.program(sighting.program)
    places = [trial.experiment.specimens[n].listing.sources[s.operation].place for n, s in hits]
    others = tuple(dict.fromkeys(place for place in places if place != source.place))
    return Birth(source.place, source.text, f"{arithmetic(op, sighting)}, in {program}", not others, others)


def _is_cured(trial: Trial, run: Run, got: bool) -> bool:
    """Whether no wrong element is NaN or infinite that must not be (or all that must be NaN are)."""
    for (_, before), (_, after) in zip(trial.comparisons, trial.judged(run), strict=True):
        for a, b in zip(before, after, strict=True):
            if not is_float(a.actual.dtype):
                continue
            old, new = a.actual.astype(np.float64), b.actual.astype(np.float64)
            expected = a.expected.astype(np.float64)
            if got and (a.wrong & ~np.isfinite(old) & np.isfinite(expected) & ~np.isfinite(new)).any():
                return False
            if not got and (a.wrong & np.isnan(expected) & ~np.isnan(new)).any():
                return False
    return True


# Changes


@dataclass(frozen=True, slots=True)
class _Hit:
    place: str
    operation: str
    words: str
    reach: int


def _changed(trials: Sequence[Trial], deadline: float) -> Birth | None:
    first = trials[0]
    hits: list[_Hit] = []
    complete = True
    for number, specimen in enumerate(first.experiment.specimens):
        for change in changes(specimen.listing, specimen.listing.lengths):
            if time.monotonic() > deadline:
                complete = False
                break
            place, text = _place(specimen, change)
            if not place:
                continue
            prepared: dict[int, Prepared | None] = {}
            if all(_repairs(trial, number, specimen, change, prepared) for trial in trials):
                hits.append(_Hit(place, text, change.words, change.reach))
    if not hits:
        return None
    best = min(hits, key=lambda hit: hit.reach)
    others = tuple(dict.fromkeys(hit.place for hit in hits if hit.place != best.place))
    words = f"{best.words} the result is right"
    return Birth(best.place, best.operation, words, complete and not others, others)


def _place(specimen: object, change: Change) -> tuple[str, str]:
    listing = specimen.listing  # type: ignore[attr-defined]
    if listing.operations[change.operation].name == "tt.get_program_id":
        lines = specimen.id_lines  # type: ignore[attr-defined]
        return (lines[0], "program_id") if len(lines) == 1 else ("", "")
    source = listing.sources[change.operation]
    return source.place, source.text


def _repairs(trial: Trial, number: int, specimen: object, change: Change, prepared: dict[int, Prepared | None]) -> bool:
    experiment = trial.experiment
    key = id(experiment)
    if key not in prepared:
        mine = experiment.specimens[number]
        alike = mine.listing.structure == specimen.listing.structure  # type: ignore[attr-defined]
        try:
            prepared[key] = mine.simulation(mine.listing.changed(change.edits(mine.listing))) if alike else None
        except Exception:  # a change may make nonsense
            return False
    chosen = prepared[key]
    if chosen is None:
        return True
    run = _attempt(trial, {number: chosen})
    return run is not None and trial.is_right(run)


def _attempt(trial: Trial, changed: dict[int, Prepared]) -> Run | None:
    try:
        return trial.experiment.run(trial.variation.leaves, changed)
    except Exception:  # a change may make nonsense
        return None


_ = Array
