"""A kernel that NumPy evaluates as it is or with other equations, with and without rounding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import numpy as np

from kerneltest.core.dtypes import Array, is_float, is_integer
from kerneltest.localize.equation_sites import LocatedJaxpr, SiteKey, site_key
from kerneltest.trace.batched_interpreter.batched_evaluator import BatchedEvaluator, Rule
from kerneltest.trace.batched_interpreter.batched_kernel import BatchedKernel, kernel_rule
from kerneltest.trace.batched_interpreter.batched_values import EquationFunction, is_promotable, promote_floats
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel
from kerneltest.trace.batched_interpreter.sampling_rule import SampleArithmetic
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Equation
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import primitive_name

# Primitives that compute no new floats. What one equation leaves unrounded, they hand on.
MOVES = frozenset(
    """broadcast_in_dim reshape squeeze expand_dims transpose rev slice dynamic_slice dynamic_update_slice concatenate
    pad gather scatter copy copy_p select_n stop_gradient optimization_barrier get swap masked_load masked_swap load
    store max min reduce_max reduce_min cummax cummin neg abs scan while cond pjit jit closed_call core_call
    custom_jvp_call custom_vjp_call custom_vmap_call run_scoped run_state pallas_call core_map""".split()
)


# Makes a mutated jaxpr; None if the mutation does not apply to it.
Mutate = Callable[[LocatedJaxpr], ClosedJaxpr | None]


@dataclass(frozen=True, slots=True)
class EquationPatch:
    """Other equations of a kernel.

    Attributes:
      mutate: mutates its jaxpr; None to leave it.
      unrounded: the place of the equations whose results are not rounded, or do not wrap; None for nowhere.
    """

    mutate: Mutate | None = None
    unrounded: SiteKey | None = None

    def apply(self, jaxpr: LocatedJaxpr) -> ClosedJaxpr:
        """Returns the jaxpr as the patch has it."""
        changed = None if self.mutate is None else self.mutate(jaxpr)
        return jaxpr.jaxpr if changed is None else changed


class EvaluatedRun:
    """The outputs of one evaluation, each computed when it is first asked for.

    Args:
      kernel: the kernel.
      leaves: its inputs.
      patch: its equations.
    """

    def __init__(self, kernel: "EvaluatedKernel", leaves: Sequence[Array], patch: EquationPatch) -> None:
        self._kernel, self._leaves, self._patch = kernel, leaves, patch

    @cached_property
    def rounded(self) -> tuple[Array, ...]:
        """The outputs in the kernel's dtypes, with each float rounded to its dtype."""
        outputs = self._evaluate(self._patch.apply(self._kernel.own), _RoundingRule(self._patch.unrounded))
        return tuple(x.astype(o.dtype, copy=False) for x, o in zip(outputs, self._kernel.traced.outputs, strict=True))

    @cached_property
    def formula(self) -> tuple[Array, ...]:
        """The outputs without rounding, float64 in place of floats of 16 bits or more."""
        return self._evaluate(self._patch.apply(self._kernel.wide), kernel_rule)

    def _evaluate(self, jaxpr: ClosedJaxpr, rule: Rule) -> tuple[Array, ...]:
        with promote_floats():
            kernel = BatchedKernel(replace(self._kernel.traced, jaxpr=jaxpr), rule=rule)
        leaves = [x.astype(np.float64) if is_promotable(x.dtype) else x for x in self._leaves]
        with jax.enable_x64(True), np.errstate(all="ignore"):
            return tuple(output[0] for output in kernel([leaf[None] for leaf in leaves]))


class EvaluatedKernel:
    """A traced kernel that NumPy evaluates.

    Attributes:
      traced: the kernel.
      lengths: the lengths of its dims, by name.
      own: its jaxpr in its own dtypes.
      wide: the same, traced in float64 if it can be.
      promoted: evaluates it without rounding, also in samples.

    Raises:
      UnknownError: it contains an operation that NumPy does not evaluate.
    """

    def __init__(self, traced: Traced, wide: Traced | None, lengths: Mapping[str, int]) -> None:
        self.traced, self.lengths = traced, lengths
        self.own = LocatedJaxpr(traced.jaxpr, lengths)
        self.wide = LocatedJaxpr(wide.jaxpr, lengths) if wide is not None else self.own
        self.promoted = PromotedKernel(wide or traced)

    def run(self, leaves: Sequence[Array], patch: EquationPatch | None = None) -> EvaluatedRun:
        """Evaluates the kernel on its inputs, with a patch or as it is."""
        return EvaluatedRun(self, leaves, patch or EquationPatch())

    def sample(self, leaves: Sequence[Array], arithmetic: SampleArithmetic) -> Sequence[Array]:
        """Evaluates the unpatched kernel in samples, (samples, *shape)."""
        return self.promoted.sample(leaves, arithmetic)


class _RoundingRule:
    """Evaluates equations in float64, and rounds their results to the dtypes of the kernel."""

    def __init__(self, unrounded: SiteKey | None) -> None:
        self._unrounded = unrounded

    def __call__(self, evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
        evaluate, name = kernel_rule(evaluator, equation), primitive_name(equation)
        if name in MOVES or len(equation.outvars) != 1 or not hasattr(equation.outvars[0].aval, "dtype"):
            return evaluate
        dtype = np.dtype(equation.outvars[0].aval.dtype)
        if self._unrounded is not None and self._unrounded[1] == name and site_key(equation) == self._unrounded:
            return (lambda operands: operands) if is_integer(dtype) else evaluate
        if not is_float(dtype) or not is_promotable(dtype) or dtype == np.float64:
            return evaluate

        def rounded(operands: Sequence[Array]) -> Sequence[Array]:
            return [x.astype(dtype).astype(np.float64) if is_float(x.dtype) else x for x in evaluate(operands)]

        return rounded
