"""Special values among a case's inputs: NaN, infinities, subnormals, the largest numbers, -0, and masks of False."""

from collections.abc import Iterator, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_float
from kerneltest.records.evidence import FillExtent, SpecialInput, SpecialValue


def find_special_inputs(arguments: Mapping[str, Array]) -> tuple[SpecialInput, ...]:
    """Returns the special values in array arguments, which are keyed by path."""
    return tuple(SpecialInput(path, *found) for path, values in arguments.items() for found in _special_values(values))


def _special_values(values: Array) -> Iterator[tuple[SpecialValue, FillExtent]]:
    if not values.size:
        return
    if values.dtype == bool:
        if not values.any():
            yield SpecialValue.FALSE, FillExtent.ALL
        elif values.ndim and not values.any(axis=-1).all():
            yield SpecialValue.FALSE, FillExtent.ROW
        return
    if not is_float(values.dtype):
        return
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
    size = np.abs(wide)
    if not (finite := np.isfinite(wide)).all():
        yield from _not_finite(wide)
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


def _not_finite(wide: Array) -> Iterator[tuple[SpecialValue, FillExtent]]:
    if np.isnan(wide).any():
        yield SpecialValue.NAN, FillExtent.SOME
    for value, infinity in ((SpecialValue.NEGATIVE_INFINITY, -np.inf), (SpecialValue.POSITIVE_INFINITY, np.inf)):
        fills = wide == infinity
        if fills.all():
            yield value, FillExtent.ALL
        if wide.ndim and fills.all(axis=-1).any():
            yield value, FillExtent.ROW
        if fills.any():
            yield value, FillExtent.SOME
