"""Kernels with their floats promoted to float64: what is computed so, what stays, and how samples of it move."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import kerneltest as kt
from kerneltest.core.dtypes import Array, ShapeDtype, float_format, parse_dtype
from kerneltest.core.precision import FLOAT32, Precision
from kerneltest.numerics.rounding_bounds import FORMULA_FORMAT
from kerneltest.plan.signatures import signatures
from kerneltest.trace.batched_interpreter import promoted_kernel
from kerneltest.trace.batched_interpreter.promoted_kernel import (
    CappedRules,
    PromotedKernel,
    SampleArithmetic,
    SamplingRules,
)
from kerneltest.trace.jax_compat.patches import widen_float_names
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import trace, trace_function, trace_in_float64
from tests.sample import elementwise

X = np.linspace(-3, 3, 8).astype(np.float32)


def _kernel(function: Callable[[jax.Array], jax.Array], dtype: Any = None) -> Callable[[jax.Array], Any]:
    return lambda x: elementwise(function, x, dtype=dtype)


def _promoted(function: Callable[[jax.Array], jax.Array], x: Array = X, dtype: Any = None) -> Array:
    kernel = _kernel(function, dtype)
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
    return PromotedKernel(traced)([x[None]])[0][0]


WIDE = X.astype(np.float64)
FP8 = ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize(
    ("function", "expected", "dtype"),
    [
        (jnp.exp, np.exp(WIDE), None),
        (lambda x: x.astype(jnp.bfloat16) * 3, 3 * WIDE, jnp.bfloat16),
        (lambda x: x.astype(jnp.float16).sum() + 0 * x, np.full(8, WIDE.sum()), jnp.float16),
        (lambda x: x.astype(jnp.float8_e4m3fn), X.astype(FP8), FP8),
        (lambda x: (100 * x).astype(jnp.int8).astype(jnp.float32), np.trunc(100 * WIDE).clip(-128, 127), None),
        (lambda x: jax.lax.reduce_precision(x, 8, 7), X.astype(ml_dtypes.bfloat16).astype(np.float64), None),
        (
            lambda x: jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, jnp.int32) & ~0xFFFF, jnp.float32),
            (X.view(np.int32) & ~0xFFFF).view(np.float32).astype(np.float64),
            None,
        ),
    ],
    ids=["float32", "bfloat16", "float16", "float8", "int8", "reduce_precision", "bits"],
)
def test_floats_are_promoted_and_what_rounds_on_purpose_is_not(
    function: Callable[..., Any], expected: Array, dtype: Any
) -> None:
    got = _promoted(function, dtype=dtype)
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-15, atol=1e-15)


def test_python_is_called_with_float64_whatever_the_size() -> None:
    wide = np.linspace(-3, 3, 2**17)  # so large that XLA calls back on a thread of its own now and then
    shape = jax.ShapeDtypeStruct(wide.shape, np.float64)
    with jax.enable_x64(True):
        traced = trace_function(
            lambda x: [jax.pure_callback(lambda v: np.exp(np.asarray(v)), shape, x)],
            (ShapeDtype(wide.shape, wide.dtype),),
            "",
        )
    for _ in range(40):
        np.testing.assert_array_equal(PromotedKernel(traced)([wide[None]])[0][0], np.exp(wide))


def test_a_callback_that_rounds_is_not_taken_for_a_formula() -> None:
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    own = trace_function(
        lambda x: [jax.pure_callback(lambda v: np.asarray(v, np.float32), shape, x)], (ShapeDtype((8,), X.dtype),), ""
    )
    with pytest.raises(UnknownError, match="a callback that gives float32 for float64"):
        PromotedKernel(own)([X[None]])


def test_a_trace_in_float64_keeps_constants_that_float32_would_round() -> None:
    pairing = kt.oracle_for(_kernel(lambda x: x.astype(jnp.float32) * 0.1), x=kt.array("n", "bfloat16"))(lambda x: x)
    signature = next(each for each in signatures(pairing, "quick") if dict(each.dims)["n"] > 1)
    own = trace(pairing, signature)
    wide = trace_in_float64(pairing, signature, own)
    assert wide is not None
    (x,) = (np.ones(each.shape, each.dtype) for each in own.inputs)
    assert (PromotedKernel(wide)([x[None]])[0] == 0.1).all()
    assert (PromotedKernel(own)([x[None]])[0] == np.float64(np.float32(0.1))).all()
    assert trace(pairing, signature).outputs == own.outputs  # nothing that JAX remembers is in float64


@pytest.mark.parametrize(
    ("factor", "is_traced"), [(0.75, False), (-10.0, False), (jnp.inf, False), (0.1, True), (1.1, True)]
)
def test_only_a_kernel_with_constants_that_may_be_rounded_is_traced_in_float64(factor: float, is_traced: bool) -> None:
    pairing = kt.oracle_for(_kernel(lambda x: x * factor), x=kt.array("n", "float32"))(lambda x: x)
    signature = next(iter(signatures(pairing, "quick")))
    assert (trace_in_float64(pairing, signature, trace(pairing, signature)) is not None) is is_traced


def test_wide_names_are_seen_by_their_own_thread_alone_and_end_with_their_context() -> None:
    seen = []

    def fail() -> None:
        with widen_float_names():
            thread = threading.Thread(target=lambda: seen.append(jnp.float32))
            thread.start()
            thread.join()
            assert jnp.float32 is jnp.bfloat16 is jnp.float64
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [jnp.float32]
    assert jnp.float32.dtype == np.float32
    assert type(jnp).__name__ == "module"


def _movement(function: Callable[..., Any], arithmetic: SampleArithmetic, x: Array = X) -> float:
    kernel = _kernel(function)
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
    (samples,) = PromotedKernel(traced).sample([x], arithmetic)
    np.testing.assert_array_equal(samples[0], PromotedKernel(traced)([x[None]])[0][0])
    return float(np.max(np.abs(samples[1:] / samples[0] - 1)))


def test_samples_of_a_case_are_the_same_beside_other_cases() -> None:
    kernel = _kernel(lambda x: jnp.exp(x) * jnp.float32(0.1) + jnp.sum(x))
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(X.shape, X.dtype),), "")
    promoted = PromotedKernel(traced)
    cases = np.stack([X, np.zeros_like(X), 3 * X])  # of zeros, no sum is rounded
    (together,) = promoted.sample_cases([cases], SampleArithmetic(FLOAT32, constants=True))
    for one, samples in zip(cases, together, strict=True):
        np.testing.assert_array_equal(promoted.sample([one], SampleArithmetic(FLOAT32, constants=True))[0], samples)


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_a_long_constant_is_perturbed_once_for_all_cases_and_as_a_short_one(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = np.random.default_rng(0).random(2**13).astype(np.float32)
    kernel = _kernel(lambda x: x * 3)

    def function(x: jax.Array) -> list[jax.Array]:
        return [kernel(x) + sum(jnp.exp(jnp.asarray(table)[number : number + 8]) for number in range(times))]

    traced = trace_function(function, (ShapeDtype(X.shape, X.dtype),), "")
    arithmetic = SampleArithmetic(FLOAT32, constants=True)
    noise, drawn = SamplingRules._noise_of, list[int]()
    monkeypatch.setattr(SamplingRules, "_noise_of", lambda self, x: (drawn.append(x.size), noise(self, x))[1])
    promoted = PromotedKernel(traced)
    found = [promoted.sample([case], arithmetic)[0] for case in (X, 2 * X, X)]
    assert sum(size >= table.size for size in drawn) == times
    monkeypatch.setattr(promoted_kernel, "_LONG", np.inf)
    plain = PromotedKernel(traced)
    for case, samples in zip((X, 2 * X, X), found, strict=True):
        np.testing.assert_array_equal(plain.sample([case], arithmetic)[0], samples)


def test_cases_that_take_different_branches_are_not_sampled_together() -> None:
    kernel = _kernel(lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.exp(x), lambda: x * 0.1))
    promoted = PromotedKernel(trace_function(lambda x: [kernel(x)], (ShapeDtype(X.shape, X.dtype),), ""))
    promoted.sample([X], SampleArithmetic(FLOAT32))
    with pytest.raises(UnknownError, match="different branches"):
        promoted.sample_cases([np.stack([X, -X])], SampleArithmetic(FLOAT32))


@pytest.mark.parametrize(
    ("function", "overflows"),
    [
        (lambda x: 1 / (x * x * 1e30), True),
        (lambda x: jnp.exp(1000 * x), True),  # in float64 too
        (lambda x: x * 2, False),  # an infinite input
        (lambda x: jnp.where(x > 1e9, jnp.log(x * 0), x), False),
        (lambda x: jnp.real(x + 1j * x), False),  # whose parts are not promoted
        (lambda x: jnp.where(x > 1e9, 1 / (x * 0), x), False),
    ],
)
def test_a_finite_number_that_is_too_large_for_its_dtype_overflows(function: Any, overflows: bool) -> None:
    kernel = _kernel(function)
    x = np.array([1e5, 2, 3, np.inf], np.float32)
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
    assert PromotedKernel(traced, CappedRules).overflows([x]) is overflows


@pytest.mark.parametrize(
    ("function", "overflows"),
    [
        (lambda x: (x + 70_000) * (x + 70_000), True),
        (lambda x: (x + 300).astype(jnp.int8), True),
        (lambda x: x - 1, False),  # where nothing was written, too
        (lambda x: (x + 1) >> 1, False),
        (lambda x: ~x.astype(jnp.uint32), False),
        (lambda x: x.astype(jnp.uint32) * jnp.uint32(2_654_435_761) >> 8, False),  # a hash
    ],
)
def test_a_signed_integer_overflows_unless_it_is_made_of_unwritten_memory(function: Any, overflows: bool) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = function(x_ref[...]).astype(jnp.float32)

    x, block = np.arange(5, dtype=np.int32), pl.BlockSpec((8,), lambda i: (i,))
    out = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    kernel = pl.pallas_call(body, grid=(1,), in_specs=[block], out_specs=block, out_shape=out)
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
    assert PromotedKernel(traced, CappedRules).overflows([x]) is overflows


@pytest.mark.parametrize(
    ("constant", "dtype", "exact"),
    [
        (0.1, "float32", False),
        (1e6, "float32", True),
        (2.0**-12, "float32", True),
        (5.3, "bfloat16", False),
        (0.75, "bfloat16", True),
        (-1e30, "float32", True),
    ],
)
def test_a_kernel_with_a_rounded_constant_is_not_exact(constant: float, dtype: str, exact: bool) -> None:
    kernel = _kernel(lambda x: x + jnp.where(x > 0, jnp.asarray(1, x.dtype), jnp.asarray(constant, x.dtype)))
    chosen = trace_function(lambda x: [kernel(x)], (ShapeDtype((4,), parse_dtype(dtype)),), "")
    assert chosen.exact is exact


ONES = np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("function", "x", "least", "most"),
    [
        (lambda x: x * 3 + 1, ONES, 0, 0),
        (lambda x: x.sum() + 0 * x, ONES, 0, 0),
        (jnp.exp, X, 1, 2),
        (lambda x: (x / 3).sum() + 0 * x, ONES, 1, 8),
        (lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), X, 0, 0),
        (lambda x: jnp.exp(x) - jnp.float32(0.7), X, 0.5, 40),
        (lambda x: jnp.tanh(x + 49), ONES, 1, 2),
    ],
    ids=["integers", "a sum of integers", "exp", "a sum", "casts", "cancellation", "a function that is 1 in float64"],
)
@pytest.mark.parametrize("fmt", [FLOAT32, FORMULA_FORMAT], ids=["float32", "40 bits"])
def test_samples_move_by_the_roundings_of_their_arithmetic(
    function: Callable[..., Any], x: Array, least: float, most: float, fmt: Any
) -> None:
    moved = _movement(function, SampleArithmetic(fmt), x) / fmt.unit_roundoff
    assert least <= moved <= most


@pytest.mark.parametrize(
    ("function", "moves"),
    [
        (lambda x: x / x[:1], False),
        (lambda x: x / 3, True),
        (lambda x: x * (1 / 3), True),
        (jnp.square, True),
        (lambda x: x * 0.25, False),
    ],
    ids=["a quotient", "a quotient by a constant", "a product", "a square", "an exact product"],
)
def test_a_machine_may_fuse_a_product_with_the_addition_after_it(function: Callable[..., Any], moves: bool) -> None:
    """So the largest product of all, less itself, is not 0: XLA and Triton compute it anew, unrounded."""

    def below_maximum(v: jax.Array) -> jax.Array:
        return v - v.max()

    x = np.array([0.1, 0.7, 0.3], np.float32)
    kernel = _kernel(lambda x: below_maximum(function(x)))
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
    (samples,) = PromotedKernel(traced).sample([x], SampleArithmetic(FLOAT32, Precision("fused", {})))
    assert samples[0, 1] == 0
    assert (samples[1:, 1] != 0).any() == moves


@pytest.mark.parametrize(
    ("function", "least"), [(lambda x: x * x, 0.4), (lambda x: jnp.dot(x, x)[None] + 0 * x, 2)], ids=["square", "dot"]
)
def test_a_result_below_the_normal_numbers_is_rounded_to_a_multiple_of_the_least(
    function: Callable[..., Any], least: float
) -> None:
    x = np.linspace(1.1e-21, 1.9e-21, 64, dtype=np.float32)
    traced = trace_function(lambda x: [_kernel(function)(x)], (ShapeDtype(x.shape, x.dtype),), "")
    (samples,) = PromotedKernel(traced).sample([x], SampleArithmetic(FLOAT32))
    spread = np.sqrt(np.mean((samples[1:] - samples[0]) ** 2, axis=0)) / FLOAT32.smallest_subnormal
    assert least < spread.max() < 32


def test_a_product_of_integers_is_exact_in_samples() -> None:
    def multiply(x: jax.Array) -> jax.Array:
        return jax.lax.dot_general(x, x.T, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)

    x = np.full((8, 2048), 127, np.int8)  # the sums are beyond 2^24
    traced = trace_function(lambda x: [multiply(x)], (ShapeDtype(x.shape, x.dtype),), "")
    (samples,) = PromotedKernel(traced).sample([x], SampleArithmetic(FLOAT32))
    np.testing.assert_array_equal(samples, 2048 * 127**2)


def test_infinite_inputs_stay_as_they_are_where_others_move() -> None:
    x = np.array([np.inf, -np.inf, 1.0, 3.0])
    kernel = PromotedKernel(trace_function(lambda x: [x + 0.0], (ShapeDtype(x.shape, x.dtype),), ""))
    (samples,) = kernel.sample([x], SampleArithmetic(float_format(np.dtype(np.float64)), inputs=1e-3))
    assert (samples[:, :2] == x[:2]).all()
    assert (samples[1:, 2:] != x[2:]).all()


@pytest.mark.parametrize(
    ("arithmetic", "moves"),
    [
        (SampleArithmetic(FORMULA_FORMAT), True),
        (SampleArithmetic(float_format(np.dtype(np.float64)), inputs=1e-7), False),
    ],
)
def test_a_sum_that_float64_rounds_is_rounded_unless_only_inputs_are(arithmetic: SampleArithmetic, moves: bool) -> None:
    kernel, x = _kernel(lambda x: (x + 1.0) - 1.0), np.array([1e-20], np.float32)
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
    (samples,) = PromotedKernel(traced).sample([x], arithmetic)
    assert not samples[0].any()
    assert samples[1:].any() == moves


def test_samples_do_not_depend_on_earlier_ones() -> None:
    kernel = _kernel(jnp.exp)
    promoted = PromotedKernel(trace_function(lambda x: [kernel(x)], (ShapeDtype(X.shape, X.dtype),), ""))
    first, other, again = (promoted.sample([x], SampleArithmetic(FLOAT32))[0] for x in (X, 2 * X, X))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_constant_of_few_digits_is_exact_and_another_one_is_known_to_half_an_ulp() -> None:
    arithmetic = SampleArithmetic(FORMULA_FORMAT, constants=True)
    for number, most in ((0.5, 0), (1 - 2.0**-20, 0), (0.1, 1.0)):
        moved = _movement(lambda x, number=number: x * np.float32(number), arithmetic, ONES) / FLOAT32.unit_roundoff
        assert moved <= most
        assert (moved > 0.1) == (most > 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_number_that_is_chosen_is_known_to_half_an_ulp_of_its_dtype(dtype: str) -> None:
    roundoff = float_format(parse_dtype(dtype)).unit_roundoff
    x = ONES.astype(parse_dtype(dtype))
    arithmetic = SampleArithmetic(FORMULA_FORMAT, constants=True)
    for choose in (lambda x: x * jnp.where(x > 0, 0.1, 0.2), lambda x: jax.nn.leaky_relu(-x, 0.1)):
        assert 0.1 < _movement(choose, arithmetic, x) / roundoff <= 2


def test_samples_of_a_call_with_prefetched_scalars() -> None:
    def kernel(x: jax.Array, at: jax.Array) -> list[jax.Array]:
        def body(at_ref: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = jnp.exp(x_ref[...]) * 0.1

        block = pl.BlockSpec((1, 4), lambda i, at: (at[i], 0))
        spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=3, in_specs=[block], out_specs=block)
        return [pl.pallas_call(body, grid_spec=spec, out_shape=x)(at, x)]

    x, at = np.ones((3, 4), np.float32), np.array([2, 0, 1], np.int32)
    traced = trace_function(kernel, (ShapeDtype(x.shape, x.dtype), ShapeDtype(at.shape, at.dtype)), "")
    (samples,) = PromotedKernel(traced).sample([x, at], SampleArithmetic(FLOAT32))
    assert 0 < np.max(np.abs(samples[1:] / samples[0] - 1)) < 8 * FLOAT32.unit_roundoff


@pytest.mark.timeout(600)
def test_a_pipeline_is_traced_in_float64() -> None:
    """JAX looks for the tile of a type that has more than 32 bits, and never ends."""

    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref: Any, o_ref: Any) -> None:
            def double(x_ref: Any, o_ref: Any) -> None:
                o_ref[...] = 2 * x_ref[...]

            block = pl.BlockSpec((8, 128), lambda i: (i, 0))
            pltpu.emit_pipeline(double, grid=(3,), in_specs=[block], out_specs=[block])(x_ref, o_ref)

        whole = pl.BlockSpec(memory_space=pl.ANY)
        return pl.pallas_call(body, in_specs=[whole], out_specs=whole, out_shape=x)(x)

    pairing = kt.oracle_for(kernel, x=kt.array("24 128", "float32"))(lambda x: 2 * x)
    result = kt.check(pairing, backends=["interpret-tpu"], depth="quick")
    assert result.ok
