"""Probes of computation: elementwise, reductions, products, casts, shapes, control flow, random numbers."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import random as extend_random

from .base import (
    BITWISE,
    BLOCK,
    DTYPES,
    FLOAT32,
    FLOATS,
    INTEGERS,
    MATRIX,
    NUMBERS,
    SCALAR,
    VECTOR,
    Body,
    LoweringProbe,
    Operand,
    Value,
    first_available,
    lax_function,
)

_UNARY = {
    FLOATS: "exp exp2 log log2 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt rsqrt "
    "cbrt logistic erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e is_finite floor ceil round reciprocal",
    NUMBERS: "neg sign abs square",
    BITWISE: "population_count clz bitwise_not",
}
_BINARY = {
    NUMBERS: "add sub mul div rem max min",
    FLOATS: "pow atan2 nextafter igamma igammac igamma_grad_a random_gamma_grad zeta polygamma",
    INTEGERS: "shift_left shift_right_logical shift_right_arithmetic mulhi",
    BITWISE: "bitwise_and bitwise_or bitwise_xor",
}


def elementwise_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of groups `elementwise` and `comparison`."""
    for arity, table in ((1, _UNARY), (2, _BINARY)):
        for dtypes, names in table.items():
            for name in names.split():
                primitive = "reciprocal[lax]" if name == "reciprocal" else name.removeprefix("bitwise_")
                yield LoweringProbe(primitive, "elementwise", lax_function(name), dtypes, (VECTOR,) * arity)
    for name in ("max", "min"):
        yield LoweringProbe(name + "[bool]", "elementwise", lax_function(name), ("bool",), (VECTOR, VECTOR))
    for power in (2, 3, -2):
        body = lax_function("integer_pow", power)
        yield LoweringProbe(f"integer_pow[{power}]", "elementwise", body, NUMBERS, (VECTOR,))
    yield LoweringProbe(
        "pow[integer exponent]", "elementwise", lax_function("pow"), FLOATS, (VECTOR, (VECTOR, "int32"))
    )
    yield LoweringProbe("betainc", "elementwise", lax_function("betainc"), FLOATS, (VECTOR,) * 3)
    yield LoweringProbe("clamp", "elementwise", lax_function("clamp"), NUMBERS, (VECTOR,) * 3)
    yield LoweringProbe("reduce_precision", "elementwise", lax_function("reduce_precision", 5, 10), FLOATS, (VECTOR,))

    for name in "eq ne lt le gt ge".split():
        yield LoweringProbe(name, "comparison", lax_function(name), DTYPES, (VECTOR, VECTOR))
    select, which = lax_function("select_n"), (VECTOR, "int32")
    yield LoweringProbe("select_n", "comparison", select, DTYPES, ((VECTOR, "bool"), VECTOR, VECTOR))
    yield LoweringProbe("select_n[three cases]", "comparison", select, DTYPES, (which, VECTOR, VECTOR, VECTOR))


