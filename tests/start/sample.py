"""Small kernels from which `kerneltest init` is to tell dims, blocks and options."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

BLOCK = 32


def _copied(x, grid, block, index_map):  # type: ignore[no-untyped-def]
    def body(x_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec(block, index_map)
    return pl.pallas_call(body, out_shape=x, grid=grid, in_specs=[spec], out_specs=spec)(x)


def tailed(x: jax.Array) -> jax.Array:
    (length,) = x.shape
    return _copied(x, (pl.cdiv(length, BLOCK),), (BLOCK,), lambda i: (i,))


def floored(x: jax.Array) -> jax.Array:
    return _copied(x, (x.shape[0] // BLOCK,), (BLOCK,), lambda i: (i,))


def whole(x: jax.Array) -> jax.Array:
    if x.shape[0] % BLOCK:
        raise ValueError("whole blocks alone")
    return floored(x)


def capped(x: jax.Array) -> jax.Array:
    if x.shape[0] > 64:
        raise ValueError("at most 64")
    return tailed(x)


def added(x: jax.Array, y: jax.Array) -> jax.Array:
    """Nothing asks how long `y` is: only their block specs say that the two belong together."""

    def body(x_ref, y_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = x_ref[...] + y_ref[...]

    spec = pl.BlockSpec((BLOCK,), lambda i: (i,))
    grid = (pl.cdiv(x.shape[0], BLOCK),)
    return pl.pallas_call(body, out_shape=x, grid=grid, in_specs=[spec, spec], out_specs=spec)(x, y)


def rows(x: jax.Array) -> jax.Array:
    return _copied(x, (x.shape[0],), (1, x.shape[1]), lambda i: (i, 0))


def large(x: jax.Array) -> jax.Array:
    if x.shape[0] < 64 or x.shape[0] % 16:
        raise ValueError("from 64 on")
    return _copied(x, (x.shape[0] // 16,), (16,), lambda i: (i,))


def product(x: jax.Array, y: jax.Array) -> jax.Array:
    def body(x_ref, y_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = x_ref[...] @ y_ref[...]

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype))(x, y)


def doubled(x: jax.Array, *, twice: bool = True, block: int = 32) -> jax.Array:
    """The output is twice as long."""
    return jnp.concatenate([tailed(x), tailed(x)]) if twice else tailed(x)


def counted(n: int) -> jax.Array:
    def body(o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = jnp.arange(n, dtype=jnp.int32)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((n,), jnp.int32))()


def grouped(x: jax.Array, w: jax.Array) -> jax.Array:
    """The axis of `x` is a multiple of that of `w`, which no pairing can say yet."""
    if x.shape[0] % w.shape[0]:
        raise ValueError("groups")

    def body(x_ref, w_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = x_ref[...] * jnp.repeat(w_ref[...], x.shape[0] // w.shape[0])

    return pl.pallas_call(body, out_shape=x)(x, w)


def picked(table: jax.Array, at: jax.Array) -> jax.Array:
    def body(table_ref, at_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = table_ref[at_ref[0]]

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(table.shape[1:], table.dtype))(table, at)


def weighed(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    def body(w_ref, b_ref, x_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = x_ref[...] * w_ref[...] + b_ref[...]

    return pl.pallas_call(body, out_shape=x)(params["w"], params["b"], x)


def plain(x: jax.Array) -> jax.Array:
    return x + 1
