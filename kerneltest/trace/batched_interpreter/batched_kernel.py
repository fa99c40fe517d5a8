"""A traced kernel, and one Pallas call as JAX's interpreter runs it, evaluated in NumPy."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.array_rules import SHAPES
from kerneltest.trace.batched_interpreter.atomic_rules import ATOMICS
from kerneltest.trace.batched_interpreter.batched_evaluator import BatchedEvaluator, Rule
from kerneltest.trace.batched_interpreter.batched_values import (
    ArrayFunction,
    EquationFunction,
    UnknownError,
    by_row,
    dtype_of,
    is_promoting,
)
from kerneltest.trace.batched_interpreter.control_flow_rules import CONTROL, call_python
from kerneltest.trace.batched_interpreter.copy_rules import COPIES
from kerneltest.trace.batched_interpreter.elementwise_rules import PLAIN, WITH_PARAMETERS, convert, select
from kerneltest.trace.batched_interpreter.gather_scatter_rules import INDEXING
from kerneltest.trace.batched_interpreter.pallas_call_rule import pallas_call
from kerneltest.trace.batched_interpreter.reference_rules import MEMORY
from kerneltest.trace.jax_compat.interception import interpretation
from kerneltest.trace.jax_compat.jaxpr_types import Equation, JaxArray, Jaxpr
from kerneltest.trace.rewrite import interpret_calls, rewrite_jaxpr
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import PALLAS_PRIMITIVES, nested_jaxprs, primitive_name

_ON_ARRAYS: Mapping[str, Callable[[Equation], ArrayFunction]] = {**SHAPES, **INDEXING}
_ON_REFERENCES: Mapping[str, Callable[[Equation], EquationFunction]] = {**MEMORY, **ATOMICS, **COPIES}
_WITH_EVALUATOR: Mapping[str, Callable[[BatchedEvaluator, Equation], EquationFunction]] = {
    **CONTROL,
    "pallas_call": pallas_call,
}


class BatchedKernel:
    """A kernel evaluated in NumPy for many inputs at once.

    Args:
      traced: the kernel.
      rule: from an evaluator and an equation to the function that evaluates the equation.
      use_jax_interpreter: whether each Pallas call is replaced by the jaxpr to which JAX's own interpreter reduces it.

    Attributes:
      uses_jax_interpreter: the same.

    Raises:
      UnknownError: the kernel contains an unsupported operation.
    """

    def __init__(self, traced: Traced, *, rule: Rule | None = None, use_jax_interpreter: bool = False) -> None:
        self.uses_jax_interpreter = use_jax_interpreter
        poisoned = rewrite_jaxpr(traced.jaxpr, interpret_calls(True))
        rule = rule or (_rule_by_jax if use_jax_interpreter else kernel_rule)
        self._compiled = BatchedEvaluator(rule).compile(poisoned)
        self._outputs = traced.outputs

    def __call__(
        self, leaves: Sequence[Array], *, overflow: Literal["ignore", "raise"] = "ignore"
    ) -> tuple[Array, ...]:
        """Evaluates the kernel.

        Args:
          leaves: (rows, *shape), or (1, *shape) for a leaf that all rows share.
          overflow: what to do where finite operands have an infinite result.

        Returns:
          The outputs, (rows, *shape).

        Raises:
          UnknownError: the values lead to something unsupported.
          FloatingPointError: an operation overflows, and is to raise.
        """
        with np.errstate(all="ignore", over=overflow):
            outputs = self._compiled(leaves)
        rows = max((len(leaf) for leaf in leaves), default=1)
        return tuple(np.broadcast_to(x, (rows, *o.shape)) for x, o in zip(outputs, self._outputs, strict=True))


@functools.lru_cache(maxsize=4096)
def operation(equation: Equation) -> EquationFunction | None:
    """The function that evaluates an equation without a Pallas call in it; None if it is not supported."""
    try:
        return _supported_rule(BatchedEvaluator(_supported_rule), equation)
    except UnknownError:
        return None


class NumpyInterpretedCall:
    """A Pallas call as JAX's own interpreter runs it, with the interpreter's operations evaluated in NumPy.

    Args:
      equation: the call's, with the interpreter among its parameters.

    Raises:
      UnknownError: the interpreter uses an unsupported operation.
    """

    def __init__(self, equation: Equation) -> None:
        self._evaluator = BatchedEvaluator(_rule_with_callbacks)
        self._function = _rule_by_jax(self._evaluator, equation)

    def __call__(self, *operands: JaxArray) -> list[Array]:
        """Runs the call and returns its outputs, without rows."""
        with np.errstate(all="ignore"):
            return [output[0] for output in self._function([np.asarray(operand)[None] for operand in operands])]

    def run_thread(self, jaxpr: Jaxpr, values: Sequence[JaxArray]) -> None:
        """Runs one of the kernel's threads.

        Args:
          jaxpr: the thread's, open.
          values: the jaxpr's constants and inputs.
        """
        with np.errstate(all="ignore"):
            self._evaluator.compile(jaxpr, consts_as_arguments=True)([np.asarray(value)[None] for value in values])


def _rule_by_jax(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    """The function that evaluates an equation, with JAX's interpretation in place of a Pallas call."""
    return (
        evaluator.compile(interpretation(equation))
        if primitive_name(equation) in PALLAS_PRIMITIVES
        else kernel_rule(evaluator, equation)
    )


