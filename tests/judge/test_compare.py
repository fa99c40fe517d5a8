"""The comparison of one output: classes of special values, bounds, rounding to the output's dtype."""

import numpy as np
import pytest

from kerneltest.core.dtypes import parse_dtype
from kerneltest.judge.compare import agree_roughly, compare, describe_element, ulp_histogram, without_doubted

INF, NAN = np.inf, np.nan
LARGEST = float(np.finfo(np.float32).max)

# actual, expected, bound, signed zeros matter, verdict
ELEMENTS = [
    (1.0, 1.0, 0.0, False, "pass"),
    (1.0, 1.0 + 2.0**-25, 0.0, False, "pass"),  # the rounded value itself
    (np.nextafter(np.float32(1), 2), 1.0, 0.0, False, "mismatch"),
    (1.1, 1.0, 0.2, False, "pass"),
    (1.3, 1.0, 0.2, False, "mismatch"),
    (NAN, NAN, 0.0, False, "pass"),
    (NAN, 1.0, 1e9, False, "special_mismatch"),
    (1.0, NAN, 1e9, False, "special_mismatch"),
    (INF, INF, 0.0, False, "pass"),
    (-INF, INF, 1e9, False, "special_mismatch"),
    (LARGEST, INF, 1e9, False, "special_mismatch"),
    (INF, 1e39, 0.0, False, "pass"),  # rounds to infinity
    (LARGEST, 3.5e38, 2e37, False, "pass"),  # rounds to infinity, but the bound admits the largest finite
    (INF, LARGEST, 1e32, False, "pass"),  # finite, but the bound reaches past the overflow threshold
    (INF, 1.7e308, 1e308, False, "pass"),  # and past float64
    (INF, LARGEST, 0.0, False, "special_mismatch"),
    (-INF, LARGEST, 1e38, False, "special_mismatch"),
    (INF, 1.0, 1e30, False, "special_mismatch"),
    (-0.0, 0.0, 0.0, False, "pass"),
    (-0.0, 0.0, 0.0, True, "special_mismatch"),
    (-0.0, 0.0, 1.0, True, "special_mismatch"),
    (-0.0, -0.0, 0.0, True, "pass"),
    (123.0, 1.0, INF, False, "pass"),  # an infinite bound admits ...
    (NAN, 1.0, INF, False, "pass"),
    (1.0, NAN, INF, False, "pass"),
    (-0.0, 0.0, INF, True, "pass"),  # ... any value
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_infinite_limit_is_no_number(dtype: str) -> None:
    actual = np.array([INF, -INF, np.finfo(dtype).max, NAN, INF, 3.02], dtype)
    limits = np.array([*[np.finfo(np.float64).max] * 4, NAN, 3.0])
    assert agree_roughly(actual, limits).tolist() == [True, False, False, False, False, True]


def test_lost_digits_of_one_element_do_not_excuse_a_number_in_place_of_another_s_nan() -> None:
    found = compare(np.array([50, 5], np.float32), np.array([NAN, 9.0]), np.zeros(2), signed_zeros=False)
    ((kept,), count) = without_doubted([found], lambda: [np.array([3.0, 1e4])], 0.0)
    assert (kept.wrong.tolist(), count) == ([True, False], 1)


@pytest.mark.parametrize(("first", "count"), [(1.0, 2), (NAN, 0)])
def test_a_kernel_that_has_nan_where_the_limit_is_a_number_does_not_return_limits(first: float, count: int) -> None:
    """As a softmax whose weight of an infinity is NaN and others 0: it loses the NaN of a row."""
    found = compare(np.array([first, 0.0], np.float32), np.full(2, NAN), np.zeros(2), signed_zeros=False)
    assert without_doubted([found], lambda: [np.array([1.0, 0.0])], 0.0)[1] == count


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("actual", "expected", "bound", "signed", "verdict"), ELEMENTS)
def test_an_element(actual: float, expected: float, bound: float, signed: bool, verdict: str) -> None:
    found = compare(np.array([actual], np.float32), np.array([expected]), np.array([bound]), signed_zeros=signed)
    assert found.verdict == verdict


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_distance_of_more_ulps_than_float64_holds_is_counted() -> None:
    assert compare(np.full(1, 1e300), np.zeros(1), np.zeros(1), signed_zeros=False).ulps == (0,) * 15 + (1,)


