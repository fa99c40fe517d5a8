"""The expected gradient of an oracle, from a backward pass over its operations where they can be tracked."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kerneltest.core.dtypes import Array, DType, FloatFormat, float_format, is_float, widen
from kerneltest.core.failures import format_exception
from kerneltest.core.precision import FLOAT32, XLA_CPU, Precision
from kerneltest.numerics.bounds import Bound, Evaluate, gamma
from kerneltest.numerics.closed_forms import perturb_randomly
from kerneltest.numerics.pullback import pull_back
from kerneltest.numerics.rounding_bounds import FLOOR_FORMAT, FORMULA_FORMAT, SampledLimit
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.samples import TapeEntry, UntrackedError
from kerneltest.numerics.spread import (
    ErrorShare,
    Oracle,
    SampledOutputs,
    error_shares,
    find_alike,
    spread_of,
    track_integers,
)
from kerneltest.numerics.tracked import TrackedArray, track_created_arrays
from kerneltest.oracle.expectation import Expectation

# The gradient of an oracle at some elements, from complex steps and finite differences.

Rng = np.random.Generator

ELEMENTS = 16  # of each argument; each costs several evaluations of the oracle
STEP = 2.0**-17  # about the cube root of float64's roundoff, where truncation and cancellation balance
_SAMPLES, _FACTOR = 2, 8.0
_COMPLEX_STEP = 2.0**-100
_CONFIRMED = 1e-6  # relative difference of two estimates of one slope
_KINK = 1e-3  # relative difference of the one-sided slopes


def gradients_by_slopes(
    evaluate: Evaluate, leaves: Mapping[str, Array], cotangents: Sequence[Array], rng: Rng
) -> Expectation:
    """Returns the expected gradient at some elements of each float leaf; the bound of all others is infinite.

    A slope is that of a complex step if central differences confirm it (NumPy's `abs` of a complex number is a
    different function), and that of central differences if not, with their uncertainty added to the bound. The bound is
    infinite where the one-sided differences disagree, as at a kink.

    `|error| <= 8 (max_s |g(x(1 + u e_s), w(1 + u e_s)) - g| + u M) + gamma_n M`, with
    M = sum_j |w_j| (|df_j/dx| + |f_j| / max(|x|, mean |x|)) over the outputs that depend on x, n the number of all
    outputs' elements and 8, u the unit roundoff of the coarsest format among arguments and outputs, and gamma_n in
    float32; 2 v M more if a backend rounds the operands of products to v. The second term of M is the size of terms
    that may cancel, since a backward pass recomputes f, or stores it rounded.

    Source: Squire and Trapp, "Using complex variables to estimate derivatives of real functions", 1998; the bound is
    that of `conditioned_bounds`, for the gradient as a function.
    """
    wide = {path: widen(value) for path, value in leaves.items()}
    outputs = [v for v in evaluate(wide) if is_float(v.dtype)]
    weights = [np.asarray(w, np.float64) for w in cotangents]
    u = max(float_format(v.dtype).unit_roundoff for v in (*leaves.values(), *cotangents) if is_float(v.dtype))
    sums = gamma(sum(w.size for w in weights) + 8, FLOAT32.unit_roundoff)
    gradient, bounds = [], []
    for path, leaf in leaves.items():
        if not is_float(leaf.dtype):
            continue
        typical = float(np.mean(np.abs(wide[path]))) if leaf.size else 0.0
        value, mass, fixed = np.zeros(leaf.shape), np.zeros(leaf.shape), np.full(leaf.shape, np.inf)
        between = rng.permutation(np.arange(1, max(leaf.size - 1, 1)))[: ELEMENTS - 2]
        for flat in sorted({0, leaf.size - 1, *map(int, between)} & set(range(leaf.size))):
            at = tuple(map(int, np.unravel_index(flat, leaf.shape)))
            slopes, errors = _slopes(evaluate, wide, path, at)
            value[at] = _dot(weights, slopes)
            size = max(abs(float(wide[path][at])), typical) or 1.0
            terms = [np.abs(s) + (s != 0) * np.abs(f) / size for s, f in zip(slopes, outputs, strict=True)]
            mass[at] = _dot(map(np.abs, weights), terms)
            moved = 0.0
            for _ in range(_SAMPLES):
                near, _ = _slopes(evaluate, {p: perturb_randomly(v, u, rng) for p, v in wide.items()}, path, at)
                other = _dot([perturb_randomly(w, u, rng) for w in weights], near)
                moved = max(moved, abs(other - value[at]))
            uncertain = _dot(map(np.abs, weights), errors)
            fixed[at] = _FACTOR * (moved + u * mass[at]) + sums * mass[at] + uncertain
        gradient.append(value)
        bounds.append(Bound(np.nan_to_num(fixed, nan=np.inf), mass, np.zeros(leaf.shape), _FACTOR))
    return Expectation(tuple(gradient), None, tuple(bounds))


# The derivative of each float output by one element, and its uncertainty (infinite at a kink).
def _slopes(
    evaluate: Evaluate, wide: Mapping[str, Array], path: str, at: tuple[int, ...]
) -> tuple[list[Array], list[Array]]:

    def outputs(step: complex) -> list[Array]:
        moved = wide[path].astype(np.complex128 if isinstance(step, complex) else np.float64)
        moved[at] += step
        with np.errstate(all="ignore"):
            return [v for v in evaluate({**wide, path: moved}) if is_float(v.dtype) or np.iscomplexobj(v)]

    h = STEP * max(1.0, abs(float(wide[path][at])))
    low, middle, high = outputs(-h), outputs(0.0), outputs(h)
    low2, high2 = outputs(-2 * h), outputs(2 * h)
    stepped = _complex_slopes(outputs)
    slopes, errors = [], []
    for i in range(len(middle)):
        with np.errstate(all="ignore"):
            near, far = (high[i] - low[i]) / (2 * h), (high2[i] - low2[i]) / (4 * h)
            before, after = (middle[i] - low[i]) / h, (high[i] - middle[i]) / h
            slope = near + (near - far) / 3
            size = np.abs(before) + np.abs(after)
            noise = 2.0**-50 * np.abs(middle[i]) / h
            error = np.where(np.abs(after - before) > _KINK * size + noise, np.inf, np.abs(near - far) + noise)
            if stepped is not None:
                confirmed = np.abs(stepped[i] - slope) <= _CONFIRMED * size + error
                slope = np.where(confirmed, stepped[i], slope)
                error = np.where(confirmed & np.isfinite(error), 0, error)
        slopes.append(np.nan_to_num(slope))
        errors.append(np.where(np.isfinite(slope), error, np.inf))
    return slopes, errors


# The derivatives by a complex step; None if the oracle does not accept complex numbers.
def _complex_slopes(outputs: Callable[[complex], list[Array]]) -> list[Array] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # raised if the oracle drops the imaginary part
            return [np.imag(v) / _COMPLEX_STEP for v in outputs(complex(0.0, _COMPLEX_STEP))]
    except Exception:
        return None


def _dot(weights: Iterable[Array], values: Iterable[Array]) -> float:
    with np.errstate(all="ignore"):
        return float(sum(np.sum(w * v) for w, v in zip(weights, values, strict=True)))


_STORED_ROUNDINGS = 2.0  # roundings to the dtypes of arguments and outputs that a backward pass may add
_SLOPES_INSTEAD = f"slopes at {ELEMENTS} elements instead, because the oracle cannot be differentiated"


def expect_gradients(
    evaluate: Evaluate,
    leaves: Mapping[str, Array],
    cotangents: Sequence[Array],
    rng: Rng,
    tracking: Oracle | None = None,
    outputs: Sequence[DType] = (),
    paths: Sequence[str] = (),
    functions: Mapping[str, float] | None = None,
) -> Expectation:
    """Returns the expected value of `sum_j w_j df_j/dx` for each float leaf x.

    If the oracle can be tracked, a backward pass over its operations gives the gradient, and their rounding gives the
    bound (`BackwardPass`). If not, both come from slopes at some elements (`gradients_by_slopes`), chosen by `rng`.

    Args:
      evaluate: evaluates the oracle.
      leaves: the arguments in the kernel's dtypes, by path.
      cotangents: w, an array for each float output, in its dtype.
      tracking: evaluates the oracle on tracked leaves; None if it cannot be tracked.
      outputs: the dtypes of the float outputs, which a kernel may store for its backward pass.
      paths: the paths of the leaves whose gradient is wanted; by default all float leaves.
    """
    every, why = None, "it cannot be tracked"
    if tracking is not None:
        backward = BackwardPass(tracking, leaves, cotangents, outputs, functions=functions or {})
        try:
            values = backward.exact()
            why = "its derivative disagrees with a finite difference, as at a kink"
            if _agrees(evaluate, leaves, cotangents, values, rng):
                formats = FLOAT32, FORMULA_FORMAT, FLOOR_FORMAT
                limits, close, least = (
                    tuple(GradientBound(each, i, value) for i, value in enumerate(values))
                    for each in (replace(backward, compute=fmt, found={}) for fmt in formats)
                )
                in_float64 = np.float64 in [*(leaf.dtype for leaf in leaves.values()), *outputs]
                every = Expectation(values, None, limits, formula=close, floor=None if in_float64 else least)
        except Exception as error:  # an unknown derivative, or anything that an oracle raises on tracked arrays
            why = format_exception(error).splitlines()[0]
    if every is None:
        by_slopes = gradients_by_slopes(evaluate, leaves, cotangents, rng)
        every = replace(by_slopes, unfollowed=f"{_SLOPES_INSTEAD} ({why})")
    chosen = [i for i, path in enumerate(_floats(leaves)) if not paths or path in paths]
    values, defined = (tuple(arrays[i] for i in chosen) for arrays in (every.values, every.defined))
    bounds, formula = (limits and tuple(limits[i] for i in chosen) for limits in (every.bounds, every.formula))
    floor = every.floor and tuple(every.floor[i] for i in chosen)
    return replace(every, values=values, bounds=bounds, formula=formula, floor=floor, defined=defined)


def _floats(leaves: Mapping[str, Array]) -> list[str]:
    return [path for path, value in leaves.items() if is_float(value.dtype)]


@dataclass(slots=True)
class BackwardPass:
    """The gradient by a backward pass over the oracle's operations, in samples."""

    # oracle, leaves, cotangents, outputs: as for `expect_gradients`; the oracle takes tracked leaves
    oracle: Oracle
    leaves: Mapping[str, Array]
    cotangents: Sequence[Array]
    outputs: Sequence[DType]
    # the format of arithmetic. If it is not float32, nothing is stored in narrower dtypes
    compute: FloatFormat = FLOAT32
    # the relative errors of functions that the kernel approximates
    functions: Mapping[str, float] = field(default_factory=dict)
    # what the samples of each gradient show, by name of the precision
    found: dict[str, SampledOutputs] = field(default_factory=dict)

    @property
    def coarsest_roundoff(self) -> float:
        """The unit roundoff of the coarsest of the arguments and outputs, to which a backward pass may store values."""
        dtypes = [*(v.dtype for v in self.leaves.values() if is_float(v.dtype)), *self.outputs]
        return max(self._stored(dtype).unit_roundoff for dtype in dtypes)

    def _stored(self, dtype: DType) -> FloatFormat:
        return float_format(dtype) if self.compute == FLOAT32 else self.compute

    def exact(self) -> tuple[Array, ...]:
        return tuple(samples[0] for samples in self._samples(RoundingModel(XLA_CPU, rows=1, rows_by_source={})))

    def at(self, precision: Precision) -> SampledOutputs:
        """Returns what the samples of each gradient show on a backend."""
        precision = precision.with_approximations(self.functions)
        if (known := find_alike(self.found, precision)) is None:
            rounding = RoundingModel(precision, self.compute)
            spreads = [spread_of(samples) for samples in self._samples(rounding)]
            known = SampledOutputs(spreads, "", tuple(rounding.sources), rounding.answers)
        self.found[precision.name] = known
        return known

    def shares(self, precision: Precision, leaf: int) -> tuple[ErrorShare, ...]:
        """Returns the part of each operation, forward or backward, in the spread of a gradient, the largest first."""
        sources = self.at(precision).sources
        precision = precision.with_approximations(self.functions)
        return error_shares(lambda rounding: self._samples(rounding)[leaf], precision, self.compute, sources)

    def _samples(self, rounding: RoundingModel) -> list[Array]:
        formats = {path: self._stored(v.dtype) for path, v in self.leaves.items() if is_float(v.dtype)}
        wide = {path: widen(value) for path, value in self.leaves.items()}
        tracked = {
            path: TrackedArray(rounding.flush_inputs(wide[path][None]), rounding, frozenset({fmt}))
            for path, fmt in formats.items()
        }
        tape: list[TapeEntry] = []
        rounding.tape = tape
        with track_created_arrays(rounding):
            results = self.oracle({**track_integers(wide, rounding), **tracked})
            rounding.tape = None
            if rounding.escape:
                raise UntrackedError(rounding.escape)
            floats = [output for output in results if is_float(np.dtype(output.dtype))]
            weights = [TrackedArray(np.asarray(w, np.float64)[None], rounding) for w in self.cotangents]
            stored = map(self._stored, self.outputs)
            outputs = [
                (output, weight, fmt)
                for output, weight, fmt in zip(floats, weights, stored, strict=True)
                if isinstance(output, TrackedArray)
            ]
            if len({id(output) for output, _, _ in outputs}) < len(outputs):
                raise UntrackedError("the gradient of an output that is returned twice")
            gradient = pull_back(tape, outputs, list(tracked.values()))
        shapes = [value.shape for value in tracked.values()]
        return [np.zeros((1, *s)) if g is None else g.samples for g, s in zip(gradient, shapes, strict=True)]


