"""The first of two questions about values: is the kernel's formula right?

The kernel is evaluated with its floats promoted to float64, and compared with the oracle as closely as arithmetic of 40
bits allows. This admits every right algorithm, and no tolerance hides a wrong one.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import ErrorCause, MismatchCause
from kerneltest.core.dtypes import Array, FloatFormat, float_format, is_float, parse_dtype
from kerneltest.core.failures import Failure, exception_text, warn_of_recovery
from kerneltest.core.precision import FLOAT32
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_models import Rounding, Tolerance
from kerneltest.execute.batching import kernel_inputs
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.output_comparison import CallOutputs
from kerneltest.judge.compare import Comparison, compare
from kerneltest.numerics.rounding_bounds import (
    FORMULA_FORMAT,
    NEGLIGIBLE,
    SPREAD_FACTOR,
    RoundingLimit,
    bound_from_spread,
    formula_precision,
)
from kerneltest.numerics.spread import spread_of
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel, SampleArithmetic
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import rounds_explicitly
from kerneltest.triage.symptoms import SLIGHT

# The outputs of kernels whose floats are promoted to float64, evaluated in batches.

_MOST = 2**22  # elements in the inputs of cases that are evaluated at once
_MOST_SAMPLED = 2**19  # the same, and in the outputs, of samples: all intermediate values are arrays


class NotPromotedError(Exception):
    """A kernel cannot be evaluated with its floats promoted; says why."""


def formula_kernel(item: Item, case: AnyCase, cache: Cache, traced: Traced) -> PromotedKernel:
    """Returns a kernel with its floats promoted to float64, traced in float64 if possible.

    Args:
      item, case: of which the kernel is evaluated.
      cache: of the pairing.
      traced: the kernel.

    Raises:
      NotPromotedError: there is none.
    """
    if traced not in cache.formulas.kernels:
        cache.enter_phase(Phase.TRACING)
        platform = item.backend.platform if traced.by_platform else ""
        wide = cache.tracer.trace_wide(item.pairing, case.signature, traced, platform)
        found = _promote(wide) if wide is not None else None
        cache.formulas.kernels[traced] = found if isinstance(found, PromotedKernel) else own_kernel(cache, traced)
    return cache.formulas.kernels[traced]


def own_kernel(cache: Cache, traced: Traced) -> PromotedKernel:
    """Returns a kernel with its floats promoted to float64, and the constants of its own dtypes.

    Raises:
      NotPromotedError: there is none.
    """
    if traced not in cache.formulas.own_kernels:
        cache.formulas.own_kernels[traced] = _promote(traced)
    found = cache.formulas.own_kernels[traced]
    if isinstance(found, str):
        raise NotPromotedError(found)
    return found


def promoted_outputs(item: Item, case: AnyCase, cache: Cache, traced: Traced) -> tuple[Array, ...]:
    """Returns the outputs of a kernel with its floats promoted to float64, evaluated with those of coming cases.

    Raises:
      NotPromotedError: the kernel cannot be evaluated so for this case.
    """
    kernel = formula_kernel(item, case, cache, traced)
    cache.enter_phase(Phase.RUNNING)
    if (traced, case.id) not in cache.formulas.outputs:
        cases, inputs = [case], [kernel_inputs(item, case, cache)]
        most = _MOST // (1 + sum(leaf.size for leaf in inputs[0]))
        for other in itertools.islice(_known_cases(case, cache), most):
            cases.append(other)
            inputs.append(kernel_inputs(item, other, cache))
        try:
            results = kernel([np.stack(column) for column in zip(*inputs, strict=True)])
        except Exception as error:
            if len(cases) == 1:
                raise _explain(error) from error
            cases = [case]
            try:  # another case may be the cause
                results = kernel([leaf[None] for leaf in inputs[0]])
            except Exception as own:
                raise _explain(own) from own
        for row, each in enumerate(cases):
            cache.formulas.outputs[traced, each.id] = tuple(output[row] for output in results)
    return cache.formulas.outputs.pop((traced, case.id))


def formula_samples(
    item: Item, case: AnyCase, cache: Cache, traced: Traced, arithmetic: SampleArithmetic
) -> tuple[Array, ...]:
    """Returns the outputs of a kernel with its floats promoted in samples, evaluated with those of coming cases.

    Coming cases need not ask for samples, so that at most as many are evaluated ahead as have asked.

    Returns:
      The outputs, (samples, *shape).

    Raises:
      NotPromotedError: the kernel cannot be evaluated so for this case.
    """
    kernel, formulas = formula_kernel(item, case, cache, traced), cache.formulas
    formulas.sampled[traced] += 1
    if (found := formulas.samples.pop((traced, case.id), None)) is not None:
        return found
    leaves = kernel_inputs(item, case, cache)
    size = sum(leaf.size for leaf in leaves) + sum(math.prod(each.shape) for each in traced.outputs)
    most = min(formulas.sampled[traced] - 1, _MOST_SAMPLED // (1 + arithmetic.rows * size))
    answered = formulas.right, formulas.samples
    coming = (o for o in _known_cases(case, cache) if not any((traced, o.id) in each for each in answered))
    cases = list(itertools.islice(coming, 0 if traced in formulas.unbatched else most))
    inputs = [leaves, *(kernel_inputs(item, other, cache) for other in cases)]
    try:
        results = kernel.sample_cases([np.stack(column) for column in zip(*inputs, strict=True)], arithmetic)
    except Exception as error:
        if not cases:
            raise _explain(error) from error
        formulas.unbatched.add(traced)  # as where cases take different branches
        return sample_kernel(kernel, leaves, arithmetic)
    for row, each in enumerate(cases, 1):
        formulas.samples[traced, each.id] = tuple(output[row].copy() for output in results)
    return tuple(output[0] for output in results)


def _known_cases(case: AnyCase, cache: Cache) -> Iterator[AnyCase]:
    """Yields the coming cases of a signature whose inputs are filled already."""
    return (o for o in cache.later_cases(case) if o.id in cache.expectations or o.id in cache.batch_inputs)


def run_promoted(kernel: PromotedKernel, leaves: Sequence[Array]) -> tuple[Array, ...]:
    """Returns the outputs of such a kernel for one case.

    Raises:
      NotPromotedError: the kernel cannot be evaluated so for these inputs.
    """
    try:
        return tuple(output[0] for output in kernel([leaf[None] for leaf in leaves]))
    except Exception as error:
        raise _explain(error) from error


def overflows_own_dtypes(kernel: PromotedKernel, leaves: Sequence[Array]) -> bool:
    """Returns whether a finite result of such a kernel is too large for the dtype that it has in the kernel itself.

    Raises:
      NotPromotedError: the kernel cannot be evaluated so for these inputs.
    """
    try:
        return kernel.overflows_own_dtypes(leaves)
    except Exception as error:
        raise _explain(error) from error


def unrounded_kernel(cache: Cache, traced: Traced) -> PromotedKernel | None:
    """Returns a kernel with its floats promoted and without explicit rounding; None if it has none or cannot be."""
    if traced not in cache.formulas.unrounded:
        found = _promote(traced, rounds=False) if rounds_explicitly(traced.jaxpr.jaxpr) else None
        cache.formulas.unrounded[traced] = found if isinstance(found, PromotedKernel) else None
    return cache.formulas.unrounded[traced]


def sample_kernel(kernel: PromotedKernel, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> tuple[Array, ...]:
    """Returns the outputs of such a kernel in samples, (samples, *shape).

    Raises:
      NotPromotedError: the kernel cannot be evaluated so for these inputs.
    """
    try:
        return kernel.sample(leaves, arithmetic)
    except Exception as error:
        raise _explain(error) from error


def _promote(traced: Traced, *, rounds: bool = True) -> PromotedKernel | str:
    try:
        return PromotedKernel(traced, rounds=rounds)
    except Exception as error:
        return str(_explain(error))


def _explain(error: Exception) -> NotPromotedError:
    """Returns the error that says why a kernel cannot be evaluated.

    Raises:
      Failure: the evaluation hangs.
    """
    if isinstance(error, Failure) and error.verdict is Verdict.HANG:
        raise error
    warn_of_recovery(error, "evaluating a kernel without rounding", UnknownError)
    return NotPromotedError(f"it cannot be evaluated in NumPy: {exception_text(error)}")


WITHOUT_ROUNDING = "without rounding"
FORMULA_ARITHMETIC = SampleArithmetic(FORMULA_FORMAT, constants=True)


def compare_formula(
    item: Item, case: AnyCase, cache: Cache, traced: Traced, expectation: Expectation, *, specials: bool = False
) -> list[Comparison]:
    """Compares the outputs of a kernel whose floats are promoted to float64 with the oracle's.

    Args:
      item, case: whose outputs they are.
      cache: of the pairing.
      traced: the kernel.
      expectation: the oracle's values.
      specials: whether a result that is NaN or infinite is wrong where the other one is finite, unless float64
        overflows too. Kernels overflow elsewhere in their own dtypes, so that this is evidence and no finding.

    Returns:
      The comparison of each output; its bound is infinite where the elements were not compared.

    Raises:
      NotPromotedError: the kernel cannot be evaluated so.
    """
    outputs = promoted_outputs(item, case, cache, traced)
    kernel = formula_kernel(item, case, cache, traced)

    def sample() -> Sequence[Array]:
        return formula_samples(item, case, cache, traced, FORMULA_ARITHMETIC)

    cache.enter_phase(Phase.EXPECTING)
    found = compare_closely(outputs, expectation, kernel.functions, sample, specials=specials)
    lost = specials and any((each.wrong & ~np.isfinite(each.actual.astype(np.float64))).any() for each in found)
    if lost and kernel.overflows(kernel_inputs(item, case, cache)):
        return compare_closely(outputs, expectation, kernel.functions, sample)
    return found


def is_right_unrounded(item: Item, case: AnyCase, cache: Cache, traced: Traced, expectation: Expectation) -> bool:
    """Returns whether a kernel's formula is right but for results that the kernel rounds explicitly."""
    kernel = unrounded_kernel(cache, traced)
    if kernel is None:
        return False
    leaves = kernel_inputs(item, case, cache)
    try:
        found = compare_closely(
            run_promoted(kernel, leaves),
            expectation,
            kernel.functions,
            lambda: sample_kernel(kernel, leaves, FORMULA_ARITHMETIC),
        )
    except NotPromotedError:
        return False
    return not any(each.wrong.any() for each in found)


