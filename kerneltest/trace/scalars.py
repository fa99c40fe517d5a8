"""Evaluation of integer jaxprs in NumPy for many values at once, such as index maps over a whole grid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.jax_compat.jaxprs import Atom, Equation, Jaxpr, open_jaxpr
from kerneltest.trace.primitives import called_jaxpr
from kerneltest.trace.walk import primitive_name


class UnknownError(Exception):
    """Raised for a jaxpr with an operation that is not supported, or with a value that is not available."""


def evaluate_scalars(jaxpr: Jaxpr, arguments: Sequence[Array | None]) -> list[Array]:
    """Evaluates a jaxpr of integer scalars, each argument an array of the values that it takes.

    Arrays are broadcast against each other only when an operation combines them.

    Args:
      jaxpr: an open one, whose references are only read.
      arguments: the values of each parameter, or the content of the memory that it refers to; None if unknown.

    Returns:
      An array of values for each result.

    Raises:
      UnknownError: the jaxpr computes with other values than integers, or needs an unknown one.
    """
    values = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(operand: Atom) -> Array:
        value = np.asarray(operand.val, operand.aval.dtype) if hasattr(operand, "val") else values.get(operand)
        if value is None:
            raise UnknownError
        return value

    with np.errstate(all="ignore"):
        for equation in jaxpr.eqns:
            results = _evaluate_equation(equation, read)
            for variable, result in zip(equation.outvars, results, strict=True):
                values[variable] = result.astype(variable.aval.dtype, copy=False)
    return [read(variable) for variable in jaxpr.outvars]


def _evaluate_equation(equation: Equation, read: Callable[[Atom], Array]) -> list[Array]:
    name, params = primitive_name(equation), equation.params
    if (inner := called_jaxpr(equation)) is not None:
        return evaluate_scalars(open_jaxpr(inner), [read(v) for v in equation.invars])
    if any(v.aval.shape or v.aval.dtype.kind not in "biu" for v in equation.outvars):
        raise UnknownError
    if name == "get":
        memory, *rest = equation.invars
        return [_element(read(memory), jax.tree.unflatten(params["tree"], rest), read)]
    if name not in _OPERATIONS:
        raise UnknownError
    return [np.asarray(_OPERATIONS[name](*map(read, equation.invars)))]


def _element(memory: Array, transforms: Sequence[Any], read: Callable[[Atom], Array]) -> Array:
    """One element of an array for each of many indices."""
    if len(transforms) != 1:
        raise UnknownError
    indices = [np.asarray(i) if isinstance(i, int) else read(i) for i in transforms[0].indices if not _is_slice(i)]
    if len(indices) != memory.ndim or any(
        ((i < 0) | (i >= length)).any() for i, length in zip(indices, memory.shape, strict=True)
    ):
        raise UnknownError
    return np.asarray(memory[tuple(indices)])


def _is_slice(index: object) -> bool:
    return hasattr(index, "size") and hasattr(index, "start")


def _quotient(a: Array, b: Array) -> Array:
    if not b.all():
        raise UnknownError
    floor = a // b
    return np.asarray(floor + ((floor * b != a) & ((a < 0) != (b < 0))))  # rounded towards 0, as in XLA


def _remainder(a: Array, b: Array) -> Array:
    if not b.all():
        raise UnknownError
    return np.asarray(np.fmod(a, b))


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "max": np.maximum,
    "min": np.minimum,
    "div": _quotient,
    "rem": _remainder,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "select_n": lambda which, *cases: np.choose(which.astype(np.intp), cases),
    "convert_element_type": lambda x: x,
    "multiple_of": lambda x: x,
    "broadcast_in_dim": lambda x: x,  # of a scalar to a scalar
    "squeeze": lambda x: x,
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
}
