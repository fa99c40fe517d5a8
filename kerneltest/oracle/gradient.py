"""The gradient of an oracle, and how far a right kernel's may be from it."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_float, widen
from kerneltest.core.precision import FLOAT32, XLA_CPU, Precision
from kerneltest.numerics.bounds import Bound, Evaluate, gamma
from kerneltest.numerics.error_budget import Share, shares
from kerneltest.numerics.numpy_patch import track_created_arrays
from kerneltest.numerics.origins import Source
from kerneltest.numerics.pullback import pull_back
from kerneltest.numerics.rounding_bounds import bound, of_bound
from kerneltest.numerics.rounding_model import Machine
from kerneltest.numerics.samples import UntrackedError
from kerneltest.numerics.spread import Spread, spread
from kerneltest.numerics.tracked import TrackedArray
from kerneltest.oracle.expectation import Expectation

Rng = np.random.Generator

Watchable = Callable[[Mapping[str, Any]], Sequence[Any]]

_KEPT = 2.0  # roundings to the dtype of arguments and outputs that a backward pass may add
ELEMENTS = 16  # of each argument; every one costs evaluations of the oracle
_SAMPLES, _FACTOR = 2, 8.0
_INSTEAD = f"slopes at {ELEMENTS} elements in its place, for the oracle is not followed backwards"
_STEP = 2.0**-17  # about the cube root of float64's roundoff, where truncation and cancellation balance
_COMPLEX_STEP = 2.0**-100
_CONFIRMED, _KINK = 1e-6, 1e-3  # how near two estimates of one slope are; how far apart those of two are


def gradients(
    evaluate: Evaluate,
    leaves: Mapping[str, Array],
    cotangents: Sequence[Array],
    rng: Rng,
    watched: Watchable | None = None,
    outputs: Sequence[np.dtype[Any]] = (),
    by: Sequence[str] = (),
) -> Expectation:
    """What `sum_j w_j df_j/dx` should be for each float leaf x.

    Where the oracle can be followed, a backward pass over its own operations gives the gradient, and their rounding
    bounds it as `Rounding` bounds the oracle (`BackwardPass`). Elsewhere slopes do, at some elements (`_by_slopes`).

    Args:
      evaluate: the oracle.
      leaves: as the kernel gets them.
      cotangents: w, an array for each float output, in its dtype.
      rng: of the choice of elements and of the perturbations.
      watched: the oracle on watched leaves, as `expect` has it; None where it cannot be followed.
      outputs: the dtypes of the float outputs, which a kernel may keep for its backward pass.
      by: the leaves that it is asked for, by path; by default all of floats.
    """
    chosen = [i for i, path in enumerate(_floats(leaves)) if not by or path in by]
    found = _gradients(evaluate, leaves, cotangents, rng, watched, outputs)
    bounds = None if found.bounds is None else tuple(found.bounds[i] for i in chosen)
    asked = tuple(found.asked[i] for i in chosen)
    return replace(found, values=tuple(found.values[i] for i in chosen), bounds=bounds, asked=asked)


def _floats(leaves: Mapping[str, Array]) -> list[str]:
    return [path for path, value in leaves.items() if is_float(value.dtype)]


def _gradients(
    evaluate: Evaluate,
    leaves: Mapping[str, Array],
    cotangents: Sequence[Array],
    rng: Rng,
    watched: Watchable | None,
    outputs: Sequence[np.dtype[Any]],
) -> Expectation:
    if watched is not None:
        back = BackwardPass(watched, leaves, cotangents, outputs)
        try:
            values = back.exact()
            if _agrees(evaluate, leaves, cotangents, values, rng):
                return Expectation(values, None, tuple(GradientBound(back, i, value) for i, value in enumerate(values)))
            why = "its derivative and a difference of the oracle part, as at a kink"
        except Exception as error:  # an operation whose derivative is not known, or whatever a watched oracle raises
            why = f"{type(error).__name__}: {error}".splitlines()[0]
    else:
        why = "no watched oracle was given"
    return replace(_by_slopes(evaluate, leaves, cotangents, rng), unfollowed=f"{_INSTEAD} ({why})")


@dataclass(slots=True)
class BackwardPass:
    """The gradient as a backward pass over the oracle's operations computes it, in samples.

    Attributes:
      oracle: on watched leaves.
      leaves: as the kernel gets them.
      cotangents: in the dtypes of the float outputs.
      outputs: those dtypes.
      known: what was found, by the name of the precision.
      sources: of error, likewise.
    """

    oracle: Watchable
    leaves: Mapping[str, Array]
    cotangents: Sequence[Array]
    outputs: Sequence[np.dtype[Any]]
    known: dict[str, list[Spread]] = field(default_factory=dict)
    sources: dict[str, tuple[Source, ...]] = field(default_factory=dict)

    def exact(self) -> tuple[Array, ...]:
        """The gradient by each float leaf, float64."""
        return tuple(samples[0] for samples in self._samples(Machine(XLA_CPU, rows=1, parts={})))

    def at(self, precision: Precision) -> list[Spread]:
        """How far each gradient moves on a backend."""
        if precision.name not in self.known:
            machine = Machine(precision)
            self.known[precision.name] = [spread(each) for each in self._samples(machine)]
            self.sources[precision.name] = tuple(machine.sources)
        return self.known[precision.name]

    def shares(self, precision: Precision, leaf: int) -> tuple[Share, ...]:
        """What each operation, there and back, adds to the spread of the gradient by a leaf, the largest first."""
        self.at(precision)
        return shares(lambda m: self._samples(m)[leaf], precision, FLOAT32, self.sources[precision.name])

    def _samples(self, machine: Machine) -> list[Array]:
        formats = {path: float_format(v.dtype) for path, v in self.leaves.items() if is_float(v.dtype)}
        given = {path: widen(value) for path, value in self.leaves.items()}
        moving = {
            path: TrackedArray(machine.flush_inputs(given[path][None]), machine, formats[path]) for path in formats
        }
        tape: list[Any] = []
        machine.tape = tape
        with track_created_arrays(machine):
            results = self.oracle({**given, **moving})
            machine.tape = None
            if machine.left:
                raise UntrackedError(machine.left)
            floats = [each for each in results if is_float(np.dtype(each.dtype))]
            weights = [TrackedArray(np.asarray(w, np.float64)[None], machine, None) for w in self.cotangents]
            stored = map(float_format, self.outputs)
            each = [
                (o, w, fmt) for o, w, fmt in zip(floats, weights, stored, strict=True) if isinstance(o, TrackedArray)
            ]
            if len({id(output) for output, _, _ in each}) < len(each):
                raise UntrackedError("the gradient of an output that is returned twice")
            found = pull_back(tape, each, list(moving.values()))
        shapes = [value.shape for value in moving.values()]
        return [np.zeros((1, *s)) if g is None else g.samples for g, s in zip(found, shapes, strict=True)]


@dataclass(frozen=True, slots=True)
class GradientBound:
    """The bound of the gradient by one leaf.

    `|error| <= bound(s) + 2 v |g|`, with `bound` that of `Rounding` and v the unit roundoff of the coarsest of the
    arguments and outputs: what a backward pass keeps of the way there is rounded to these.

    Attributes:
      back: of all leaves.
      leaf: which of the float leaves, counted from 0.
      value: the gradient by it.
    """

    back: BackwardPass
    leaf: int
    value: Array

    def at(self, precision: Precision) -> Array:
        """The largest absolute error of each element before it is rounded."""
        found = self.back.at(precision)[self.leaf]
        dtypes = [*(v.dtype for v in self.back.leaves.values() if is_float(v.dtype)), *self.back.outputs]
        kept = max(float_format(dtype).unit_roundoff for dtype in dtypes)
        return bound(self.value, found, FLOAT32.unit_roundoff) + _KEPT * kept * np.abs(self.value)

    def shares(self, precision: Precision) -> tuple[Share, ...]:
        """What makes the bound, as parts of it, the largest first."""
        found = self.back.shares(precision, self.leaf)
        return of_bound(found, self.at(precision), self.back.at(precision)[self.leaf])


def _agrees(
    evaluate: Evaluate, leaves: Mapping[str, Array], cotangents: Sequence[Array], values: Sequence[Array], rng: Rng
) -> bool:
    """Whether the gradient is the oracle's slope in one direction, by a central difference; not so at a kink."""
    wide = {path: widen(value) for path, value in leaves.items()}
    moving = [path for path, value in leaves.items() if is_float(value.dtype)]
    way = {path: rng.choice((-1.0, 1.0), wide[path].shape) * np.maximum(np.abs(wide[path]), 1.0) for path in moving}

    def total(step: float) -> tuple[float, float]:
        outputs = evaluate({**wide, **{path: wide[path] + step * way[path] for path in moving}})
        floats = [v for v in outputs if is_float(v.dtype)]
        terms = [np.asarray(w, np.float64) * v for w, v in zip(cotangents, floats, strict=True)]
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)

    (low, _), (high, size) = total(-_STEP), total(_STEP)
    expected = sum(float(np.sum(v * way[path])) for v, path in zip(values, moving, strict=True))
    scale = sum(float(np.sum(np.abs(v * way[path]))) for v, path in zip(values, moving, strict=True))
    return abs((high - low) / (2 * _STEP) - expected) <= 1e-6 * scale + 2.0**-44 * size / _STEP