def compare_closely(
    outputs: Sequence[Array],
    expectation: Expectation,
    functions: frozenset[str],
    sample: Callable[[], Sequence[Array]],
    *,
    specials: bool = False,
) -> list[Comparison]:
    """Compares outputs without rounding with the oracle's values.

    They are held first to what no formula moves, then to what the oracle's operations may move in arithmetic of 40
    bits, then to what the kernel's may, each only if the one before does not admit them.

    Args:
      outputs: the kernel's outputs without rounding.
      expectation: the oracle's values.
      functions: the functions that the kernel calls, by their names in `Precision.ulps`.
      sample: returns samples of the outputs in that arithmetic, (samples, *shape).
      specials: as for `compare_formula`.

    Raises:
      NotPromotedError: the kernel cannot be sampled.
    """
    bounds = [
        least_bound(got, value, defined & (specials | _both_finite(got, value)))
        for got, value, defined in zip(outputs, expectation.values, expectation.defined, strict=True)
    ]
    precision, limits = formula_precision(functions), expectation.formula or ()
    alternatives: list[tuple[Array, ...]] = [()] * len(outputs)

    def compare_all() -> list[Comparison]:
        return [
            compare(got, value, bound, signed_zeros=False, alternatives=others)
            for got, value, bound, others in zip(outputs, expectation.values, bounds, alternatives, strict=True)
        ]

    found = compare_all()
    if limits and any(each.wrong.any() for each in found):
        pairs = list(zip(bounds, limits, outputs, strict=True))
        bounds = [bound + limit.at(precision) if is_float(got.dtype) else bound for bound, limit, got in pairs]
        alternatives = [
            limit.alternatives(precision) if isinstance(limit, RoundingLimit) and not is_float(got.dtype) else ()
            for _, limit, got in pairs
        ]
        found = compare_all()
    if any(each.wrong.any() for each in found):
        bounds = [bound + movement(each) for bound, each in zip(bounds, sample(), strict=True)]
        found = compare_all()
    return found


