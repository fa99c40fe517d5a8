"""The formula of a kernel: whether it is right, how far it rounds, and what it says of the cause of wrong values.

Whether the formula is right is decided without rounding: the kernel's outputs with its floats promoted to float64 are
compared with the oracle's as closely as arithmetic of 40 bits allows. This admits every right algorithm, and no
tolerance hides a wrong one. Rounding is judged by the oracle's own, which bounds that of most kernels. One that
computes the same in another order or form may round differently, so it is also held against its own formula, computed
in float32 or wider throughout.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import SLIGHT, ErrorCause, MismatchCause
from kerneltest.core.dtypes import Array, FloatFormat, cast, float_format, is_float, parse_dtype, widen
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.declare.error_models import Rounding, Tolerance
from kerneltest.judge.compare import Comparison, compare, compare_outputs, is_wrong
from kerneltest.numerics.bounds import Limit, magnitude
from kerneltest.numerics.rounding_bounds import (
    FLOOR_FORMAT,
    FLOOR_PRECISION,
    FLOOR_ULPS,
    FORMULA_FORMAT,
    FORMULA_PRECISION,
    NEGLIGIBLE,
    SAMPLE_ROWS,
    SPREAD_FACTOR,
    RoundingLimit,
    SampledLimit,
    bound_from_spread,
)
from kerneltest.numerics.spread import Spread, spread_of
from kerneltest.oracle.expectation import Expectation, ExpectedOutputs, Outputs
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic
from kerneltest.trace.tracing import Traced

FORMULA_ARITHMETIC = SampleArithmetic(FORMULA_FORMAT, constants=True)
_FLOOR_ARITHMETIC = SampleArithmetic(FLOOR_FORMAT)


def compare_closely(
    outputs: Sequence[Array],
    expectation: Expectation,
    sample: Callable[[SampleArithmetic], Sequence[Array]],
    *,
    specials: bool = False,
) -> list[Comparison]:
    """Compares outputs without rounding with the oracle's values.

    They are held first to what no formula moves, then to what the oracle's operations may move in arithmetic of 40
    bits, then to what the kernel's may, then to the floor, each only if the one before does not admit them. The floor
    is a few roundings to float32 of the oracle's operations, or of the kernel's where the oracle's are unknown. It
    admits approximations.

    Args:
      outputs: the kernel's outputs without rounding.
      expectation: the oracle's values.
      sample: returns samples of the outputs in an arithmetic, (samples, *shape).
      specials: whether a result that is NaN or infinite is wrong where the other one is finite. Kernels overflow
        elsewhere in their own dtypes, so that this is evidence and no finding.

    Returns:
      The comparison of each output; its bound is infinite where the elements were not compared.
    """
    bounds = [
        _least_bound(got, value, defined & (specials | np.isfinite(got.astype(np.float64)) & np.isfinite(value)))
        for got, value, defined in zip(outputs, expectation.values, expectation.defined, strict=True)
    ]
    limits, floors = expectation.formula or (), expectation.floor or ()
    alternatives: list[tuple[Array, ...]] = [()] * len(outputs)

    def compare_all(*moved: Array) -> list[Comparison]:
        for number, each in enumerate(moved):
            bounds[number] = bounds[number] + each
        expected = ExpectedOutputs(expectation.values, tuple(bounds), alternatives=tuple(alternatives))
        return compare_outputs(outputs, expected, signed_zeros=False)

    found = compare_all()
    if limits and is_wrong(found):
        alternatives = [_alternatives(limit, FORMULA_PRECISION) for limit in limits]
        found = compare_all(*map(_strict, found, limits))
    if is_wrong(found):
        found = compare_all(*map(_movement, sample(FORMULA_ARITHMETIC)))
    if floors and is_wrong(strict := found):
        pairs = zip(alternatives, floors, strict=True)
        alternatives = [(*strict_ones, *_alternatives(limit, FLOOR_PRECISION)) for strict_ones, limit in pairs]
        found = compare_all(*map(_floor, found, floors))
        if is_wrong(found) and any(isinstance(each, RoundingLimit) and each.note(FLOOR_PRECISION) for each in floors):
            found = compare_all(*map(_movement, sample(_FLOOR_ARITHMETIC)))
        found = [replace(each, approximate=_used_floor(each, old)) for each, old in zip(found, strict, strict=True)]
    return found


def _alternatives(limit: Limit | SampledLimit, precision: Precision) -> tuple[Array, ...]:
    return limit.alternatives(precision) if isinstance(limit, RoundingLimit) else ()


# What the oracle's samples in arithmetic of 40 bits admit of an output of floats.
def _strict(found: Comparison, limit: Limit) -> Array:
    return limit.at(FORMULA_PRECISION) if is_float(found.actual.dtype) else np.zeros(found.bound.shape)


# What the oracle's samples admit of an output of floats that float32 could not tell from its own.
def _floor(found: Comparison, limit: SampledLimit) -> Array:
    least = FLOOR_ULPS * FLOAT32.ulp(magnitude(found.expected))
    return np.maximum(least, _reach(limit.spread(FLOOR_PRECISION))) if is_float(found.actual.dtype) else 0 * least


# How much of the floor is used, in ulps.
def _used_floor(found: Comparison, before: Comparison) -> float:
    admitted = before.wrong & ~found.wrong
    with np.errstate(all="ignore"):
        used = np.where(found.bound > 0, found.error / found.bound, 1.0)  # all of it, for an integer
    return FLOOR_ULPS * float(np.max(used[admitted], initial=0.0))


# The difference that is not seen whatever the formula; infinite for elements that are not compared.
def _least_bound(got: Array, value: Array, compared: Array) -> Array:
    if not is_float(got.dtype):
        return np.where(compared, 0.0, np.inf)
    size = magnitude(value)
    dust = 2 * _FLOAT64.unit_roundoff * np.max(size, initial=0.0)  # of what cancels, or of cos(pi / 2)
    bound = NEGLIGIBLE * size + np.where(value == 0, dust, 0.0) + FLOAT32.smallest_subnormal / 2
    if got.dtype != np.float64:  # stored in 8 bits
        bound = bound + float_format(got.dtype).ulp(size) / 2
    return np.where(compared, bound, np.inf)


# How far each element of an output moves in samples; infinite where it jumps.
def _movement(samples: Array) -> Array:
    if not is_float(samples.dtype):
        return np.where((samples != samples[:1]).any(0), np.inf, 0.0)
    return _reach(spread_of(samples.astype(np.float64)))


def _reach(spread: Spread) -> Array:
    return np.where(spread.lost, np.inf, SPREAD_FACTOR * spread.deviation)


def formula_answer(found: Sequence[Comparison]) -> FormulaAnswer:
    """Returns the answer that comparing each output without rounding gives."""
    compared = sum(int(np.isfinite(each.bound).sum()) for each in found)
    fraction = max((each.bound_fraction for each in found if each.bound_fraction is not None), default=None)
    return FormulaAnswer(compared, fraction, ulps=max((each.approximate for each in found), default=0.0))


def are_exact(found: Sequence[Comparison]) -> bool:
    """Returns whether no element that was compared may differ, but for numbers that a machine may flush to zero."""
    flushed = FLOAT32.smallest_normal / FLOAT32.unit_roundoff
    return all(not (np.isfinite(each.bound) & (each.bound > flushed)).any() for each in found)


def follows_formula(outputs: Sequence[Comparison], formula: Sequence[Comparison]) -> bool:
    """Returns whether outputs are those of the formula up to rounding, where the formula is wrong.

    They are not if the kernel rounds on purpose, for example by adding and subtracting a large number.
    """
    return all(
        not (compare(own.actual, widen(each.actual), own.bound, signed_zeros=False).wrong & each.wrong).any()
        for own, each in zip(outputs, formula, strict=True)
    )


def formula_explains(outputs: Sequence[Comparison], formula: Sequence[Comparison]) -> bool:
    """Returns whether most outputs with a wrong formula are nearer to it than to the oracle's, up to rounding."""
    nearer = farther = 0
    for own, each in zip(outputs, formula, strict=True):
        got, without = own.got, each.got
        with np.errstate(all="ignore"):
            near = np.abs(got - without) <= np.maximum(own.bound, own.error / 2)
        near |= (np.isnan(got) & np.isnan(without)) | (got == without)
        nearer += int((near & each.wrong).sum())
        farther += int((~near & each.wrong).sum())
    return nearer > farther


