"""The outputs of kernels whose floats are promoted to float64, evaluated in batches."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.guard import warn_of_recovery
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.batching import kernel_inputs
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.journal import Phase
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel
from kerneltest.trace.batched_interpreter.sampling_rule import SampleArithmetic
from kerneltest.trace.scalars import UnknownError
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import rounds_explicitly

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
