"""The rule for a Pallas call: cuts its arrays into blocks, and runs its programs in sequence."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.array_rules import INDEXING, SHAPES
from kerneltest.trace.batched_interpreter.elementwise_rules import PLAIN, WITH_PARAMETERS, convert, select
from kerneltest.trace.batched_interpreter.machine import (
    CONTROL,
    ArrayFunction,
    BatchedEvaluator,
    BatchedRef,
    CompiledJaxpr,
    EquationFunction,
    Rule,
    UnknownError,
    Value,
    by_row,
    call_python,
    dtype_of,
    is_promoting,
    is_uniform,
    rows_of,
    run_by_group,
    scoped_memory,
    unwritten_memory,
)
from kerneltest.trace.batched_interpreter.memory_rules import ATOMICS, COPIES, MEMORY
from kerneltest.trace.jax_compat.jaxprs import BlockMapping, DType, Equation, JaxArray, Jaxpr, Var
from kerneltest.trace.jax_compat.patches import interpretation
from kerneltest.trace.primitives import Kind, inner_jaxprs, kind_of
from kerneltest.trace.rewrite import interpret_calls, is_plain_call, rewrite_jaxpr
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import primitive_name

_MOST = 2**13  # programs that run in reasonable time
_MOST_POSSIBLE = 2**20  # those of a grid that is known only when it runs


@dataclass(frozen=True, slots=True)
class _BlockLayout:
    """The blocks of an array.

    Attributes:
      shape, dtype: the array's.
      padded: its shape, rounded up to whole blocks.
      lengths: a block's.
      scale: along each axis, the distance in elements between consecutive indices.
      squeezed: the axes that the kernel does not see.
      index_map: from the programs' numbers to an index along each axis.
    """

    shape: tuple[int, ...]
    dtype: DType
    padded: tuple[int, ...]
    lengths: tuple[int, ...]
    scale: tuple[int, ...]
    squeezed: tuple[int, ...]
    index_map: CompiledJaxpr

    def starts(self, programs: Sequence[Array], scalars: Sequence[BatchedRef]) -> Array:
        """The first element of each program's block, (programs, axes), clamped so that the block fits into `padded`."""
        count = len(programs[0]) if programs else 1
        results = self.index_map([*programs, *scalars])[: len(self.lengths)]
        starts = [np.broadcast_to(np.asarray(index).astype(np.int64), count) for index in results]
        clamped = [
            np.clip(np.where(s * scale < 0, s * scale + n, s * scale), 0, n - length)
            for s, scale, n, length in zip(starts, self.scale, self.padded, self.lengths, strict=True)
        ]
        return np.stack(clamped, axis=1) if clamped else np.zeros((count, 0), np.int64)

    def pad(self, array: Array) -> Array:
        """Extends an array with unwritten memory to whole blocks."""
        if self.padded == self.shape:
            return array
        whole = unwritten_memory((len(array), *self.padded), array.dtype)
        whole[(slice(None), *map(slice, self.shape))] = array
        return whole

    def window(self, array: Array, start: Sequence[int]) -> Array:
        """A view of a program's block of an array."""
        at = [
            s if axis in self.squeezed else slice(s, s + n)
            for axis, (s, n) in enumerate(zip(start, self.lengths, strict=True))
        ]
        return array[(slice(None), *at)]


