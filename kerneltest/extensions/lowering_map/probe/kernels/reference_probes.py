"""Probes of memory accesses and of Pallas' own functions."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from .base import (
    BITWISE,
    DTYPES,
    FLOAT32,
    FLOATS,
    NUMBERS,
    SCALAR,
    VECTOR,
    Body,
    LoweringProbe,
    Operand,
    Ref,
    Value,
    first_available,
)

_SCATTERS = {
    "scatter": "set",
    "scatter_add": "add",
    "scatter_mul": "multiply",
    "scatter_min": "min",
    "scatter_max": "max",
}


def indexing_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `indexing`."""
    indices, start = (VECTOR, "int32"), (SCALAR, "int32")
    yield _indexing("gather[take]", lambda x, i: jnp.take(x, _rows(i), axis=0, mode="clip"), (VECTOR, indices))
    yield _indexing("gather[take_along_axis]", _take_along_axis, (VECTOR, indices))
    for name, method in _SCATTERS.items():
        yield _indexing(name, _scatter(method), (VECTOR, indices, VECTOR), NUMBERS)
    yield _indexing("dynamic_slice", _dynamic_slice, (VECTOR, start))
    yield _indexing("dynamic_update_slice", _dynamic_update_slice, (VECTOR, (8,), start))
    yield _indexing("sort", lambda x: lax.sort(x), (VECTOR,))
    yield _indexing("sort[keys and values]", lambda x, v: lax.sort_key_val(x, v), (VECTOR, indices))
    yield _indexing("top_k", lambda x: lax.top_k(x, 4), (VECTOR,), NUMBERS)
    yield _indexing("approx_top_k", lambda x: lax.approx_max_k(x, 4), (VECTOR,), ("float32", "bfloat16"))


def _indexing(name: str, body: Body, operands: tuple[Operand, ...], dtypes: tuple[str, ...] = DTYPES) -> LoweringProbe:
    return LoweringProbe(name, "indexing", body, dtypes, operands)


def _rows(indices: Value) -> Value:
    """Returns a vector of indices; on TPUs, operands have two dimensions."""
    return indices if indices.ndim == 1 else indices[:, 0]


def _take_along_axis(x: Value, i: Value) -> Value:
    return jnp.take_along_axis(x, i, axis=0, mode="clip")


def _dynamic_slice(x: Value, i: Value) -> Value:
    return lax.dynamic_slice(x, (i, *(0,) * (x.ndim - 1)), (8, *x.shape[1:]))


def _dynamic_update_slice(x: Value, v: Value, i: Value) -> Value:
    return lax.dynamic_update_slice(x, v, (i, *(0,) * (x.ndim - 1)))


def _scatter(method: str) -> Body:
    return lambda x, i, v: getattr(x.at[_rows(i)], method)(v)


_WHOLE, _HALF = pl.ds(0, 16), pl.ds(0, 8)


