"""What a case's inputs hold that most inputs do not, in words: what special values a finding may come from."""

from collections.abc import Iterator, Mapping

import numpy as np

from kerneltest.core.dtypes import Array, float_format, is_float


def contents(arguments: Mapping[str, Array]) -> tuple[str, ...]:
    """The special values in array arguments: `x holds a NaN`, `a row of x holds nothing but -inf`.

    The last axis runs along rows. Each phrase reads on after "where".
    """
    return tuple(words.format(path) for path, values in arguments.items() for words in _of(values))


def _of(values: Array) -> Iterator[str]:
    if not values.size:
        return
    if values.dtype == bool:
        if not values.all():
            if not values.any():
                yield "{} holds nothing but False"
            elif values.ndim and not values.any(axis=-1).all():
                yield "a row of {} holds nothing but False"
        return
    if not is_float(values.dtype):
        return
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
    size = np.abs(wide)
    if not (finite := np.isfinite(wide)).all():
        yield from _special(wide)
        size = size[finite]
    if not size.size:
        return
    fmt, least = float_format(values.dtype), size.min()
    if least < fmt.smallest_normal and ((size > 0) & (size < fmt.smallest_normal)).any():
        yield "{} holds a subnormal number"
    if size.max() >= float(np.nextafter(fmt.overflow, 0)) / 2:
        yield "{} holds a number near the largest"
    if least == 0 and np.signbit(wide[wide == 0]).any():
        yield "{} holds a zero of negative sign"


def _special(wide: Array) -> Iterator[str]:
    if np.isnan(wide).any():
        yield "{} holds a NaN"
    for words, infinity in (("-inf", -np.inf), ("+inf", np.inf)):
        held = wide == infinity
        if held.all():
            yield f"{{}} holds nothing but {words}"
        if wide.ndim and held.all(axis=-1).any():
            yield f"a row of {{}} holds nothing but {words}"
        if held.any():
            yield f"{{}} holds {words}"
