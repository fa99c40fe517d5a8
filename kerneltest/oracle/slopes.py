"""The gradient of an oracle at some elements, from complex steps and finite differences."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_float, widen
from kerneltest.core.precision import FLOAT32
from kerneltest.numerics.bounds import Bound, Evaluate, gamma
from kerneltest.oracle.expectation import Expectation

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

    Args:
      evaluate: evaluates the oracle.
      leaves: the arguments in the kernel's dtypes, by path.
      cotangents: w, an array for each float output, in its dtype.
      rng: chooses the elements and the perturbations.
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
        for at in _chosen_indices(leaf.shape, rng):
            slopes, errors = _slopes(evaluate, wide, path, at)
            value[at] = _dot(weights, slopes)
            size = max(abs(float(wide[path][at])), typical) or 1.0
            terms = [np.abs(s) + (s != 0) * np.abs(f) / size for s, f in zip(slopes, outputs, strict=True)]
            mass[at] = _dot(map(np.abs, weights), terms)
            moved = 0.0
            for _ in range(_SAMPLES):
                near, _ = _slopes(evaluate, {p: _perturb(v, u, rng) for p, v in wide.items()}, path, at)
                other = _dot([_perturb(w, u, rng) for w in weights], near)
                moved = max(moved, abs(other - value[at]))
            uncertain = _dot(map(np.abs, weights), errors)
            fixed[at] = _FACTOR * (moved + u * mass[at]) + sums * mass[at] + uncertain
        gradient.append(value)
        bounds.append(Bound(np.nan_to_num(fixed, nan=np.inf), mass, np.zeros(leaf.shape), _FACTOR))
    return Expectation(tuple(gradient), None, tuple(bounds))


def _chosen_indices(shape: tuple[int, ...], rng: Rng) -> Iterator[tuple[int, ...]]:
    """Yields the indices of the first element, the last, and some between."""
    size = int(np.prod(shape))
    between = rng.permutation(np.arange(1, max(size - 1, 1)))[: ELEMENTS - 2]
    for flat in sorted({0, size - 1, *map(int, between)} & set(range(size))):
        yield tuple(int(i) for i in np.unravel_index(flat, shape))


def _slopes(
    evaluate: Evaluate, wide: Mapping[str, Array], path: str, at: tuple[int, ...]
) -> tuple[list[Array], list[Array]]:
    """Returns the derivative of each float output by one element, and its uncertainty (infinite at a kink)."""

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


def _complex_slopes(outputs: Callable[[complex], list[Array]]) -> list[Array] | None:
    """Returns the derivatives by a complex step; None if the oracle does not accept complex numbers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # raised if the oracle drops the imaginary part
            return [np.imag(v) / _COMPLEX_STEP for v in outputs(complex(0.0, _COMPLEX_STEP))]
    except Exception:
        return None


def _perturb(value: Array, u: float, rng: Rng) -> Array:
    """Returns `value` with each element moved by one rounding, up or down."""
    return value * (1 + u * rng.choice((-1.0, 1.0), value.shape)) if is_float(value.dtype) else value


def _dot(weights: Iterable[Array], values: Iterable[Array]) -> float:
    with np.errstate(all="ignore"):
        return float(sum(np.sum(w * v) for w, v in zip(weights, values, strict=True)))
