"""Special values among a case's inputs: NaN, infinities, zeros, repeated numbers, masks of False, partial blocks."""

from collections.abc import Iterator, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_float, is_integer
from kerneltest.plan.slots import CountedAxis
from kerneltest.records.evidence import FillExtent, SpecialInput, SpecialValue

_MOST_SORTED = 1 << 18  # elements of an array up to which repeated numbers are looked for


def find_special_inputs(
    arguments: Mapping[str, Array],
    blocks: Mapping[str, int] | None = None,
    counted: Mapping[str, CountedAxis] | None = None,
) -> tuple[SpecialInput, ...]:
    """Returns the special values in array arguments.

    By path, `blocks` has block lengths along the last axis, and `counted` the axes that integers count or divide.
    """
    found: list[SpecialInput] = []
    for path, values in arguments.items():
        found += (SpecialInput(path, *special) for special in _special_values(values, (blocks or {}).get(path, 0)))
        if counted and path in counted:
            counts = _special_counts(values.astype(np.int64), counted[path])
            found += (SpecialInput(path, value, of=of) for value, of in counts)
    return tuple(found)


# What is special about numbers of elements, or about the lengths of parts.
def _special_counts(values: Array, axis: CountedAxis) -> Iterator[tuple[SpecialValue, str]]:
    are_ends = axis.role == "offsets"
    counts = np.diff(values, axis=-1) if are_ends else values
    if are_ends and (counts == 0).any():
        yield SpecialValue.EMPTY_PART, ""
    if axis.role == "length" and (counts < axis.length).any():
        yield SpecialValue.NOT_FULL, axis.name
    if axis.block > 1 and (counts % axis.block != 0).any():
        yield SpecialValue.PART_IS_NO_MULTIPLE if are_ends else SpecialValue.NO_MULTIPLE, axis.block_name


def _special_values(values: Array, block: int) -> Iterator[tuple[SpecialValue, FillExtent]]:
    if not values.size:
        return
    if values.dtype == bool:
        yield from _extents(SpecialValue.FALSE, ~values, block)
        return
    wide = values
    if is_float(values.dtype):
        with np.errstate(all="ignore"):
            wide = values.astype(np.float64)
        yield from _special_floats(values, wide, block)
    elif not is_integer(values.dtype):
        return
    elif values.dtype.kind not in "iu":
        wide = values.astype(np.int8)
    yield from _extents(SpecialValue.ZERO, wide == 0, block)
    yield from _extents(SpecialValue.NEGATIVE, wide < 0, block)
    if wide.ndim and wide.shape[-1] > 1 and wide.size <= _MOST_SORTED:
        in_order = np.sort(wide, axis=-1)
        if (in_order[..., 1:] == in_order[..., :-1]).any():
            yield SpecialValue.REPEATED, FillExtent.SOME


def _special_floats(values: Array, wide: Array, block: int) -> Iterator[tuple[SpecialValue, FillExtent]]:
    size = np.abs(wide)
    if not (finite := np.isfinite(wide)).all():
        if np.isnan(wide).any():
            yield SpecialValue.NAN, FillExtent.SOME
        yield from _extents(SpecialValue.NEGATIVE_INFINITY, wide == -np.inf, block)
        yield from _extents(SpecialValue.POSITIVE_INFINITY, wide == np.inf, block)
        size = size[finite]
    if not size.size:
        return
    fmt, least = float_format(values.dtype), size.min()
    if least < fmt.smallest_normal and ((size > 0) & (size < fmt.smallest_normal)).any():
        yield SpecialValue.SUBNORMAL, FillExtent.SOME
    if size.max() >= float(np.nextafter(fmt.overflow, 0)) / 2:
        yield SpecialValue.NEAR_LARGEST, FillExtent.SOME
    if least == 0 and np.signbit(wide[wide == 0]).any():
        yield SpecialValue.NEGATIVE_ZERO, FillExtent.SOME


# How much of an array a value fills, from every element to some. The last block of a row counts only if it is whole, or
# the first one too: shorter ones are filled by chance.
def _extents(value: SpecialValue, fills: Array, block: int) -> Iterator[tuple[SpecialValue, FillExtent]]:
    if not fills.any():
        return
    if fills.all():
        yield value, FillExtent.ALL
    if fills.ndim and fills.all(axis=-1).any():
        yield value, FillExtent.ROW
    if fills.ndim and block > 1:
        *rows, length = fills.shape
        block = min(block, length)
        if fills[..., :block].all(axis=-1).any():
            yield value, FillExtent.FIRST_BLOCK
        whole = fills[..., : length // block * block]
        if whole.reshape(*rows, -1, block).all(axis=-1).any():
            yield value, FillExtent.BLOCK
    yield value, FillExtent.SOME