def reductions_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of groups `reduction` and `scan`."""
    for name in "reduce_sum reduce_prod reduce_max reduce_min".split():
        yield _reduction(name, NUMBERS)
    for name in "reduce_and reduce_or reduce_xor".split():
        yield _reduction(name, BITWISE)
    yield _reduction("reduce_sum", NUMBERS, "[first axis]", (0,))
    yield _reduction("reduce_sum", NUMBERS, "[all axes]", (0, 1))
    for name in ("argmax", "argmin"):
        yield LoweringProbe(name, "reduction", lax_function(name, 1, jnp.int32), NUMBERS, (MATRIX,))
    yield LoweringProbe("reduce", "reduction", _reduce_by_function, NUMBERS, (MATRIX,))
    yield LoweringProbe("reduce_window_sum", "reduction", _reduce_windows, NUMBERS, (MATRIX,))

    for name in "cumsum cumprod cummax cummin".split():
        yield LoweringProbe(name, "scan", lax_function(name, 0), NUMBERS, (VECTOR,))
    yield LoweringProbe("cumlogsumexp", "scan", lax_function("cumlogsumexp", 0), FLOATS, (VECTOR,))
    yield LoweringProbe("cumsum[reverse]", "scan", lax_function("cumsum", 0, reverse=True), NUMBERS, (VECTOR,))
    yield LoweringProbe("associative_scan", "scan", lambda x: lax.associative_scan(jnp.maximum, x), NUMBERS, (VECTOR,))


def _reduction(name: str, dtypes: tuple[str, ...], variant: str = "", axes: tuple[int, ...] = (1,)) -> LoweringProbe:
    def body(x: Value) -> Value:
        if hasattr(lax, name):
            return getattr(lax, name)(x, axes)
        return first_available(f"lax.{name}_p").bind(x, axes=axes)  # the primitive is older than the function

    return LoweringProbe(name + variant, "reduction", body, dtypes, (MATRIX,))


def _reduce_by_function(x: Value) -> Value:
    return lax.reduce(x, np.zeros((), x.dtype), lambda a, b: a + b + b, (1,))


def _reduce_windows(x: Value) -> Value:
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, (1, 2), (1, 2), "VALID")


_PRESETS = {
    "float32": "TF32_TF32_F32 TF32_TF32_F32_X3 F32_F32_F32 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 "
    "BF16_BF16_F32_X9",
    "float64": "F64_F64_F64",
    "float16": "F16_F16_F16 F16_F16_F32",
    "bfloat16": "BF16_BF16_BF16 BF16_BF16_F32",
    "float8_e4m3fn": "ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM",
}


def dots_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `dot`."""
    yield _dot("", NUMBERS)
    for name in ("HIGH", "HIGHEST"):
        yield _dot(f"[{name}]", NUMBERS, precision=f"Precision.{name}")
    for preset in dict.fromkeys(" ".join(_PRESETS.values()).split()):
        dtypes = tuple(dtype for dtype, presets in _PRESETS.items() if preset in presets.split())
        yield _dot(f"[{preset}]", dtypes, precision=f"DotAlgorithmPreset.{preset}")
    yield _dot("[to float32]", NUMBERS, accumulator="float32")
    yield _dot("[to float16]", ("float16", "bfloat16", "float32"), accumulator="float16")
    yield _dot("[to int32]", INTEGERS, accumulator="int32")
    yield _dot("[transposed]", ("float32", "float16", "int8"), contract=((0,), (1,)))
    yield _dot("[16x16x16]", NUMBERS, operands=((16, 16), (16, 16)))
    yield _dot("[8x8x8]", ("float32", "float16"), operands=((8, 8), (8, 8)))
    yield _dot("[batch]", ("float32", "float16"), ((2,), (1,)), ((0,), (0,)), ((2, *BLOCK), (2, *BLOCK)))
    yield _dot("[matrix by vector]", ("float32", "float16"), operands=(BLOCK, (32,)))
    yield _dot("[mixed]", ("float32",), operands=(BLOCK, (BLOCK, "float16")))
    yield LoweringProbe(
        "pl.dot", "dot", lambda x, y: first_available("plt.dot", "pl.dot")(x, y), FLOATS, (BLOCK, BLOCK), only="gpu"
    )
    yield LoweringProbe("ragged_dot", "dot", lax_function("ragged_dot"), FLOAT32, (BLOCK, (4, *BLOCK), ((4,), "int32")))
    yield LoweringProbe(
        "conv_general_dilated", "dot", lax_function("conv", (1,), "SAME"), FLOAT32, ((4, 8, 16), (8, 8, 4))
    )


def _dot(
    variant: str,
    dtypes: tuple[str, ...],
    contract: Any = ((1,), (0,)),
    batch: Any = ((), ()),
    operands: Any = (BLOCK, BLOCK),
    precision: str = "",
    accumulator: str = "",
) -> LoweringProbe:
    def body(x: Value, y: Value) -> Value:
        chosen = first_available(f"lax.{precision}") if precision else None
        dtype = jnp.dtype(accumulator) if accumulator else None
        return lax.dot_general(x, y, (contract, batch), precision=chosen, preferred_element_type=dtype)

    return LoweringProbe(f"dot_general{variant}", "dot", body, dtypes, operands)