def fit_parameters(evaluate: Callable[[Array], Outputs], start: Sequence[float], wanted: Outputs) -> Array:
    """Returns the parameters with which a function gives wanted values, as far as these determine them, about."""
    values, step = np.array(start), 2.0**-20
    with np.errstate(all="ignore"):
        for _ in range(3):
            outputs = [*map(evaluate, [values, *(values + step * np.diag(values))]), wanted]
            now, *others = (np.concatenate([np.ravel(each).astype(np.float64) for each in made]) for made in outputs)
            rows = np.column_stack(others) - now[:, None]
            rows = rows[np.isfinite(rows).all(1)]
            inverse = np.linalg.pinv(slopes := rows[:, :-1], 2.0**-30)
            determined = (inverse * slopes.T).sum(1) > 1 - step
            values = values * (1 + step * determined * (inverse @ rows[:, -1]))
    return values


_COARSEST = 0.01  # a relative error that a kernel's approximation of a function may have


def formula_cause(found: Sequence[Comparison], limits: Sequence[Limit] | None) -> MismatchCause:
    """Returns a wrong formula as the cause of wrong values, from the comparison of each output and its limit."""
    size = max(map(_relative_error, found)) or math.inf
    known = [limit.functions() for limit in limits or () if isinstance(limit, RoundingLimit) and size <= _COARSEST]
    called = sorted(frozenset().union(*known), key=lambda name: (name == "divide", name))
    return replace(_cause(ErrorCause.FORMULA, size), functions=tuple(called))


