"""Each family's values are what its name says."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
import kerneltest.plan.standard_families
from kerneltest.core.dtypes import float_format, parse_dtype
from kerneltest.declare.domains import EVERYTHING, Interval, parse_domain
from kerneltest.execute.kernel_numbers import kernel_numbers
from kerneltest.plan.families import FAMILIES, Slot
from kerneltest.plan.signatures import signatures
from tests.sample import elementwise

BASE = Slot("data", (5, 21), parse_dtype("float32"), (None, 8), EVERYTHING, 0, 0, lambda: 100)


def _fill(name: str, slot: Slot = BASE, seed: int = 0) -> np.ndarray:
    family = FAMILIES[name]
    assert family.applies(slot)
    return family.fill(slot, np.random.default_rng(seed), True)


def _count(predicate: np.ndarray) -> int:
    return int(predicate.sum())


CHECKS = {
    "position_coded": lambda v: len(np.unique(v)) > 40 and not np.array_equal(v[:, :8], v[:, 8:16]),
    "small_integers": lambda v: (v == np.round(v)).all() and np.abs(v).max() <= 100,
    "ones": lambda v: (v == 1).all(),
    "one_hot_per_tile": lambda v: [_count(v[0, t : t + 8] != 0) for t in (0, 8, 16)] == [1, 1, 1] and v.max() == 3,
    "constant_rows": lambda v: (v == v[:, :1]).all() and len(np.unique(v)) > 1,
    "sorted_rows": lambda v: (np.diff(v, axis=1) >= 0).all() and len(np.unique(v)) > 10,
    "ties": lambda v: set(np.unique(v)) == {-1, 1},
    "normal": lambda v: np.isfinite(v).all() and 0.5 < v.std() < 2,
    "small_rows": lambda v: 2.0**-26 < np.abs(v).max() < 2.0**-1 and (np.ptp(np.log2(np.abs(v).max(-1))) > 1),
    "log_uniform": lambda v: np.abs(v).min() >= 2.0**-12 and np.abs(v).max() <= 2.0**5 and (v < 0).any(),
    "large_and_small": lambda v: (np.sort(v[:, [0, -1]]) > (0, 63)).all() and v[:, 0].min() < 0.1 < v[:, 0].max(),
    "alternating": lambda v: np.abs(v[:, 0] + v[:, 1]).max() < 0.04 and np.abs(v).min() >= 1,
    "far_below_zero": lambda v: v.max() < -190,
    "far_above_zero": lambda v: v.min() > 190,
    "below_sentinels": lambda v: (v > -33000).all() and (v < -32500).all() and len(np.unique(v)) > 50,
    "wide_magnitudes": lambda v: np.abs(v).min() < 2.0**-20 and 2.0**16 < np.abs(v).max() <= 2.0**20,
    "constant": lambda v: (v == np.float32(0.1)).all(),
    "nearly_constant": lambda v: 0.9 < v.min() < 1 < v.max() < 1.1 and len(np.unique(v)) > 50,
    "nearly_largest": lambda v: v.min() >= 65504 / 2 and v.max() <= 65504 and len(np.unique(v)) > 50,
    "half_integers": lambda v: (
        (np.abs(v).max(1) == 127).all() and _count(v % 1 == 0.5) > 50 and _count(v % 1 > 0.5) > 5
    ),
    "narrow_limits": lambda v: _count(np.abs(v) == 448) > 1 and np.abs(v).min() < 128 and 65520 in np.abs(v),
    "one_inf": lambda v: _count(np.isposinf(v)) == 1 and _count(~np.isfinite(v)) == 1,
    "one_negative_inf": lambda v: _count(np.isneginf(v)) == 1 and _count(~np.isfinite(v)) == 1,
    "all_masked_tile": lambda v: np.isneginf(v[:, :8]).all() and np.isfinite(v[:, 8:]).all(),
    "all_masked_row": lambda v: sorted(np.isneginf(v).sum(1)) == [0, 0, 0, 0, 21],
    "all_masked_array": lambda v: np.isneginf(v).all(),
    "nan_first": lambda v: np.isnan(v[0, 0]) and _count(np.isnan(v)) == 1,
    "nan_last": lambda v: np.isnan(v[-1, -1]) and np.signbit(v[-1, -1]) and _count(np.isnan(v)) == 1,
    "nan_tail": lambda v: np.isnan(v[:, 16]).all() and _count(np.isnan(v)) == 5,
    "nan_and_inf_in_one_tile": lambda v: np.isnan(v[0, 0]) and np.signbit(v[0, 0]) and np.isposinf(v[0, 1]),
    "signed_zeros": lambda v: (v == 0).all() and np.signbit(v).any() and not np.signbit(v).all(),
    "signed_zeros_everywhere": lambda v: (v == 0).all() and np.signbit(v).any() and not np.signbit(v).all(),
    "kernel_constants": lambda v: _count(np.signbit(v) & (v == 0)) > 20 and _count(~np.signbit(v) & (v == 0)) > 20,
    "subnormals": lambda v: (np.abs(v) < 2.0**-126).all() and (v != 0).all(),
    "largest_finite": lambda v: _count(v == np.finfo(np.float32).max) == 1 and np.isfinite(v).all(),
}
WIDE_CHECKS = {
    "near_the_ends": lambda v: np.abs(v).min() >= 0.49e15 and np.abs(v).max() <= 1e15 and (v < 0).any(),
    "one_at_the_end": lambda v: ((v > 9e14).sum(1) == 1).all() and _count(np.abs(v) < 9) == 100,
}
INTEGER_CHECKS = {
    "extreme_integers": lambda v: set(np.unique(v)) <= {-128, -127, 0, 1, 126, 127},
    "greatest_integers": lambda v: (v == 127).all(),
    "nearly_greatest_integers": lambda v: set(np.unique(v)) == {126, 127},
    "least_integers": lambda v: (v == -128).all(),
}
WIDE_INTEGER_CHECKS = {
    "integers_of_all_sizes": lambda v: {int(abs(each)).bit_length() for each in v.flat} >= set(range(1, 31, 3)),
}
BOOLEAN_CHECKS = {
    "all_false": lambda v: not v.any(),
    "one_true": lambda v: v.sum() == 1,
    "one_false": lambda v: v.sum() == v.size - 1,
    "ones": lambda v: v.all(),
    **{
        name: lambda v: 0.2 < v.mean() < 0.8
        for name in ("position_coded", "small_integers", "constant_rows", "sorted_rows", "ties")
    },
}
INDEX_CHECKS = {
    "ends": lambda v: v[0, :4].tolist() == [0, 20, 1, 19],
    "ends_reversed": lambda v: v[0, :4].tolist() == [20, 0, 19, 1],
}
SENTINEL_CHECKS = {
    "all_ignored": lambda v: (v == -100).all(),
    "one_ignored": lambda v: _count(v == -100) == 1 and v.max() == 20,
}
MASK_CHECKS = {
    "no_mask": lambda v: v.all(),
    "causal": lambda v: np.array_equal(v, np.tril(np.ones((5, 21), bool))),
    "ragged": lambda v: all(np.array_equal(row, np.sort(row)[::-1]) for row in v),
    "whole_tiles": lambda v: all(len(np.unique(row[t : t + 8])) == 1 for row in v for t in (0, 8, 16)),
    "random_mask": lambda v: v.any() and not v.all(),
    "one_visible": lambda v: v.sum() == 1,
    "one_hidden": lambda v: v.sum() == v.size - 1,
    "all_masked_tile": lambda v: not v[:, :8].any() and v[:, 8:].all(),
    "all_masked_row": lambda v: sorted(v.sum(1)) == [0, 21, 21, 21, 21],
    "all_masked_array": lambda v: not v.any(),
}


@pytest.mark.parametrize("name", CHECKS)
def test_float_values(name: str) -> None:
    assert CHECKS[name](_fill(name))


@pytest.mark.parametrize("name", WIDE_CHECKS)
def test_values_at_the_ends_of_a_wide_domain(name: str) -> None:
    assert not FAMILIES[name].applies(BASE)
    assert WIDE_CHECKS[name](_fill(name, replace(BASE, domain=Interval(-1e15, 1e15))))
    assert _fill(name, replace(BASE, domain=Interval(0, 1e15))).min() >= 0


@pytest.mark.parametrize(("end", "largest"), [(126, 63.5), (127, 127), (1e6, 127), (3, 127 / 64)])
def test_half_integers_are_ties_of_the_largest_number_in_a_row(end: float, largest: float) -> None:
    values = _fill("half_integers", replace(BASE, domain=Interval(-end, end)))
    assert (np.abs(values).max(1) == largest).all()
    assert _count(values / largest * 127 % 1 == 0.5) > 25
    assert _count(values % 1 == 0.5) > 25  # of a kernel that rounds to integers


@pytest.mark.parametrize("shape", [(2, 2), (3, 7, 7), (5, 3), (2, 6), (4,)])
@pytest.mark.parametrize("domain", [Interval(-1, 1), Interval(0, 1), Interval(1, 4)])
def test_matrices_next_to_half_integers_have_full_rank(shape: tuple[int, ...], domain: Interval) -> None:
    slot = replace(BASE, shape=shape, domain=domain)
    for seed in range(4):
        values = FAMILIES["half_integers"].fill(slot, np.random.default_rng(seed), False)
        assert set(np.unique(np.log2(np.abs(values)))) <= {-1, 0, 1}
        assert (np.linalg.matrix_rank(np.atleast_2d(values)) == min(shape[-2:] if shape[1:] else (1,))).all()


@pytest.mark.parametrize("name", MASK_CHECKS)
def test_masks(name: str) -> None:
    assert MASK_CHECKS[name](_fill(name, replace(BASE, role="mask", dtype=parse_dtype("bool"))))


@pytest.mark.parametrize("name", INTEGER_CHECKS)
def test_integer_values(name: str) -> None:
    assert INTEGER_CHECKS[name](_fill(name, replace(BASE, dtype=parse_dtype("int8"))))


@pytest.mark.parametrize("name", WIDE_INTEGER_CHECKS)
def test_values_of_wide_integers(name: str) -> None:
    assert not FAMILIES[name].applies(replace(BASE, dtype=parse_dtype("int8")))
    assert WIDE_INTEGER_CHECKS[name](_fill(name, replace(BASE, dtype=parse_dtype("int32"))))


@pytest.mark.parametrize("name", BOOLEAN_CHECKS)
def test_boolean_values(name: str) -> None:
    assert BOOLEAN_CHECKS[name](_fill(name, replace(BASE, shape=(5, 31), dtype=parse_dtype("bool"))))


def test_integers_reach_the_ends_of_their_domain() -> None:
    slot = replace(BASE, dtype=parse_dtype("int32"), domain=Interval(-3, 1000))
    wide = _fill("integers_of_all_sizes", slot)
    assert wide.min() == -3
    assert {int(size).bit_length() for size in wide[wide > 3]} == set(range(3, 11))
    assert wide.max() <= 1000
    assert (_fill("greatest_integers", slot) == 1000).all()
    assert (_fill("least_integers", slot) == -3).all()


@pytest.mark.parametrize("name", INDEX_CHECKS)
@pytest.mark.parametrize("role", ["index", "length"])
def test_indices_and_lengths(role: str, name: str) -> None:
    slot = replace(BASE, role=role, dtype=parse_dtype("int32"), end=21 if role == "index" else 20)
    assert INDEX_CHECKS[name](_fill(name, slot))


@pytest.mark.parametrize("name", SENTINEL_CHECKS)
def test_ignored_indices(name: str) -> None:
    slot = replace(BASE, role="index", dtype=parse_dtype("int32"), end=21)
    assert not FAMILIES[name].applies(slot)
    marked = replace(slot, sentinel=-100)
    assert SENTINEL_CHECKS[name](_fill(name, marked))
    assert _count(_fill("ends", marked) == 0) > 0
    assert 0.05 < (marked.sample(np.random.default_rng(0)) == -100).mean() < 0.4


def test_a_family_that_would_repeat_another_one_is_not_planned() -> None:
    one_row, one_block = replace(BASE, shape=(1, 21)), replace(BASE, shape=(5, 8))
    for slot in (one_row, one_block):
        for masked in (slot, replace(slot, role="mask", dtype=parse_dtype("bool"))):
            assert FAMILIES["all_masked_array"].applies(masked)
            assert FAMILIES["all_masked_row"].applies(masked) == (slot is one_block)
            assert FAMILIES["all_masked_tile"].applies(masked) == (slot is one_row)


DEPENDENT_FAMILIES = {
    "first_takes_all": (17, 0, 0),
    "last_takes_all": (0, 0, 17),
    "empty_parts": (0, 17, 0),
    "parts_beside_blocks": (9, 6, 2),
    "in_order": (0, 1, 2),
    "in_reverse": (16, 15, 14),
}


@pytest.mark.parametrize("name", DEPENDENT_FAMILIES)
def test_dependent_values(name: str) -> None:
    role = "permutation" if name.startswith("in_") else "partition"
    slot = replace(
        BASE,
        role=role,
        dtype=parse_dtype("int32"),
        shape=(3,),
        end=17,
        end_block=8,
        exhaustive=True,
        globally_unique=True,
    )
    assert tuple(_fill(name, slot)) == DEPENDENT_FAMILIES[name]


def test_every_family_is_checked_here() -> None:
    checked = (
        CHECKS,
        WIDE_CHECKS,
        INTEGER_CHECKS,
        WIDE_INTEGER_CHECKS,
        BOOLEAN_CHECKS,
        INDEX_CHECKS,
        SENTINEL_CHECKS,
        MASK_CHECKS,
        DEPENDENT_FAMILIES,
    )
    assert set(FAMILIES) == set().union(*checked)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_subnormals_are_the_dtype_s_own(name: str) -> None:
    values = np.abs(_fill("subnormals", replace(BASE, dtype=parse_dtype(name))).astype(np.float64))
    fmt = float_format(parse_dtype(name))
    assert ((values >= fmt.smallest_subnormal) & (values < fmt.smallest_normal)).all()


@pytest.mark.parametrize("name", [n for n in CHECKS if FAMILIES[n].group != "special"])
@pytest.mark.parametrize("domain", [Interval(0.25, 2.0), Interval(0.25, 300.0)])
def test_values_stay_in_their_domain(name: str, domain: Interval) -> None:
    slot = replace(BASE, domain=domain)
    if FAMILIES[name].applies(slot):
        values = _fill(name, slot).astype(np.float64)
        assert ((values >= domain.low) & (values <= domain.high)).all()


@pytest.mark.parametrize(
    ("name", "domain", "largest"),
    [
        ("float16", None, 65504),
        ("bfloat16", None, 65504),
        ("float8_e4m3fn", None, 448),
        ("float32", (-10.0, 10.0), 10),
        ("float32", (-np.inf, np.inf), None),  # its author sets the largest aside
        ("float32", (-2.0, -1.0), None),
    ],
)
def test_the_largest_numbers_are_those_that_an_argument_may_hold(name: str, domain: Any, largest: float | None) -> None:
    slot = replace(BASE, dtype=parse_dtype(name), domain=parse_domain(domain, ()))
    assert FAMILIES["nearly_largest"].applies(slot) == (largest is not None)
    if largest is not None:
        values = _fill("nearly_largest", slot).astype(np.float64)
        assert (values >= largest * 0.49).all()
        assert (values <= largest * 1.01).all()  # bfloat16 rounds up


def test_specials_are_not_fed_to_a_bounded_domain() -> None:
    bounded = replace(BASE, domain=Interval(0.0, 1.0))
    applied = [name for name, family in FAMILIES.items() if family.group == "special" and family.applies(bounded)]
    assert applied == ["kernel_constants"]
    values = _fill("kernel_constants", bounded)
    assert ((values >= 0) & (values <= 1)).all()
    assert not np.signbit(values).any()


# A dtype, the least value of the domain, a number of the kernel, and the numbers near it that the argument may hold.
NEAR_INTEGERS = [
    ("int64", 0, np.int64(2**63 - 1), {0, 1, 2**63 - 2, 2**63 - 1}),
    ("int64", 0, np.int64(2**53 + 1), {0, 1, *(2**53 + i for i in range(3)), *(2**54 + i for i in (1, 2, 3))}),
    ("int64", -np.inf, np.int64(-(2**63)), {-1, 0, 1, -(2**63), 1 - 2**63, 2**63 - 1}),
    ("uint8", 0, np.float32(255), {0, 1, 254, 255}),
    ("int4", -np.inf, np.int32(5), {-1, 0, 1, -6, -5, -4, 4, 5, 6}),
]


@pytest.mark.parametrize(("name", "low", "number", "near"), NEAR_INTEGERS)
def test_integers_near_those_of_a_kernel_are_in_the_domain(
    name: str, low: float, number: Any, near: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneltest.execute.kernel_numbers.kernel_numbers", lambda *_: (number, np.int32(0)))
    monkeypatch.setattr("kerneltest.execute.kernel_numbers.first_alike", lambda *_: None)
    slot = replace(BASE, dtype=parse_dtype(name), domain=Interval(low, np.inf), owner=(None, None))
    values = {int(value) for value in _fill("kernel_constants", slot).ravel()}
    assert min(values) >= low
    assert near <= values
    assert {value for value in values if abs(value) >= 2**53} <= near


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 1, 5)])
def test_every_applicable_family_fills_every_shape(shape: tuple[int, ...]) -> None:
    slot = replace(BASE, shape=shape, blocks=tuple(None for _ in shape[1:]) + ((4,) if shape else ()))
    for role, name in (
        ("data", "float32"),
        ("data", "int8"),
        ("data", "bool"),
        ("mask", "bool"),
        ("index", "int32"),
        ("length", "int32"),
    ):
        each = replace(slot, role=role, dtype=parse_dtype(name), end=4)
        for family in FAMILIES.values():
            values = family.fill(each, np.random.default_rng(0), True)
            assert values.shape == shape
            assert values.dtype == each.dtype


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (lambda v: jnp.where(2 * v > 3, v, 0), {1.5}),
        (lambda v: jnp.where(2 * v - 1 > 3, v, 0), {2.0}),
        (lambda v: jnp.where(7 - v > 3, v, 0), {4.0}),
        (lambda v: jnp.where(v / 4 + 1 < 3, v, 0), {8.0}),
        (lambda v: jnp.clip(3 * v + 1, -2, 10), {-1.0, 3.0}),
        (lambda v: jnp.where((v > 0) | True, v * v, 0) + 5, {0.0}),
    ],
)
def test_numbers_are_those_of_the_argument_whose_multiple_or_sum_is_compared(
    function: Callable[[Any], Any], numbers: set[float]
) -> None:
    pairing = kt.oracle_for(lambda x: elementwise(function, x), x=kt.array("n", "float32"))(lambda x: x)
    found = {float(number) for number in kernel_numbers(pairing, signatures(pairing, "quick")[0])}
    assert numbers <= found
    assert len(found) <= 8
