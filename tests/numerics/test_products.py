"""Matrix products in samples: operands rounded to the multiplier's format, sums in any order."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import TF32, Array, FloatFormat, float_format, parse_dtype
from kerneltest.core.precision import AMD, FLOAT32, NVIDIA, SIMULATED, XLA_CPU, Precision
from kerneltest.numerics.rounding_model import RoundingModel, round_to_nearest
from kerneltest.numerics.spread import sample_outputs
from tests.numerics.tracking import PLAIN, samples_of, tracked

ON_TENSOR_CORES = Precision("tensor cores", {}, dot_input={"float32": TF32})
BFLOAT16 = float_format(parse_dtype("bfloat16"))
ROWS = 17
_rng = np.random.default_rng(0)
A, B = (_rng.normal(size=shape).astype(np.float32).astype(np.float64) for shape in ((6, 40), (40, 5)))
WAYS = {
    "matmul": lambda a, b: a @ b,
    "dot": np.dot,
    "tensordot": lambda a, b: np.tensordot(a, b, 1),
    "einsum": lambda a, b: np.einsum("mk,kn->mn", a, b),
    "inner": lambda a, b: np.inner(a, b.T),
    "vecdot": lambda a, b: np.vecdot(a[:, None], b.T[None]),
}


def _moved(
    way: Any, precision: Precision, fmt: FloatFormat = FLOAT32, a: Array = A, b: Array = B, **machine: Any
) -> Array:
    """Returns the distance of the samples from the exact row, relative to |a| |b|."""
    out = samples_of(way, {"a": a, "b": b}, RoundingModel(precision, rows=ROWS, **machine), fmt)
    assert np.allclose(out[0], a @ b, rtol=1e-13, atol=1e-13)
    return np.abs(out[1:] - out[0]) / (np.abs(a) @ np.abs(b))


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_operands_are_rounded_to_tf32_where_the_machine_does(way: Any) -> None:
    exact, rounded = _moved(way, PLAIN).max(), _moved(way, ON_TENSOR_CORES).max()
    assert exact < 40 * FLOAT32.unit_roundoff
    assert TF32.unit_roundoff / 4 < rounded < 6 * TF32.unit_roundoff


@pytest.mark.parametrize("row", [NVIDIA, AMD, SIMULATED])
def test_backends_with_matrix_units_round_and_exact_products_do_not(row: Precision) -> None:
    assert _moved(WAYS["matmul"], row).max() > 100 * FLOAT32.unit_roundoff
    assert _moved(WAYS["matmul"], row.with_exact_dots()).max() < 40 * FLOAT32.unit_roundoff
    assert _moved(WAYS["matmul"], XLA_CPU).max() < 40 * FLOAT32.unit_roundoff


def test_dropped_bits_err_to_one_side() -> None:
    a, b = np.abs(A), np.abs(B)
    round_to_nearest = samples_of(WAYS["matmul"], {"a": a, "b": b}, RoundingModel(ON_TENSOR_CORES, rows=ROWS))
    dropping = RoundingModel(replace(ON_TENSOR_CORES, truncates=True), rows=ROWS)
    dropped = samples_of(WAYS["matmul"], {"a": a, "b": b}, dropping)
    assert (dropped[2::2] < dropped[0]).all()
    assert not (round_to_nearest[2::2] < round_to_nearest[0]).all()


def test_operands_in_a_16_bit_format_are_exact_and_sums_in_float32() -> None:
    a, b = (x.astype(np.float32) for x in (A, B))
    a, b = (dtype.astype(parse_dtype("bfloat16")).astype(np.float64) for dtype in (a, b))
    for precision in (PLAIN, ON_TENSOR_CORES):
        assert _moved(WAYS["matmul"], precision, BFLOAT16, a, b).max() < 40 * FLOAT32.unit_roundoff


ODD = np.arange(40) % 2


@pytest.mark.parametrize(
    ("a", "b"),
    [(A * 2.0**-20, B), (np.sign(A) * 2.0**-12 * ODD, B * np.where(ODD, 2.0**-12, 1.0)[:, None])],
    ids=["subnormal numbers", "zeros"],
)
def test_zeros_and_subnormal_operands_are_aligned_as_if_they_were_normal(a: Array, b: Array) -> None:
    fmt = float_format(np.dtype(np.float16))
    a, b = (round_to_nearest(x, fmt) for x in (a, b))
    one_product = fmt.smallest_normal * np.abs(b).max(0) * FLOAT32.unit_roundoff / (np.abs(a) @ np.abs(b))
    tensor_cores, others = (_moved(WAYS["matmul"], row, fmt, a, b) for row in (NVIDIA, SIMULATED))
    assert (tensor_cores.max(0) > one_product).all()
    assert others.max() < 40 * FLOAT32.unit_roundoff


def test_what_was_computed_from_16_bit_arguments_is_rounded_to_16_bits_on_its_way_into_a_product() -> None:
    machine = RoundingModel(PLAIN, rows=ROWS)
    a = np.ones((3, 8))
    out = samples_of(lambda a, b: (a / 3) @ b, {"a": a, "b": np.ones((8, 2))}, machine, BFLOAT16)
    off = np.abs(out[1:] / out[0] - 1).max()
    assert BFLOAT16.unit_roundoff / 4 < off < 3 * BFLOAT16.unit_roundoff


@pytest.mark.parametrize("k", [2, 40, 1000, 20000])
def test_sums_in_any_order_are_within_the_samples_reach(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((4, k), (k, 3)))
    forward = np.zeros((4, 3), np.float32)
    for i in range(k):
        forward += a[:, i, None] * b[None, i]
    wide = a.astype(np.float64), b.astype(np.float64)
    out = samples_of(WAYS["matmul"], dict(zip("ab", wide, strict=True)), RoundingModel(PLAIN, rows=ROWS))
    spread = np.sqrt(np.mean((out[1:] - out[0]) ** 2, 0))
    error = np.abs(forward - wide[0] @ wide[1])
    assert (error <= 7 * spread).all()
    assert error.max() > 1e-3 * spread.max()


def test_equal_terms_may_all_be_rounded_the_same_way() -> None:
    k = 4096
    a, b = np.full((1, k), np.float64(np.float32(0.1))), np.ones((k, 1))
    ones = np.float32(0)
    for _ in range(k):
        ones += np.float32(0.1)
    out = samples_of(WAYS["matmul"], {"a": a, "b": b}, RoundingModel(PLAIN, rows=ROWS))
    spread = np.sqrt(np.mean((out[1:] - out[0]) ** 2))
    signs = np.where(np.arange(k) % 2, 1.0, -1.0)[:, None]
    mixed = samples_of(WAYS["matmul"], {"a": a, "b": signs}, RoundingModel(PLAIN, rows=ROWS))
    assert abs(ones - (a @ b)) <= 7 * spread
    assert spread > 5 * np.sqrt(np.mean((mixed[1:] - mixed[0]) ** 2))


def test_a_product_without_a_sum_is_one_rounding_and_no_operand_is_rounded() -> None:
    for way in (np.outer, lambda a, b: np.einsum("i,j->ij", a, b), lambda a, b: np.tensordot(a, b, 0)):
        out = samples_of(way, {"a": A[0], "b": B[0]}, RoundingModel(SIMULATED, rows=ROWS))
        assert np.abs(out / out[0] - 1).max() <= 2.5 * FLOAT32.unit_roundoff


def test_an_axis_that_one_operand_lacks_is_a_sum_and_no_product() -> None:
    out = samples_of(lambda a, b: np.einsum("ij,k->k", a, b), {"a": A, "b": B[0]}, RoundingModel(PLAIN, rows=ROWS))
    assert np.allclose(out[0], A.sum() * B[0])
    assert (out[3:] != out[0]).any()


def test_exact_integers_stay_exact_in_row_one_and_are_moved_by_any_order() -> None:
    a = np.arange(12.0).reshape(3, 4)
    out = samples_of(WAYS["matmul"], {"a": a, "b": a.T}, RoundingModel(PLAIN, rows=ROWS))
    assert (out[:3] == a @ a.T).all()


def test_one_operand_may_be_an_ordinary_array() -> None:
    machine = RoundingModel(ON_TENSOR_CORES, rows=ROWS)
    for found in (tracked(A[None], machine) @ B, A @ tracked(B[None], machine)):
        off = np.abs(found.samples[1:] - A @ B) / (np.abs(A) @ np.abs(B))
        assert TF32.unit_roundoff / 4 < off.max() < 6 * TF32.unit_roundoff


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((2, 3, 4), (3, 4, 5))])
def test_operands_that_do_not_fit_are_refused(shapes: Any) -> None:
    one, two = (tracked(np.ones((1, *shape)), RoundingModel(PLAIN)) for shape in shapes)
    with pytest.raises(ValueError, match="cannot be multiplied"):
        one @ two


def test_products_of_nothing_are_zero() -> None:
    out = samples_of(WAYS["matmul"], {"a": np.zeros((3, 0)), "b": np.zeros((0, 2))}, RoundingModel(ON_TENSOR_CORES))
    assert (out == 0).all()
    assert out.shape[1:] == (3, 2)


@pytest.mark.parametrize("way", [lambda a, b: a @ b * 0.25, lambda a, b: np.einsum("mk,kn->mn", a, b) / np.sqrt(9.0)])
def test_a_factor_may_go_into_a_16_bit_operand_that_was_made_float32(way: Any) -> None:
    leaves = {"a": np.round(8 * A) / 8, "b": np.round(8 * B) / 8}

    def moved(way: Any, precision: Precision, **machine: Any) -> float:
        out = samples_of(way, leaves, RoundingModel(precision, rows=ROWS, **machine), BFLOAT16)
        return float((np.abs(out[1:] - out[0]) / (np.abs(leaves["a"]) @ np.abs(leaves["b"]))).max())

    assert moved(way, ON_TENSOR_CORES) > TF32.unit_roundoff / 16
    assert moved(way, PLAIN) < 40 * FLOAT32.unit_roundoff
    assert moved(way, ON_TENSOR_CORES, compute=None) < 4 * BFLOAT16.unit_roundoff
    assert moved(WAYS["matmul"], ON_TENSOR_CORES) < 40 * FLOAT32.unit_roundoff


@pytest.mark.parametrize("masked", [0, 400])
def test_nearly_equal_operands_may_all_be_rounded_the_same_way(masked: int) -> None:
    k, rng = 800, np.random.default_rng(0)
    weights = np.zeros((1, k))
    weights[:, masked:] = (1 + 1e-4 * rng.random(k - masked)) / (k - masked)
    values = rng.uniform(0.5, 1.0, (k, 1))
    out = samples_of(WAYS["matmul"], {"a": weights, "b": values}, RoundingModel(PLAIN, rows=ROWS), BFLOAT16)
    rounded = weights.astype(np.float32).astype(parse_dtype("bfloat16")).astype(np.float64)
    error, spread = abs(rounded @ values - weights @ values), np.sqrt(np.mean((out[1:] - out[0]) ** 2))
    assert error > weights @ values * BFLOAT16.unit_roundoff / 8
    assert error <= 1.5 * spread


MIXTURES = {
    "weights of a narrow product": lambda q, s, v: (q * s / 3) @ v,
    "dequantised weights": lambda q, s, v: v.T @ (q * s).T,
    "both from formats that differ": lambda q, s, v: (q * s) @ (v * s[0, :3]),
}


@pytest.mark.parametrize("way", MIXTURES.values(), ids=list(MIXTURES))
def test_formats_that_meet_leave_operands_that_a_kernel_may_round_to_the_narrower(way: Any) -> None:
    """Unless the kernel rounds no operand."""
    leaves = {"q": np.full((3, 8), 1.0), "s": np.full((3, 8), 0.7), "v": np.ones((8, 3))}
    off = []
    for precision in (PLAIN, PLAIN.with_wide_products()):
        machine = RoundingModel(precision, rows=ROWS)
        formats = {"q": BFLOAT16, "s": FLOAT32, "v": BFLOAT16}
        (out,) = sample_outputs(lambda given: (way(**given),), leaves, formats, machine)
        off.append(np.abs(out[1:] / out[0] - 1).max())
    assert BFLOAT16.unit_roundoff / 8 < off[0] < 4 * BFLOAT16.unit_roundoff
    assert off[1] < 20 * FLOAT32.unit_roundoff


@pytest.mark.parametrize(("fmt", "keys"), [(FLOAT32, 1), (BFLOAT16, 2)], ids=["float32", "bfloat16"])
def test_a_sum_of_products_with_a_matrix_product_may_be_contracted_in_another_order(
    fmt: FloatFormat, keys: int
) -> None:
    """As attention's backward pass does, whose result would cancel exactly if both sums had the same errors."""
    rng = np.random.default_rng(0)
    leaves = {"p": np.array([[0.7, 0.3]])[:, :keys], "g": rng.normal(size=(40, 16)), "v": rng.normal(size=(1, 16))}
    leaves = {name: np.asarray(round_to_nearest(value, fmt), np.float64) for name, value in leaves.items()}
    leaves["v"] = np.repeat(leaves["v"], keys, axis=0)

    def oracle(p: Any, g: Any, v: Any) -> Any:
        p, dp = p / p.sum(axis=1, keepdims=True), g @ v.T
        return dp - (p * dp).sum(axis=1, keepdims=True)

    off = samples_of(oracle, leaves, RoundingModel(PLAIN, rows=ROWS), fmt)[3:]
    typical = np.sqrt(np.mean(off**2)) / fmt.unit_roundoff
    assert 0.1 < typical < 60


def test_each_product_of_a_sum_may_underflow() -> None:
    """So a sum of 40 of them is off by up to 40 halves of the smallest number, not by the one rounding of a result."""
    a, b = A * 1e-21, B * 1e-21
    out = samples_of(lambda a, b: a @ b, {"a": a, "b": b}, RoundingModel(PLAIN, rows=ROWS))
    spread = np.sqrt(np.mean((out[1:] - out[0]) ** 2, axis=0)) / FLOAT32.smallest_subnormal
    rounded = np.sum(np.float32(a)[:, :, None] * np.float32(b)[None], axis=1, dtype=np.float64)
    lost = np.abs(rounded - out[0]).max() / FLOAT32.smallest_subnormal
    assert lost > 2
    assert (spread > lost / 7).all()
    assert (spread < 40).all()
