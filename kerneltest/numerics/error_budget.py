"""How much of a bound each operation of the oracle makes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.rounding_model import INPUTS, Machine, Source
from kerneltest.numerics.spread import spread

_EACH = 3  # samples for a source of error


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bound.

    Attributes:
      source: what errs.
      part: of the bound, between 0 and 1; the parts of one bound add up to 1.
      amplified: how many times as far as a rounding of the oracle's inputs it moves the result: the median over the
        output's elements.
    """

    source: Source
    part: float
    amplified: float = 0.0


def shares(
    evaluate: Callable[[Machine], Array],
    precision: Precision,
    compute: FloatFormat | None,
    sources: Iterable[Source],
) -> tuple[Share, ...]:
    """What each source of error adds to the squared spread of an output, as parts of the whole, the largest first.

    Each source moves a few rows of its own while all others are exact. An element counts by the part of its own spread,
    so that large elements do not speak for small ones. Where no element has a finite spread, what counts is how many
    of them a source turns into NaN or an infinity. `evaluate` makes the output's samples on a machine, and `sources`
    are those that a machine met in this very case.
    """
    parts = {source: slice(1 + i * _EACH, 1 + (i + 1) * _EACH) for i, source in enumerate([INPUTS, *sources])}
    machine = Machine(precision, compute, 1 + _EACH * len(parts), parts)
    samples = evaluate(machine)
    if len(samples) == 1 or samples.dtype.kind != "f":
        return ()
    found = {source: spread(np.concatenate([samples[:1], samples[rows]])) for source, rows in parts.items()}
    with np.errstate(all="ignore"):  # what is lost of a subnormal number is no instability
        least = found.pop(INPUTS).deviation + FLOAT32.unit_roundoff * np.abs(samples[0]) + FLOAT32.smallest_normal
    lost = sum((each.lost.astype(float) for each in found.values()), np.zeros(samples.shape[1:]))
    squares = {source: each.deviation**2 for source, each in found.items()}
    total = sum(squares.values(), np.zeros(samples.shape[1:]))
    telling = (total > 0) & (lost == 0)
    if not telling.any():
        squares, total = {source: each.lost.astype(float) for source, each in found.items()}, lost
        telling = lost > 0
    if not telling.any():
        return ()
    with np.errstate(all="ignore"):
        made = (
            Share(
                source,
                float(np.mean(square[telling] / total[telling])),
                float(np.nan_to_num(np.median(np.sqrt(square[telling]) / least[telling]))) if not lost.any() else 0.0,
            )
            for source, square in squares.items()
        )
        return tuple(sorted((share for share in made if share.part > 0), key=lambda share: -share.part))
