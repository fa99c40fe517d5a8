"""A traced kernel, for many inputs at once."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.calls import pallas_call
from kerneltest.trace.batched_interpreter.control import CONTROL, called_back
from kerneltest.trace.batched_interpreter.elementwise import PLAIN, WITH_PARAMETERS, converted, selected
from kerneltest.trace.batched_interpreter.indexing import INDEXING
from kerneltest.trace.batched_interpreter.machine import Machine
from kerneltest.trace.batched_interpreter.memory import MEMORY
from kerneltest.trace.batched_interpreter.shapes import SHAPES
from kerneltest.trace.batched_interpreter.values import Step, UnknownError, by_row, dtype_of
from kerneltest.trace.jax_compat.interception import interpretation
from kerneltest.trace.rewrite import interpreting, rewritten
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import ENTRIES, name_of, nested

_ON_ARRAYS: Mapping[str, Callable[[Any], Callable[..., Any]]] = {**SHAPES, **INDEXING}
_WITH_MACHINE: Mapping[str, Callable[[Machine, Any], Step]] = {**CONTROL, "pallas_call": pallas_call}


class Rows:
    """A kernel that runs in NumPy.

    Args:
      traced: the kernel.
      by_jax: whether its Pallas calls are what JAX's own interpreter makes of them, without a Pallas call in it.

    Attributes:
      by_jax: the same.

    Raises:
      UnknownError: it does what is not known here.
    """

    def __init__(self, traced: Traced, *, by_jax: bool = False) -> None:
        self.by_jax = by_jax
        poisoned = rewritten(traced.jaxpr, interpreting(True))
        self._block = Machine(_by_jax if by_jax else _step).block(poisoned)
        self._outputs = traced.outputs

    def __call__(self, leaves: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs for some inputs, each with a row for each of them.

        Args:
          leaves: (rows, *shape), or (1, *shape) where all are alike.

        Raises:
          UnknownError: the values ask for what is not known here.
        """
        with np.errstate(all="ignore"):
            outputs = self._block(leaves)
        rows = max((len(leaf) for leaf in leaves), default=1)
        return tuple(np.broadcast_to(x, (rows, *o.shape)) for x, o in zip(outputs, self._outputs, strict=True))


@functools.lru_cache(maxsize=4096)
def operation(equation: Any) -> Step | None:
    """What evaluates one equation, without a Pallas call in it; None where that takes a compiler."""
    try:
        return _known(Machine(_known), equation)
    except UnknownError:
        return None


class InterpretedRows:
    """A Pallas call as JAX's own interpreter runs it, its operations in NumPy.

    Args:
      equation: of the call, whose parameters say how it is interpreted.

    Raises:
      UnknownError: the interpreter does what is not known here.
    """

    def __init__(self, equation: Any) -> None:
        self._machine = Machine(_calling_back)
        self._step = _by_jax(self._machine, equation)

    def __call__(self, *operands: Any) -> list[Array]:
        """The outputs."""
        with np.errstate(all="ignore"):
            return [output[0] for output in self._step([np.asarray(operand)[None] for operand in operands])]

    def thread(self, jaxpr: Any, values: Sequence[Any]) -> None:
        """One of the kernel's threads.

        Args:
          jaxpr: that it runs, open.
          values: of the jaxpr's constants and inputs.
        """
        with np.errstate(all="ignore"):
            self._machine.block(jaxpr, given=True)([np.asarray(value)[None] for value in values])


def _by_jax(machine: Machine, equation: Any) -> Step:
    """What evaluates an equation, with what JAX's interpreter does in place of a Pallas call."""
    return machine.block(interpretation(equation)) if name_of(equation) in ENTRIES else _step(machine, equation)


def _calling_back(machine: Machine, equation: Any) -> Step:
    """The same for an interpreter that calls back: what a user's kernel calls is not called beside its own run."""
    return called_back(equation) if name_of(equation) == "io_callback" else _by_jax(machine, equation)


def _step(machine: Machine, equation: Any) -> Step:
    try:
        return _known(machine, equation)
    except UnknownError:
        pure = not equation.effects and not any(hasattr(v.aval, "inner_aval") for v in equation.invars)
        if pure and not [each for value in equation.params.values() for each in nested(value)]:
            return _bound(equation)
        raise


def _known(machine: Machine, equation: Any) -> Step:
    name, params = name_of(equation), equation.params
    if name in PLAIN:
        return _elementwise(equation, PLAIN[name])
    if name in WITH_PARAMETERS:
        return _elementwise(equation, WITH_PARAMETERS[name](params))
    if name == "select_n":
        return _elementwise(equation, selected)
    if name == "convert_element_type":
        dtype = dtype_of(equation.outvars[0].aval)
        return lambda operands: (converted(operands[0], dtype),)
    if name in _ON_ARRAYS:
        made = _ON_ARRAYS[name](equation)
        return lambda operands: (made(*operands),)
    if name in MEMORY:
        return MEMORY[name](equation)
    if name in _WITH_MACHINE:
        return _WITH_MACHINE[name](machine, equation)
    if name == "optimization_barrier":
        return lambda operands: operands
    raise UnknownError(name)


def _elementwise(equation: Any, function: Callable[..., Any]) -> Step:
    """An operation on elements; its operands have the result's shape, or none."""
    aval = equation.outvars[0].aval
    dtype, ndim = dtype_of(aval), len(aval.shape) + 1

    def step(operands: Sequence[Array]) -> Sequence[Array]:
        aligned = [x if x.ndim == ndim else x.reshape(len(x), *(1,) * (ndim - 1)) for x in operands]
        result = function(*aligned)
        if type(result) is np.ndarray and result.dtype is dtype:  # most are, and a program has many
            return (result,)
        return (np.asarray(result).astype(dtype, copy=False),)

    return step


def _bound(equation: Any) -> Step:
    """Any other operation of JAX's own, row by row."""
    primitive, params = equation.primitive, equation.params

    def step(operands: Sequence[Array]) -> Sequence[Array]:
        rows = [primitive.bind(*taken, **params) for taken in by_row(operands)]
        columns = zip(*rows, strict=True) if primitive.multiple_results else [rows]
        return [np.stack([np.asarray(each) for each in column]) for column in columns]

    return step