def ask_formula(
    item: Item, case: AnyCase, cache: Cache, traced: Traced, expectation: Expectation
) -> tuple[FormulaAnswer, Sequence[Comparison]]:
    """Asks whether a kernel's formula is right for a case.

    Returns:
      The answer, and the comparison of each output if some element is wrong; otherwise ().
    """
    key = traced, case.id
    if key in cache.formulas.right:
        return cache.formulas.right[key], ()
    answer, found = _ask(item, case, cache, traced, expectation)
    if not found:
        cache.formulas.right[key] = answer
    return answer, found


def _ask(
    item: Item, case: AnyCase, cache: Cache, traced: Traced, expectation: Expectation
) -> tuple[FormulaAnswer, Sequence[Comparison]]:
    try:
        found = compare_formula(item, case, cache, traced, expectation)
    except NotPromotedError as error:
        return FormulaAnswer(unanswered=str(error)), ()
    return answer_from(found), found if any(each.wrong.any() for each in found) else ()


def answer_from(found: Sequence[Comparison]) -> FormulaAnswer:
    """Returns the answer that the comparison of each output gives."""
    compared = sum(int(np.isfinite(each.bound).sum()) for each in found)
    fraction = max((each.bound_fraction for each in found if each.bound_fraction is not None), default=None)
    return FormulaAnswer(compared, fraction)