def memory_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of groups `memory` and `atomic`."""
    mask = (VECTOR, "bool")
    yield _memory("get, swap[whole]", _copy)
    yield _memory("get[one element]", _get_element)
    yield _memory("get[dynamic slice]", _get_dynamic_slice, VECTOR, (SCALAR, "int32"))
    yield _memory("get[strided]", _get_strided)
    yield _memory("get[integer array]", _get_by_array, VECTOR, (VECTOR, "int32"))
    yield _memory("addupdate", _add_update((_WHOLE,)))
    yield _memory("addupdate[whole]", _add_update(...))
    yield _memory("swap", _swap)
    yield _memory("masked_load", _masked_load, VECTOR, mask, only="gpu")
    yield _memory("masked_load[other]", _masked_load_other, VECTOR, mask, only="gpu")
    yield _memory("masked_load[cache]", _hinted_load(cache_modifier=".cg"), only="gpu")
    yield _memory("masked_load[eviction]", _hinted_load(eviction_policy="evict_last"), only="gpu")
    yield _memory("masked_store", _masked_store, VECTOR, mask, only="gpu")

    for name in "add max min and or xor xchg".split():
        dtypes = BITWISE if name in ("and", "or", "xor") else DTYPES
        yield _of_atomics(f"atomic_{name}", _atomic(name, (_WHOLE,)), dtypes)
    yield _of_atomics("atomic_add[one element]", _atomic("add", (3,)), NUMBERS)
    yield _of_atomics("atomic_cas", _compare_and_swap, DTYPES, SCALAR)


def _memory(name: str, body: Body, *operands: Operand, only: str = "") -> LoweringProbe:
    return LoweringProbe(name, "memory", body, DTYPES, operands or (VECTOR,), VECTOR, only=only)


def _of_atomics(name: str, body: Body, dtypes: tuple[str, ...], shape: tuple[int, ...] = VECTOR) -> LoweringProbe:
    return LoweringProbe(name, "atomic", body, dtypes, (shape,), shape, only="gpu")


def _copy(x: Ref, o: Ref) -> None:
    o[...] = x[...]


def _get_element(x: Ref, o: Ref) -> None:
    o[...] = jnp.full(o.shape, x[(3,) * len(x.shape)])


def _get_dynamic_slice(x: Ref, i: Ref, o: Ref) -> None:
    o[_HALF] = x[pl.ds(i[()], 8)]


def _get_strided(x: Ref, o: Ref) -> None:
    o[_HALF] = x[pl.ds(0, 8, 2)]


def _get_by_array(x: Ref, i: Ref, o: Ref) -> None:
    o[...] = x[_rows(i[...])]


def _add_update(index: Any) -> Callable[[Ref, Ref], None]:
    def body(x: Ref, o: Ref) -> None:
        # Before JAX 0.7 it was not public; `o[index] += x` is a read and a write instead.
        first_available("jax.ref.addupdate", "jax._src.state.primitives.ref_addupdate")(o, index, x[...])

    return body


def _swap(x: Ref, o: Ref) -> None:
    first_available("jax.ref.swap", "pl.swap")(o, (_WHOLE,), x[...])


def _load(ref: Ref, index: Any, **options: Any) -> Value:
    """Calls `load`, which in old versions took the indices as a separate argument."""
    if hasattr(plt, "load"):
        return plt.load(ref.at[index], **options)
    return first_available("pl.load")(ref, index, **options)


def _masked_load(x: Ref, m: Ref, o: Ref) -> None:
    o[...] = _load(x, (_WHOLE,), mask=m[...])


def _masked_load_other(x: Ref, m: Ref, o: Ref) -> None:
    o[...] = _load(x, (_WHOLE,), mask=m[...], other=np.zeros((), x.dtype))


def _hinted_load(**hint: str) -> Callable[[Ref, Ref], None]:
    def body(x: Ref, o: Ref) -> None:
        o[...] = _load(x, (_WHOLE,), **hint)

    return body


def _masked_store(x: Ref, m: Ref, o: Ref) -> None:
    if hasattr(plt, "store"):
        plt.store(o.at[(_WHOLE,)], x[...], mask=m[...])
    else:  # old versions took the indices as a separate argument
        first_available("pl.store")(o, (_WHOLE,), x[...], mask=m[...])


def _atomic(name: str, index: Any) -> Callable[..., None]:
    def body(x: Ref, o: Ref) -> None:
        first_available(f"plt.atomic_{name}", f"pl.atomic_{name}")(o, index, x[index])

    return body


def _compare_and_swap(x: Ref, o: Ref) -> None:
    o[...] = first_available("plt.atomic_cas", "pl.atomic_cas")(x, x[()], x[()])


def pallas_probes() -> Iterator[LoweringProbe]:
    """Yields the probes of group `pallas`."""
    yield _of_references("program_id", _add_number("pl.program_id"))
    yield _of_references("num_programs", _add_number("pl.num_programs"))
    debug_print = "pl.debug_print"
    yield _effect("debug_print", lambda x: first_available(debug_print)("here"))
    yield _effect("debug_print[value]", lambda x: first_available(debug_print)("x: ", x[...]), DTYPES)
    yield _effect("debug_print[placeholder]", lambda x: first_available(debug_print)("x: {}", x[...]))
    yield _effect("debug_print[jax]", lambda x: jax.debug.print("x: {}", x[...]))
    yield _effect("debug_check", lambda x: first_available("pl.debug_check")(pl.program_id(0) >= 0, "here"))
    yield _effect("debug_callback", lambda x: jax.debug.callback(print, x[...]))
    yield _effect("debug_barrier", lambda x: first_available("plt.debug_barrier")(), only="gpu")
    yield _effect("delay", lambda x: first_available("pl.delay")(100))
    yield _of_references("run_scoped", _run_scoped, only="gpu")
    yield _of_references("loop", _loop)
    yield _of_references("when", _when)
    yield _of_references("multiple_of", _multiple_of, VECTOR, (SCALAR, "int32"))
    yield _of_references("max_contiguous", _max_contiguous, only="gpu")
    yield _of_values("elementwise_inline_asm[PTX]", _assembly("mov.b32 $0, $1;", "=r,r"), ("float32", "int32"), "gpu")
    yield _of_values("elementwise_inline_asm[AMD]", _assembly("v_mov_b32 $0, $1;", "=v,v"), ("float32", "int32"), "gpu")
    yield _of_values("approx_tanh", lambda x: first_available("plt.approx_tanh")(x), FLOATS, "gpu")
    yield _of_values("reciprocal", lambda x: first_available("pl.reciprocal")(x), FLOATS)
    yield _of_values("reciprocal[approx]", lambda x: first_available("pl.reciprocal")(x, approx=True), FLOATS)


def _of_values(name: str, body: Body, dtypes: tuple[str, ...], only: str = "") -> LoweringProbe:
    return LoweringProbe(name, "pallas", body, dtypes, (VECTOR,), only=only)


def _of_references(
    name: str, body: Body, *operands: Operand, dtypes: tuple[str, ...] = FLOAT32, only: str = ""
) -> LoweringProbe:
    return LoweringProbe(name, "pallas", body, dtypes, operands or (VECTOR,), VECTOR, (2,), only=only)


def _effect(
    name: str, effect: Callable[[Ref], object], dtypes: tuple[str, ...] = FLOAT32, only: str = ""
) -> LoweringProbe:
    def body(x: Ref, o: Ref) -> None:
        effect(x)
        o[...] = x[...]

    return _of_references(name, body, dtypes=dtypes, only=only)


def _add_number(path: str) -> Callable[..., None]:
    def body(x: Ref, o: Ref) -> None:
        o[...] = x[...] + jnp.asarray(first_available(path)(0)).astype(x.dtype)

    return body


def _run_scoped(x: Ref, o: Ref) -> None:
    def copy_through(scratch: Ref) -> None:
        scratch[...] = x[...]
        o[...] = scratch[...]

    space = pl.MemorySpace.ANY
    scratch = space(x.shape, x.dtype) if callable(space) else first_available("pl.MemoryRef")(x.shape, x.dtype, space)
    pl.run_scoped(copy_through, scratch)


def _loop(x: Ref, o: Ref) -> None:
    def turn(i: Ref) -> None:
        o[i] = x[i]

    first_available("pl.loop")(0, 4)(turn)


def _when(x: Ref, o: Ref) -> None:
    @pl.when(pl.program_id(0) == 0)
    def first() -> None:
        o[...] = x[...]


def _multiple_of(x: Ref, i: Ref, o: Ref) -> None:
    o[pl.ds(0, 8)] = x[pl.ds(pl.multiple_of(i[()], 8), 8)]


def _max_contiguous(x: Ref, o: Ref) -> None:
    hint = first_available("plt.max_contiguous", "pl.max_contiguous")
    o[...] = x[hint(jnp.arange(16, dtype=jnp.int32), 16)]


def _assembly(instruction: str, constraints: str) -> Callable[[Value], Value]:
    def body(x: Value) -> Value:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
        inline = first_available("plt.elementwise_inline_asm")
        return inline(instruction, args=[x], constraints=constraints, pack=1, result_shape_dtypes=shapes)

    return body