def casts_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `cast`, whose dtypes are those they cast from."""
    for target in DTYPES:
        others = tuple(dtype for dtype in DTYPES if dtype != target)
        yield _cast("convert_element_type", target, others)
    for target in NUMBERS:
        size = jnp.dtype(target).itemsize
        same = tuple(dtype for dtype in NUMBERS if dtype != target and jnp.dtype(dtype).itemsize == size)
        yield _cast("bitcast_convert_type", target, same)


def _cast(primitive: str, target: str, dtypes: tuple[str, ...]) -> LoweringProbe:
    def body(x: Value) -> Value:
        return getattr(lax, primitive)(x, jnp.dtype(target))

    return LoweringProbe(f"{primitive}[to {target}]", "cast", body, dtypes, (VECTOR,))


def shapes_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `shape`."""
    yield _shape("reshape", lambda x: lax.reshape(x, (2 * x.shape[0], x.shape[1] // 2)))
    yield _shape("reshape[to 1D]", lambda x: lax.reshape(x, (x.size,)))
    yield _shape("transpose", lambda x: lax.transpose(x, (1, 0)))
    yield _shape("transpose[3D]", lambda x: lax.transpose(x, (2, 0, 1)), (2, 4, 8))
    yield _shape("broadcast_in_dim", _broadcast, VECTOR)
    yield _shape("broadcast_in_dim[scalar]", lambda x: lax.broadcast_in_dim(x, (8, 16), ()), SCALAR)
    yield _shape("broadcast_to[pl]", lambda x: first_available("pl.broadcast_to")(x, (8, x.shape[1])), (1, 16))
    yield _shape("expand_dims", lambda x: lax.expand_dims(x, (0,)))
    yield _shape("squeeze", lambda x: lax.squeeze(x, (0,)), (1, 16))
    yield _shape("concatenate", lambda x, y: lax.concatenate((x, y), 0), VECTOR, VECTOR)
    yield _shape("concatenate[last axis of 1]", lambda x, y: lax.concatenate((x, y), 1), (16, 1), (16, 1))
    yield _shape("stack", lambda x, y: first_available("lax.stack")([x, y], axis=1), VECTOR, VECTOR)
    yield _shape("unstack", lambda x: first_available("lax.unstack")(x, axis=1), (16, 2))
    yield _shape("pad", _pad, VECTOR)
    yield _shape("rev", lambda x: lax.rev(x, (0,)), VECTOR)
    yield _shape("split", lambda x: first_available("lax.split")(x, (x.shape[1] // 2,) * 2, 1))
    yield _shape("slice", lambda x: lax.slice_in_dim(x, 0, 8), VECTOR)
    yield _shape("slice[strided]", lambda x: lax.slice_in_dim(x, 0, 16, 2), VECTOR)
    yield _shape("tile", lambda x: first_available("lax.tile")(x, (2, *(1,) * (x.ndim - 1))), VECTOR)
    yield _shape("copy", lambda x: jnp.array(x, copy=True), VECTOR)
    yield _shape("full", lambda x: lax.full(x.shape, 1, x.dtype), VECTOR)
    yield LoweringProbe("iota", "shape", lambda x: lax.broadcasted_iota(x.dtype, x.shape, 1), NUMBERS, (MATRIX,))


def _shape(name: str, body: Body, *operands: Operand) -> LoweringProbe:
    return LoweringProbe(name, "shape", body, DTYPES, operands or (MATRIX,))


def _broadcast(x: Value) -> Value:
    return lax.broadcast_in_dim(x, (8, *x.shape), tuple(range(1, x.ndim + 1)))


def _pad(x: Value) -> Value:
    return lax.pad(x, np.zeros((), x.dtype), ((0, 16, 0), *((0, 0, 0),) * (x.ndim - 1)))


def control_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `control flow`."""
    number = (SCALAR, "int32")
    yield _control("cond", lambda x, i: lax.cond(i > 0, lambda: x + x, lambda: x), number)
    yield _control("cond[switch of three]", lambda x, i: lax.switch(i, [lambda: x, lambda: x + x, lambda: -x]), number)
    yield _control("while", _while, number)
    yield _control("fori_loop[static]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x))
    yield _control("fori_loop[dynamic]", lambda x, n: lax.fori_loop(0, n, lambda _, s: s + s, x), number)
    yield _control("fori_loop[unrolled]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x, unroll=True))
    yield _control("scan[carry]", lambda x: lax.scan(lambda s, _: (s + s, None), x, None, length=4)[0])
    yield _control("scan[inputs]", lambda x, y: lax.scan(lambda s, v: (s + v, None), x, y)[0], (4, 16))
    yield _control("scan[outputs]", lambda x: lax.scan(lambda s, _: (s + s, s), x, None, length=4)[1])
    yield _control("map", lambda x: lax.map(_double, x))
    yield _control("jit", lambda x: jax.jit(_double)(x))
    yield _control("checkpoint", lambda x: jax.checkpoint(_double)(x))
    yield _control("custom_jvp_call", lambda x: _custom_jvp()(x))
    yield _control("custom_vjp_call", lambda x: _custom_vjp()(x))
    yield _control("stop_gradient", lambda x: lax.stop_gradient(x))
    yield _control("optimization_barrier", lambda x: lax.optimization_barrier(x))
    yield _control("vmap", lambda x: jax.vmap(_double)(x))
    yield _control("linear_solve", lambda x: lax.custom_linear_solve(lambda v: v, x, lambda f, b: f(b)))


def _control(name: str, body: Body, *others: Operand) -> LoweringProbe:
    return LoweringProbe(name, "control flow", body, ("float32", "int32", "int64"), (VECTOR, *others))


def _double(x: Value) -> Value:
    return x + x


def _while(x: Value, n: Value) -> Value:
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + s[1]), (n * 0, x))


def _custom_jvp() -> Value:
    function = jax.custom_jvp(_double)
    function.defjvp(lambda primals, tangents: (function(*primals), tangents[0]))
    return function


def _custom_vjp() -> Value:
    function = jax.custom_vjp(_double)
    function.defvjp(lambda x: (x + x, None), lambda _, g: (g,))
    return function


def random_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `random`."""
    yield _random("threefry2x32", lambda *x: extend_random.threefry2x32_p.bind(*x), *(VECTOR,) * 4)
    yield _random("random_bits", _of_key(lambda key: jax.random.bits(key, (16,))), (2,))
    yield _random("random_split", _of_key(lambda key: jax.random.key_data(jax.random.split(key))), (2,))
    yield _random("rng_bit_generator", lambda x: lax.rng_bit_generator(x, (16,), dtype=jnp.uint32)[1], (4,))
    yield _random("rng_uniform", lambda a, b: lax.rng_uniform(a, b, (16,)), SCALAR, SCALAR, dtype="float32")


def _random(name: str, body: Body, *operands: Operand, dtype: str = "uint32") -> LoweringProbe:
    return LoweringProbe(name, "random", body, (dtype,), operands)


def _of_key(draw: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda x: draw(jax.random.wrap_key_data(x))