# The largest finite error of wrong elements, relative to the largest expected value of these, or else of all.
def _relative_error(found: Comparison) -> float:
    most = float(np.max(magnitude(found.error[found.wrong]), initial=0.0))
    of_wrong, of_all = (float(np.max(magnitude(e), initial=0.0)) for e in (found.expected[found.wrong], found.expected))
    largest = of_wrong or of_all
    return most / largest if largest else math.inf if most else 0.0


# The rounding of a kernel whose formula is right.

BITS_UNSTABLE = 6
MOST_UNSTABLE = 2.0**BITS_UNSTABLE
"""The largest ratio of the bound by a kernel's own formula to that by the oracle's; above, the formula is unstable.

A backward stable one is not: it loses no more than rounding each input would, as with Welford's variance (Higham,
"Accuracy and Stability of Numerical Algorithms", 2002, section 1.5).
"""

_BACKWARD_STABLE = 4.0  # the largest error / bound by rounded inputs: Welford's is 1, that of E[x^2] - E[x]^2 over 200
_UNSTABLE_SLACK = 4.0  # of the oracle's bound: what an unstable formula may lose in fact

_FLOAT64 = float_format(np.dtype(np.float64))
_DIGIT = 10.0  # a value of which the oracle keeps a digit is so many times as large as its bound


@dataclass(frozen=True, slots=True)
class OwnRounding:
    """The rounding of a kernel's own formula."""

    bounds: tuple[Array, ...]  # the largest error of each output's elements, the rounding of the output itself included
    # the same, but close to those of the oracle where the kernel's formula may lose over `MOST_UNSTABLE` times as much
    admitted: tuple[Array, ...]
    exact: tuple[Array, ...]  # the outputs without rounding, but with the constants and integers of the kernel's dtypes


def own_format(tolerance: Tolerance, traced: Traced) -> FloatFormat | None:
    """Returns the format in which a kernel's own formula is sampled; None if the pairing declares other bounds.

    It is the policy of the tolerance, not the kernel's dtypes: a sum that is kept in bfloat16 is not admitted.
    """
    if not isinstance(tolerance, Rounding):
        return None
    if tolerance.compute != "input":
        return float_format(parse_dtype(tolerance.compute))
    floats = (float_format(leaf.dtype) for leaf in traced.inputs if is_float(leaf.dtype))
    return max(floats, key=lambda fmt: fmt.unit_roundoff, default=FLOAT32)


