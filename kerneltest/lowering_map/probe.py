"""Which Pallas primitive lowers to Triton, for which dtype, on which target: asked of the JAX that runs this file.

    python lowering_probe.py [--targets sm_90,gfx942] [--primitives exp,sort] [--compile] > map.json

It needs no GPU and nothing but JAX and NumPy (`--compile` also needs Triton), and runs on JAX 0.4.35 to 0.12 and on
Python 3.10 to 3.13, so that one file serves environments which kerneltest itself does not support.

Each probe is a kernel of a few lines around one primitive. What lax itself refuses for a dtype, outside of Pallas, is
left out of the map. Probes run in a child process: when a compiler aborts, its cell says so and the next child goes on.
"""

import argparse
import contextlib
import faulthandler
import inspect
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
from jax.extend import random as extend_random

SCHEMA = 1
MESSAGE_LENGTH = 300
SECONDS_A_CELL = 120


@dataclass(frozen=True)
class Target:
    """A GPU to lower for: JAX's platform and device kind; Triton's backend, architecture and lanes in a warp."""

    platform: str
    device_kind: str
    backend: str
    architecture: Any
    lanes: int


TARGETS = {
    "sm_80": Target("cuda", "NVIDIA A100", "cuda", 80, 32),
    "sm_90": Target("cuda", "NVIDIA H200", "cuda", 90, 32),
    "sm_100": Target("cuda", "NVIDIA B200", "cuda", 100, 32),
    "gfx90a": Target("rocm", "gfx90a", "hip", "gfx90a", 64),
    "gfx942": Target("rocm", "gfx942", "hip", "gfx942", 64),
    "gfx1100": Target("rocm", "gfx1100", "hip", "gfx1100", 32),
    "gfx1151": Target("rocm", "gfx1151", "hip", "gfx1151", 32),
}

FLOATS = tuple("float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2".split())
INTEGERS = tuple("int64 int32 int16 int8 uint32 uint8".split())
NUMBERS = FLOATS + INTEGERS
DTYPES = (*NUMBERS, "bool")
BITS = (*INTEGERS, "bool")
SOME = ("float32",)  # for what does not depend on a dtype


class AbsentError(Exception):
    """The primitive does not exist in this version of JAX."""


@dataclass(frozen=True)
class Probe:
    """A kernel around one primitive.

    Attributes:
      name: the primitive's, as JAX calls it, with the variant in brackets.
      group: the heading it stands under.
      body: from values to values; if `output` is given, from references, the last of them the output's, to nothing.
      dtypes: those to ask for.
      operands: shape of each, or shape and dtype where that is not the one asked for.
      output: likewise; None where the body tells.
      grid: of the kernel.
    """

    name: str
    group: str
    body: Callable[..., Any]
    dtypes: tuple[str, ...]
    operands: tuple[Any, ...]
    output: Any = None
    grid: tuple[int, ...] = ()


def named(*paths: str) -> Any:
    """The first of some functions that this JAX has; their homes have moved between versions."""
    for path in paths:
        module, *names = path.split(".")
        found: Any = {"jax": jax, "jnp": jnp, "lax": lax, "pl": pl, "plt": plt}[module]
        with contextlib.suppress(AttributeError):
            for name in names:
                found = getattr(found, name)
            return found
    raise AbsentError(f"this JAX has no {' or '.join(paths)}")


# --- The probes -------------------------------------------------------------------------------------------------------

VECTOR, MATRIX, TILE = (16,), (8, 16), (32, 32)


def _of_lax(name: str, *static: Any, **options: Any) -> Callable[..., Any]:
    return lambda *values: named(f"lax.{name}")(*values, *static, **options)


