"""The map of error / bound: levels of elements, and the largest level of each tile."""

import math

import ml_dtypes
import numpy as np
import pytest

from kerneltest.judge.compare import compare, map_errors
from kerneltest.records.evidence import ErrorMap

NAN, INF = math.nan, math.inf
HALF = 2.0**-24  # half a unit in the last place of float32 at 1

ROWS = {
    "within": ([1.0, 1.0005, 1.005, 1.05, 1.3, 1.9], [1.0] * 6, [1.0] * 6, np.float32, "012345"),
    "beyond": ([2.5, 4.0, 51.0, 1001.0, 2e4], [1.0] * 5, [1.0] * 5, np.float32, "6789A"),
    "special": ([NAN, INF, NAN, 1.0, 3.0], [1.0, 1.0, NAN, INF, 3.0], [1.0] * 4 + [INF], np.float32, "SS0S."),
    "exact": ([1.0, 1 + 2 * HALF, 1 + 2**10 * HALF], [1.0] * 3, [0.0] * 3, np.float32, "069"),
    "tie": ([1.0, 1 + 2 * HALF], [1 + HALF] * 2, [0.0] * 2, np.float32, "06"),
    "rounded": ([1.0, 1.0], [1 + HALF / 2, 1 + HALF / 2], [0.0, HALF / 16], np.float32, "00"),
    "bfloat16": ([1.0, 1.015625], [1.0, 1.0], [0.0, 0.0], ml_dtypes.bfloat16, "07"),
    "integers": ([3, 4, 100], [3, 3, 3], [0.0] * 3, np.int32, "069"),
    "booleans": ([True, False], [True, True], [0.0, 0.0], np.bool_, "06"),
}  # fmt: skip


@pytest.mark.parametrize(("actual", "expected", "bound", "dtype", "levels"), ROWS.values(), ids=ROWS)
def test_levels(actual: list[float], expected: list[float], bound: list[float], dtype: type, levels: str) -> None:
    whole = np.float64 if np.dtype(dtype).kind not in "ib" else np.int64 if np.dtype(dtype).kind == "i" else np.bool_
    compared = compare(np.array(actual, dtype), np.array(expected, whole), np.array(bound), signed_zeros=False)
    found = map_errors(compared)
    assert found == ErrorMap((len(actual),), (1, len(actual)), (1, 1), levels)
    wrong = [level in "6789AS" for level in found.levels]
    assert wrong == compared.wrong.tolist()


@pytest.mark.parametrize(
    ("shape", "at", "tiles", "tile"),
    [((), (), (1, 1), (1, 1)), ((5000,), (4999,), (1, 2500), (1, 2)), ((3, 40, 130), (2, 39, 0), (60, 44), (2, 3))],
)
def test_a_tile_shows_its_largest_level(
    shape: tuple[int, ...], at: tuple[int, ...], tiles: tuple[int, int], tile: tuple[int, int]
) -> None:
    actual = np.zeros(shape, np.float32)
    actual[at] = 1.0
    found = map_errors(compare(actual, np.zeros(shape), np.full(shape, 0.25), signed_zeros=False))
    assert (found.tiles, found.tile) == (tiles, tile)
    columns = shape[-1] if shape else 1
    row, column = divmod(int(np.ravel_multi_index(at, shape)) if shape else 0, columns)
    assert [i for i, level in enumerate(found.levels) if level != "0"] == [
        row // tile[0] * tiles[1] + column // tile[1]
    ]
    assert set(found.levels) - {"0"} == {"7"}
