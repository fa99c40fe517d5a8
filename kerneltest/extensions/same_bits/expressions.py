"""Rule sets that show whether two ways to call a kernel compute the same bits.

In the place of each float, `ExpressionRules` compute a number that stands for its expression: equal numbers mean the
same operations on the same inputs in the same order, and so the same bits on every machine. Some operations are taken
as they are. Known numbers are computed. Maxima, comparisons and choices are exact, so that the numbers are ordered,
with fills (-1e30, -inf) below all others. Adding 0, multiplying by 0 or 1, adding to a fill and its exponential give
what they give for finite numbers. A sum or a product of matrices is one operation on a tile of its shape, since only
the target decides on its order.

`SequentialRules` compute floats with each sum in order. They show values whose bits differ.
"""

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, DType, is_float
from kerneltest.numerics.device_operations import convert
from kerneltest.trace.batched_interpreter.kernel_rules import KernelRules, elementwise
from kerneltest.trace.jax_compat.jaxprs import AbstractValue, Equation, Jaxpr, data_of
from kerneltest.trace.machine import ArrayFunction, EquationFunction, Machine, Step, UnknownError, Value
from kerneltest.trace.primitives import Kind, primitive_of
from kerneltest.trace.triton_kernels import is_triton_call
from kerneltest.trace.walk import iter_equations

_U64 = np.dtype(np.uint64)
_FILL = 1e15  # known numbers as large as that absorb what is added to them


def _mix(numbers: Array) -> Array:
    # A bijection without pattern: Stafford's variant 13 of the finaliser of MurmurHash3.
    x = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


# An expression is a number of 64 bits, in the order of what it stands for. Below all others are negative fills, then
# half of the unknown expressions, the other known numbers, the other half, and positive fills; the last one is NaN.


def _ranks(numbers: Array) -> Array:
    # The place of each float64 among all, without its last two bits.
    bits = (np.asarray(numbers, np.float64) + 0.0).view(np.uint64)
    ranks: Array = np.where(bits >> np.uint64(63) == 1, ~bits, bits | np.uint64(1 << 63)) >> np.uint64(2)
    return ranks


_HALF = np.uint64(1 << 61)  # unknown expressions
_LOW = _ranks(np.array(-_FILL)).item() + 1  # the first unknown one
_HIGH = _ranks(np.array(_FILL)).item() + (1 << 61)  # the first one above the known numbers
_NAN = np.uint64(2**64 - 1)


def expressions_of(values: Array) -> Array:
    """The expressions of known numbers."""
    numbers = np.asarray(values).astype(np.float64)
    ranks = _ranks(numbers)
    shifts = np.where(numbers > -_FILL, _HALF, np.uint64(0)) + np.where(numbers >= _FILL, _HALF, np.uint64(0))
    return np.where(np.isnan(numbers), _NAN, ranks + shifts)


def unknown_expressions(numbers: Array) -> Array:
    """The expressions of unknown floats, or of results, from numbers without pattern."""
    first = np.where(numbers & np.uint64(1) == 1, np.uint64(_LOW), np.uint64(_HIGH))
    made: Array = first + (numbers >> np.uint64(3))
    return made


def _is_known(x: Array) -> Array:
    in_low = (x >= np.uint64(_LOW)) & (x - np.uint64(_LOW) < _HALF)
    in_high = (x >= np.uint64(_HIGH)) & (x - np.uint64(_HIGH) < _HALF)
    known: Array = ~(in_low | in_high)
    return known


def _numbers(x: Array) -> Array:
    # The numbers of known expressions; anything for others.
    shifts = np.where(x >= np.uint64(_LOW), _HALF, np.uint64(0)) + np.where(x >= np.uint64(_HIGH), _HALF, np.uint64(0))
    ranks = (x - shifts) << np.uint64(2)
    bits = np.where(ranks >> np.uint64(63) == 1, ranks & np.uint64(2**63 - 1), ~(ranks | np.uint64(3)))
    return np.where(x == _NAN, np.nan, bits.view(np.float64))


_ZERO, _ONE = expressions_of(np.array([0.0, 1.0]))


def _tag(words: object) -> np.uint64:
    return np.uint64(zlib.crc32(str(words).encode()) + 2)


def _operation(words: object, *operands: Array) -> Array:
    found = np.broadcast_to(_tag(words), np.broadcast_shapes(*(x.shape for x in operands)))
    for x in operands:
        found = _mix(found * np.uint64(3) + _mix(x))
    return unknown_expressions(found)


def _either_order(words: object, a: Array, b: Array) -> Array:
    return unknown_expressions(_mix(_mix(a) + _mix(b) + _tag(words)))


