"""Declarations of integer arrays next to floats, by their names: positions, counts of elements, sizes of groups.

Tracing cannot determine these. A declaration by the name is only a proposal, which the file asks its author to check.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from kerneltest.core.dtypes import ShapeDtype, is_float
from kerneltest.start.example_calls import Example

_POSITIONS = {
    "at", "gather", "id", "ids", "idx", "index", "indices", "inds", "label", "labels", "perm", "permutation", "pos",
    "position", "positions", "start", "starts", "target", "targets", "token", "tokens",
}  # fmt: skip
_COUNTS = {"count", "counts", "len", "length", "lengths", "lens", "num", "seqlen", "seqlens", "valid"}
_SIZES = {"group", "groups", "size", "sizes"}
_OFFSETS = {"cu", "cum", "cumulative", "indptr", "offset", "offsets"}
_PAGES = {"block", "blocks", "page", "pages", "table", "tables"}  # several axes fit; only the author knows
_DATA = {"seg", "segment", "segments"}  # compared with each other only
_POINTERS = (np.dtype(np.int32), np.dtype(np.int64))


def may_point(example: Example, path: str) -> bool:
    """Returns whether an array may hold positions or counts: wide signed integers next to floats."""
    return example.leaves[path].dtype in _POINTERS and any(is_float(leaf.dtype) for leaf in example.leaves.values())


def role_source(example: Example, path: str, shapes: Mapping[str, list[str]], dims: Mapping[str, int]) -> str:
    """Returns the declaration that an array's name suggests, or "".

    Args:
      example: the call.
      path: of the array.
      shapes: the axes of all arrays as the declaration has them.
      dims: the dims with their lengths in the example.
    """
    words = set(re.split(r"[^a-z]+", path.lower()))
    shape = shapes[path]
    text, dtype = " ".join(shape), example.leaves[path].dtype
    more = "" if dtype == np.int32 else f', dtype="{dtype}"'
    most = example.ranges.get(path, (0, -1))[1]

    def bounded(kind: str, option: str, dim: str) -> str:
        return f'kt.{kind}("{text}", {option}="{dim}"{more})' if dim else ""

    def fits(room: int) -> Callable[[str], bool]:
        return lambda dim: dim not in shape and most < dims[dim] + room

    if words & _PAGES:
        return ""
    if words & _DATA:
        return f'kt.array("{text}", "{dtype}", domain=(0, 3))'
    if len(shape) == 1 and words & _OFFSETS:
        return ""  # one longer than there are groups, which is a length that needs its author
    if len(shape) == 1 and words & _SIZES:
        return bounded("partition", "of", _first_axis(example, shapes, fits(1), shape))
    if words & _COUNTS:
        beside = _next_axis(example, shapes, fits(1), shape)
        return bounded("lengths", "up_to", beside or _first_axis(example, shapes, fits(1), shape))
    if words & _POSITIONS:
        beside = _next_axis(example, shapes, fits(0), shape)
        return bounded("indices", "into", beside or _first_axis(example, shapes, fits(0), shape))
    return ""


def _floats(example: Example) -> list[tuple[str, ShapeDtype]]:
    return [(path, leaf) for path, leaf in example.leaves.items() if is_float(leaf.dtype)]


def _next_axis(example: Example, shapes: Mapping[str, list[str]], fits: Callable[[str], bool], shape: list[str]) -> str:
    """Returns the dim of a float array right after the axes of an array, as in labels `b` of logits `b n`; or ""."""
    size = len(shape)
    for path, _ in reversed(_floats(example)):
        axes = shapes[path]
        if axes[:size] == shape and len(axes) > size and axes[size].isidentifier() and fits(axes[size]):
            return axes[size]
    return ""


def _first_axis(
    example: Example, shapes: Mapping[str, list[str]], fits: Callable[[str], bool], shape: list[str]
) -> str:
    """Returns the first dim of a float array that has no axis of an array, as in ids `n` of a table `v d`; or ""."""
    for path, _ in _floats(example):
        axes = shapes[path]
        if axes and not set(axes) & set(shape) and axes[0].isidentifier() and fits(axes[0]):
            return axes[0]
    return ""
