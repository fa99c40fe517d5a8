"""Evaluation of an oracle in samples, and their spread."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.dtypes import Array, FloatFormat, is_float
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.bounds import magnitude
from kerneltest.numerics.rounding_model import INPUTS, Answers, ErrorSource, RoundingModel, would_answer
from kerneltest.numerics.samples import Operand, samples_of
from kerneltest.numerics.tracked import TrackedArray, track_created_arrays

_EQUAL = 1e-9  # relative difference of the exact row from the oracle's values
_CANCELLED = 2.0**-20  # the same, relative to the spread: roundings of float64 are 2^-29 of those of float32

Oracle = Callable[[Mapping[str, Operand]], Sequence[Operand]]


def sample_outputs(
    oracle: Oracle,
    leaves: Mapping[str, Array],
    formats: Mapping[str, FloatFormat],
    rounding: RoundingModel,
    *,
    integers: bool = True,
) -> list[Array]:
    """Returns the samples of each output, (rows or 1, *shape), as `sample_cases` does for one case."""
    (outputs,) = sample_cases(oracle, [leaves], formats, rounding, integers=integers)
    return outputs


def sample_cases(
    oracle: Oracle,
    cases: Sequence[Mapping[str, Array]],
    formats: Mapping[str, FloatFormat],
    rounding: RoundingModel,
    *,
    integers: bool = True,
) -> list[list[Array]]:
    """Evaluates an oracle on tracked arrays, for several cases at once, which differ only in float leaves.

    It raises anything that the oracle raises, including `UntrackedError`; also if that treats the cases differently.

    Args:
      oracle: maps leaves by path to outputs.
      cases: the arguments of each case, float64, int64 or bool.
      formats: the formats of the float leaves, by path.
      rounding: rounds the samples.
      integers: whether other leaves are tracked as well. They are exact, but what is computed from them is rounded.

    Returns:
      For each case, the samples of each output, (rows or 1, *shape).
    """
    rounding.cases = len(cases)
    given: dict[str, Operand] = dict(cases[0])
    with track_created_arrays(rounding):
        for path in filter(formats.__contains__, cases[0]):
            values = np.stack([leaves[path] for leaves in cases])
            if len(cases) > 1:
                values = np.tile(values, (rounding.rows, *(1,) * (values.ndim - 1)))
            given[path] = TrackedArray(rounding.flush_inputs(values), rounding, frozenset({formats[path]}))
        if integers:
            given = track_integers(given, rounding)
        outputs = oracle(given)
    samples = [*map(samples_of, outputs)]
    if len(cases) == 1:
        return [samples]
    return [[each[case :: len(cases)] if len(each) > 1 else each for each in samples] for case in range(len(cases))]


def track_integers(leaves: Mapping[str, Operand], rounding: RoundingModel) -> dict[str, Operand]:
    """Returns leaves with those of integers and booleans tracked, since what is computed from them may be rounded."""
    return {
        path: TrackedArray(leaf[None], rounding) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iub" else leaf
        for path, leaf in leaves.items()
    }


def sample_row_by_row(
    oracle: Oracle, leaves: Mapping[str, Array], formats: Mapping[str, FloatFormat], rounding: RoundingModel
) -> list[Array]:
    """Does what `sample_outputs` does row by row, for an oracle that takes values out of tracked arrays."""
    rows = []
    for row in range(rounding.rows):
        rounding.single = row
        rounding.__post_init__()
        rows.append([samples[0] for samples in sample_outputs(oracle, leaves, formats, rounding)])
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of one output's samples."""

    deviation: Array  # root mean square over the samples of the distance from the exact row, per element
    # elements that are finite in the exact row and NaN or infinite in some sample, or the other way round, so that they
    # cannot be checked
    lost: Array
    # the results of the samples that differ from the exact row, if the output is of integers or booleans
    alternatives: tuple[Array, ...] = ()

    @staticmethod
    def none(value: Array) -> "Spread":
        """Returns the spread of a value that does not move."""
        return Spread(np.zeros(value.shape), np.zeros(value.shape, bool))

    def at_least(self, floor: Array) -> "Spread":
        """Returns the spread with deviations raised to a floor. Elements with an infinite floor are lost."""
        finite = np.isfinite(floor)
        deviation = np.maximum(self.deviation, np.where(finite, floor, 0.0))
        return replace(self, deviation=deviation, lost=self.lost | ~finite)


@dataclass(frozen=True, slots=True)
class SampledOutputs:
    """The spreads of an oracle's outputs in samples, and what these depend on."""

    spreads: Sequence[Spread]  # of each output
    note: str = ""  # what could not be tracked, or ""
    # the sources of error met in the case or its batch; none if the oracle is sampled row by row
    sources: tuple[ErrorSource, ...] = ()
    # what the samples asked about the machine; None if other machines cannot share the spreads
    answers: Answers | None = None
    sampled: bool = True  # whether they are spreads of samples, if only up to where a value escaped