def own_rounding(
    sample: Callable[[SampleArithmetic], Sequence[Array]],
    arithmetic: SampleArithmetic,
    outputs: Sequence[Comparison],
    loose: Sequence[Array],
    *,
    sampled: bool = True,
    normwise: bool = False,
    literals: Sequence[Array] = (),
    coarse: Callable[[], Sequence[Sequence[Array]]] = tuple,
    overflows: Callable[..., bool] = lambda: False,
) -> OwnRounding | None:
    """Returns how far a kernel's own formula moves when each of its operations is rounded as a machine would.

    Args:
      sample: returns samples of each output, (samples, *shape), whose row 0 is not rounded; () if that is impossible.
      arithmetic: of the samples.
      outputs: the comparison of each output within the bounds of the oracle's rounding.
      loose: such bounds for a machine that rounds even representable results: an oracle may be exact by chance.
      sampled: whether the oracle's bounds come from samples. Other bounds do not show that the oracle is more stable.
      normwise: whether the oracle calls linear algebra, whose algorithms are stable in the norm of a matrix's columns.
      literals: where the formula is right beyond doubt, if the kernel's constants are its constants, rounded to 16 bits
        as those of the inputs are. Results with these constants are right there.
      coarse: returns the alternatives of each output for a machine that loses `BITS_UNSTABLE` bits.
      overflows: returns whether a finite number is too large for the kernel's dtypes, or `far` too large.

    Returns:
      None if there are no samples.
    """
    fmt = arithmetic.fmt
    if not (samples := sample(arithmetic)):
        return None
    own, admitted = [], []
    for number, (each, output, most) in enumerate(zip(samples, outputs, loose, strict=True)):
        if not is_float(output.actual.dtype):
            tied = _is_tied(each[1:], output)
            own.append(np.where(tied, np.inf, output.bound))
            if sampled and tied.any():
                tied &= _is_tied([cast(other, output.actual.dtype) for other in coarse()[number]], output)
            if literals:
                tied |= (each[0] == output.got) & literals[number]
            admitted.append(np.where(tied, np.inf, output.bound))
            continue
        moved = _moved(output.wanted, each, fmt)  # around the oracle's values: rounded constants of the kernel count
        size = magnitude(output.expected)
        own.append(np.maximum(output.bound, moved + float_format(output.actual.dtype).ulp(size + moved) / 2))
        most = np.maximum(output.bound, most)

        unstable = _is_unstable(own[-1], most, size) & sampled
        if unstable.any() and (counted := sample(replace(arithmetic, counters=True))):
            most = np.maximum(most, _moved(counted[number][0], counted[number], fmt))
            unstable &= _is_unstable(own[-1], most, size)
        stable = _UNSTABLE_SLACK * most
        rounded_inputs = SampleArithmetic(_FLOAT64, inputs=fmt.unit_roundoff, normwise=normwise)
        if unstable.any() and (perturbed := sample(rounded_inputs)):
            by_inputs = _moved(perturbed[number][0], perturbed[number], fmt)
            stable = np.maximum(stable, _BACKWARD_STABLE * by_inputs)
        if literals:
            unstable &= ~(_follows(each, output, most, fmt) & literals[number])
        admitted.append(np.where(unstable, np.minimum(stable, own[-1]), own[-1]))
        # Numbers so large that another order of right operations may overflow. Float16 is too narrow for sums anywhere.
        at_the_end = MOST_UNSTABLE * output.bound >= SPREAD_FACTOR * fmt.unit_roundoff * fmt.overflow
        lost = output.wrong & ~np.isfinite(output.got) & at_the_end & (fmt.max_exponent >= FLOAT32.max_exponent)
        if lost.any() and overflows() and not overflows(far=True):
            admitted[-1] = np.where(lost, np.inf, admitted[-1])
        if not unstable.any() or arithmetic.precision is None:
            continue
        # What operands of 16 bits lose is no formula's.
        if kept := sample(replace(arithmetic, precision=arithmetic.precision.with_wide_products())):
            own[-1] = np.where(unstable, np.maximum(output.bound, _moved(output.wanted, kept[number], fmt)), own[-1])
    return OwnRounding(tuple(own), tuple(admitted), tuple(each[0] for each in samples))


