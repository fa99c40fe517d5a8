"""Rule sets that show whether two ways to call a kernel compute the same bits.

In the place of each float, `ExpressionRules` compute a number that stands for its expression: equal numbers mean the
same operations on the same inputs in the same order, and so the same bits on every machine. Three kinds of operations
are taken as they are. Maxima, comparisons and choices are exact, so the numbers are ordered, with fills (-1e30, -inf)
below all others. Adding 0, multiplying by 0 or 1 and the exponential of a fill give what they give for finite numbers.
A sum or a product of matrices is one operation on a tile of its shape, since only the target decides on its order.

`SequentialRules` compute floats with each sum in order. They show values whose bits differ.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, DType, is_float
from kerneltest.trace.batched_interpreter.kernel_rules import KernelRules, elementwise
from kerneltest.trace.jax_compat.jaxprs import AbstractValue, Equation, Jaxpr, data_of
from kerneltest.trace.machine import ArrayFunction, EquationFunction, Machine, Step, UnknownError, Value
from kerneltest.trace.primitives import Kind, primitive_of
from kerneltest.trace.triton_kernels import is_triton_call

_U64 = np.dtype(np.uint64)
_FILL = 1e9  # numbers as large as that are fills
_BELOW, _ABOVE = np.uint64(1), np.uint64(2**64 - 1)  # negative and positive fills


def _mix(numbers: Array) -> Array:
    # A bijection without pattern: Stafford's variant 13 of the finaliser of MurmurHash3.
    x = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = x ^ (x >> np.uint64(31))
    return mixed


def _tag(words: object) -> np.uint64:
    return np.uint64(zlib.crc32(str(words).encode()) + 2)


def expressions_of(values: Array) -> Array:
    """The expressions of known numbers."""
    numbers = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):  # of NumPy's scalars
        found = _mix((numbers + 0.0).view(np.uint64))
    return np.where(numbers <= -_FILL, _BELOW, np.where(numbers >= _FILL, _ABOVE, found))


_ZERO, _ONE = expressions_of(np.array([0.0, 1.0]))


def _operation(words: object, *operands: Array) -> Array:
    found = np.broadcast_to(_tag(words), np.broadcast_shapes(*(x.shape for x in operands)))
    for x in operands:
        found = _mix(found * np.uint64(3) + _mix(x))
    return found


def _either_order(words: object, a: Array, b: Array) -> Array:
    return _mix(_mix(a) + _mix(b) + _tag(words))


def _unless_filled(result: Array, low: Array | bool, high: Array | bool) -> Array:
    return np.where(low, _BELOW, np.where(high, _ABOVE, result))


def _add(a: Array, b: Array) -> Array:
    result = np.where(a == _ZERO, b, np.where(b == _ZERO, a, _either_order("add", a, b)))
    return _unless_filled(result, (a == _BELOW) | (b == _BELOW), (a == _ABOVE) | (b == _ABOVE))


def _negate(x: Array) -> Array:
    return _unless_filled(np.where(x == _ZERO, _ZERO, _operation("neg", x)), x == _ABOVE, x == _BELOW)


def _subtract(a: Array, b: Array) -> Array:
    result = np.where(b == _ZERO, a, np.where(a == _ZERO, _negate(b), _operation("sub", a, b)))
    result = _unless_filled(result, (a == _BELOW) | (b == _ABOVE), (a == _ABOVE) | (b == _BELOW))
    return np.where(a == b, _ZERO, result)


def _multiply(a: Array, b: Array) -> Array:
    result = np.where(a == _ONE, b, np.where(b == _ONE, a, _either_order("mul", a, b)))
    return np.where((a == _ZERO) | (b == _ZERO), _ZERO, result)


def _divide(a: Array, b: Array) -> Array:
    return np.where(a == _ZERO, _ZERO, np.where(b == _ONE, a, _operation("div", a, b)))


def _exponential(name: str) -> ArrayFunction:
    def function(x: Array) -> Array:
        return np.where(x == _ZERO, _ONE, np.where(x == _BELOW, _ZERO, _operation(name, x)))

    return function


_EXACT: Mapping[str, ArrayFunction] = {
    "max": np.maximum,
    "min": np.minimum,
    "clamp": lambda least, x, most: np.minimum(np.maximum(least, x), most),
    "is_finite": lambda x: (x != _BELOW) & (x != _ABOVE),
}
_ARITHMETIC: Mapping[str, ArrayFunction] = {
    **dict.fromkeys(("add", "add_any"), _add),
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "neg": _negate,
    "exp": _exponential("exp"),
    "exp2": _exponential("exp2"),
}
_UPDATES: Mapping[Callable[..., Array], Callable[..., Array]] = {
    np.add: _add, np.maximum: np.maximum, np.minimum: np.minimum, np.multiply: _multiply
}  # fmt: skip
# Kinds of equations that move floats, or contain others.
_MOVING = frozenset({
    Kind.CALL, Kind.LOOP, Kind.BRANCH, Kind.KERNEL, Kind.REGION, Kind.MOVE, Kind.EMPTY, Kind.READ, Kind.WRITE,
    Kind.UPDATE, Kind.ATOMIC, Kind.COPY, Kind.SYNCHRONISATION, Kind.COMPARISON, Kind.MESH_CAST, Kind.PLACEMENT,
    Kind.DEVICE,
})  # fmt: skip


def _weights(count: int) -> Array:
    return _mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)


def _as_sum(total: Array, terms: Array, tag: np.uint64) -> Array:
    # A sum whose terms were added up with weights of their positions; `terms` along the last axis.
    result = np.where((terms == _ZERO).all(-1), _ZERO, _mix(total + tag))
    return _unless_filled(result, (terms == _BELOW).any(-1), (terms == _ABOVE).any(-1))


def _weighted(terms: Array) -> Array:
    return np.where(terms == _ZERO, np.uint64(0), _mix(terms)) * _weights(terms.shape[-1])


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


class ExpressionRules(KernelRules):
    """Expressions in the place of floats; UnknownError for an operation that has no rule."""

    def __init__(self) -> None:
        super().__init__(promotes=True)

    def promoted(self, dtype: DType) -> DType:
        return _U64 if is_float(dtype) else dtype

    def constant(self, value: Value, dtype: DType | None = None) -> Value:
        array = np.asarray(data_of(value), dtype)
        return expressions_of(array)[None] if is_float(array.dtype) else super().constant(value, dtype)

    def updating(self, function: Callable[..., Array]) -> Callable[..., Array]:
        def update(before: Array, values: Array) -> Array:
            if before.dtype != _U64:
                return function(before, values)
            if function not in _UPDATES:
                raise UnknownError("an update that is neither a sum nor an extreme")
            return _UPDATES[function](before, values)

        return update

    def multiply(self, a: Array, b: Array, dtype: DType) -> Array:
        if dtype != _U64:
            return super().multiply(a, b, dtype)
        a, b = np.broadcast_arrays(a[..., :, None, :], b.swapaxes(-1, -2)[..., None, :, :])
        terms = _multiply(a, b)
        total = _weighted(terms).sum(-1, dtype=np.uint64)
        return terms[..., 0] if terms.shape[-1] == 1 else _as_sum(total, terms, _tag(("dot", *terms.shape[-3:])))

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        dtypes = [_dtype(v.aval) for v in (*equation.invars, *equation.outvars)]
        if any(dtype is not None and dtype.kind == "c" for dtype in dtypes):
            raise UnknownError("complex numbers")
        if not any(dtype is not None and is_float(dtype) for dtype in dtypes):
            return super().rule(machine, equation)
        primitive = primitive_of(equation)
        if is_triton_call(equation):
            raise UnknownError("a kernel written in Triton")
        match primitive.kind:
            case kind if kind in _MOVING:
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
            case Kind.PRODUCT if primitive.name == "wgmma_ref":  # `multiply` and `updating` evaluate it
                return super().rule(machine, equation)
        raise UnknownError(primitive.name)

    def _function(self, equation: Equation) -> ArrayFunction:
        name = primitive_of(equation).name
        if not is_float(np.dtype(equation.outvars[0].aval.dtype)) and name != "is_finite":
            raise UnknownError(name)
        known = _EXACT.get(name) or _ARITHMETIC.get(name)
        words = name, sorted((key, str(value)) for key, value in equation.params.items() if key != "accuracy")
        return known or (lambda *operands: _operation(words, *operands))

    def _iota(self, equation: Equation) -> EquationFunction:
        aval, axis = equation.outvars[0].aval, equation.params["dimension"]
        along = np.arange(aval.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(aval.shape))])
        result = expressions_of(np.broadcast_to(along, aval.shape))[None]
        return lambda operands: (result,)

    def _cast(self, equation: Equation) -> EquationFunction:
        old, new = (np.dtype(v.aval.dtype) for v in (equation.invars[0], equation.outvars[0]))
        if not is_float(new):
            raise UnknownError("a cast of floats to integers")
        if not is_float(old):
            return lambda operands: (expressions_of(operands[0]),)
        if equation.primitive.name == "convert_element_type" and (new == old or new.itemsize > old.itemsize):
            return lambda operands: operands[:1]
        words = equation.primitive.name, new, equation.params.get("exponent_bits"), equation.params.get("mantissa_bits")

        def cast(operands: Sequence[Array]) -> Sequence[Array]:
            (x,) = operands
            known = (x == _ZERO) | (x == _ONE) | (x == _BELOW) | (x == _ABOVE)
            return (np.where(known, x, _operation(words, x)),)

        return cast

    def _sum(self, equation: Equation) -> EquationFunction:
        params, shape = equation.params, tuple(equation.invars[0].aval.shape)
        tag, out = _tag((equation.primitive.name, shape, params, equation.invars[0].aval.dtype)), equation.outvars[0]
        if primitive_of(equation).kind is Kind.REDUCTION:
            axes = params["axes"]

            def reduce(operands: Sequence[Array]) -> Sequence[Array]:
                terms = _last(operands[0], axes)
                if terms.shape[-1] == 1:
                    return (terms[..., 0],)
                return (_as_sum(_weighted(terms).sum(-1, dtype=np.uint64), terms, tag),)

            return reduce
        axis, reverse = params["axis"] + 1, params.get("reverse", False)

        def accumulate(operands: Sequence[Array]) -> Sequence[Array]:
            terms = np.moveaxis(operands[0], axis, -1)
            terms = terms[..., ::-1] if reverse else terms
            sums = _mix(np.cumsum(_weighted(terms), axis=-1, dtype=np.uint64) + tag)
            sums = np.where(np.logical_and.accumulate(terms == _ZERO, axis=-1), _ZERO, sums)
            return (np.moveaxis(sums[..., ::-1] if reverse else sums, -1, axis).reshape(-1, *out.aval.shape),)

        return accumulate

    def _product(self, machine: Machine, equation: Equation) -> EquationFunction:
        evaluate = super().rule(machine, equation)
        tag = _tag((equation.params, [v.aval.dtype for v in equation.invars]))

        def product(operands: Sequence[Array]) -> Sequence[Array]:
            (x,) = evaluate(operands)
            return (np.where((x == _ZERO) | (x == _BELOW) | (x == _ABOVE), x, _mix(x + tag)),)

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