def test_nothing_counts_as_compared_where_the_bound_is_infinite() -> None:
    found = compare(np.zeros(3, np.float32), np.zeros(3), np.array([0.0, INF, 1.0]), signed_zeros=False)
    assert found.compared == 2


# expected, bound, noise, number of compared elements
VACUOUS = [
    pytest.param([1.0, -3.0], [1.0, 4.0], 0.0, 0, id="a-kernel-of-zeros-would-pass"),
    pytest.param([1.0, -3.0, 0.0], [1.0, 2.9, 0.0], 0.0, 3, id="one-element-tells"),
    pytest.param([1.0, -3.0, INF], [1.0, 4.0, 0.0], 0.0, 1, id="an-infinity-is-compared-by-class"),
    pytest.param([1.0, -3.0], [INF, 4.0], 0.0, 0, id="one-of-them-infinite"),
    pytest.param([0.0, 0.0], [1e-3, 1e-3], 0.0, 2, id="zeros-are-what-is-expected"),
    pytest.param([1e-16, 0.0], [1e-3, 1e-3], 1e-12, 2, id="zeros-but-for-the-oracles-rounding"),
    pytest.param([1e-37, 0.0], [1e-36, 1e-36], 0.0, 2, id="lost-where-subnormals-are-flushed"),
    pytest.param([1.0, 1e-9], [1e-7, 1e-7], 0.0, 2, id="cancellation-in-some"),
]


@pytest.mark.parametrize(("expected", "bound", "noise", "count"), VACUOUS)
def test_nothing_counts_as_compared_where_zeros_would_pass(
    expected: list[float], bound: list[float], noise: float, count: int
) -> None:
    right = np.array(expected, np.float32)
    found = compare(right, np.array(expected), np.array(bound), signed_zeros=False, noise=noise)
    assert (found.verdict, found.compared) == ("pass", count)


def test_an_error_beyond_a_vacuous_bound_is_still_found() -> None:
    found = compare(np.array([9.0, NAN], np.float32), np.ones(2), np.full(2, 2.0), signed_zeros=False)
    assert found.wrong.all()
    assert not found.compared


ULP = 2.0**-23  # of float32 at 1

# got, expected, bound, fraction of the bound without the output's own rounding
USED = [
    pytest.param(1.0, 1.0 + ULP / 4, ULP, 0.0, id="rounding-alone-uses-nothing"),
    pytest.param(1.0 + ULP, 1.0, 2.5 * ULP, 0.25, id="one-ulp-of-which-half-is-rounding"),
    pytest.param(1.0 + 3 * ULP, 1.0, 2.5 * ULP, 1.25, id="more-than-there-is"),
    pytest.param(1.0 - ULP / 2, 1.0, 1.5 * ULP, 0.25, id="finer-below-a-power-of-two"),
    pytest.param(1.0, 1.0 - 0.75 * ULP / 2, 0.75 * ULP, 0.25, id="finer-towards-zero"),
    pytest.param(1.0 + ULP, 1.0, ULP / 4, 4.0, id="less-room-than-its-rounding"),
    pytest.param(-(1.0 + ULP), -1.0, 2.5 * ULP, 0.25, id="negative"),
]


@pytest.mark.parametrize(("got", "expected", "bound", "used"), USED)
def test_how_much_of_the_bound_was_used(got: float, expected: float, bound: float, used: float) -> None:
    pair = np.array([got, 7.0], np.float32), np.array([expected, 7.0]), np.array([bound, 1.0])
    assert compare(*pair, signed_zeros=False).bound_fraction == pytest.approx(used, rel=1e-6)


def test_the_largest_fraction_of_a_bound_counts() -> None:
    actual = np.array([1 + ULP, 1 + 2 * ULP, NAN, 9, INF], np.float32)
    expected, bound = np.array([1, 1, NAN, 1, INF]), np.array([2.5 * ULP, 2.5 * ULP, 1.0, INF, 1.0])
    assert compare(actual, expected, bound, signed_zeros=False).bound_fraction == pytest.approx(0.75)
    exact = compare(np.ones(2, np.float32), np.ones(2), np.zeros(2), signed_zeros=False)
    assert exact.bound_fraction is None