def _elementwise() -> Iterator[Probe]:
    unary = {
        FLOATS: "exp exp2 log log2 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sqrt rsqrt "
        "cbrt logistic erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e is_finite floor ceil round reciprocal",
        NUMBERS: "neg sign abs square",
        BITS: "population_count clz bitwise_not",
    }
    binary = {
        NUMBERS: "add sub mul div rem max min",
        FLOATS: "pow atan2 nextafter igamma igammac igamma_grad_a random_gamma_grad zeta polygamma",
        INTEGERS: "shift_left shift_right_logical shift_right_arithmetic mulhi",
        BITS: "bitwise_and bitwise_or bitwise_xor",
    }
    for arity, table in ((1, unary), (2, binary)):
        for dtypes, names in table.items():
            for name in names.split():
                primitive = "reciprocal[lax]" if name == "reciprocal" else name.removeprefix("bitwise_")
                yield Probe(primitive, "elementwise", _of_lax(name), dtypes, (VECTOR,) * arity)
    for name in ("max", "min"):
        yield Probe(name + "[bool]", "elementwise", _of_lax(name), ("bool",), (VECTOR, VECTOR))
    for power in (2, 3, -2):
        body = _of_lax("integer_pow", power)
        yield Probe(f"integer_pow[{power}]", "elementwise", body, NUMBERS, (VECTOR,))
    yield Probe("pow[integer exponent]", "elementwise", _of_lax("pow"), FLOATS, (VECTOR, (VECTOR, "int32")))
    yield Probe("betainc", "elementwise", _of_lax("betainc"), FLOATS, (VECTOR,) * 3)
    yield Probe("clamp", "elementwise", _of_lax("clamp"), NUMBERS, (VECTOR,) * 3)
    yield Probe("reduce_precision", "elementwise", _of_lax("reduce_precision", 5, 10), FLOATS, (VECTOR,))
    for name in "eq ne lt le gt ge".split():
        yield Probe(name, "comparison", _of_lax(name), DTYPES, (VECTOR, VECTOR))
    yield Probe("select_n", "comparison", _of_lax("select_n"), DTYPES, ((VECTOR, "bool"), VECTOR, VECTOR))
    which = (VECTOR, "int32")
    yield Probe("select_n[three cases]", "comparison", _of_lax("select_n"), DTYPES, (which, VECTOR, VECTOR, VECTOR))


def _reductions() -> Iterator[Probe]:
    def reduction(name: str, dtypes: tuple[str, ...], variant: str = "", axes: tuple[int, ...] = (1,)) -> Probe:
        def body(x: Any) -> Any:
            if hasattr(lax, name):
                return getattr(lax, name)(x, axes)
            return named(f"lax.{name}_p").bind(x, axes=axes)  # the primitive is older than the function

        return Probe(name + variant, "reduction", body, dtypes, (MATRIX,))

    for name in "reduce_sum reduce_prod reduce_max reduce_min".split():
        yield reduction(name, NUMBERS)
    for name in "reduce_and reduce_or reduce_xor".split():
        yield reduction(name, BITS)
    yield reduction("reduce_sum", NUMBERS, "[first axis]", (0,))
    yield reduction("reduce_sum", NUMBERS, "[all axes]", (0, 1))
    for name in ("argmax", "argmin"):
        yield Probe(name, "reduction", _of_lax(name, 1, jnp.int32), NUMBERS, (MATRIX,))

    def general(x: Any) -> Any:
        return lax.reduce(x, np.zeros((), x.dtype), lambda a, b: a + b + b, (1,))

    def window(x: Any) -> Any:
        return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, (1, 2), (1, 2), "VALID")

    yield Probe("reduce", "reduction", general, NUMBERS, (MATRIX,))
    yield Probe("reduce_window_sum", "reduction", window, NUMBERS, (MATRIX,))
    for name in "cumsum cumprod cummax cummin".split():
        yield Probe(name, "scan", _of_lax(name, 0), NUMBERS, (VECTOR,))
    yield Probe("cumlogsumexp", "scan", _of_lax("cumlogsumexp", 0), FLOATS, (VECTOR,))
    yield Probe("cumsum[reverse]", "scan", _of_lax("cumsum", 0, reverse=True), NUMBERS, (VECTOR,))
    yield Probe("associative_scan", "scan", lambda x: lax.associative_scan(jnp.maximum, x), NUMBERS, (VECTOR,))


