"""The second of two questions about values, asked of a kernel whose formula is right: is its rounding?

The oracle's own rounding bounds that of most kernels. One that computes the same in another order or form may round
differently, so it is also held against its own formula, computed in float32 or wider throughout.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import ErrorCause, MismatchCause
from kerneltest.core.dtypes import Array, FloatFormat, float_format, is_float, parse_dtype
from kerneltest.core.precision import FLOAT32
from kerneltest.declare.built_in_models import Rounding
from kerneltest.declare.error_model import Tolerance
from kerneltest.execute.output_comparison import CallOutputs
from kerneltest.judge.compare import Comparison
from kerneltest.numerics.rounding_bounds import bound_from_spread
from kerneltest.numerics.spread import spread_of
from kerneltest.trace.batched_interpreter.sampling_rule import SampleArithmetic
from kerneltest.trace.tracing import Traced
from kerneltest.triage.symptoms import SLIGHT

MOST_UNSTABLE = 64.0
"""The largest ratio of the bound by a kernel's own formula to that by the oracle's; above, the formula is unstable.

A backward stable one is not: it loses no more than rounding each input would, as with Welford's variance (Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 1.5).
"""

_BACKWARD_STABLE = 4.0  # the largest error / bound by rounded inputs: Welford's is 1, that of E[x^2] - E[x]^2 over 200
_UNSTABLE_SLACK = 4.0  # of the oracle's bound: what an unstable formula may lose in fact

_FLOAT64 = float_format(np.dtype(np.float64))
_DIGIT = 10.0  # a value of which the oracle keeps a digit is so many times as large as its bound
_BY_OWN_FORMULA = ", or the rounding of the kernel's own formula"


@dataclass(frozen=True, slots=True)
class OwnRounding:
    """The rounding of a kernel's own formula.

    Attributes:
      bounds: the largest error of each output's elements, the rounding of the output itself included.
      admitted: the same, but close to those of the oracle where the kernel's formula may lose over `MOST_UNSTABLE`
        times as much.
    """

    bounds: tuple[Array, ...]
    admitted: tuple[Array, ...]

    def admit(self, claim: CallOutputs) -> CallOutputs:
        """Returns a claim with the bounds that are admitted."""
        return replace(claim, bounds=self.admitted, tolerance=f"{claim.tolerance}{_BY_OWN_FORMULA}")


def own_format(tolerance: Tolerance, traced: Traced) -> FloatFormat | None:
    """Returns the format in which a kernel's own formula is sampled; None if the pairing declares other bounds.

    It is the policy of the tolerance, not the kernel's dtypes: a sum that is kept in bfloat16 is not admitted.
    """
    if not isinstance(tolerance, Rounding):
        return None
    if tolerance.compute != "input":
        return float_format(parse_dtype(tolerance.compute))
    floats = (float_format(leaf.dtype) for leaf in traced.inputs if is_float(leaf.dtype))
    return max(floats, key=lambda each: each.unit_roundoff, default=FLOAT32)


def own_rounding(
    sample: Callable[[SampleArithmetic], Sequence[Array]],
    arithmetic: SampleArithmetic,
    claim: CallOutputs,
    loose: Sequence[Array],
) -> OwnRounding | None:
    """Returns how far a kernel's own formula moves when each of its operations is rounded as a machine would.

    Args:
      sample: returns samples of each output, (samples, *shape), whose row 0 is not rounded; () if that is impossible.
      arithmetic: of the samples.
      claim: the outputs, with the bounds of the oracle's rounding.
      loose: such bounds for a machine that rounds even representable results: an oracle may be exact by chance.

    Returns:
      None if there are no samples.
    """
    fmt = arithmetic.fmt
    if not (samples := sample(arithmetic)):
        return None
    own, admitted = [], []
    outputs = zip(samples, claim.outputs, claim.values, claim.bounds, loose, strict=True)
    for number, (each, output, value, bound, most) in enumerate(outputs):
        if not is_float(output.dtype):
            own.append(bound)
            admitted.append(bound)
            continue
        exact = np.asarray(value, np.float64)
        moved = _moved(exact, each, fmt)  # around the oracle's values: the rounding of a kernel's constants counts
        size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
        own.append(np.maximum(bound, moved + float_format(output.dtype).ulp(size + moved) / 2))
        most = np.maximum(bound, most)
        # Where the oracle itself keeps no digit, none can be lost.
        unstable = (own[-1] > MOST_UNSTABLE * most) & (size > _DIGIT * most)
        stable = _UNSTABLE_SLACK * most
        if unstable.any() and (perturbed := sample(_rounded_inputs(fmt))):
            by_inputs = _moved(perturbed[number][0], perturbed[number], fmt)
            stable = np.maximum(stable, _BACKWARD_STABLE * by_inputs)
        admitted.append(np.where(unstable, np.minimum(stable, own[-1]), own[-1]))
    return OwnRounding(tuple(own), tuple(admitted))


def _moved(exact: Array, samples: Array, fmt: FloatFormat) -> Array:
    """Returns the bound that samples make around exact values."""
    spread = spread_of(np.concatenate([exact[None], samples[1:].astype(np.float64)]))
    return np.where(spread.lost, 0.0, bound_from_spread(exact, spread, fmt.unit_roundoff))


def _rounded_inputs(fmt: FloatFormat) -> SampleArithmetic:
    """Returns an arithmetic that rounds the inputs to a format, and computes in float64."""
    return SampleArithmetic(_FLOAT64, inputs=fmt.unit_roundoff)


def rounding_cause(found: Sequence[Comparison], own: OwnRounding | None) -> MismatchCause | None:
    """Returns the cause of wrong values of a kernel whose formula is right; None if NaN or an infinity is expected.

    Args:
      found: the comparison of each output within the oracle's bounds.
      own: the rounding of the kernel's own formula, if it is known.
    """
    if any((each.wrong & ~_can_be_rounded(each)).any() for each in found):
        return None  # not lost to rounding
    if own is not None and all(_is_within(each, bound) for each, bound in zip(found, own.bounds, strict=True)):
        ratios = [_largest_ratio(bound, each.bound, each) for each, bound in zip(found, own.bounds, strict=True)]
        return _cause(ErrorCause.UNSTABLE, max(ratios))
    return _cause(ErrorCause.ROUNDING, max(_largest_ratio(_error(each), _allowed(each), each) for each in found))


def is_lost(found: Comparison) -> bool:
    """Returns whether a wrong element is not finite, or its first digit is wrong."""
    actual = found.actual.astype(np.float64)
    size = np.maximum(np.abs(np.asarray(found.expected, np.float64)), np.abs(actual))
    return bool((found.wrong & ~(np.isfinite(actual) & (_error(found) <= SLIGHT * size))).any())


def _can_be_rounded(found: Comparison) -> Array:
    """Returns where rounding can make a difference: not in NaN, an infinity or the sign of a zero."""
    expected = np.asarray(found.expected, np.float64)
    return np.asarray(np.isfinite(expected) & ((expected != 0) | (found.actual != 0)))


def _cause(what: ErrorCause, size: float) -> MismatchCause:
    return MismatchCause(what, size if math.isfinite(size) else None)


def _allowed(found: Comparison) -> Array:
    """Returns the bounds, but at least half a step: any error of an exact result would be infinitely large."""
    if not is_float(found.actual.dtype):
        return np.maximum(found.bound, 0.5)
    expected = np.asarray(found.expected, np.float64)
    size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    return np.maximum(found.bound, float_format(found.actual.dtype).ulp(size) / 2)


def _error(found: Comparison) -> Array:
    with np.errstate(all="ignore"):
        return np.abs(found.actual.astype(np.float64) - found.expected)


def _is_within(found: Comparison, bound: Array) -> bool:
    return not (found.wrong & ~(_error(found) <= bound)).any()


def _largest_ratio(size: Array, bound: Array, found: Comparison) -> float:
    """Returns the largest ratio among the wrong elements; infinite if one of them is not finite or must be exact."""
    with np.errstate(all="ignore"):
        return float(np.max(np.nan_to_num(size / bound, nan=np.inf, posinf=np.inf)[found.wrong], initial=0.0))
