"""The limits of results for ever larger numbers in place of infinities, and for any number in place of NaN."""

from collections.abc import Callable

import numpy as np
import pytest

from kerneltest.core.dtypes import Array
from kerneltest.numerics.bounds import limits

INF, NAN, MOST = np.inf, np.nan, np.finfo(np.float64).max

# a function, its argument, and the limit of the result: a number, the largest one for an infinity, NaN for none
LIMITS: dict[str, tuple[Callable[[Array], Array], list[float], float]] = {
    "0 * inf": (lambda x: 0 * x[0] + x[1], [INF, 3], 3),
    "0 * nan": (lambda x: 0 * x[0] + x[1], [NAN, 3], 3),
    "0 * nan + inf": (lambda x: 0 * x[0] + x[1], [NAN, -INF], -MOST),
    "inf * inf - inf": (lambda x: x[0] * x[0] - x[0], [INF, 0], MOST),
    "one infinity less itself": (lambda x: x[0] - x[0] + x[1], [INF, 3], 3),
    "one infinity less another": (lambda x: x[0] - x[1], [INF, INF], NAN),
    "a difference of sums": (lambda x: (x[0] + x[1]) - x[0], [INF, 3], 3),
    "the maximum's place": (lambda x: np.exp(x[0] - x.max()), [-INF, -INF], NAN),
    "a single maximum": (lambda x: np.exp(x[1] - x.max()), [INF, 3], 0),
    "a sum with NaN": (np.sum, [NAN, 3], NAN),
    "NaN and infinity": (np.sum, [NAN, INF], NAN),
    "the larger of NaN and infinity": (np.max, [NAN, INF], NAN),
    "a sign": (lambda x: np.sign(x[0]), [NAN, 3], NAN),
    "a clipped NaN": (lambda x: np.clip(x[0], 0, 1), [NAN, 3], NAN),
    "a clipped NaN next to a large number": (lambda x: np.clip(x[0], 0, 1), [NAN, 3e8], NAN),
    "an even function of NaN next to a large number": (lambda x: np.exp(-x[0] * x[0]), [NAN, 3e3], NAN),
    "a saturated infinity": (lambda x: np.tanh(x[0]), [-INF, 3], -1),
    "a logarithm": (lambda x: np.log(x[0]), [INF, 3], NAN),
    "small numbers": (lambda x: 0 * x[0] + x[1], [INF, 3e-30], 3e-30),
    "no special value": (lambda x: x[0], [2, 3], 2),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_result_tends_to_its_limit(name: str) -> None:
    function, x, limit = LIMITS[name]
    (found,) = limits(
        lambda near: [(np.asarray(function(each["x"])),) for each in near], {"x": np.array(x, np.float64)}
    )
    np.testing.assert_allclose(found, limit, rtol=1e-6)