# got, expected, others, wrong
OTHERS = [
    ([1, 2, 3], [1, 2, 3], [], [0, 0, 0]),
    ([1, 9, 3], [1, 2, 3], [], [0, 1, 0]),
    ([1, 9, 3], [1, 2, 3], [[1, 9, 3]], [0, 0, 0]),
    ([1, 9, 8], [1, 2, 3], [[1, 9, 3], [1, 2, 8]], [0, 0, 0]),  # each from another sample
    ([1, 9, 8], [1, 2, 3], [[9, 1, 8], [9, 8, 8]], [0, 1, 0]),  # right only at other places
    ([-56, 9, 8], [0, 2, 3], [[200, 2, 3]], [0, 1, 1]),  # wrapped as the kernel's dtype does
]


@pytest.mark.parametrize(("got", "expected", "others", "wrong"), OTHERS)
def test_integers_may_equal_any_alternative(
    got: list[int], expected: list[int], others: list[list[int]], wrong: list[int]
) -> None:
    found = compare(
        np.array(got, np.int8),
        np.array(expected),
        np.zeros(3),
        signed_zeros=False,
        alternatives=[np.array(each) for each in others],
    )
    assert found.wrong.tolist() == [bool(each) for each in wrong]
    assert (found.compared, found.bound_fraction) == (3, None)


def test_booleans_may_equal_any_alternative_or_anything_if_the_bound_is_infinite() -> None:
    got, expected, bound = np.array([True, True, False]), np.array([False, False, True]), np.array([0.0, 0.0, INF])
    found = compare(got, expected, bound, signed_zeros=False, alternatives=[np.array([True, False, True])])
    assert found.wrong.tolist() == [False, True, False]
    assert found.compared == 2


def test_alternatives_do_not_apply_to_floats() -> None:
    other = [np.array([9.0])]
    found = compare(np.array([9.0], np.float32), np.ones(1), np.zeros(1), signed_zeros=False, alternatives=other)
    assert found.wrong.all()


@pytest.mark.parametrize(
    ("distances", "counts"),
    [
        ([], ()),
        ([0, 0], (2,)),
        ([0, 0.5, 1, 1.9], (1, 3)),
        ([2, 3, 4, 8], (0, 0, 2, 1, 1)),
        ([1e300, INF], (0,) * 15 + (2,)),
    ],
)
def test_distances_are_counted_by_powers_of_two(distances: list[float], counts: tuple[int, ...]) -> None:
    assert ulp_histogram(np.array(distances)) == counts


def test_ulps_are_those_of_the_output_dtype_and_of_finite_elements_only() -> None:
    one, far = np.float32(1), np.float32(1 + 2.0**-20)  # 8 ulp
    actual = np.array([1, np.nextafter(one, 2), far, NAN, INF, 5], np.float32)
    expected = np.array([1 + 2.0**-26, 1, 1, NAN, INF, 1])
    found = compare(actual, expected, np.array([0.0, 1, 1, 1, 1, INF]), signed_zeros=False)
    assert found.ulps == (1, 1, 0, 0, 1)
    assert compare(np.ones(2, np.int8), np.ones(2), np.zeros(2), signed_zeros=False).ulps == ()


def test_an_expected_integer_is_shown_as_the_output_would_hold_it() -> None:
    compared = compare(np.array([85], np.int8), np.array([1942]), np.zeros(1), signed_zeros=False)
    assert describe_element(compared, (0,)) == "got 85, expected -106"


@pytest.mark.parametrize(
    ("name", "expected", "stored"), [("int8", 200, -56), ("uint8", -1, 255), ("int32", 2**31, -(2**31))]
)
def test_integers_wrap_around(name: str, expected: int, stored: int) -> None:
    actual = np.array([stored], parse_dtype(name))
    assert compare(actual, np.array([expected]), np.zeros(1), signed_zeros=False).verdict == "pass"
    assert compare(actual, np.array([expected + 1]), np.zeros(1), signed_zeros=False).verdict == "mismatch"


def test_the_worst_element_is_a_difference_in_class_before_a_large_error() -> None:
    actual = np.array([5.0, NAN, 1e6, 0.0], np.float32)
    found = compare(actual, np.zeros(4), np.zeros(4), signed_zeros=False)
    assert found.worst_index == (1,)
    assert describe_element(found, (2,)) == "got 1000000, expected 0"
    assert (
        describe_element(compare(actual, np.zeros(4), np.ones(4), signed_zeros=False), (0,)) == "got 5, expected 0 ± 1"
    )
