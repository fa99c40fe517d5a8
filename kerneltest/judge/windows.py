"""The part of an output around its worst element, and of the arguments there: small enough for a record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, is_float
from kerneltest.declare.pairing import Pairing
from kerneltest.judge.compare import Comparison
from kerneltest.judge.locate import Axis
from kerneltest.records.schema import Window

_MOST = 1024  # elements of an output; 32 x 32 where it is large both ways
_MOST_INPUT = 128


def output_window(comparison: Comparison, index: tuple[int, ...], axes: Sequence[Axis]) -> Window:
    """The part of an output around `index`: actual, expected, bound, and which elements are wrong."""
    actual = comparison.actual
    lengths, at = _part(actual.shape, index, _MOST)
    return Window(
        name="",
        dtype=actual.dtype.name,
        shape=actual.shape,
        origin=_origin(at),
        extent=lengths,
        blocks=_last_two([axis.block or 0 for axis in axes], 0),
        values=_plain(actual[at]),
        expected=_plain(comparison.expected[at]),
        bound=_plain(comparison.bound[at]),
        wrong="".join("1" if each else "0" for each in comparison.wrong[at].flat),
    )


def input_windows(pairing: Pairing, arguments: Mapping[str, Array], place: Mapping[str, int]) -> tuple[Window, ...]:
    """The part of each argument that meets an element of an output, by the dims that they share.

    Args:
      pairing: whose arguments these are.
      arguments: array arguments, by path.
      place: the element's index along each dim; other dims are shown from their first NaN or infinity, or from 0.
    """
    windows = []
    for path, value in arguments.items():
        dims = pairing.leaves[path].shape
        special = np.argwhere(~np.isfinite(value.astype(np.float64))) if is_float(value.dtype) else np.empty((0, 0))
        first = special[0].tolist() if len(special) else [0] * value.ndim
        index = tuple(
            min(place.get(name, start) if isinstance(name, str) else start, max(length - 1, 0))
            for name, start, length in zip(dims, first, value.shape, strict=True)
        )
        lengths, at = _part(value.shape, index, _MOST_INPUT)
        blocks = [(pairing.dims[name].block or 0) if isinstance(name, str) else 0 for name in dims]
        windows.append(
            Window(path, value.dtype.name, value.shape, _origin(at), lengths, _last_two(blocks, 0), _plain(value[at]))
        )
    return tuple(windows)


def _part(shape: tuple[int, ...], index: tuple[int, ...], most: int) -> tuple[tuple[int, int], tuple[int | slice, ...]]:
    """Rows and columns of a part of at most `most` elements around an index, and what selects it."""
    rows, columns = _last_two(shape, 1)
    side = int(np.sqrt(most))
    shown_rows = min(rows, max(side, most // max(columns, 1)))
    shown_columns = min(columns, most // max(shown_rows, 1))
    if not shape:
        return (1, 1), ()
    start_columns = _start(index[-1], columns, shown_columns)
    last = slice(start_columns, start_columns + shown_columns)
    if len(shape) == 1:
        return (1, shown_columns), (last,)
    start_rows = _start(index[-2], rows, shown_rows)
    return (shown_rows, shown_columns), (*index[:-2], slice(start_rows, start_rows + shown_rows), last)


def _start(index: int, length: int, shown: int) -> int:
    return max(0, min(index - shown // 2, length - shown))


def _origin(at: Iterable[int | slice]) -> tuple[int, ...]:
    return tuple(each.start if isinstance(each, slice) else int(each) for each in at)


def _last_two(values: Sequence[int], missing: int) -> tuple[int, int]:
    filled = (missing, missing, *values)
    return int(filled[-2]), int(filled[-1])


def _plain(values: Array) -> tuple[Any, ...]:
    if is_float(values.dtype):
        return tuple(float(f"{value:.7g}") for value in values.astype(np.float64).ravel().tolist())
    return tuple(values.astype(bool if values.dtype == bool else np.int64).ravel().tolist())
