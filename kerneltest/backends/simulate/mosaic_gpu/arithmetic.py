"""Integers and vectors of the Mosaic GPU dialect: for each operation, the function that it is of its operands.

Integers are Python's, and vectors are arrays, which nothing writes to. Arithmetic is that of the Triton simulator's
table.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.backends.simulate.ir import Operation, unsupported_failure
from kerneltest.backends.simulate.operations import tf32
from kerneltest.core.dtypes import Array
from kerneltest.numerics.device_operations import multiply_matrices

Function = Callable[..., Any]
Make = Callable[[Operation], Function]


def is_integer_operation(op: Operation) -> bool:
    """Returns whether an operation is arithmetic that has no vectors and no floats."""
    kinds = [*op.operand_types, *op.types]
    return (
        op.name.startswith("arith.") and bool(op.operands) and not any(k.shape or k.dtype.kind in "fV" for k in kinds)
    )


def integer_function(op: Operation) -> Function:
    """Returns the function of integers. Programs and loops call it with few different ones."""
    compute, kinds = op.semantics.rule(op).compute, [kind.dtype.type for kind in op.operand_types]

    @lru_cache(2**12)
    def function(*operands: int) -> Any:
        return compute(*[kind(x) for kind, x in zip(kinds, operands, strict=True)]).item()

    return function


def integers_by_lane(op: Operation, operands: Sequence[Any]) -> Array:
    """Returns the results of an integer operation for arrays of operands."""
    pairs = zip(operands, op.operand_types, strict=True)
    return np.asarray(op.semantics.rule(op).compute(*(np.asarray(x, kind.dtype) for x, kind in pairs)))


def elementwise_function(op: Operation) -> Function:
    """Returns the function of vectors or floats, by the rule of the Triton simulator's table."""
    kinds, kind = op.operand_types, op.types[0]
    to_float8 = op.name == "arith.truncf" and kind.dtype.itemsize == 1
    compute = partial(_to_float8, dtype=kind.dtype) if to_float8 else op.semantics.rule(op).compute

    def function(*operands: Any) -> Any:
        arrays = [np.asarray(x, kind.dtype) for x, kind in zip(operands, kinds, strict=True)]
        return _plain(np.asarray(compute(*arrays), kind.dtype), op)

    return function


def _to_float8(x: Array, dtype: np.dtype) -> Array:
    # PTX cvt.satfinite: what is too large becomes the largest finite number. Scales are rounded up, without a sign.
    wide = x.astype(np.float64)
    if dtype == ml_dtypes.float8_e8m0fnu:
        fraction, exponent = np.frexp(np.abs(wide))
        power = np.where(wide == 0, -127, exponent - (fraction == 0.5))
        wide = np.where(np.isfinite(wide), np.ldexp(1.0, np.clip(power, -127, 127)), np.abs(wide))
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.asarray(np.clip(wide, -largest, largest).astype(dtype))


def _plain(result: Array, op: Operation) -> Any:
    return result.item() if not op.types[0].shape and op.types[0].dtype.kind in "ib" else result


def constant(op: Operation) -> Any:
    """Returns the value of a constant."""
    kind, value = op.types[0], op.attributes["value"]
    if isinstance(value, str):
        raise unsupported_failure(f"the constant {value}", op.place)
    return _plain(np.broadcast_to(np.asarray(value).astype(kind.dtype), kind.shape), op)


def _broadcast(op: Operation) -> Function:
    return lambda x: np.broadcast_to(np.asarray(x).astype(op.types[0].dtype), op.types[0].shape)


def _broadcast_in_dim(op: Operation) -> Function:
    axes, shape = op.attributes["broadcast_dimensions"], op.types[0].shape
    own = dict(zip(axes, op.operand_types[0].shape, strict=True))
    return lambda x: np.broadcast_to(x.reshape([own.get(axis, 1) for axis in range(len(shape))]), shape)


def _strided(op: Operation) -> Function:
    key = tuple(slice(o, o + n) for o, n in zip(op.attributes["offsets"], op.attributes["sizes"], strict=True))
    return lambda x: x[key]


def _insert(op: Operation) -> Function:
    def compute(part: Array, whole: Array) -> Array:
        result = whole.copy()
        result[tuple(slice(o, o + n) for o, n in zip(op.attributes["offsets"], part.shape, strict=True))] = part
        return result

    return compute


_REDUCTIONS: Mapping[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "minui": np.minimum, "minsi": np.minimum, "maxui": np.maximum,
    "maxsi": np.maximum, "maximumf": np.maximum, "minimumf": np.minimum, "maxnumf": np.fmax, "minnumf": np.fmin,
}  # fmt: skip


def _reduction(op: Operation) -> Function:
    found = re.search(r"kind<(\w+)>", op.attributes["kind"])
    if found is None or found[1] not in _REDUCTIONS:
        raise unsupported_failure(f"a reduction by {op.attributes['kind']}", op.place)
    ufunc, dtype = _REDUCTIONS[found[1]], op.types[0].dtype
    wide = dtype if dtype.kind in "ib" else np.result_type(dtype, np.float32)
    if found[1].endswith("ui") and dtype.kind == "i":
        wide = np.dtype(f"u{dtype}")

    def compute(x: Array, start: Any = None) -> Any:
        result = ufunc.reduce(x.astype(wide), axis=op.attributes.get("reduction_dims"))
        if start is not None:
            result = ufunc(result, np.asarray(start, dtype).astype(wide))
        return _plain(np.asarray(result).astype(dtype), op)

    return compute


def _iota(op: Operation) -> Function:
    kind, axis = op.types[0], op.attributes["dimension"]
    line = np.arange(kind.shape[axis]).astype(kind.dtype)
    array = np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(kind.shape))]), kind.shape)
    return lambda: array


_ALONE = 2**18  # multiplications that OpenBLAS does in one thread; waking others takes longer than the product


def product(a: Array, b: Array, dtype: np.dtype) -> Array:
    """Returns a product of matrices for a sum in a dtype: floats in float32 or wider, unrounded."""
    if a.dtype == np.float32:
        a, b = tf32(a), tf32(b)
    rows = max(1, _ALONE // b.size)
    return np.concatenate([multiply_matrices(a[i : i + rows], b, dtype) for i in range(0, len(a), rows)])


def _multiply_add(op: Operation) -> Function:
    def compute(accumulator: Array, a: Array, b: Array) -> Array:
        added = product(a, b, op.types[0].dtype)
        return np.asarray((added + accumulator.astype(added.dtype)).astype(op.types[0].dtype))

    return compute


VECTORS: Mapping[str, Make] = {
    "vector.broadcast": _broadcast,
    "vector.shape_cast": lambda op: lambda x: x.reshape(op.types[0].shape),
    "vector.extract_strided_slice": _strided,
    "vector.insert_strided_slice": _insert,
    "vector.extract": lambda op: lambda x: _plain(x[op.attributes["static_position"]], op),
    "vector.reduction": _reduction,
    "vector.multi_reduction": _reduction,
    "mosaic_gpu.broadcast_in_dim": _broadcast_in_dim,
    "mosaic_gpu.broadcasted_iota": _iota,
    "mosaic_gpu.vector_concat": lambda op: lambda *parts: np.concatenate(parts, axis=op.attributes["dimension"]),
    "mosaic_gpu.layout_cast": lambda op: lambda x: x,
    "mosaic_gpu.mma": _multiply_add,
}