# Known numbers are computed, and rounded to the dtype.
def _folding(dtype: DType, compute: ArrayFunction, function: ArrayFunction) -> ArrayFunction:
    def folded(*operands: Array) -> Array:
        known = functools.reduce(np.logical_and, map(_is_known, operands))
        result: Array = function(*operands)
        if not known.any():
            return result
        numbers = compute(*(_numbers(x).astype(dtype) for x in operands))
        return np.where(known, expressions_of(np.asarray(numbers).astype(dtype)), result)

    return folded


def _is_fill(x: Array) -> Array:
    fill: Array = _is_known(x) & (np.abs(_numbers(x)) >= _FILL)
    return fill


def _add(dtype: DType) -> ArrayFunction:
    def add(a: Array, b: Array) -> Array:
        result = np.where(a == _ZERO, b, np.where(b == _ZERO, a, _either_order(("add", dtype), a, b)))
        return np.where(_is_fill(a), a, np.where(_is_fill(b), b, result))

    return _folding(dtype, np.add, add)


def _negate(dtype: DType) -> ArrayFunction:
    return _folding(dtype, np.negative, lambda x: _operation("neg", x))


def _subtract(dtype: DType) -> ArrayFunction:
    negate = _negate(dtype)

    def subtract(a: Array, b: Array) -> Array:
        result = np.where(b == _ZERO, a, np.where(a == _ZERO, negate(b), _operation(("sub", dtype), a, b)))
        result = np.where(_is_fill(a), a, np.where(_is_fill(b), negate(b), result))
        return np.where((a == b) & (a != _NAN), _ZERO, result)

    return _folding(dtype, np.subtract, subtract)


def _multiply(dtype: DType) -> ArrayFunction:
    def multiply(a: Array, b: Array) -> Array:
        result = np.where(a == _ONE, b, np.where(b == _ONE, a, _either_order(("mul", dtype), a, b)))
        return np.where((a == _ZERO) | (b == _ZERO), _ZERO, result)

    return _folding(dtype, np.multiply, multiply)


def _divide(dtype: DType) -> ArrayFunction:
    def divide(a: Array, b: Array) -> Array:
        return np.where(a == _ZERO, _ZERO, np.where(b == _ONE, a, _operation(("div", dtype), a, b)))

    return _folding(dtype, np.divide, divide)


def _exponential(words: object) -> ArrayFunction:
    # Of known numbers, those whose exponential every machine rounds alike.
    def function(x: Array) -> Array:
        result = np.where(x == _ZERO, _ONE, _operation(words, x))
        return np.where(_is_fill(x) & (_numbers(x) < 0), _ZERO, result)

    return function


_EXACT: Mapping[str, ArrayFunction] = {
    "max": np.maximum,
    "min": np.minimum,
    "clamp": lambda least, x, most: np.minimum(np.maximum(least, x), most),
    "is_finite": lambda x: ~_is_known(x) | np.isfinite(_numbers(x)),
}
_ARITHMETIC: Mapping[str, Callable[[DType], ArrayFunction]] = {
    **dict.fromkeys(("add", "add_any"), _add),
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "neg": _negate,
}
_UPDATES: Mapping[Callable[..., Array], Callable[[DType], ArrayFunction]] = {
    np.add: _add, np.multiply: _multiply, np.maximum: lambda dtype: np.maximum, np.minimum: lambda dtype: np.minimum
}  # fmt: skip
# Kinds of equations that move floats, or contain others.
_MOVING = frozenset({
    Kind.CALL, Kind.LOOP, Kind.BRANCH, Kind.KERNEL, Kind.REGION, Kind.MOVE, Kind.EMPTY, Kind.READ, Kind.WRITE,
    Kind.UPDATE, Kind.ATOMIC, Kind.COPY, Kind.SYNCHRONISATION, Kind.COMPARISON, Kind.MESH_CAST, Kind.PLACEMENT,
    Kind.DEVICE,
})  # fmt: skip


def _weights(count: int) -> Array:
    return _mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)


_EXACT_SUM = 256.0  # in every dtype


def _sum(terms: Array, words: object) -> Array:
    # The sum along the last axis, as one operation; of small known integers, and of zeros, it is known.
    if terms.shape[-1] == 1:
        return terms[..., 0]
    weighted = np.where(terms == _ZERO, np.uint64(0), _mix(terms)) * _weights(terms.shape[-1])
    result = unknown_expressions(_mix(weighted.sum(-1, dtype=np.uint64) + _tag(words)))
    known = _is_known(terms)
    numbers = np.where(known, _numbers(terms), 0.0)
    small = (numbers == np.rint(numbers)).all(-1) & (np.abs(numbers).sum(-1) < _EXACT_SUM)
    result = np.where(known.all(-1) & small, expressions_of(numbers.sum(-1)), result)
    fills = _is_fill(terms)
    return np.where(fills.any(-1), np.take_along_axis(terms, fills.argmax(-1)[..., None], -1)[..., 0], result)


