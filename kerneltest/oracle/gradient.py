"""The expected gradient of an oracle, from a backward pass over its operations where they can be tracked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kerneltest.core.dtypes import Array, DType, FloatFormat, float_format, is_float, widen
from kerneltest.core.failures import format_exception
from kerneltest.core.precision import FLOAT32, XLA_CPU, Precision
from kerneltest.numerics.bounds import Evaluate
from kerneltest.numerics.error_budget import ErrorShare, error_shares
from kerneltest.numerics.formula import FORMULA_FORMAT
from kerneltest.numerics.numpy_patch import track_created_arrays
from kerneltest.numerics.pullback import pull_back
from kerneltest.numerics.rounding_bounds import bound_from_spread, shares_of_bound
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.samples import TapeEntry, UntrackedError
from kerneltest.numerics.spread import Oracle, SampledOutputs, find_alike, spread_of, track_integers
from kerneltest.numerics.tracked import TrackedArray
from kerneltest.oracle.expectation import Expectation
from kerneltest.oracle.slopes import ELEMENTS, STEP, Rng, gradients_by_slopes

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
) -> Expectation:
    """Returns the expected value of `sum_j w_j df_j/dx` for each float leaf x.

    If the oracle can be tracked, a backward pass over its operations gives the gradient, and their rounding gives the
    bound (`BackwardPass`). If not, both come from slopes at some elements (`gradients_by_slopes`).

    Args:
      evaluate: evaluates the oracle.
      leaves: the arguments in the kernel's dtypes, by path.
      cotangents: w, an array for each float output, in its dtype.
      rng: chooses elements and perturbations.
      tracking: evaluates the oracle on tracked leaves; None if it cannot be tracked.
      outputs: the dtypes of the float outputs, which a kernel may store for its backward pass.
      paths: the paths of the leaves whose gradient is wanted; by default all float leaves.
    """
    chosen = [i for i, path in enumerate(_floats(leaves)) if not paths or path in paths]
    every = _all_gradients(evaluate, leaves, cotangents, rng, tracking, outputs)
    bounds = None if every.bounds is None else tuple(every.bounds[i] for i in chosen)
    asked = tuple(every.defined[i] for i in chosen)
    return replace(every, values=tuple(every.values[i] for i in chosen), bounds=bounds, defined=asked)


def _floats(leaves: Mapping[str, Array]) -> list[str]:
    """Returns the paths of the float leaves."""
    return [path for path, value in leaves.items() if is_float(value.dtype)]


def _all_gradients(
    evaluate: Evaluate,
    leaves: Mapping[str, Array],
    cotangents: Sequence[Array],
    rng: Rng,
    watched: Oracle | None,
    outputs: Sequence[DType],
) -> Expectation:
    if watched is not None:
        backward = BackwardPass(watched, leaves, cotangents, outputs)
        try:
            values = backward.exact()
            if _agrees(evaluate, leaves, cotangents, values, rng):
                closely = BackwardPass(watched, leaves, cotangents, outputs, FORMULA_FORMAT)
                bounds, formula = (
                    tuple(GradientBound(each, i, value) for i, value in enumerate(values))
                    for each in (backward, closely)
                )
                return Expectation(values, None, bounds, formula=formula)
            why = "its derivative disagrees with a finite difference, as at a kink"
        except Exception as error:  # an unknown derivative, or anything that an oracle raises on tracked arrays
            why = format_exception(error).splitlines()[0]
    else:
        why = "it cannot be tracked"
    return replace(gradients_by_slopes(evaluate, leaves, cotangents, rng), unfollowed=f"{_SLOPES_INSTEAD} ({why})")


@dataclass(slots=True)
class BackwardPass:
    """The gradient by a backward pass over the oracle's operations, in samples.

    Attributes:
      oracle: evaluates the oracle on tracked leaves.
      leaves: the arguments in the kernel's dtypes, by path.
      cotangents: an array for each float output, in its dtype.
      outputs: the dtypes of the float outputs.
      compute: the format of arithmetic. If it is `FORMULA_FORMAT`, nothing is stored in narrower dtypes.
      found: what the samples of each gradient show, by name of the precision.
    """

    oracle: Oracle
    leaves: Mapping[str, Array]
    cotangents: Sequence[Array]
    outputs: Sequence[DType]
    compute: FloatFormat = FLOAT32
    found: dict[str, SampledOutputs] = field(default_factory=dict)

    @property
    def coarsest_roundoff(self) -> float:
        """The unit roundoff of the coarsest of the arguments and outputs, to which a backward pass may store values."""
        dtypes = [*(v.dtype for v in self.leaves.values() if is_float(v.dtype)), *self.outputs]
        return max(self._stored(dtype).unit_roundoff for dtype in dtypes)

    def _stored(self, dtype: DType) -> FloatFormat:
        return FORMULA_FORMAT if self.compute == FORMULA_FORMAT else float_format(dtype)

    def exact(self) -> tuple[Array, ...]:
        """Returns the gradient by each float leaf, float64."""
        return tuple(samples[0] for samples in self._samples(RoundingModel(XLA_CPU, rows=1, rows_by_source={})))

    def at(self, precision: Precision) -> SampledOutputs:
        """Returns what the samples of each gradient show on a backend."""
        if (known := find_alike(self.found, precision)) is None:
            machine = RoundingModel(precision, self.compute)
            spreads = [spread_of(each) for each in self._samples(machine)]
            known = SampledOutputs(spreads, "", tuple(machine.sources), machine.answers)
        self.found[precision.name] = known
        return known

    def shares(self, precision: Precision, leaf: int) -> tuple[ErrorShare, ...]:
        """Returns the part of each operation, forward or backward, in the spread of a gradient, the largest first."""
        return error_shares(lambda m: self._samples(m)[leaf], precision, self.compute, self.at(precision).sources)

    def _samples(self, machine: RoundingModel) -> list[Array]:
        formats = {path: self._stored(v.dtype) for path, v in self.leaves.items() if is_float(v.dtype)}
        wide = {path: widen(value) for path, value in self.leaves.items()}
        tracked = {
            path: TrackedArray(machine.flush_inputs(wide[path][None]), machine, fmt) for path, fmt in formats.items()
        }
        tape: list[TapeEntry] = []
        machine.tape = tape
        with track_created_arrays(machine):
            results = self.oracle({**track_integers(wide, machine), **tracked})
            machine.tape = None
            if machine.escape:
                raise UntrackedError(machine.escape)
            floats = [each for each in results if is_float(np.dtype(each.dtype))]
            weights = [TrackedArray(np.asarray(w, np.float64)[None], machine, None) for w in self.cotangents]
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
class GradientBound:
    """The bound of the gradient by one leaf.

    `|error| <= bound_from_spread(s) + 2 v |g|`, with `bound_from_spread` as in `rounding_bounds` and v the unit
    roundoff of the coarsest of the arguments and outputs, to which values that a backward pass stores are rounded.

    Attributes:
      backward: the backward pass for all leaves.
      leaf: the index of the float leaf.
      value: the gradient by it.
    """

    backward: BackwardPass
    leaf: int
    value: Array

    def at(self, precision: Precision) -> Array:
        """Returns the largest absolute error of each element before it is rounded."""
        moved = self.backward.at(precision).spreads[self.leaf]
        stored = _STORED_ROUNDINGS * self.backward.coarsest_roundoff * np.abs(self.value)
        return bound_from_spread(self.value, moved, self.backward.compute.unit_roundoff) + stored

    def shares(self, precision: Precision) -> tuple[ErrorShare, ...]:
        """Returns the parts of the bound, the largest first."""
        found = self.backward.shares(precision, self.leaf)
        return shares_of_bound(found, self.at(precision), self.backward.at(precision).spreads[self.leaf])


def _agrees(
    evaluate: Evaluate, leaves: Mapping[str, Array], cotangents: Sequence[Array], values: Sequence[Array], rng: Rng
) -> bool:
    """Returns whether the gradient agrees with central differences in a random direction; it does not at a kink.

    Two of them together cancel the next term of the series, which is large where a slope changes within a few steps.
    """
    wide = {path: widen(value) for path, value in leaves.items()}
    floats = _floats(leaves)
    direction = {
        path: rng.choice((-1.0, 1.0), wide[path].shape) * np.maximum(np.abs(wide[path]), 1.0) for path in floats
    }

    def total(step: float) -> tuple[float, float]:
        outputs = evaluate({**wide, **{path: wide[path] + step * direction[path] for path in floats}})
        results = [v for v in outputs if is_float(v.dtype)]
        terms = [np.asarray(w, np.float64) * v for w, v in zip(cotangents, results, strict=True)]
        return sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms)

    (low, _), (high, size) = total(-STEP), total(STEP)
    near, far = (high - low) / (2 * STEP), (total(2 * STEP)[0] - total(-2 * STEP)[0]) / (4 * STEP)
    expected = sum(float(np.sum(v * direction[path])) for v, path in zip(values, floats, strict=True))
    scale = sum(float(np.sum(np.abs(v * direction[path]))) for v, path in zip(values, floats, strict=True))
    return abs(near + (near - far) / 3 - expected) <= 1e-6 * scale + 2.0**-44 * size / STEP