def pallas_call(evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
    """Returns the function that evaluates a `pallas_call`.

    Raises:
      UnknownError: the call has an unsupported layout, too many programs, or an input that is written.
    """
    params = equation.params
    mapping, body = params["grid_mapping"], params["jaxpr"]
    if not is_plain_call(equation, sized=False) or getattr(mapping, "local_grid_env", None) is not None:
        raise UnknownError("a call with an unsupported layout")
    bounds, scalars = mapping.num_dynamic_grid_bounds, mapping.num_index_operands
    if math.prod(length for length in mapping.grid if isinstance(length, int)) > _MOST:
        raise UnknownError("too many programs")
    layouts = [_block_layout(evaluator, each) for each in mapping.block_mappings]
    run_program = evaluator.compile(body)
    inputs = len(equation.invars) - bounds - scalars
    outputs = len(equation.outvars)
    scratch = [scoped_memory(v.aval) for v in body.invars[scalars + inputs + outputs :]]
    aliases = {output: operand - scalars for operand, output in params["input_output_aliases"]}
    used = _used_variables(body)
    # JAX keeps its old value and a device may not. A kernel whose outputs do not follow its formula is not asked.
    if not is_promoting() and any(body.invars[scalars + operand] in used for operand in aliases.values()):
        raise UnknownError("an aliased input that the body also uses as an input")
    if any(scalars + inputs > i >= scalars for i in _written_references(body)):
        raise UnknownError("an input that is written")
    own = [axis for axis in range(len(mapping.grid)) if axis not in mapping.vmapped_dims]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows = rows_of(operands)
        shared = [_share_row(x) for x in operands[: bounds + scalars]]
        if not is_uniform(shared):
            return run_by_group(_number_rows(shared, rows), operands, lambda _, part: evaluate(part))
        lengths = iter(int(bound[0]) for bound in shared[:bounds])
        grid = tuple(length if isinstance(length, int) else max(next(lengths), 0) for length in mapping.grid)
        if math.prod(grid) > _MOST_POSSIBLE:
            raise UnknownError("too many programs")
        prefetched = [BatchedRef(x) for x in shared[bounds:]]
        arrays = [
            layout.pad(array) for layout, array in zip(layouts[:inputs], operands[bounds + scalars :], strict=True)
        ]
        for number, layout in enumerate(layouts[inputs:]):
            if number in aliases:
                old = arrays[aliases[number]]
                arrays.append(np.repeat(old, rows, 0) if len(old) < rows else old.copy())
            else:
                arrays.append(unwritten_memory((rows, *layout.padded), layout.dtype))
        scoped = [make(rows) for make in scratch]
        numbers = np.indices(grid, np.int32).reshape(len(grid), -1).T if grid else np.zeros((1, 0), np.int32)
        programs = list(numbers.T)
        outer = evaluator.program, evaluator.grid
        try:
            evaluator.program, evaluator.grid = [programs[axis] for axis in own], [grid[axis] for axis in own]
            starts = [layout.starts(programs, prefetched).tolist() for layout in layouts] if len(numbers) else []
            for program, row in enumerate(numbers):
                evaluator.program = [row[axis : axis + 1] for axis in own]
                windows = [
                    BatchedRef(layout.window(x, at[program]))
                    for layout, x, at in zip(layouts, arrays, starts, strict=True)
                ]
                run_program([*prefetched, *windows, *scoped])
        finally:
            evaluator.program, evaluator.grid = outer
        results = zip(layouts[inputs:], arrays[inputs:], strict=True)
        return [x[(slice(None), *map(slice, layout.shape))] for layout, x in results]

    return evaluate


def _share_row(value: Array) -> Array:
    """A value with a single row if all of its rows are equal, as those of an integer are in samples of a kernel."""
    return value[:1].copy() if len({row.tobytes() for row in value}) == 1 else value


def _number_rows(values: Sequence[Array], rows: int) -> Array:
    """Returns a number for each row, which is the same for rows in which all values are equal."""
    numbers: dict[bytes, int] = {}
    keys = (b"".join(value[row].tobytes() for value in values if len(value) > 1) for row in range(rows))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _block_layout(evaluator: BatchedEvaluator, mapping: BlockMapping) -> _BlockLayout:
    array = mapping.array_aval
    lengths, scale, squeezed = [], [], []
    for axis, kind in enumerate(mapping.block_shape):
        match kind:
            case pl.Squeezed():
                squeezed.append(axis)
                lengths.append(1)
                scale.append(1)
            case pl.Blocked(block_size=size):
                lengths.append(int(size))
                scale.append(int(size))
            case pl.Element(block_size=size, padding=(0, 0)):
                lengths.append(int(size))
                scale.append(1)
            case int():
                lengths.append(kind)
                scale.append(kind)
            case _:
                raise UnknownError("an unsupported kind of block")
    if 0 in lengths:
        raise UnknownError("an empty block")
    shape = tuple(array.shape)
    padded = tuple((n - 1) // length * length + length for n, length in zip(shape, lengths, strict=True))
    return _BlockLayout(
        shape,
        dtype_of(array),
        padded,
        tuple(lengths),
        tuple(scale),
        tuple(squeezed),
        evaluator.compile(mapping.index_map_jaxpr),
    )


def _used_variables(body: Jaxpr) -> set[Var]:
    """The variables of a body that are operands of its equations."""
    return {v for equation in body.eqns for v in equation.invars if not hasattr(v, "val")}


def _written_references(body: Jaxpr) -> list[int]:
    """The indices, among a body's inputs, of the references that it writes to."""
    effects = (effect for effect in body.effects if type(effect).__name__ in ("WriteEffect", "AccumEffect"))
    found = []
    for effect in effects:
        number = getattr(effect, "input_index", None)
        found.append(body.invars.index(effect.input) if number is None else number)
    return found


# A traced kernel, and one Pallas call as JAX's interpreter runs it, evaluated in NumPy.

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
        if kind_of(equation) is Kind.KERNEL
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
        if pure and not any(True for _ in inner_jaxprs(equation)):
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