def _last(x: Array, axes: Sequence[int]) -> Array:
    # The array with some axes, which count from 1, as one in the last place.
    kept = [axis for axis in range(x.ndim) if axis - 1 not in axes]
    order = [*kept, *(axis + 1 for axis in axes)]
    return x.transpose(order).reshape(*(x.shape[axis] for axis in kept), math.prod(x.shape[a + 1] for a in axes))


def _dtype(aval: AbstractValue) -> DType | None:
    try:
        dtype: DType = np.dtype(aval.dtype)
    except (TypeError, AttributeError):
        return None
    return dtype


def _compares_floats(jaxpr: Jaxpr) -> bool:
    operands = (v for equation, _ in iter_equations(jaxpr) for v in equation.invars)
    return any((dtype := _dtype(v.aval)) is not None and is_float(dtype) for v in operands)


class ExpressionRules(KernelRules):
    """Expressions in the place of floats; UnknownError for an operation that has no rule."""

    def __init__(self) -> None:
        super().__init__(promotes=True)

    def promoted(self, dtype: DType) -> DType:
        return _U64 if is_float(dtype) else dtype

    def constant(self, value: Value, dtype: DType | None = None) -> Value:
        array = np.asarray(data_of(value), dtype)
        if not is_float(array.dtype):
            return super().constant(value, dtype)
        with np.errstate(all="ignore"):
            return expressions_of(array)[None]

    def updating(self, function: Callable[..., Array], dtype: DType) -> Callable[..., Array]:
        if not is_float(dtype):
            return function
        if function not in _UPDATES:
            raise UnknownError("an update that is neither a sum nor an extreme")
        return _UPDATES[function](dtype)

    def multiply(self, a: Array, b: Array, dtype: DType) -> Array:
        if dtype != _U64:
            return super().multiply(a, b, dtype)
        a, b = a[..., :, None, :], b.swapaxes(-1, -2)[..., None, :, :]
        is_zero = (a == _ZERO) | (b == _ZERO)
        weights = _weights(is_zero.shape[-1])
        total = np.where(is_zero, np.uint64(0), _mix(_mix(a) + _mix(b)) * weights).sum(-1, dtype=np.uint64)
        result = unknown_expressions(_mix(total + _tag(("dot", *is_zero.shape[-3:]))))
        return np.where(is_zero.all(-1), _ZERO, result)

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        dtypes = [_dtype(v.aval) for v in (*equation.invars, *equation.outvars)]
        if any(dtype is not None and dtype.kind == "c" for dtype in dtypes):
            raise UnknownError("complex numbers")
        if not any(dtype is not None and is_float(dtype) for dtype in dtypes):
            return super().rule(machine, equation)
        primitive = primitive_of(equation)
        if is_triton_call(equation):
            raise UnknownError("a kernel written in Triton")
        if primitive.name == "while" and _compares_floats(equation.params["cond_jaxpr"]):
            raise UnknownError("a loop that ends when a float is small or large enough")
        match primitive.kind:
            case kind if kind in _MOVING or primitive.name == "wgmma_ref":  # `multiply` and `updating` evaluate it
                return super().rule(machine, equation)
            case Kind.ELEMENTWISE:
                return elementwise(machine, equation, self._function(equation))
            case Kind.FILL if primitive.name == "iota":
                return self._iota(equation)
            case Kind.CAST if primitive.name in ("convert_element_type", "reduce_precision"):
                return self._cast(equation)
            case Kind.REDUCTION | Kind.SCAN if primitive.extreme or "arg" in primitive.name:
                return super().rule(machine, equation)
            case Kind.REDUCTION | Kind.SCAN if primitive.sums:
                return self._sum(equation)
            case Kind.PRODUCT if primitive.name == "dot_general":
                return self._product(machine, equation)
        raise UnknownError(primitive.name)

    def _function(self, equation: Equation) -> ArrayFunction:
        name, dtype = primitive_of(equation).name, np.dtype(equation.outvars[0].aval.dtype)
        if name in _EXACT:
            return _EXACT[name]
        if not is_float(dtype):
            raise UnknownError(name)
        if name in _ARITHMETIC:
            return _ARITHMETIC[name](dtype)
        words = name, dtype, sorted((key, str(value)) for key, value in equation.params.items())
        return _exponential(words) if name in ("exp", "exp2") else lambda *operands: _operation(words, *operands)

    def _iota(self, equation: Equation) -> EquationFunction:
        aval, axis = equation.outvars[0].aval, equation.params["dimension"]
        along = np.arange(aval.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(aval.shape))])
        result = expressions_of(np.broadcast_to(along, aval.shape).astype(aval.dtype))[None]
        return lambda operands: (result,)

    def _cast(self, equation: Equation) -> EquationFunction:
        old, new = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
        if not is_float(new):
            raise UnknownError("a cast of floats to integers")
        if not is_float(old):
            return lambda operands: (expressions_of(convert(operands[0], new)),)
        if equation.primitive.name != "convert_element_type":
            words = equation.primitive.name, new, sorted(map(str, equation.params.items()))
            return lambda operands: (_operation(words, operands[0]),)
        if new == old or new.itemsize > old.itemsize:
            return lambda operands: operands[:1]
        cast = _folding(new, lambda x: x, lambda x: _operation(("to", new), x))
        return lambda operands: (cast(operands[0]),)

    def _sum(self, equation: Equation) -> EquationFunction:
        params, shape = equation.params, tuple(equation.invars[0].aval.shape)
        words, out = (equation.primitive.name, shape, params, equation.invars[0].aval.dtype), equation.outvars[0]
        if primitive_of(equation).kind is Kind.REDUCTION:
            return lambda operands: (_sum(_last(operands[0], params["axes"]), words),)
        axis, reverse = params["axis"] + 1, params.get("reverse", False)

        def accumulate(operands: Sequence[Array]) -> Sequence[Array]:
            terms = np.moveaxis(operands[0], axis, -1)
            terms = terms[..., ::-1] if reverse else terms
            first, count = np.broadcast_to(_ZERO, terms.shape), terms.shape[-1]
            parts = [_sum(np.where(np.arange(count) <= i, terms, first), words) for i in range(count)]
            sums = np.stack(parts, -1) if parts else terms
            return (np.moveaxis(sums[..., ::-1] if reverse else sums, -1, axis).reshape(-1, *out.aval.shape),)

        return accumulate

    def _product(self, machine: Machine, equation: Equation) -> EquationFunction:
        evaluate = super().rule(machine, equation)
        words = equation.params, [v.aval.dtype for v in (*equation.invars, *equation.outvars)]

        def product(operands: Sequence[Array]) -> Sequence[Array]:
            (x,) = evaluate(operands)
            return (np.where(_is_known(x), x, _operation(words, x)),)

        return product