def _dots() -> Iterator[Probe]:
    def dot(
        variant: str,
        dtypes: tuple[str, ...],
        contract: Any = ((1,), (0,)),
        batch: Any = ((), ()),
        operands: Any = (TILE, TILE),
        precision: str = "",
        accumulate: str = "",
    ) -> Probe:
        def body(x: Any, y: Any) -> Any:
            chosen = named(f"lax.{precision}") if precision else None
            kind = jnp.dtype(accumulate) if accumulate else None
            return lax.dot_general(x, y, (contract, batch), precision=chosen, preferred_element_type=kind)

        return Probe(f"dot_general{variant}", "dot", body, dtypes, operands)

    yield dot("", NUMBERS)
    for name in ("HIGH", "HIGHEST"):
        yield dot(f"[{name}]", NUMBERS, precision=f"Precision.{name}")
    presets = {
        "float32": "TF32_TF32_F32 TF32_TF32_F32_X3 F32_F32_F32 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 "
        "BF16_BF16_F32_X9",
        "float64": "F64_F64_F64",
        "float16": "F16_F16_F16 F16_F16_F32",
        "bfloat16": "BF16_BF16_BF16 BF16_BF16_F32",
        "float8_e4m3fn": "ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM",
    }
    for preset in dict.fromkeys(" ".join(presets.values()).split()):
        dtypes = tuple(dtype for dtype, of in presets.items() if preset in of.split())
        yield dot(f"[{preset}]", dtypes, precision=f"DotAlgorithmPreset.{preset}")
    yield dot("[to float32]", NUMBERS, accumulate="float32")
    yield dot("[to float16]", ("float16", "bfloat16", "float32"), accumulate="float16")
    yield dot("[to int32]", INTEGERS, accumulate="int32")
    yield dot("[transposed]", ("float32", "float16", "int8"), contract=((0,), (1,)))
    yield dot("[16x16x16]", NUMBERS, operands=((16, 16), (16, 16)))
    yield dot("[8x8x8]", ("float32", "float16"), operands=((8, 8), (8, 8)))
    yield dot("[batch]", ("float32", "float16"), ((2,), (1,)), ((0,), (0,)), ((2, *TILE), (2, *TILE)))
    yield dot("[matrix by vector]", ("float32", "float16"), operands=(TILE, (32,)))
    yield dot("[mixed]", ("float32",), operands=(TILE, (TILE, "float16")))
    yield Probe("pl.dot", "dot", lambda x, y: named("plt.dot", "pl.dot")(x, y), FLOATS, (TILE, TILE))
    yield Probe("ragged_dot", "dot", _of_lax("ragged_dot"), SOME, (TILE, (4, *TILE), ((4,), "int32")))
    yield Probe("conv_general_dilated", "dot", _of_lax("conv", (1,), "SAME"), SOME, ((4, 8, 16), (8, 8, 4)))


