"""The first of two questions about values: is the kernel's formula right?

The kernel is evaluated with its floats promoted to float64, and compared with the oracle as closely as arithmetic of 40
bits allows. This admits every right algorithm, and no tolerance hides a wrong one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kerneltest.core.details import ErrorCause, MismatchCause
from kerneltest.core.dtypes import Array, float_format, is_float
from kerneltest.core.precision import FLOAT32
from kerneltest.execute.batching import kernel_inputs
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.output_comparison import CallOutputs
from kerneltest.execute.promoted_outputs import (
    NotPromotedError,
    formula_kernel,
    formula_samples,
    promoted_outputs,
    run_promoted,
    sample_kernel,
    unrounded_kernel,
)
from kerneltest.judge.compare import Comparison, compare
from kerneltest.numerics.formula import FORMULA_FORMAT, NEGLIGIBLE, formula_precision
from kerneltest.numerics.rounding_bounds import SPREAD_FACTOR, RoundingLimit
from kerneltest.numerics.spread import spread_of
from kerneltest.oracle.expectation import Expectation
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer
from kerneltest.trace.batched_interpreter.sampling_rule import SampleArithmetic
from kerneltest.trace.tracing import Traced

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