class SequentialRules(KernelRules):
    """Numbers in the kernel's dtypes, with the terms of sums and of products of matrices added one after another.

    If it `fuses`, a product of matrices that is added to a value begins with that value, as compilers for tensor cores
    have it.
    """

    def __init__(self, *, fuses: bool) -> None:
        super().__init__(counts_all_updates=True)
        self._fuses = fuses
        self._initial: Array | None = None  # of the next product

    def multiply(self, a: Array, b: Array, dtype: DType) -> Array:
        if not is_float(dtype):
            return super().multiply(a, b, dtype)
        wide, shape = np.result_type(dtype, np.float32), np.broadcast_shapes(a[..., :1].shape, b[..., :1, :].shape)
        total = np.zeros(shape, wide)
        if self._initial is not None:
            total = total + self._initial.reshape(len(self._initial), *shape[1:]).astype(wide)
        for k in range(a.shape[-1]):
            total = total + a[..., k : k + 1].astype(wide) * b[..., k : k + 1, :].astype(wide)
        return total.astype(dtype)

    def steps(self, machine: Machine, jaxpr: Jaxpr) -> Iterator[Step]:
        products = {e.outvars[0]: e for e in jaxpr.eqns if self._fuses and primitive_of(e).name == "dot_general"}
        for equation in jaxpr.eqns:
            operands = equation.invars if primitive_of(equation).name == "add" else ()
            added = [i for i, operand in enumerate(operands) if not hasattr(operand, "val") and operand in products]
            if not added or operands[1 - added[0]].aval.shape != equation.outvars[0].aval.shape:
                yield self.rule(machine, equation), equation.invars, equation.outvars
            else:
                product = products[operands[added[0]]]
                reads = [operands[1 - added[0]], *product.invars]
                yield self._add_product(self.rule(machine, product)), reads, equation.outvars

    def _add_product(self, multiply: EquationFunction) -> EquationFunction:
        def add(operands: Sequence[Array]) -> Sequence[Array]:
            self._initial = operands[0]
            try:
                return multiply(operands[1:])
            finally:
                self._initial = None

        return add

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        primitive = primitive_of(equation)
        of_floats = primitive.kind is Kind.REDUCTION and primitive.sums and is_float(equation.outvars[0].aval.dtype)
        if not of_floats:
            return super().rule(machine, equation)
        axes, dtype = equation.params["axes"], np.dtype(equation.outvars[0].aval.dtype)

        def reduce(operands: Sequence[Array]) -> Sequence[Array]:
            terms = _last(operands[0], axes)
            if not terms.shape[-1]:
                return (np.zeros(terms.shape[:-1], dtype),)
            wide = terms.astype(np.result_type(dtype, np.float32))
            return (np.add.accumulate(wide, axis=-1)[..., -1].astype(dtype),)

        return reduce