@dataclass(frozen=True, slots=True)
class GradientBound(SampledLimit):
    """The bound of the gradient by one float leaf, from a `BackwardPass` for all of them.

    `|error| <= bound_from_spread(s) + 2 v |g|`, with `bound_from_spread` as in `rounding_bounds` and v the unit
    roundoff of the coarsest of the arguments and outputs, to which values that a backward pass stores are rounded.
    """

    def at(self, precision: Precision) -> Array:
        stored: Array = _STORED_ROUNDINGS * self.samples.coarsest_roundoff * np.abs(self.value)
        return SampledLimit.at(self, precision) + stored


# Whether the gradient agrees with central differences in a random direction; it does not at a kink. Two differences
# cancel the next term of the series, which is large where a slope changes within a few steps.
def _agrees(
    evaluate: Evaluate, leaves: Mapping[str, Array], cotangents: Sequence[Array], values: Sequence[Array], rng: Rng
) -> bool:
    wide = {path: widen(value) for path, value in leaves.items()}
    floats, weights = _floats(leaves), [np.asarray(w, np.float64) for w in cotangents]
    direction = {
        path: rng.choice((-1.0, 1.0), wide[path].shape) * np.maximum(np.abs(wide[path]), 1.0) for path in floats
    }

    def total(step: float) -> tuple[float, float]:
        outputs = evaluate({**wide, **{path: wide[path] + step * direction[path] for path in floats}})
        results = [v for v in outputs if is_float(v.dtype)]
        return _dot(weights, results), _dot(map(np.abs, weights), map(np.abs, results))

    (low, _), (high, size) = total(-STEP), total(STEP)
    near, far = (high - low) / (2 * STEP), (total(2 * STEP)[0] - total(-2 * STEP)[0]) / (4 * STEP)
    expected = _dot(values, direction.values())
    scale = _dot(map(np.abs, values), map(np.abs, direction.values()))
    return abs(near + (near - far) / 3 - expected) <= 1e-6 * scale + 2.0**-44 * size / STEP
