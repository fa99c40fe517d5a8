"""The share of each of the oracle's operations in a bound."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.origins import INPUTS, ErrorSource
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import spread_of

_ROWS_PER_SOURCE = 3


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """The part of a bound that one source of error makes.

    Attributes:
      source: the source.
      part: its part of the bound, between 0 and 1; the parts of one bound add up to 1.
      amplified: how many times as far as a rounding of the oracle's inputs it moves the result: the median over the
        output's elements.
    """

    source: ErrorSource
    part: float
    amplified: float = 0.0


def error_shares(
    evaluate: Callable[[RoundingModel], Array],
    precision: Precision,
    compute: FloatFormat | None,
    sources: Iterable[ErrorSource],
) -> tuple[ErrorShare, ...]:
    """Returns the part of each source of error in the squared spread of an output, the largest first.

    Each source perturbs a few rows of its own while all others are exact. For each element, a source counts by its
    part of that element's spread, so that large elements do not outweigh small ones. If no element has a finite spread,
    a source counts by how many of them it turns into NaN or an infinity.

    Args:
      evaluate: computes the output's samples with a rounding model.
      precision: the backend's arithmetic.
      compute: the format of elementwise arithmetic; None for that of the arguments.
      sources: those that a rounding model met in this very case.

    Returns:
      The shares above 0; () if nothing moves the output, or it is not of floats.
    """
    parts = {
        source: slice(1 + i * _ROWS_PER_SOURCE, 1 + (i + 1) * _ROWS_PER_SOURCE)
        for i, source in enumerate([INPUTS, *sources])
    }
    machine = RoundingModel(precision, compute, 1 + _ROWS_PER_SOURCE * len(parts), parts)
    samples = evaluate(machine)
    if len(samples) == 1 or samples.dtype.kind != "f":
        return ()
    found = {source: spread_of(np.concatenate([samples[:1], samples[rows]])) for source, rows in parts.items()}
    with np.errstate(all="ignore"):  # losing a subnormal number is not an instability, hence the last term
        least = found.pop(INPUTS).deviation + FLOAT32.unit_roundoff * np.abs(samples[0]) + FLOAT32.smallest_normal
    lost = sum((each.lost.astype(float) for each in found.values()), np.zeros(samples.shape[1:]))
    squares = {source: each.deviation**2 for source, each in found.items()}
    total = sum(squares.values(), np.zeros(samples.shape[1:]))
    counted = (total > 0) & (lost == 0)
    if not counted.any():
        squares, total = {source: each.lost.astype(float) for source, each in found.items()}, lost
        counted = lost > 0
    if not counted.any():
        return ()
    with np.errstate(all="ignore"):
        made = (
            ErrorShare(
                source,
                float(np.mean(square[counted] / total[counted])),
                float(np.nan_to_num(np.median(np.sqrt(square[counted]) / least[counted]))) if not lost.any() else 0.0,
            )
            for source, square in squares.items()
        )
        return tuple(sorted((share for share in made if share.part > 0), key=lambda share: -share.part))
