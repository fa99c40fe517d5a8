"""Outputs of an oracle that are defined at some of their elements alone: nothing is asked of a kernel at the others."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """One output of an oracle, as `defined` makes it.

    Attributes:
      values: as the oracle would return them by themselves.
      where: whether each of them is asked for; booleans that broadcast to the shape of `values`.
    """

    values: Any
    where: Any


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


def parted(outputs: Iterable[Any]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Outputs of an oracle as arrays of their own, zero where nothing is asked; and where something is, of each."""
    values, asked = [], []
    for output in outputs:
        value = np.array(output.values if isinstance(output, Defined) else output)
        where = np.broadcast_to(output.where if isinstance(output, Defined) else np.True_, value.shape)
        value[~where] = 0
        values.append(value)
        asked.append(where)
    return tuple(values), tuple(asked)
