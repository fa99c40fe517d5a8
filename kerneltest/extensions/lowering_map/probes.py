"""All probes: kernels of a few lines around one primitive. A new primitive is one line in its group."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plt
from jax.extend import random as extend_random

FLOATS = tuple("float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2".split())
INTEGERS = tuple("int64 int32 int16 int8 uint32 uint8".split())
NUMBERS = FLOATS + INTEGERS
BITWISE = (*INTEGERS, "bool")
DTYPES = (*NUMBERS, "bool")
FLOAT32 = ("float32",)  # for primitives whose lowering does not depend on the dtype

SCALAR, VECTOR, MATRIX, BLOCK = (), (16,), (8, 16), (32, 32)

Value = Any  # an array while it is traced; functions that are looked up by name have no types
Ref = Any  # JAX exports no type for references
Body = Callable[..., Any]
Operand = tuple[int, ...] | tuple[tuple[int, ...], str]  # a shape, of the probed dtype or of one that it names


@dataclass(frozen=True)
class LoweringProbe:
    """A kernel around one primitive."""

    name: str  # the primitive's name in JAX, with the variant in brackets
    group: str  # the heading in reports
    # maps values to values. If there is an `output`, it takes references instead, the last to the output, and returns
    # nothing.
    body: Body
    dtypes: tuple[str, ...]  # to probe
    operands: tuple[Operand, ...]  # their shapes, with a dtype if it is not the probed one
    output: Operand | None = None  # the same of the output; None if it is that of the body's values
    grid: tuple[int, ...] = ()  # of the kernel
    # the block shape of all operands and the output, whose index is the program's; () for whole arrays. For TPUs only.
    block: tuple[int, ...] = ()
    only: str = ""  # `gpu` or `tpu` if only these have the function; "" for both


def lax_function(name: str, *static: Any, **options: Any) -> Body:
    """Returns a body that calls a function of lax on its values and `static`. It looks the function up when called."""
    return lambda *values: getattr(lax, name)(*values, *static, **options)


def _in_group(
    group: str, usual: tuple[str, ...], shape: Operand = VECTOR, **fixed: Any
) -> Callable[..., LoweringProbe]:
    # Returns a function that makes the probes of a group. Those that are given no dtypes have the usual ones, and those
    # without operands have one of a shape.
    def probe(
        name: str, body: Body, *operands: Operand, dtypes: tuple[str, ...] = usual, only: str = ""
    ) -> LoweringProbe:
        return LoweringProbe(name, group, body, dtypes, operands or (shape,), **{"only": only, **fixed})

    return probe


# Returns a body that stores to the output the value computed from the references to the operands.
def _storing(compute: Body, index: Any = ...) -> Body:
    def body(*refs: Ref) -> None:
        refs[-1][index] = compute(*refs[:-1])

    return body


_copy = _storing(lambda x: x[...])


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


_elementwise, _comparison = _in_group("elementwise", FLOATS), _in_group("comparison", DTYPES)


def _elementwise_probes() -> Iterator[LoweringProbe]:
    two = (VECTOR, VECTOR)
    for operands, table in (((VECTOR,), _UNARY), (two, _BINARY)):
        for dtypes, names in table.items():
            for name in names.split():
                primitive = "reciprocal[lax]" if name == "reciprocal" else name.removeprefix("bitwise_")
                yield _elementwise(primitive, lax_function(name), *operands, dtypes=dtypes)
    for name in ("max", "min"):
        yield _elementwise(name + "[bool]", lax_function(name), *two, dtypes=("bool",))
    for power in (2, 3, -2):
        yield _elementwise(f"integer_pow[{power}]", lax_function("integer_pow", power), dtypes=NUMBERS)
    yield _elementwise("pow[integer exponent]", lax_function("pow"), VECTOR, (VECTOR, "int32"))
    yield _elementwise("betainc", lax_function("betainc"), VECTOR, *two)
    yield _elementwise("clamp", lax_function("clamp"), VECTOR, *two, dtypes=NUMBERS)
    yield _elementwise("reduce_precision", lax_function("reduce_precision", 5, 10))

    for name in "eq ne lt le gt ge".split():
        yield _comparison(name, lax_function(name), *two)
    yield _comparison("select_n", lax_function("select_n"), (VECTOR, "bool"), *two)
    yield _comparison("select_n[three cases]", lax_function("select_n"), (VECTOR, "int32"), VECTOR, *two)


_reduction, _scan = _in_group("reduction", NUMBERS, MATRIX), _in_group("scan", NUMBERS)


def _reductions_probes() -> Iterator[LoweringProbe]:
    for name in "reduce_sum reduce_prod reduce_max reduce_min".split():
        yield _reduction(name, lax_function(name, (1,)))
    for name in "reduce_and reduce_or reduce_xor".split():
        yield _reduction(name, lax_function(name, (1,)), dtypes=BITWISE)
    yield _reduction("reduce_sum[first axis]", lax_function("reduce_sum", (0,)))
    yield _reduction("reduce_sum[all axes]", lax_function("reduce_sum", (0, 1)))
    for name in ("argmax", "argmin"):
        yield _reduction(name, lax_function(name, 1, jnp.int32))
    yield _reduction("reduce", lambda x: lax.reduce(x, np.zeros((), x.dtype), lambda a, b: a + b + b, (1,)))
    yield _reduction("reduce_window_sum", _reduce_windows)

    for name in "cumsum cumprod cummax cummin".split():
        yield _scan(name, lax_function(name, 0))
    yield _scan("cumlogsumexp", lax_function("cumlogsumexp", 0), dtypes=FLOATS)
    yield _scan("cumsum[reverse]", lax_function("cumsum", 0, reverse=True))
    yield _scan("associative_scan", lambda x: lax.associative_scan(jnp.maximum, x))


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


def _dots_probes() -> Iterator[LoweringProbe]:
    yield _dot("", NUMBERS)
    for name in ("HIGH", "HIGHEST"):
        yield _dot(f"[{name}]", NUMBERS, precision=("Precision", name))
    for preset in dict.fromkeys(" ".join(_PRESETS.values()).split()):
        dtypes = tuple(dtype for dtype, presets in _PRESETS.items() if preset in presets.split())
        yield _dot(f"[{preset}]", dtypes, precision=("DotAlgorithmPreset", preset))
    yield _dot("[to float32]", NUMBERS, accumulator="float32")
    yield _dot("[to float16]", ("float16", "bfloat16", "float32"), accumulator="float16")
    yield _dot("[to int32]", INTEGERS, accumulator="int32")
    yield _dot("[transposed]", ("float32", "float16", "int8"), contract=((0,), (1,)))
    yield _dot("[16x16x16]", NUMBERS, operands=((16, 16), (16, 16)))
    yield _dot("[8x8x8]", ("float32", "float16"), operands=((8, 8), (8, 8)))
    yield _dot("[batch]", ("float32", "float16"), ((2,), (1,)), ((0,), (0,)), ((2, *BLOCK), (2, *BLOCK)))
    yield _dot("[matrix by vector]", ("float32", "float16"), operands=(BLOCK, (32,)))
    yield _dot("[mixed]", ("float32",), operands=(BLOCK, (BLOCK, "float16")))
    yield LoweringProbe("pl.dot", "dot", lambda x, y: plt.dot(x, y), FLOATS, (BLOCK, BLOCK), only="gpu")
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
    precision: tuple[str, str] | None = None,
    accumulator: str = "",
) -> LoweringProbe:
    def body(x: Value, y: Value) -> Value:
        chosen = getattr(getattr(lax, precision[0]), precision[1]) if precision else None
        dtype = jnp.dtype(accumulator) if accumulator else None
        return lax.dot_general(x, y, (contract, batch), precision=chosen, preferred_element_type=dtype)

    return LoweringProbe(f"dot_general{variant}", "dot", body, dtypes, operands)


_cast = _in_group("cast", ())


def _casts_probes() -> Iterator[LoweringProbe]:
    for primitive, known in (("convert_element_type", DTYPES), ("bitcast_convert_type", NUMBERS)):
        for target in known:
            size = jnp.dtype(target).itemsize
            fits = primitive == "convert_element_type"
            others = tuple(each for each in known if each != target and (fits or jnp.dtype(each).itemsize == size))
            yield _cast(f"{primitive}[to {target}]", lax_function(primitive, jnp.dtype(target)), dtypes=others)


_shape = _in_group("shape", DTYPES, MATRIX)


def _shapes_probes() -> Iterator[LoweringProbe]:
    yield _shape("reshape", lambda x: lax.reshape(x, (2 * x.shape[0], x.shape[1] // 2)))
    yield _shape("reshape[to 1D]", lambda x: lax.reshape(x, (x.size,)))
    yield _shape("transpose", lambda x: lax.transpose(x, (1, 0)))
    yield _shape("transpose[3D]", lambda x: lax.transpose(x, (2, 0, 1)), (2, 4, 8))
    yield _shape(
        "broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (8, *x.shape), tuple(range(1, x.ndim + 1))), VECTOR
    )
    yield _shape("broadcast_in_dim[scalar]", lambda x: lax.broadcast_in_dim(x, (8, 16), ()), SCALAR)
    yield _shape("broadcast_to[pl]", lambda x: pl.broadcast_to(x, (8, x.shape[1])), (1, 16))
    yield _shape("expand_dims", lambda x: lax.expand_dims(x, (0,)))
    yield _shape("squeeze", lambda x: lax.squeeze(x, (0,)), (1, 16))
    yield _shape("concatenate", lambda x, y: lax.concatenate((x, y), 0), VECTOR, VECTOR)
    yield _shape("concatenate[last axis of 1]", lambda x, y: lax.concatenate((x, y), 1), (16, 1), (16, 1))
    yield _shape("stack", lambda x, y: lax.stack([x, y], axis=1), VECTOR, VECTOR)
    yield _shape("unstack", lambda x: lax.unstack(x, axis=1), (16, 2))
    yield _shape("pad", _pad, VECTOR)
    yield _shape("rev", lambda x: lax.rev(x, (0,)), VECTOR)
    yield _shape("split", lambda x: lax.split(x, (x.shape[1] // 2,) * 2, 1))
    yield _shape("slice", lambda x: lax.slice_in_dim(x, 0, 8), VECTOR)
    yield _shape("slice[strided]", lambda x: lax.slice_in_dim(x, 0, 16, 2), VECTOR)
    yield _shape("tile", lambda x: lax.tile(x, (2, *(1,) * (x.ndim - 1))), VECTOR)
    yield _shape("copy", lambda x: jnp.array(x, copy=True), VECTOR)
    yield _shape("full", lambda x: lax.full(x.shape, 1, x.dtype), VECTOR)
    yield _shape("iota", lambda x: lax.broadcasted_iota(x.dtype, x.shape, 1), dtypes=NUMBERS)


def _pad(x: Value) -> Value:
    return lax.pad(x, np.zeros((), x.dtype), ((0, 16, 0), *((0, 0, 0),) * (x.ndim - 1)))


_control = _in_group("control flow", ("float32", "int32", "int64"))


def _control_probes() -> Iterator[LoweringProbe]:
    with_number = (VECTOR, (SCALAR, "int32"))
    yield _control("cond", lambda x, i: lax.cond(i > 0, lambda: x + x, lambda: x), *with_number)
    yield _control(
        "cond[switch of three]", lambda x, i: lax.switch(i, [lambda: x, lambda: x + x, lambda: -x]), *with_number
    )
    yield _control("while", _while, *with_number)
    yield _control("fori_loop[static]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x))
    yield _control("fori_loop[dynamic]", lambda x, n: lax.fori_loop(0, n, lambda _, s: s + s, x), *with_number)
    yield _control("fori_loop[unrolled]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x, unroll=True))
    yield _control("scan[carry]", lambda x: lax.scan(lambda s, _: (s + s, None), x, None, length=4)[0])
    yield _control("scan[inputs]", lambda x, y: lax.scan(lambda s, v: (s + v, None), x, y)[0], VECTOR, (4, 16))
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


_random = _in_group("random", ("uint32",))


def _random_probes() -> Iterator[LoweringProbe]:
    yield _random("threefry2x32", lambda *x: extend_random.threefry2x32_p.bind(*x), *(VECTOR,) * 4)
    yield _random("random_bits", _of_key(lambda key: jax.random.bits(key, (16,))), (2,))
    yield _random("random_split", _of_key(lambda key: jax.random.key_data(jax.random.split(key))), (2,))
    yield _random("rng_bit_generator", lambda x: lax.rng_bit_generator(x, (16,), dtype=jnp.uint32)[1], (4,))
    yield _random("rng_uniform", lambda a, b: lax.rng_uniform(a, b, (16,)), SCALAR, SCALAR, dtypes=FLOAT32)


def _of_key(draw: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda x: draw(jax.random.wrap_key_data(x))


_indexing = _in_group("indexing", DTYPES)


def _indexing_probes() -> Iterator[LoweringProbe]:
    indices, start = (VECTOR, "int32"), (SCALAR, "int32")
    yield _indexing("gather[take]", lambda x, i: jnp.take(x, _rows(i), axis=0, mode="clip"), VECTOR, indices)
    yield _indexing("gather[take_along_axis]", _take_along_axis(0, "clip"), VECTOR, indices)
    for name, method in zip(("", "_add", "_mul", "_min", "_max"), "set add multiply min max".split(), strict=True):
        yield _indexing(f"scatter{name}", _scatter(method), VECTOR, indices, VECTOR, dtypes=NUMBERS)
    yield _indexing("dynamic_slice", _dynamic_slice, VECTOR, start)
    yield _indexing("dynamic_update_slice", _dynamic_update_slice, VECTOR, (8,), start)
    yield _indexing("sort", lambda x: lax.sort(x))
    yield _indexing("sort[keys and values]", lambda x, v: lax.sort_key_val(x, v), VECTOR, indices)
    yield _indexing("top_k", lambda x: lax.top_k(x, 4), dtypes=NUMBERS)
    yield _indexing("approx_top_k", lambda x: lax.approx_max_k(x, 4), dtypes=("float32", "bfloat16"))


def _rows(indices: Value) -> Value:
    """Returns a vector of indices; on TPUs, operands have two dimensions."""
    return indices if indices.ndim == 1 else indices[:, 0]


def _take_along_axis(axis: int, mode: str) -> Body:
    return lambda x, i: jnp.take_along_axis(x, i, axis=axis, mode=mode)


def _dynamic_slice(x: Value, i: Value) -> Value:
    return lax.dynamic_slice(x, (i, *(0,) * (x.ndim - 1)), (8, *x.shape[1:]))


def _dynamic_update_slice(x: Value, v: Value, i: Value) -> Value:
    return lax.dynamic_update_slice(x, v, (i, *(0,) * (x.ndim - 1)))


def _scatter(method: str) -> Body:
    return lambda x, i, v: getattr(x.at[_rows(i)], method)(v)


_WHOLE: Any = pl.ds(0, 16)
_HALF: Any = pl.ds(0, 8)
_memory = _in_group("memory", DTYPES, output=VECTOR)


def _memory_probes() -> Iterator[LoweringProbe]:
    mask = (VECTOR, "bool")
    yield _memory("get, swap[whole]", _copy)
    yield _memory("get[one element]", _storing(lambda x: jnp.full(x.shape, x[(3,) * len(x.shape)])))
    yield _memory("get[dynamic slice]", _storing(lambda x, i: x[pl.ds(i[()], 8)], _HALF), VECTOR, (SCALAR, "int32"))
    yield _memory("get[strided]", _storing(lambda x: x[pl.ds(0, 8, 2)], _HALF))
    yield _memory("get[integer array]", _storing(lambda x, i: x[_rows(i[...])]), VECTOR, (VECTOR, "int32"))
    yield _memory("addupdate", lambda x, o: jax.ref.addupdate(o, (_WHOLE,), x[...]))
    yield _memory("addupdate[whole]", lambda x, o: jax.ref.addupdate(o, ..., x[...]))
    yield _memory("swap", lambda x, o: jax.ref.swap(o, (_WHOLE,), x[...]))
    yield _memory(
        "masked_load", _storing(lambda x, m: plt.load(x.at[(_WHOLE,)], mask=m[...])), VECTOR, mask, only="gpu"
    )
    other = _storing(lambda x, m: plt.load(x.at[(_WHOLE,)], mask=m[...], other=np.zeros((), x.dtype)))
    yield _memory("masked_load[other]", other, VECTOR, mask, only="gpu")
    yield _memory("masked_load[cache]", _storing(lambda x: plt.load(x.at[(_WHOLE,)], cache_modifier=".cg")), only="gpu")
    yield _memory(
        "masked_load[eviction]", _storing(lambda x: plt.load(x.at[(_WHOLE,)], eviction_policy="evict_last")), only="gpu"
    )
    yield _memory(
        "masked_store", lambda x, m, o: plt.store(o.at[(_WHOLE,)], x[...], mask=m[...]), VECTOR, mask, only="gpu"
    )

    for name in "add max min and or xor xchg".split():
        dtypes = BITWISE if name in ("and", "or", "xor") else DTYPES
        yield _of_atomics(f"atomic_{name}", _atomic(name, (_WHOLE,)), dtypes)
    yield _of_atomics("atomic_add[one element]", _atomic("add", (3,)), NUMBERS)
    cas = _storing(lambda x: plt.atomic_cas(x, x[()], x[()]))
    yield _of_atomics("atomic_cas", cas, DTYPES, SCALAR)


def _of_atomics(name: str, body: Body, dtypes: tuple[str, ...], shape: tuple[int, ...] = VECTOR) -> LoweringProbe:
    return LoweringProbe(name, "atomic", body, dtypes, (shape,), shape, only="gpu")


def _atomic(name: str, index: Any) -> Body:
    return lambda x, o: getattr(plt, f"atomic_{name}")(o, index, x[index])


_pallas = _in_group("pallas", FLOATS)
_of_references = _in_group("pallas", FLOAT32, output=VECTOR, grid=(2,))


def _pallas_probes() -> Iterator[LoweringProbe]:
    yield _of_references("program_id", _storing(lambda x: x[...] + pl.program_id(0).astype(x.dtype)))
    yield _of_references("num_programs", _storing(lambda x: x[...] + jnp.asarray(pl.num_programs(0)).astype(x.dtype)))
    yield _effect("debug_print", lambda x: pl.debug_print("here"))
    yield _effect("debug_print[value]", lambda x: pl.debug_print("x: ", x[...]), DTYPES)
    yield _effect("debug_print[placeholder]", lambda x: pl.debug_print("x: {}", x[...]))
    yield _effect("debug_print[jax]", lambda x: jax.debug.print("x: {}", x[...]))
    yield _effect("debug_check", lambda x: pl.debug_check(pl.program_id(0) >= 0, "here"))
    yield _effect("debug_callback", lambda x: jax.debug.callback(print, x[...]))
    yield _effect("debug_barrier", lambda x: plt.debug_barrier(), only="gpu")
    yield _effect("delay", lambda x: pl.delay(100))
    yield _of_references("run_scoped", _through_scratch(lambda x: pl.MemorySpace.ANY(x.shape, x.dtype)), only="gpu")
    yield _of_references("loop", _loop)
    yield _of_references("when", _when)
    multiple = _storing(lambda x, i: x[pl.ds(pl.multiple_of(i[()], 8), 8)], _HALF)
    yield _of_references("multiple_of", multiple, VECTOR, (SCALAR, "int32"))
    yield _of_references("max_contiguous", _storing(_max_contiguous), only="gpu")
    for kind, instruction, constraints in (("PTX", "mov.b32", "=r,r"), ("AMD", "v_mov_b32", "=v,v")):
        body = _assembly(f"{instruction} $0, $1;", constraints)
        yield _pallas(f"elementwise_inline_asm[{kind}]", body, dtypes=("float32", "int32"), only="gpu")
    yield _pallas("approx_tanh", lambda x: plt.approx_tanh(x), only="gpu")
    yield _pallas("reciprocal", lambda x: pl.reciprocal(x))
    yield _pallas("reciprocal[approx]", lambda x: pl.reciprocal(x, approx=True))


def _effect(
    name: str, effect: Callable[[Ref], object], dtypes: tuple[str, ...] = FLOAT32, only: str = ""
) -> LoweringProbe:
    def body(x: Ref, o: Ref) -> None:
        effect(x)
        _copy(x, o)

    return _of_references(name, body, dtypes=dtypes, only=only)


def _through_scratch(space: Callable[[Ref], Any]) -> Callable[[Ref, Ref], None]:
    """Returns a body that copies through memory in a space, which depends on the operand."""

    def body(x: Ref, o: Ref) -> None:
        def copy_through(scratch: Ref) -> None:
            scratch[...] = x[...]
            o[...] = scratch[...]

        pl.run_scoped(copy_through, space(x))

    return body


def _loop(x: Ref, o: Ref) -> None:
    def turn(i: Ref) -> None:
        o[i] = x[i]

    pl.loop(0, 4)(turn)


def _when(x: Ref, o: Ref) -> None:
    @pl.when(pl.program_id(0) == 0)
    def first() -> None:
        o[...] = x[...]


def _max_contiguous(x: Ref) -> Value:
    return x[plt.max_contiguous(jnp.arange(16, dtype=jnp.int32), 16)]


def _assembly(instruction: str, constraints: str) -> Callable[[Value], Value]:
    def body(x: Value) -> Value:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
        return plt.elementwise_inline_asm(
            instruction, args=[x], constraints=constraints, pack=1, result_shape_dtypes=shapes
        )

    return body


_tpu = _in_group("pallas.tpu", NUMBERS, only="tpu")
_tpu_references = _in_group("pallas.tpu", DTYPES, output=VECTOR, only="tpu")


def _tpus_probes() -> Iterator[LoweringProbe]:
    yield _tpu("roll", lambda x: pltpu.roll(x, 1, 0))
    yield _tpu("roll[lanes]", lambda x: pltpu.roll(x, 1, 1))
    yield _tpu("roll[strided]", lambda x: pltpu.roll(x, 1, 1, stride=1, stride_axis=0))
    for axis in (0, 1):
        gather = _take_along_axis(axis, "promise_in_bounds")
        yield _tpu(f"gather[in bounds, axis {axis}]", gather, VECTOR, (VECTOR, "int32"))
    yield _tpu("top_k[unstable]", lax_function("top_k", 4, is_stable=False), dtypes=FLOATS)
    yield _tpu("bitcast", lambda x: pltpu.bitcast(x, jnp.int32))
    yield _tpu("stochastic_round", _round, VECTOR, (VECTOR, "uint32"), dtypes=FLOAT32)
    yield _tpu("prng_random_bits", _draw, dtypes=("uint32",))
    yield _tpu_references("run_scoped[VMEM]", _through_scratch(lambda x: pltpu.VMEM(x.shape, x.dtype)))
    yield _tpu_references("async_copy", _async_copy)
    yield _tpu_references(
        "store[masked]", lambda x, m, o: pltpu.store(o, x[...], mask=m[...]), VECTOR, (VECTOR, "bool")
    )


def _round(x: Value, bits: Value) -> Value:
    return pltpu.stochastic_round(x, bits, target_dtype=jnp.bfloat16)


def _draw(x: Value) -> Value:
    pltpu.prng_seed(1)
    return lax.bitcast_convert_type(pltpu.prng_random_bits(x.shape), x.dtype)


def _async_copy(x: Ref, o: Ref) -> None:
    def copy(semaphore: Ref) -> None:
        description = pltpu.make_async_copy(x, o, semaphore)
        description.start()
        description.wait()

    pl.run_scoped(copy, pltpu.SemaphoreType.DMA)


_WIDE, _LONG = (64, 512), (4096,)
_TPU_DTYPES = tuple(dtype for dtype in DTYPES if "64" not in dtype)


def _blocks_probes() -> Iterator[LoweringProbe]:
    for rows in (1, 2, 4, 8, 16, 32):
        for columns in (32, 64, 128, 256, 512):
            yield _blocks(_WIDE, (rows, columns))
    for length in (64, 100, 128, 256, 512, 1000, 1024, 2048):
        yield _blocks(_LONG, (length,))


def _blocks(whole: tuple[int, ...], block: tuple[int, ...]) -> LoweringProbe:
    grid = tuple(-(-length // each) for length, each in zip(whole, block, strict=True))
    name = f"blocks[{'x'.join(map(str, block))} of {'x'.join(map(str, whole))}]"
    return LoweringProbe(name, "blocks", _copy, _TPU_DTYPES, (whole,), whole, grid, block, "tpu")


_GROUPS = (
    _elementwise_probes,
    _reductions_probes,
    _dots_probes,
    _indexing_probes,
    _casts_probes,
    _shapes_probes,
    _control_probes,
    _memory_probes,
    _pallas_probes,
    _random_probes,
    _tpus_probes,
    _blocks_probes,
)


def probes() -> tuple[LoweringProbe, ...]:
    """Returns all probes, in the order of the map."""
    return tuple(probe for group in _GROUPS for probe in group())
