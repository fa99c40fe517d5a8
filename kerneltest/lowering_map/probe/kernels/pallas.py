"""What Pallas adds to lax: programs, scratch memory, debugging, hints, inline assembly."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from .base import DTYPES, FLOAT32, FLOATS, SCALAR, VECTOR, Probe, first_available


def probes() -> Iterator[Probe]:
    """Of group `pallas`."""
    yield _of_references("program_id", _add_number("pl.program_id"))
    yield _of_references("num_programs", _add_number("pl.num_programs"))
    debug_print = "pl.debug_print"
    yield _effect("debug_print", lambda x: first_available(debug_print)("here"))
    yield _effect("debug_print[value]", lambda x: first_available(debug_print)("x: ", x[...]), DTYPES)
    yield _effect("debug_print[placeholder]", lambda x: first_available(debug_print)("x: {}", x[...]))
    yield _effect("debug_print[jax]", lambda x: jax.debug.print("x: {}", x[...]))
    yield _effect("debug_check", lambda x: first_available("pl.debug_check")(x[0] > 0, "positive"))
    yield _effect("debug_callback", lambda x: jax.debug.callback(print, x[...]))
    yield _effect("debug_barrier", lambda x: first_available("plt.debug_barrier")())
    yield _effect("delay", lambda x: first_available("pl.delay")(100))
    yield _of_references("run_scoped", _run_scoped)
    yield _of_references("loop", _loop)
    yield _of_references("when", _when)
    yield _of_references("multiple_of", _multiple_of, VECTOR, (SCALAR, "int32"))
    yield _of_references("max_contiguous", _max_contiguous)
    yield _of_values("elementwise_inline_asm[PTX]", _assembly("mov.b32 $0, $1;", "=r,r"), ("float32", "int32"))
    yield _of_values("elementwise_inline_asm[AMD]", _assembly("v_mov_b32 $0, $1;", "=v,v"), ("float32", "int32"))
    yield _of_values("approx_tanh", lambda x: first_available("plt.approx_tanh")(x), FLOATS)
    yield _of_values("reciprocal", lambda x: first_available("pl.reciprocal")(x), FLOATS)
    yield _of_values("reciprocal[approx]", lambda x: first_available("pl.reciprocal")(x, approx=True), FLOATS)


def _of_values(name: str, body: Callable[..., Any], dtypes: tuple[str, ...]) -> Probe:
    return Probe(name, "pallas", body, dtypes, (VECTOR,))


def _of_references(name: str, body: Callable[..., Any], *operands: Any, dtypes: tuple[str, ...] = FLOAT32) -> Probe:
    return Probe(name, "pallas", body, dtypes, operands or (VECTOR,), VECTOR, (2,))


def _effect(name: str, effect: Callable[[Any], Any], dtypes: tuple[str, ...] = FLOAT32) -> Probe:
    def body(x: Any, o: Any) -> None:
        effect(x)
        o[...] = x[...]

    return _of_references(name, body, dtypes=dtypes)


def _add_number(path: str) -> Callable[..., None]:
    def body(x: Any, o: Any) -> None:
        o[...] = x[...] + jnp.asarray(first_available(path)(0)).astype(x.dtype)

    return body


def _run_scoped(x: Any, o: Any) -> None:
    def copy_through(scratch: Any) -> None:
        scratch[...] = x[...]
        o[...] = scratch[...]

    space = pl.MemorySpace.ANY
    scratch = space(x.shape, x.dtype) if callable(space) else first_available("pl.MemoryRef")(x.shape, x.dtype, space)
    pl.run_scoped(copy_through, scratch)


def _loop(x: Any, o: Any) -> None:
    def turn(i: Any) -> None:
        o[i] = x[i]

    first_available("pl.loop")(0, 4)(turn)


def _when(x: Any, o: Any) -> None:
    @pl.when(pl.program_id(0) == 0)
    def first() -> None:
        o[...] = x[...]


def _multiple_of(x: Any, i: Any, o: Any) -> None:
    o[pl.ds(0, 8)] = x[pl.ds(pl.multiple_of(i[()], 8), 8)]


def _max_contiguous(x: Any, o: Any) -> None:
    hint = first_available("plt.max_contiguous", "pl.max_contiguous")
    o[...] = x[hint(jnp.arange(16, dtype=jnp.int32), 16)]


def _assembly(instruction: str, constraints: str) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
        inline = first_available("plt.elementwise_inline_asm")
        return inline(instruction, args=[x], constraints=constraints, pack=1, result_shape_dtypes=shapes)

    return body