def _rule_with_callbacks(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    """The same, with the callbacks that interpreters use; `BatchedKernel` has none, since a user's would run twice."""
    return call_python(equation) if primitive_name(equation) == "io_callback" else _rule_by_jax(evaluator, equation)


def kernel_rule(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    """The function that evaluates an equation, by JAX if it is not supported here but has no side effect."""
    try:
        return _supported_rule(evaluator, equation)
    except UnknownError:
        pure = not equation.effects and not any(hasattr(v.aval, "inner_aval") for v in equation.invars)
        if pure and not [each for value in equation.params.values() for each in nested_jaxprs(value)]:
            return _bind_by_row(equation)
        raise


def _supported_rule(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    name, params = primitive_name(equation), equation.params
    if name in PLAIN:
        return _elementwise(equation, PLAIN[name])
    if name in WITH_PARAMETERS:
        return _elementwise(equation, WITH_PARAMETERS[name](params))
    if name == "select_n":
        return _elementwise(equation, select)
    if name == "convert_element_type":
        dtype, promoted = dtype_of(equation.outvars[0].aval), is_promoting()
        return lambda operands: (convert(operands[0], dtype, promoted=promoted),)
    if name in _ON_ARRAYS:
        function = _ON_ARRAYS[name](equation)
        return lambda operands: (function(*operands),)
    if name in _ON_REFERENCES:
        return _ON_REFERENCES[name](equation)
    if name in _WITH_EVALUATOR:
        return _WITH_EVALUATOR[name](evaluator, equation)
    if name == "optimization_barrier":
        return lambda operands: operands
    raise UnknownError(name)


def _elementwise(equation: Equation, function: ArrayFunction) -> EquationFunction:
    """Evaluates an elementwise operation, whose operands have the result's shape or are scalars."""
    aval = equation.outvars[0].aval
    dtype, ndim = dtype_of(aval), len(aval.shape) + 1

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        aligned = [x if x.ndim == ndim else x.reshape(len(x), *(1,) * (ndim - 1)) for x in operands]
        result = function(*aligned)
        if type(result) is np.ndarray and result.dtype is dtype:  # the common case, and a program has many operations
            return (result,)
        return (np.asarray(result).astype(dtype, copy=False),)

    return evaluate


def _bind_by_row(equation: Equation) -> EquationFunction:
    """Has JAX evaluate an operation, row by row."""
    primitive, params = equation.primitive, equation.params

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        rows = [primitive.bind(*row, **params) for row in by_row(operands)]
        columns = zip(*rows, strict=True) if primitive.multiple_results else [rows]
        return [np.stack([np.asarray(each) for each in column]) for column in columns]

    return evaluate