# Where an output follows the exact row of samples of a formula that is not unstable.
def _follows(samples: Array, output: Comparison, most: Array, fmt: FloatFormat) -> Array:
    exact = samples[0].astype(np.float64)
    size, moved = magnitude(exact), _moved(exact, samples, fmt)
    bound = moved + float_format(output.actual.dtype).ulp(size + moved) / 2
    with np.errstate(all="ignore"):
        return np.asarray((np.abs(output.got - exact) <= bound) & ~_is_unstable(bound, most, size))


# The wrong integers that rounding decides: those that a sample has, too, and those that are as near to the expected one
# as samples are, if these take three values or more. Of two, such as the positions of two maxima, none is between.
def _is_tied(samples: Iterable[Array], output: Comparison) -> Array:
    rows = np.stack([output.wanted, *(np.asarray(each, np.float64) for each in samples)])
    squares = ((rows - output.wanted) ** 2).sum(0)
    is_near = output.error <= SPREAD_FACTOR * np.sqrt(squares / (SAMPLE_ROWS - 1))
    has_several = (np.diff(np.sort(rows, axis=0), axis=0) != 0).sum(0) > 1
    tied: Array = output.wrong & ((rows == output.got).any(0) | (has_several & is_near))
    return tied


# Where a formula moves much farther than it may. Where the oracle itself keeps no digit, none can be lost.
def _is_unstable(own: Array, most: Array, size: Array) -> Array:
    unstable: Array = (own > MOST_UNSTABLE * most) & (size > _DIGIT * most)
    return unstable


# The bound that samples make around exact values.
def _moved(exact: Array, samples: Array, fmt: FloatFormat) -> Array:
    spread = spread_of(np.concatenate([exact[None], samples[1:].astype(np.float64)]))
    return np.where(spread.lost, 0.0, bound_from_spread(exact, spread, fmt.unit_roundoff))


def rounding_cause(found: Sequence[Comparison], own: OwnRounding | None) -> MismatchCause | None:
    """Returns the cause of wrong values of a kernel whose formula is right; None if NaN or an infinity is expected."""
    for each in found:
        # Rounding makes no difference in NaN, an infinity or the sign of a zero.
        if (each.wrong & ~(np.isfinite(each.expected) & ((each.expected != 0) | (each.actual != 0)))).any():
            return None
    if own is not None and not any(
        (each.wrong & ~(each.error <= bound)).any() for each, bound in zip(found, own.bounds, strict=True)
    ):
        ratios = [_largest_ratio(bound, each.bound, each) for each, bound in zip(found, own.bounds, strict=True)]
        return _cause(ErrorCause.UNSTABLE, max(ratios))
    return _cause(ErrorCause.ROUNDING, max(_largest_ratio(each.error, each.allowed, each) for each in found))


def is_lost(found: Comparison) -> bool:
    """Returns whether a wrong element is not finite, or its first digit is wrong."""
    size = np.maximum(np.abs(found.wanted), np.abs(found.got))
    return bool((found.wrong & ~(np.isfinite(found.got) & (found.error <= SLIGHT * size))).any())


def _cause(what: ErrorCause, size: float) -> MismatchCause:
    return MismatchCause(what, size if math.isfinite(size) else None)


# The largest ratio among the wrong elements; infinite if one of them is not finite or must be exact.
def _largest_ratio(size: Array, bound: Array, found: Comparison) -> float:
    with np.errstate(all="ignore"):
        return float(np.max(np.nan_to_num(size / bound, nan=np.inf, posinf=np.inf)[found.wrong], initial=0.0))
