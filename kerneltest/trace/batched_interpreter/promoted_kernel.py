"""A kernel evaluated with every float of 16 bits or more promoted to float64: what its formula gives without rounding.

The same evaluation in samples, in each of which every operation is rounded at random, shows how far results move with
the roundings of an arithmetic, whatever the dtypes of the kernel are.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import jax
import numpy as np

from kerneltest.core.dtypes import Array, float_format
from kerneltest.trace.batched_interpreter.batched_evaluator import BatchedEvaluator
from kerneltest.trace.batched_interpreter.batched_kernel import BatchedKernel, kernel_rule
from kerneltest.trace.batched_interpreter.batched_values import (
    EquationFunction,
    UnknownError,
    in_step,
    is_promotable,
    promote_floats,
)
from kerneltest.trace.batched_interpreter.sampling_rule import ROUNDS, SampleArithmetic, SamplingRule
from kerneltest.trace.jax_compat.jaxpr_types import Equation
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import ROUNDING, iter_equations, primitive_name


def _without_rounding(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    """Evaluates an equation, but an explicit rounding returns its operand."""
    return list if primitive_name(equation) == ROUNDING else kernel_rule(evaluator, equation)


def _within_own_dtypes(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    """Evaluates an equation; raises FloatingPointError if a number becomes too large for its dtype in the kernel."""
    evaluate = kernel_rule(evaluator, equation)
    dtypes = [np.dtype(getattr(variable.aval, "dtype", np.bool_)) for variable in equation.outvars]
    limits = [float_format(each).overflow if is_promotable(each) else np.inf for each in dtypes]

    def check(operands: Sequence[Array]) -> Sequence[Array]:
        results = evaluate(operands)
        for result, limit in zip(results, limits, strict=True):
            if not isinstance(result, np.ndarray) or limit == np.inf:
                continue
            if (np.isfinite(result) & (np.abs(result) >= limit)).any():
                raise FloatingPointError(f"{primitive_name(equation)} overflows")
        return results

    return check


class PromotedKernel:
    """A kernel with its floats promoted to float64.

    Args:
      traced: the kernel.
      rounds: whether it rounds where the kernel does so explicitly, by `reduce_precision`.

    Attributes:
      functions: the functions that it calls, by their names in `Precision.ulps`.

    Raises:
      UnknownError: it contains an unsupported operation.
    """

    def __init__(self, traced: Traced, *, rounds: bool = True) -> None:
        self._traced = traced
        names = {primitive_name(equation) for equation, _ in iter_equations(traced.jaxpr.jaxpr)}
        self.functions = frozenset(filter(None, map(ROUNDS.get, names)))
        with promote_floats():
            self._kernel = BatchedKernel(traced, rule=None if rounds else _without_rounding)
        self._sampled: dict[SampleArithmetic, tuple[SamplingRule, BatchedKernel]] = {}
        self._within: BatchedKernel | None = None  # made on first use

    def __call__(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """Evaluates the kernel for several inputs at once.

        Args:
          leaves: (rows, *shape).

        Returns:
          The outputs, (rows, *shape): float64 in place of floats of 16 bits or more.

        Raises:
          UnknownError: the values lead to something unsupported.
        """
        with jax.enable_x64(True):
            return self._kernel([_promote(leaf) for leaf in leaves])

    def overflows(self, leaves: Sequence[Array]) -> bool:
        """Returns whether an operation on finite values overflows float64, for one case.

        Args:
          leaves: (*shape).
        """
        return _overflows(self._kernel, leaves)

    def overflows_own_dtypes(self, leaves: Sequence[Array]) -> bool:
        """Returns whether a number becomes too large for the dtype that it has in the kernel, for one case.

        Args:
          leaves: (*shape).

        Raises:
          UnknownError: the values lead to something unsupported.
        """
        if self._within is None:
            with promote_floats():
                self._within = BatchedKernel(self._traced, rule=_within_own_dtypes)
        return _overflows(self._within, leaves)

    def sample(self, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        """Evaluates the kernel in samples for one case: `leaves` are (*shape), the outputs (samples, *shape).

        Raises:
          UnknownError: the values lead to something unsupported.
        """
        return tuple(output[0] for output in self.sample_cases([np.asarray(leaf)[None] for leaf in leaves], arithmetic))

    def sample_cases(self, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> tuple[Array, ...]:
        """Evaluates the kernel in samples for several cases at once, each as if by itself.

        Args:
          leaves: (cases, *shape).
          arithmetic: of the samples.

        Returns:
          The outputs, (cases, samples, *shape).

        Raises:
          UnknownError: the values lead to something unsupported.
        """
        if arithmetic not in self._sampled:
            rule = SamplingRule(arithmetic, self._traced)
            with promote_floats():
                self._sampled[arithmetic] = rule, BatchedKernel(self._traced, rule=rule)
        rule, kernel = self._sampled[arithmetic]
        cases = len(leaves[0]) if leaves else 1
        rule.restart(cases)
        with jax.enable_x64(True), in_step() if cases > 1 else nullcontext():  # or noise would depend on other cases
            try:
                repeated = [np.repeat(_promote(leaf), arithmetic.rows, 0) for leaf in leaves]
                outputs = kernel(rule.perturb_inputs(repeated))
            except ValueError as error:  # shapes with rows of one branch beside shapes with all rows
                raise UnknownError("samples that take different branches") from error
        return tuple(output.reshape(cases, len(output) // cases, *output.shape[1:]) for output in outputs)


def _overflows(kernel: BatchedKernel, leaves: Sequence[Array]) -> bool:
    with jax.enable_x64(True):
        try:
            kernel([_promote(leaf)[None] for leaf in leaves], overflow="raise")
        except FloatingPointError:
            return True
    return False


def _promote(leaf: Array) -> Array:
    return leaf.astype(np.float64) if is_promotable(leaf.dtype) else leaf
