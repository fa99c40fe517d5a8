"""Outputs of an oracle that are defined only at some elements; the kernel's other elements are not compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, ShapeDtype, is_float, is_integer

Output = Any  # anything that NumPy converts to an array


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """One output of an oracle, as returned by `defined`.

    Attributes:
      values: the output.
      where: True for elements that are compared; booleans that broadcast to the shape of `values`.
    """

    values: Output
    where: Output


def undefined_output(output: ShapeDtype | Array) -> Defined:
    """Returns an output that is not compared anywhere: zeros of the shape of a kernel's output."""
    wide = np.float64 if is_float(output.dtype) else np.int64 if is_integer(output.dtype) else np.bool_
    return Defined(np.zeros(output.shape, wide), np.False_)


class Ignored:
    """An output that is not compared."""

    def __repr__(self) -> str:
        return "kt.ignored"


ignored = Ignored()
"""A placeholder for an output that is not compared, such as statistics saved for a backward pass.

    return x / norm, kt.ignored

Memory errors in the kernel's output are still found.
"""


def defined(values: Output, *, where: Output) -> Defined:
    """Returns an output of an oracle that is defined only at some elements.

        scores = np.where(mask, q @ k.T, -np.inf)
        return kt.defined(softmax(scores) @ v, where=mask.any(axis=-1, keepdims=True))

    The kernel's other elements may be anything: they are not compared and are counted as such. Memory errors there are
    still found. A declared gradient is that of the defined elements.

    Args:
      values: one output. If there are several, wrap each that needs it: `return kt.defined(out, where=seen), maximum`.
      where: booleans that broadcast to the shape of `values`: True for elements that the kernel must compute.

    Raises:
      TypeError: `where` is not boolean, or `values` contains several outputs.
      ValueError: `where` does not broadcast to the shape of `values`.
    """
    if isinstance(values, (tuple, list, dict, Defined)):
        raise TypeError(f"kt.defined takes one output, not a {type(values).__name__}; wrap each output separately")
    dtype = getattr(where, "dtype", None) or np.asarray(where).dtype
    if dtype != np.bool_:
        raise TypeError(f"kt.defined: where= has dtype {dtype}; it takes booleans, such as the result of a comparison")
    shape, wanted = np.shape(where), np.shape(values)
    if len(shape) > len(wanted) or any(n not in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False)):
        raise ValueError(f"kt.defined: where= has shape {shape}, which does not broadcast to {wanted}, the output's")
    return Defined(values, where)


def split_defined(
    outputs: Sequence[Output], like: Sequence[ShapeDtype | Array]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Returns copies of an oracle's outputs, zero where they are undefined, and a mask of the defined elements of each.

    Args:
      outputs: of the oracle.
      like: outputs of the kernel, which give ignored ones their shape.
    """
    values, compared = [], []
    for number, output in enumerate(outputs):
        if isinstance(output, Ignored):
            output = undefined_output(like[number]) if number < len(like) else Defined(0.0, np.False_)
        value = np.array(output.values if isinstance(output, Defined) else output)
        where = np.broadcast_to(output.where if isinstance(output, Defined) else np.True_, value.shape)
        value[~where] = 0
        values.append(value)
        compared.append(where)
    return tuple(values), tuple(compared)
