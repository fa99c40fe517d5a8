"""Outputs of an oracle that are defined at some of their elements alone: nothing is asked of a kernel at the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, ShapeDtype, is_float, is_integer


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """One output of an oracle, as `defined` makes it.

    Attributes:
      values: as the oracle would return them by themselves.
      where: whether each of them is asked for; booleans that broadcast to the shape of `values`.
    """

    values: Any
    where: Any


def unasked(output: ShapeDtype | Array) -> Defined:
    """An output of the kernel of which nothing is asked: zeros of its shape."""
    wide = np.float64 if is_float(output.dtype) else np.int64 if is_integer(output.dtype) else np.bool_
    return Defined(np.zeros(output.shape, wide), np.False_)


class Ignored:
    """An output of which nothing is asked at all."""

    def __repr__(self) -> str:
        return "kt.ignored"


ignored = Ignored()
"""What an oracle returns in place of an output that is not compared, such as statistics kept for a backward pass.

    return x / norm, kt.ignored

Memory that the kernel misuses there is found all the same.
"""


def defined(values: Any, *, where: Any) -> Defined:
    """An output that an oracle returns where it is defined at some elements alone; nothing is asked at the others.

        scores = np.where(mask, q @ k.T, -np.inf)
        return kt.defined(softmax(scores) @ v, where=mask.any(axis=-1, keepdims=True))

    Whatever the kernel gives at the others is right: they are not compared, and count as such. Memory that it misuses
    there is found all the same. A declared gradient is that of the elements which are asked for.

    Args:
      values: one output. Of several, wrap each that needs it: `return kt.defined(out, where=seen), maximum`.
      where: booleans that broadcast to the shape of `values`: True where the kernel must give them.

    Raises:
      TypeError: `where` is not boolean, or `values` are several outputs.
      ValueError: `where` does not broadcast to the shape of `values`.
    """
    if isinstance(values, (tuple, list, dict, Defined)):
        raise TypeError(f"kt.defined takes one output, not a {type(values).__name__}: wrap each output by itself")
    dtype = getattr(where, "dtype", None) or np.asarray(where).dtype
    if dtype != np.bool_:
        raise TypeError(f"kt.defined: where= has dtype {dtype}; it takes booleans, as of a comparison")
    shape, wanted = np.shape(where), np.shape(values)
    if len(shape) > len(wanted) or any(n not in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False)):
        raise ValueError(f"kt.defined: where= has shape {shape}, which does not broadcast to {wanted}, the output's")
    return Defined(values, where)


def parted(outputs: Sequence[Any], like: Sequence[ShapeDtype | Array]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Outputs of an oracle as arrays of their own, zero where nothing is asked; and where something is, of each.

    Args:
      outputs: of the oracle.
      like: those of the kernel, whose shapes what is ignored has.
    """
    values, asked = [], []
    for number, output in enumerate(outputs):
        if isinstance(output, Ignored):
            output = unasked(like[number]) if number < len(like) else Defined(0.0, np.False_)
        value = np.array(output.values if isinstance(output, Defined) else output)
        where = np.broadcast_to(output.where if isinstance(output, Defined) else np.True_, value.shape)
        value[~where] = 0
        values.append(value)
        asked.append(where)
    return tuple(values), tuple(asked)
