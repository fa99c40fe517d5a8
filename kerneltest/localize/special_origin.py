"""The operation at which a wrong NaN or infinity appears, or a NaN that should come out is lost."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kerneltest.backends.simulate.ir import Operation
from kerneltest.backends.simulate.listing import Source
from kerneltest.localize.mutation_test import Changed, Experiment
from kerneltest.localize.replay import Trial, lost, special
from kerneltest.localize.special_trace import Sighting, arithmetic, healed


@dataclass(frozen=True, slots=True)
class Origin:
    """Where it happens.

    Attributes:
      source: of the operation.
      words: `-inf - -inf is nan, in program (5, 0)`.
      is_overflow: an infinity of finite numbers, which may be wrong themselves.
      others: further lines at which it happens too, or without which it would not.
    """

    source: Source
    words: str
    is_overflow: bool
    others: tuple[str, ...]


_Seen = tuple[int, Sighting]  # in which call


def origin(trial: Trial) -> Origin | None:
    """The first operation that makes a case's wrong elements NaN or infinite, as a run without that shows.

    A sighting alone says little: in masked lanes NaN come and go. So the run is repeated with a finite number in place
    of each that appears (a NaN in place of each that is lost), at one operation at a time; where that is not enough, at
    as few as are.
    """
    undefined = any(mask is not None and mask.any() for mask in trial.plain.undefined)
    appears = any(special(c).any() for c in trial.comparisons)
    if trial.plain.faults or undefined or not (appears or any(lost(c).any() for c in trial.comparisons)):
        return None
    seen = [
        (number, sighting)
        for number, sighting in trial.experiment.watch(trial.leaves)
        if (sighting.kind == "lost") != appears and _source(trial.experiment, (number, sighting)).place
    ]
    hits = [each for each in seen if _cures(trial, [each], appears)] or _together(trial, seen, appears)
    if not hits:
        return None
    number, sighting = hits[0]
    specimen, source = trial.experiment.specimens[number], _source(trial.experiment, hits[0])
    said = arithmetic(specimen.listing.operations[sighting.operation], source.primitive, sighting)
    places = dict.fromkeys(_source(trial.experiment, each).place for each in hits)
    others = tuple(place for place in places if place != source.place)
    return Origin(source, f"{said}, in {specimen.program(sighting.program)}", sighting.kind == "inf", others)


def _source(experiment: Experiment, seen: _Seen) -> Source:
    number, sighting = seen
    return experiment.specimens[number].listing.sources[sighting.operation]


def _together(trial: Trial, seen: Sequence[_Seen], appears: bool) -> list[_Seen]:
    """As few operations as must be healed together; none where all of them are not enough."""
    kept = list(seen)
    if not _cures(trial, kept, appears):
        return []
    for each in reversed(seen):
        fewer = [other for other in kept if other is not each]
        if _cures(trial, fewer, appears):
            kept = fewer
    return kept


def _cures(trial: Trial, seen: Sequence[_Seen], appears: bool) -> bool:
    """Whether no element is wrong in the same way once some operations are healed."""
    specimens = trial.experiment.specimens
    wrong = special if appears else lost
    for value in (0.0, 1.0) if appears else (np.nan,):
        edits: dict[int, dict[int, Sequence[Operation]]] = {}
        for number, sighting in seen:
            op = specimens[number].listing.operations[sighting.operation]
            edits.setdefault(number, {})[sighting.operation] = healed(op, sighting.kind, value)
        run = trial.attempt(
            Changed({n: specimens[n].prepare(specimens[n].listing.changed(e)) for n, e in edits.items()})
        )
        if run is not None:
            pairs = zip(trial.comparisons, trial.compare(run), strict=True)
            if not any((wrong(before) & wrong(after)).any() for before, after in pairs):
                return True
    return False