def claim_formula(claim: CallOutputs, found: Sequence[Comparison]) -> CallOutputs:
    """Returns what is claimed of a kernel's outputs without rounding.

    Args:
      claim: the claim about its outputs.
      found: the comparison of each output without rounding.
    """
    return replace(
        claim,
        outputs=[each.actual for each in found],
        bounds=[each.bound for each in found],
        signed_zeros=False,
        tolerance=WITHOUT_ROUNDING,
        label=f"{claim.label} {WITHOUT_ROUNDING}".lstrip(),
        error_shares=lambda output: (),
        cause=formula_cause(found),
    )


def formula_cause(found: Sequence[Comparison]) -> MismatchCause:
    """Returns a wrong formula as the cause of wrong values, from the comparison of each output."""
    size = max(map(_relative_error, found))
    return MismatchCause(ErrorCause.FORMULA, size if size and math.isfinite(size) else None)


def _relative_error(found: Comparison) -> float:
    """Returns the largest finite error of wrong elements, relative to the largest expected value."""
    with np.errstate(all="ignore"):
        error = np.abs(found.actual.astype(np.float64) - found.expected)[found.wrong]
        size = np.abs(np.asarray(found.expected, np.float64))
    most = float(np.max(error[np.isfinite(error)], initial=0.0))
    largest = float(np.max(size[np.isfinite(size)], initial=0.0))
    return most / largest if largest else most


def _both_finite(got: Array, value: Array) -> Array:
    return np.isfinite(got.astype(np.float64)) & np.isfinite(np.asarray(value, np.float64))


def least_bound(got: Array, value: Array, asked: Array) -> Array:
    """Returns the difference that is not seen whatever the formula; infinite for elements that are not asked."""
    if not is_float(got.dtype):
        return np.where(asked, 0.0, np.inf)
    wide = np.asarray(value, np.float64)
    size = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    bound = NEGLIGIBLE * size + FLOAT32.smallest_subnormal / 2
    if got.dtype != np.float64:  # stored in 8 bits
        bound = bound + float_format(got.dtype).ulp(size) / 2
    return np.where(asked, bound, np.inf)


def movement(samples: Array) -> Array:
    """Returns how far each element of an output moves in samples; infinite where it jumps."""
    if not is_float(samples.dtype):
        return np.where((samples != samples[:1]).any(0), np.inf, 0.0)
    spread = spread_of(samples.astype(np.float64))
    return np.where(spread.lost, np.inf, SPREAD_FACTOR * spread.deviation)


# The second of two questions about values, asked of a kernel whose formula is right: is its rounding?
#
# The oracle's own rounding bounds that of most kernels. One that computes the same in another order or form may round
# differently, so it is also held against its own formula, computed in float32 or wider throughout.

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