def _indexing() -> Iterator[Probe]:
    index = (VECTOR, "int32")

    def probe(name: str, body: Callable[..., Any], operands: Any, dtypes: tuple[str, ...] = DTYPES) -> Probe:
        return Probe(name, "indexing", body, dtypes, operands)

    yield probe("gather[take]", lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (VECTOR, index))
    yield probe("gather[take_along_axis]", lambda x, i: jnp.take_along_axis(x, i, axis=0, mode="clip"), (VECTOR, index))
    for name, method in (
        ("scatter", "set"),
        ("scatter_add", "add"),
        ("scatter_mul", "multiply"),
        ("scatter_min", "min"),
        ("scatter_max", "max"),
    ):
        yield probe(name, lambda x, i, v, m=method: getattr(x.at[i], m)(v), (VECTOR, index, VECTOR), NUMBERS)
    scalar = ((), "int32")
    yield probe("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i,), (8,)), (VECTOR, scalar))
    yield probe("dynamic_update_slice", lambda x, v, i: lax.dynamic_update_slice(x, v, (i,)), (VECTOR, (8,), scalar))
    yield probe("sort", lambda x: lax.sort(x), (VECTOR,))
    yield probe("sort[keys and values]", lambda x, v: lax.sort_key_val(x, v), (VECTOR, (VECTOR, "int32")))
    yield probe("top_k", lambda x: lax.top_k(x, 4), (VECTOR,), NUMBERS)
    yield probe("approx_top_k", lambda x: lax.approx_max_k(x, 4), (VECTOR,), ("float32", "bfloat16"))


def _casts() -> Iterator[Probe]:
    def cast(primitive: str, target: str) -> Callable[[Any], Any]:
        return lambda x: getattr(lax, primitive)(x, jnp.dtype(target))

    for target in DTYPES:
        others = tuple(dtype for dtype in DTYPES if dtype != target)
        name = "convert_element_type"
        yield Probe(f"{name}[to {target}]", "cast", cast(name, target), others, (VECTOR,))
    for target in NUMBERS:
        size = jnp.dtype(target).itemsize
        same = tuple(dtype for dtype in NUMBERS if dtype != target and jnp.dtype(dtype).itemsize == size)
        name = "bitcast_convert_type"
        yield Probe(f"{name}[to {target}]", "cast", cast(name, target), same, (VECTOR,))


def _shapes() -> Iterator[Probe]:
    def probe(name: str, body: Callable[..., Any], *operands: Any) -> Probe:
        return Probe(name, "shape", body, DTYPES, operands or (MATRIX,))

    yield probe("reshape", lambda x: lax.reshape(x, (16, 8)))
    yield probe("reshape[to 1D]", lambda x: lax.reshape(x, (128,)))
    yield probe("transpose", lambda x: lax.transpose(x, (1, 0)))
    yield probe("transpose[3D]", lambda x: lax.transpose(x, (2, 0, 1)), (2, 4, 8))
    yield probe("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (8, 16), (1,)), VECTOR)
    yield probe("broadcast_in_dim[scalar]", lambda x: lax.broadcast_in_dim(x, (8, 16), ()), ())
    yield probe("broadcast_to[pl]", lambda x: named("pl.broadcast_to")(x, (8, 16)), (1, 16))
    yield probe("expand_dims", lambda x: lax.expand_dims(x, (0,)))
    yield probe("squeeze", lambda x: lax.squeeze(x, (0,)), (1, 16))
    yield probe("concatenate", lambda x, y: lax.concatenate((x, y), 0), VECTOR, VECTOR)
    yield probe("concatenate[last axis of 1]", lambda x, y: lax.concatenate((x, y), 1), (16, 1), (16, 1))
    yield probe("stack", lambda x, y: named("lax.stack")([x, y], axis=1), VECTOR, VECTOR)
    yield probe("unstack", lambda x: named("lax.unstack")(x, axis=1), (16, 2))
    yield probe("pad", lambda x: lax.pad(x, np.zeros((), x.dtype), ((0, 16, 0),)), VECTOR)
    yield probe("rev", lambda x: lax.rev(x, (0,)), VECTOR)
    yield probe("split", lambda x: named("lax.split")(x, (8, 8), 1))
    yield probe("slice", lambda x: lax.slice(x, (0,), (8,)), VECTOR)
    yield probe("slice[strided]", lambda x: lax.slice(x, (0,), (16,), (2,)), VECTOR)
    yield probe("tile", lambda x: named("lax.tile")(x, (2,)), VECTOR)
    yield probe("copy", lambda x: jnp.array(x, copy=True), VECTOR)
    yield Probe("full", "shape", lambda x: lax.full(x.shape, 1, x.dtype), DTYPES, (VECTOR,))
    yield Probe("iota", "shape", lambda x: lax.broadcasted_iota(x.dtype, x.shape, 1), NUMBERS, (MATRIX,))


def _control() -> Iterator[Probe]:
    def probe(name: str, body: Callable[..., Any], *others: Any) -> Probe:
        return Probe(name, "control flow", body, ("float32", "int32", "int64"), (VECTOR, *others))

    length = ((), "int32")
    step = jax.custom_jvp(lambda x: x + x)
    step.defjvp(lambda primals, tangents: (step(*primals), tangents[0]))
    derived = jax.custom_vjp(lambda x: x + x)
    derived.defvjp(lambda x: (x + x, None), lambda _, g: (g,))
    yield probe("cond", lambda x, i: lax.cond(i > 0, lambda: x + x, lambda: x), length)
    yield probe("cond[switch of three]", lambda x, i: lax.switch(i, [lambda: x, lambda: x + x, lambda: -x]), length)
    yield probe(
        "while", lambda x, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + s[1]), (n * 0, x)), length
    )
    yield probe("fori_loop[static]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x))
    yield probe("fori_loop[dynamic]", lambda x, n: lax.fori_loop(0, n, lambda _, s: s + s, x), length)
    yield probe("fori_loop[unrolled]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x, unroll=True))
    yield probe("scan[carry]", lambda x: lax.scan(lambda s, _: (s + s, None), x, None, length=4)[0])
    yield probe("scan[inputs]", lambda x, y: lax.scan(lambda s, v: (s + v, None), x, y)[0], (4, 16))
    yield probe("scan[outputs]", lambda x: lax.scan(lambda s, _: (s + s, s), x, None, length=4)[1])
    yield probe("map", lambda x: lax.map(lambda v: v + v, x))
    yield probe("jit", lambda x: jax.jit(lambda v: v + v)(x))
    yield probe("checkpoint", lambda x: jax.checkpoint(lambda v: v + v)(x))
    yield probe("custom_jvp_call", lambda x: step(x))
    yield probe("custom_vjp_call", lambda x: derived(x))
    yield probe("stop_gradient", lambda x: lax.stop_gradient(x))
    yield probe("optimization_barrier", lambda x: lax.optimization_barrier(x))
    yield probe("vmap", lambda x: jax.vmap(lambda v: v + v)(x))
    yield probe("linear_solve", lambda x: lax.custom_linear_solve(lambda v: v, x, lambda f, b: f(b)))


def _load(ref: Any, index: Any, **options: Any) -> Any:
    """`load`, whose first home takes the indices apart from the reference."""
    if hasattr(plt, "load"):
        return plt.load(ref.at[index], **options)
    return named("pl.load")(ref, index, **options)


def _store(ref: Any, index: Any, value: Any, **options: Any) -> None:
    if hasattr(plt, "store"):
        plt.store(ref.at[index], value, **options)
    else:
        named("pl.store")(ref, index, value, **options)


def _memory() -> Iterator[Probe]:
    def probe(name: str, body: Callable[..., Any], *operands: Any, output: Any = VECTOR) -> Probe:
        return Probe(name, "memory", body, DTYPES, operands or (VECTOR,), output)

    mask, scalar, half = (VECTOR, "bool"), ((), "int32"), pl.ds(0, 8)
    whole = pl.ds(0, 16)

    def get_set(x: Any, o: Any) -> None:
        o[...] = x[...]

    def scalar_get(x: Any, o: Any) -> None:
        o[...] = jnp.full((16,), x[3])

    def dynamic(x: Any, i: Any, o: Any) -> None:
        o[half] = x[pl.ds(i[()], 8)]

    def strided(x: Any, o: Any) -> None:
        o[half] = x[pl.ds(0, 8, 2)]

    def integer_array(x: Any, i: Any, o: Any) -> None:
        o[...] = x[i[...]]

    def accumulate(index: Any) -> Callable[[Any, Any], None]:
        def body(x: Any, o: Any) -> None:
            named("jax.ref.addupdate", "jax._src.state.primitives.ref_addupdate")(o, index, x[...])

        return body

    def swap(x: Any, o: Any) -> None:
        named("pl.swap", "jax.ref.swap", "jax._src.state.primitives.ref_swap")(o, (whole,), x[...])

    def masked_load(x: Any, m: Any, o: Any) -> None:
        o[...] = _load(x, (whole,), mask=m[...])

    def masked_load_other(x: Any, m: Any, o: Any) -> None:
        o[...] = _load(x, (whole,), mask=m[...], other=np.zeros((), x.dtype))

    def hinted_load(**hint: str) -> Callable[[Any, Any], None]:
        def body(x: Any, o: Any) -> None:
            o[...] = _load(x, (whole,), **hint)

        return body

    def masked_store(x: Any, m: Any, o: Any) -> None:
        _store(o, (whole,), x[...], mask=m[...])

    yield probe("get, swap[whole]", get_set)
    yield probe("get[one element]", scalar_get)
    yield probe("get[dynamic slice]", dynamic, VECTOR, scalar)
    yield probe("get[strided]", strided)
    yield probe("get[integer array]", integer_array, VECTOR, (VECTOR, "int32"))
    yield probe("addupdate", accumulate((whole,)))
    yield probe("addupdate[whole]", accumulate(...))
    yield probe("swap", swap)
    yield probe("masked_load", masked_load, VECTOR, mask)
    yield probe("masked_load[other]", masked_load_other, VECTOR, mask)
    yield probe("masked_load[cache]", hinted_load(cache_modifier=".cg"))
    yield probe("masked_load[eviction]", hinted_load(eviction_policy="evict_last"))
    yield probe("masked_store", masked_store, VECTOR, mask)

    def atomic(name: str, index: Any) -> Callable[..., None]:
        def body(x: Any, o: Any) -> None:
            named(f"plt.{name}", f"pl.{name}")(o, index, x[index])

        return body

    def compare_and_swap(x: Any, o: Any) -> None:
        o[...] = named("plt.atomic_cas", "pl.atomic_cas")(x, x[()], x[()])

    for name in "add max min and or xor xchg".split():
        dtypes = BITS if name in ("and", "or", "xor") else DTYPES
        yield Probe(f"atomic_{name}", "atomic", atomic(f"atomic_{name}", (whole,)), dtypes, (VECTOR,), VECTOR)
    yield Probe("atomic_add[one element]", "atomic", atomic("atomic_add", (3,)), NUMBERS, (VECTOR,), VECTOR)
    yield Probe("atomic_cas", "atomic", compare_and_swap, DTYPES, ((),), ())


def _pallas() -> Iterator[Probe]:
    def values(name: str, body: Callable[..., Any], dtypes: tuple[str, ...] = SOME) -> Probe:
        return Probe(name, "pallas", body, dtypes, (VECTOR,))

    def refs(name: str, body: Callable[..., Any], *operands: Any, dtypes: tuple[str, ...] = SOME) -> Probe:
        return Probe(name, "pallas", body, dtypes, operands or (VECTOR,), VECTOR, (2,))

    def identifier(name: str) -> Callable[..., None]:
        def body(x: Any, o: Any) -> None:
            o[...] = x[...] + jnp.asarray(named(name)(0)).astype(x.dtype)

        return body

    def then_copy(effect: Callable[[Any], Any]) -> Callable[..., None]:
        def body(x: Any, o: Any) -> None:
            effect(x)
            o[...] = x[...]

        return body

    def scoped(x: Any, o: Any) -> None:
        def inner(scratch: Any) -> None:
            scratch[...] = x[...]
            o[...] = scratch[...]

        space = named("pl.MemorySpace.ANY", "pl.ANY")
        allocate = space if callable(space) else lambda *described: named("pl.MemoryRef")(*described, space)
        pl.run_scoped(inner, allocate(x.shape, x.dtype))

    def looped(x: Any, o: Any) -> None:
        def turn(i: Any) -> None:
            o[i] = x[i]

        named("pl.loop")(0, 4)(turn)

    def when(x: Any, o: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def first() -> None:
            o[...] = x[...]

    def aligned(x: Any, i: Any, o: Any) -> None:
        o[pl.ds(0, 8)] = x[pl.ds(pl.multiple_of(i[()], 8), 8)]

    def contiguous(x: Any, o: Any) -> None:
        o[...] = x[named("plt.max_contiguous", "pl.max_contiguous")(jnp.arange(16, dtype=jnp.int32), 16)]

    def assembly(instruction: str, constraints: str) -> Callable[[Any], Any]:
        def body(x: Any) -> Any:
            like = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
            inline = named("plt.elementwise_inline_asm")
            return inline(instruction, args=[x], constraints=constraints, pack=1, result_shape_dtypes=like)

        return body

    yield refs("program_id", identifier("pl.program_id"))
    yield refs("num_programs", identifier("pl.num_programs"))
    yield refs("debug_print", then_copy(lambda x: named("pl.debug_print")("here")))
    yield refs("debug_print[value]", then_copy(lambda x: named("pl.debug_print")("x: ", x[...])), dtypes=DTYPES)
    yield refs("debug_print[placeholder]", then_copy(lambda x: named("pl.debug_print")("x: {}", x[...])))
    yield refs("debug_print[jax]", then_copy(lambda x: jax.debug.print("x: {}", x[...])))
    yield refs("debug_check", then_copy(lambda x: named("pl.debug_check")(x[0] > 0, "positive")))
    yield refs("debug_callback", then_copy(lambda x: jax.debug.callback(print, x[...])))
    yield refs("debug_barrier", then_copy(lambda x: named("plt.debug_barrier")()))
    yield refs("delay", then_copy(lambda x: named("pl.delay")(100)))
    yield refs("run_scoped", scoped)
    yield refs("loop", looped)
    yield refs("when", when)
    yield refs("multiple_of", aligned, VECTOR, ((), "int32"))
    yield refs("max_contiguous", contiguous)
    yield values("elementwise_inline_asm[PTX]", assembly("mov.b32 $0, $1;", "=r,r"), ("float32", "int32"))
    yield values("elementwise_inline_asm[AMD]", assembly("v_mov_b32 $0, $1;", "=v,v"), ("float32", "int32"))
    yield values("approx_tanh", lambda x: named("plt.approx_tanh")(x), FLOATS)
    yield values("reciprocal", lambda x: named("pl.reciprocal")(x), FLOATS)
    yield values("reciprocal[approx]", lambda x: named("pl.reciprocal")(x, approx=True), FLOATS)


def _random() -> Iterator[Probe]:
    def of_key(draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: draw(jax.random.wrap_key_data(x))

    def probe(name: str, body: Callable[..., Any], *operands: Any, dtype: str = "uint32") -> Probe:
        return Probe(name, "random", body, (dtype,), operands)

    yield probe("threefry2x32", lambda *x: extend_random.threefry2x32_p.bind(*x), *(VECTOR,) * 4)
    yield probe("random_bits", of_key(lambda key: jax.random.bits(key, (16,))), (2,))
    yield probe("random_split", of_key(lambda key: jax.random.key_data(jax.random.split(key))), (2,))
    yield probe("rng_bit_generator", lambda x: lax.rng_bit_generator(x, (16,), dtype=jnp.uint32)[1], (4,))
    yield probe("rng_uniform", lambda a, b: lax.rng_uniform(a, b, (16,)), (), (), dtype="float32")


def probes() -> tuple[Probe, ...]:
    """All probes, in the order of the map."""
    parts = (_elementwise, _reductions, _dots, _indexing, _casts, _shapes, _control, _memory, _pallas, _random)
    return tuple(probe for part in parts for probe in part())


# --- Lowering and compiling one cell ----------------------------------------------------------------------------------


def lower(probe: Probe, dtype: str, target: Target) -> bytes | None:
    """The Triton IR of one probe as MLIR bytecode; None where lax itself has no such operation on the dtype.

    Raises:
      AbsentError: this JAX has no such primitive.
      Exception: whatever JAX raises.
    """
    jax.config.update("jax_enable_x64", "64" in probe.name or "64" in dtype)
    operands = [_array(operand, dtype) for operand in probe.operands]
    if probe.output is None:
        try:
            output = jax.eval_shape(probe.body, *operands)
        except (TypeError, ValueError, NotImplementedError):
            return None
    else:
        output = _array(probe.output, dtype)
    leaves = jax.tree_util.tree_leaves(output)

    def kernel(*refs: Any) -> None:
        if probe.output is not None:
            probe.body(*refs)
            return
        values = probe.body(*(ref[...] for ref in refs[: len(operands)]))
        for ref, value in zip(refs[len(operands) :], jax.tree_util.tree_leaves(values), strict=True):
            ref[...] = value

    parameters = named("plt.CompilerParams", "plt.TritonCompilerParams")
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    call = pl.pallas_call(kernel, out_shape=shapes, grid=probe.grid, compiler_params=parameters())
    with _device(target.device_kind):
        lowered = jax.jit(call).trace(*operands).lower(lowering_platforms=(target.platform,))
    return _triton_ir(lowered.compiler_ir().operation)


def _array(spec: Any, dtype: str) -> jax.ShapeDtypeStruct:
    shape, kind = spec if len(spec) == 2 and isinstance(spec[1], str) else (spec, dtype)
    return jax.ShapeDtypeStruct(shape, jnp.dtype(kind))


def _device(kind: str) -> Any:
    """A context in which JAX takes the GPU to be of some kind; versions without one do not ask for the kind."""
    sharding = jax.sharding
    if not hasattr(sharding, "AbstractDevice"):
        return contextlib.nullcontext()
    described: dict[str, Any] = {"device_kind": kind, "num_cores": None}
    if "platform" in inspect.signature(sharding.AbstractDevice).parameters:
        described["platform"] = "gpu"
    device = sharding.AbstractDevice(**described)
    return sharding.use_abstract_mesh(sharding.AbstractMesh((), (), abstract_device=device))


def _triton_ir(operation: Any) -> bytes:
    for region in operation.regions:
        for block in region:
            for inner in block:
                if "ir" in (config := _config(inner)):
                    return bytes(config["ir"].value_bytes)
                if found := _triton_ir(inner.operation):
                    return found
    return b""


def _config(operation: Any) -> Any:
    attributes = operation.attributes
    if "call_target_name" not in attributes or "triton" not in str(attributes["call_target_name"]):
        return {}
    return attributes["mhlo.backend_config"]


def compile_ir(bytecode: bytes, target: Target) -> None:
    """Compiles Triton IR to the target's machine code with the `triton` package, which may abort the process."""
    import triton
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.triton import dialect
    from triton.backends.compiler import GPUTarget

    with mlir.make_ir_context() as context, tempfile.TemporaryDirectory() as folder:
        dialect.register_dialect(context)
        context.load_all_available_dialects()
        path = Path(folder) / "kernel.ttir"
        path.write_text(str(ir.Module.parse(bytecode)), encoding="utf-8")
        os.environ["TRITON_CACHE_DIR"] = folder
        triton.compile(str(path), target=GPUTarget(target.backend, target.architecture, target.lanes))


# --- The whole map ----------------------------------------------------------------------------------------------------

Cell = tuple[Probe, str, str]


def cells(primitives: Sequence[str] = (), targets: Sequence[str] = ()) -> tuple[Cell, ...]:
    """Every (probe, dtype, target) to ask for; `sort` selects a primitive with its variants, nothing selects all.

    Raises:
      ValueError: a name is unknown.
    """
    known = probes()
    chosen = [probe for probe in known if not primitives or {probe.name, probe.name.split("[")[0]} & set(primitives)]
    names = {probe.name for probe in known} | {probe.name.split("[")[0] for probe in known}
    if unknown := [name for name in primitives if name not in names]:
        raise ValueError(f"unknown primitive {', '.join(unknown)}")
    if unknown := [name for name in targets if name not in TARGETS]:
        raise ValueError(f"unknown target {', '.join(unknown)}; known are {', '.join(TARGETS)}")
    return tuple((probe, dtype, target) for probe in chosen for dtype in probe.dtypes for target in targets or TARGETS)


def mark(cell: Cell, *, compiled: bool) -> tuple[str, str] | None:
    """The mark of a cell and JAX's message; None where lax has no such operation."""
    probe, dtype, target = cell
    try:
        bytecode = lower(probe, dtype, TARGETS[target])
        if bytecode is None:
            return None
        if not bytecode:
            return "error", "the lowered module holds no Triton IR"
        if compiled:
            compile_ir(bytecode, TARGETS[target])
    except AbsentError as error:
        return "absent", str(error)
    except Exception as error:
        message = _message(error)
        return ("unimplemented" if "unimplemented primitive" in message.lower() else "error"), message
    return ("compiles" if compiled else "lowers"), ""


def _message(error: BaseException) -> str:
    """The words of the first cause, without what JAX wraps around it, and without folders."""
    while error.__cause__ is not None and type(error.__cause__).__name__ != "JaxStackTraceBeforeTransformation":
        error = error.__cause__
    words = str(error)
    if not words and error.__traceback__:
        words = "in " + list(traceback.walk_tb(error.__traceback__))[-1][0].f_code.co_name
    return _tidy(f"{type(error).__name__}: {words}")


def _tidy(text: str) -> str:
    """On one line and cut short, without folders and random names, so that the same failure has the same words."""
    without_folders = re.sub(r"(?<![\w:/])/(?:[^/\s:\"']+/)+", "", " ".join(text.split()))
    return re.sub(r"\btmp\w{8}\b", "tmp", without_folders)[:MESSAGE_LENGTH]


def _child(todo: Sequence[Cell], compiled: bool) -> None:
    """Prints one line of JSON for each cell. Its stderr is a file, from which it reads what a compiler prints there."""
    results = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print does not end up among the results
    for cell in todo:
        faulthandler.dump_traceback_later(SECONDS_A_CELL, exit=True)
        start = os.lseek(2, 0, os.SEEK_END)
        result = mark(cell, compiled=compiled)
        if result and result[0] == "error":
            printed = os.pread(2, 1 << 16, start).decode(errors="replace")
            result = "error", _tidy(f"{result[1]}: {_reason(printed)}".rstrip(": "))
        results.write(json.dumps(result) + "\n")
        results.flush()


def run(todo: Sequence[Cell], child: Sequence[str]) -> list[tuple[str, str] | None]:
    """The mark of each cell; `child` is the command of a child process, to which the first cell's number is added."""
    results: list[tuple[str, str] | None] = []
    while len(results) < len(todo):
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [*child, str(len(results))],
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
            )
            assert process.stdout is not None
            results += [json.loads(line) for line in process.stdout if line.endswith("\n")]
            status = process.wait()
            if len(results) < len(todo):
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 4000))
                results.append(("error", _death(status, stderr.read().decode(errors="replace"))))
    return results


def _death(status: int, printed: str) -> str:
    if "Timeout (" in printed:
        return f"no answer within {SECONDS_A_CELL} s"
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return _tidy(f"the compiler died ({how}): {_reason(printed)}".rstrip(": "))


def _reason(printed: str) -> str:
    """The line of a compiler's output that says why it failed."""
    found = re.search(r"LLVM ERROR: .*|Assertion .*|(?<=error: )(?!Failures have been detected).*", printed)
    return found[0] if found else printed.strip().partition("\n")[0]


def grouped(todo: Sequence[Cell], results: Sequence[tuple[str, str] | None]) -> list[dict[str, Any]]:
    """The rows of the map: targets and dtypes that share a primitive, a mark and a message share a row."""
    dtypes: dict[tuple[str, str, str, str, str], list[str]] = {}
    accepted = {probe.name for (probe, _, _), result in zip(todo, results, strict=True) if result}
    for (probe, dtype, target), result in zip(todo, results, strict=True):
        if probe.name not in accepted:
            result = "absent", "lax refuses it for every dtype asked for"
        if result is not None:
            dtypes.setdefault((probe.name, probe.group, *result, target), []).append(dtype)
    targets: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for (name, group, found, message, target), kinds in dtypes.items():
        targets.setdefault((name, group, found, message, tuple(kinds)), []).append(target)
    return [
        {"primitive": name, "group": group, "mark": found, "message": message, "dtypes": kinds, "targets": places}
        for (name, group, found, message, kinds), places in targets.items()
    ]


def main() -> int:
    """Writes the map of this environment to stdout; 2 for unusable input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for option in ("--targets", "--primitives"):
        parser.add_argument(option, default="", help="separated by commas; all if left out")
    parser.add_argument("--compile", action="store_true", help="also compile what lowers, with the triton package")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    try:
        todo = cells(*([n for n in names.split(",") if n] for names in (chosen.primitives, chosen.targets)))
        triton = metadata.version("triton") if chosen.compile else ""
    except ValueError as error:
        print(f"lowering_probe: {error}", file=sys.stderr)
        return 2
    except metadata.PackageNotFoundError:
        print("lowering_probe: --compile needs the triton package; without --compile nothing does", file=sys.stderr)
        return 2
    if chosen.child is not None:
        _child(todo[chosen.child :], chosen.compile)
        return 0
    rows = grouped(todo, run(todo, [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--child"]))
    header = {
        "schema": SCHEMA,
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "python": platform.python_version(),
        "triton": triton,
        "targets": list(dict.fromkeys(target for _, _, target in todo)),
    }
    # One row a line, so that two maps can also be compared by diff.
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    print(json.dumps(header)[:-1] + ', "rows": [\n' + lines + "\n]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