def _by_slopes(evaluate: Evaluate, leaves: Mapping[str, Array], cotangents: Sequence[Array], rng: Rng) -> Expectation:
    """The gradient at some elements of each float leaf; nothing is asked of the rest.

    A slope is taken by a complex step where central differences confirm it (NumPy's `abs` of a complex number is not
    what an oracle means by it), and by these otherwise, what is uncertain about them added to the bound. Where the
    one-sided differences part, as at a kink, nothing is asked.

    `|error| <= 8 (max_s |g(x(1 + u e_s), w(1 + u e_s)) - g| + u M) + gamma_n M`, with
    M = sum_j |w_j| (|df_j/dx| + |f_j| / max(|x|, mean |x|)) over the outputs that depend on x, n the number of all
    outputs' elements and 8, u the unit roundoff of the coarsest format among arguments and outputs, and gamma_n in
    float32; 2 v M more where a backend rounds the operands of products to v. The second term of M is the size of what
    may cancel: a backward pass recomputes f or keeps it, rounded.

    Source: Squire and Trapp, "Using complex variables to estimate derivatives of real functions", 1998; the bound is
    that of `Conditioned`, for the function that the gradient is.

    Args:
      evaluate: the oracle.
      leaves: as the kernel gets them.
      cotangents: w, an array for each float output, in its dtype.
      rng: of the choice of elements and of the perturbations.
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
        for at in _places(leaf.shape, rng):
            slopes, errors = _slopes(evaluate, wide, path, at)
            value[at] = _weighted_sum(weights, slopes)
            size = max(abs(float(wide[path][at])), typical) or 1.0
            terms = [np.abs(s) + (s != 0) * np.abs(f) / size for s, f in zip(slopes, outputs, strict=True)]
            mass[at] = _weighted_sum(map(np.abs, weights), terms)
            moved = 0.0
            for _ in range(_SAMPLES):
                near, _ = _slopes(evaluate, {p: _rounded(v, u, rng) for p, v in wide.items()}, path, at)
                other = _weighted_sum([_rounded(w, u, rng) for w in weights], near)
                moved = max(moved, abs(other - value[at]))
            uncertain = _weighted_sum(map(np.abs, weights), errors)
            fixed[at] = _FACTOR * (moved + u * mass[at]) + sums * mass[at] + uncertain
        gradient.append(value)
        bounds.append(Bound(np.nan_to_num(fixed, nan=np.inf), mass, np.zeros(leaf.shape), _FACTOR))
    return Expectation(tuple(gradient), None, tuple(bounds))


def _places(shape: tuple[int, ...], rng: Rng) -> Iterator[tuple[int, ...]]:
    """The first element, the last, and some between."""
    size = int(np.prod(shape))
    chosen = rng.permutation(np.arange(1, max(size - 1, 1)))[: ELEMENTS - 2]
    for flat in sorted({0, size - 1, *map(int, chosen)} & set(range(size))):
        yield tuple(int(i) for i in np.unravel_index(flat, shape))


def _slopes(
    evaluate: Evaluate, wide: Mapping[str, Array], path: str, at: tuple[int, ...]
) -> tuple[list[Array], list[Array]]:
    """The derivative of each float output with respect to one element, and how far each may be off (inf at a kink)."""

    def outputs(step: complex) -> list[Array]:
        moved = wide[path].astype(np.complex128 if isinstance(step, complex) else np.float64)
        moved[at] += step
        with np.errstate(all="ignore"):
            return [v for v in evaluate({**wide, path: moved}) if is_float(v.dtype) or np.iscomplexobj(v)]

    h = _STEP * max(1.0, abs(float(wide[path][at])))
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


def _complex_slopes(outputs: Any) -> list[Array] | None:
    """The same by a complex step; None where the oracle does not take complex numbers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an oracle that drops the imaginary part
            return [np.imag(v) / _COMPLEX_STEP for v in outputs(complex(0.0, _COMPLEX_STEP))]
    except Exception:
        return None


def _rounded(value: Array, u: float, rng: Rng) -> Array:
    """`value` with each element moved by one rounding, up or down."""
    return value * (1 + u * rng.choice((-1.0, 1.0), value.shape)) if is_float(value.dtype) else value


def _weighted_sum(weights: Iterable[Array], values: Iterable[Array]) -> float:
    with np.errstate(all="ignore"):
        return float(sum(np.sum(w * v) for w, v in zip(weights, values, strict=True)))