def find_alike(found: Mapping[str, SampledOutputs], precision: Precision) -> SampledOutputs | None:
    """Returns what is known of a machine, by its name, or else of one that rounds the same samples alike."""
    if precision.name in found:
        return found[precision.name]
    alike = (each for each in found.values() if each.answers is not None and would_answer(precision, each.answers))
    return next(alike, None)


def spread_of(samples: Array) -> Spread:
    """Returns the spread of an output's samples, (rows or 1, *shape), around the first row."""
    exact, moved = samples[0], samples[1:]
    if not len(moved):
        return Spread.none(exact)
    if exact.dtype.kind != "f":
        return replace(Spread.none(exact), alternatives=tuple(row for row in moved if (row != exact).any()))
    with np.errstate(all="ignore"):
        off = moved - exact
        deviation = np.sqrt(np.mean(np.square(off, out=off), 0))
        if np.isfinite(deviation).all():
            return Spread(deviation, np.zeros(exact.shape, bool))
        off = moved - exact
        equal = (moved == exact) | (np.isnan(moved) & np.isnan(exact))
        # Beyond the range of float32, an infinity of the right sign is the correct result.
        equal |= np.isinf(moved) & (np.sign(moved) == np.sign(exact)) & (np.abs(exact) >= FLOAT32.overflow)
        off[equal] = 0.0
        finite = np.isfinite(off)
        deviation = np.sqrt(np.mean(np.where(finite, off, 0.0) ** 2, 0))
    return Spread(np.asarray(deviation), np.asarray(~finite.all(0)))


def has_exact_row(samples: Array, value: Array) -> bool:
    """Returns whether the first row equals a value but for roundings of float64.

    These may be large in relation to a value that is left where larger ones cancel. So are the distances of the other
    rows, which round like float32: a difference that is negligible in relation to them is such a rounding.
    """
    if samples.shape[1:] != value.shape:
        return False
    if (samples[0] == value).all():  # nearly always
        return True
    wide = np.asarray(value, np.float64)
    size = magnitude(wide)
    cancelled = _CANCELLED * spread_of(samples).deviation if is_float(value.dtype) else 0.0
    allowed = np.maximum(_EQUAL * size + 1e-3 * _EQUAL * np.max(size, initial=0.0), cancelled)
    with np.errstate(all="ignore"):
        off = np.abs(samples[0] - wide)
    return bool(((samples[0] == wide) | (off <= allowed) | (np.isnan(samples[0]) & np.isnan(wide))).all())


def median(values: Array) -> float:
    """Returns the median of numbers without NaN, ten times as fast as `np.median`."""
    ordered, middle = values.flatten(), values.size // 2
    ordered.partition(middle)
    upper = float(ordered[middle])
    return upper if values.size % 2 else (float(ordered[:middle].max()) + upper) / 2


# The share of each of the oracle's operations in a bound.

_ROWS_PER_SOURCE = 3


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """The part of a bound that one source of error makes."""

    source: ErrorSource  # the source
    part: float  # its part of the bound, between 0 and 1; the parts of one bound add up to 1
    # how many times as far as a rounding of the oracle's inputs it moves the result: the median over the output's
    # elements
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

    There are none if nothing moves the output, or it is not of floats.

    Args:
      evaluate: computes the output's samples with a rounding model.
      precision: the backend's arithmetic.
      compute: the format of elementwise arithmetic; None for that of the arguments.
      sources: those that a rounding model met in this very case.
    """
    parts = {
        source: slice(1 + i * _ROWS_PER_SOURCE, 1 + (i + 1) * _ROWS_PER_SOURCE)
        for i, source in enumerate([INPUTS, *sources])
    }
    rounding = RoundingModel(precision, compute, 1 + _ROWS_PER_SOURCE * len(parts), parts)
    samples = evaluate(rounding)
    if len(samples) == 1 or samples.dtype.kind != "f":
        return ()
    found = {source: spread_of(np.concatenate([samples[:1], samples[rows]])) for source, rows in parts.items()}
    with np.errstate(all="ignore"):  # losing a subnormal number is not an instability, hence the last term
        least = found.pop(INPUTS).deviation + FLOAT32.unit_roundoff * np.abs(samples[0]) + FLOAT32.smallest_normal
    nothing = np.zeros(samples.shape[1:])
    losses = {source: each.lost.astype(float) for source, each in found.items()}
    squares = {source: each.deviation**2 for source, each in found.items()}
    lost, total = sum(losses.values(), nothing), sum(squares.values(), nothing)
    counted = (total > 0) & (lost == 0)
    if not counted.any():
        squares, total, counted = losses, lost, lost > 0
    if not counted.any():
        return ()
    shares = []
    for source, square in squares.items():
        with np.errstate(all="ignore"):
            amplified = 0.0 if lost.any() else np.nan_to_num(np.median(np.sqrt(square[counted]) / least[counted]))
            shares.append(ErrorShare(source, float(np.mean(square[counted] / total[counted])), float(amplified)))
    return tuple(sorted((share for share in shares if share.part > 0), key=lambda share: -share.part))
