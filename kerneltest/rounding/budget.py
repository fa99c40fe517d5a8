"""How much of a bound each operation of the oracle makes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat
from kerneltest.core.precision import Precision
from kerneltest.rounding.machine import QUIET, Machine, Source
from kerneltest.rounding.spread import Oracle, sampled, spread

_EACH = 4  # samples for a source of error


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bound.

    Attributes:
      source: what rounds.
      part: of the bound, between 0 and 1; the parts of one bound add up to 1.
    """

    source: Source
    part: float


def shares(
    oracle: Oracle,
    leaves: Mapping[str, Array],
    formats: Mapping[str, FloatFormat],
    precision: Precision,
    compute: FloatFormat | None,
    output: int,
) -> tuple[Share, ...]:
    """What each source of error adds to the squared spread of an output, as parts of the whole, the largest first.

    Each source moves a few rows of its own while all others are exact. An element counts by the part of its own spread,
    so that large elements do not speak for small ones.
    """
    look = Machine(precision, compute, QUIET)
    sampled(oracle, leaves, formats, look)
    parts = {source: slice(1 + i * _EACH, 1 + (i + 1) * _EACH) for i, source in enumerate(look.sources)}
    machine = Machine(precision, compute, 1 + _EACH * len(parts), parts)
    samples = sampled(oracle, leaves, formats, machine)[output]
    if len(samples) == 1:
        return ()
    squares = {
        source: spread(np.concatenate([samples[:1], samples[rows]])).deviation ** 2 for source, rows in parts.items()
    }
    total = sum(squares.values(), np.zeros(samples.shape[1:]))
    telling = total > 0
    if not telling.any():
        return ()
    found = (Share(source, float(np.mean(each[telling] / total[telling]))) for source, each in squares.items())
    return tuple(sorted((s for s in found if s.part > 0), key=lambda s: -s.part))
