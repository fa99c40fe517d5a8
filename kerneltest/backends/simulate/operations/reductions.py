"""Operations along an axis: matrix products, reductions and scans."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Rule, any_operand, given
from kerneltest.core.dtypes import Array


def tf32(x: Array) -> Array:
    """float32 rounded to TF32's 11 bits, ties away from zero, as measured on an H200."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def dot(op: Operation) -> Rule:
    """A matrix product and a sum, floats in float32 or wider."""
    dtype = op.types[0].dtype
    reduced = op.attributes.get("inputPrecision", 2) == 0  # TF32, TF32x3, IEEE, ...

    def compute(a: Array, b: Array, c: Array) -> Array:
        if dtype.kind == "i":
            product = np.matmul(a.astype(np.int64), b.astype(np.int64)).astype(dtype)
            return np.asarray(product + c)
        if a.dtype == np.float32 and reduced:
            a, b = tf32(a), tf32(b)
        wide = np.float64 if dtype == np.float64 else np.float32
        product = np.matmul(a.astype(wide), b.astype(wide))
        return np.asarray((product + c.astype(wide)).astype(dtype))

    def undefined(values: Sequence[Any], masks: Sequence[Any]) -> Any:
        a, b, c = given(values, masks)
        return a.any(axis=-1, keepdims=True) | b.any(axis=-2, keepdims=True) | c

    return Rule(compute, undefined)


def reduce(op: Operation) -> Rule:
    """Halves combined with halves, as a tree: the IR leaves the order open."""
    axis = op.attributes["axis"] + 1
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(_along(x, axis, length) for x in operands)
        n = length
        while n > 1:
            n //= 2
            low = (slice(None),) * axis + (slice(0, n),)
            high = (slice(None),) * axis + (slice(n, None),)
            parts = combine(*(x[low] for x in parts), *(x[high] for x in parts))
        return tuple(x.squeeze(axis) for x in parts)

    def undefined(values: Sequence[Any], masks: Sequence[Any]) -> Any:
        mask = any_operand(values, masks)
        return mask.any(axis=axis) if mask.ndim > axis else mask

    return Rule(compute, undefined)


def scan(op: Operation) -> Rule:
    """Each element combined with all before it, by doubling distances."""
    axis = op.attributes["axis"] + 1
    backwards = bool(op.attributes.get("reverse", False))
    combine = op.regions[0].function()
    length = op.operand_types[0].shape[axis - 1]

    def compute(*operands: Array) -> tuple[Array, ...]:
        parts = tuple(
            np.flip(_along(x, axis, length), axis) if backwards else _along(x, axis, length) for x in operands
        )
        distance = 1
        while distance < length:
            head = (slice(None),) * axis + (slice(0, distance),)
            early = (slice(None),) * axis + (slice(0, length - distance),)
            late = (slice(None),) * axis + (slice(distance, None),)
            joined = combine(*(x[early] for x in parts), *(x[late] for x in parts))
            parts = tuple(np.concatenate((x[head], y), axis) for x, y in zip(parts, joined, strict=True))
            distance *= 2
        return tuple(np.flip(x, axis) for x in parts) if backwards else parts

    def undefined(values: Sequence[Any], masks: Sequence[Any]) -> Any:
        mask = _along(any_operand(values, masks), axis, length)
        if backwards:
            return np.flip(np.logical_or.accumulate(np.flip(mask, axis), axis), axis)
        return np.logical_or.accumulate(mask, axis)

    return Rule(compute, undefined)


def _along(x: Array, axis: int, length: int) -> Array:
    """`x` with its full length along one axis."""
    return x if x.shape[axis] == length else np.repeat(x, length, axis)
