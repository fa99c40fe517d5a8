"""Small kernels from which `kerneltest init` is to tell dims, blocks and options."""

import time

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tests.late import end_limit

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


def listed(x: jax.Array) -> jax.Array:
    if x.shape[0] & (x.shape[0] - 1):
        raise ValueError("powers of two only")
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


def picked(table: jax.Array, which: jax.Array) -> jax.Array:
    def body(table_ref, which_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = table_ref[which_ref[0]]

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(table.shape[1:], table.dtype))(table, which)


def weighed(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    def body(w_ref, b_ref, x_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = x_ref[...] * w_ref[...] + b_ref[...]

    return pl.pallas_call(body, out_shape=x)(params["w"], params["b"], x)


def plain(x: jax.Array) -> jax.Array:
    return x + 1


def judged(logits: jax.Array, targets: jax.Array, *, reverse: bool = False, h0: jax.Array | None = None) -> jax.Array:
    """Rows of logits at their targets; it looks at no length of `targets`."""

    def body(x_ref, t_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = jnp.where(jnp.arange(x_ref.shape[1]) == t_ref[...], x_ref[0], 0).sum(axis=1)

    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(logits.shape[:1], logits.dtype),
        grid=logits.shape[:1],
        in_specs=[pl.BlockSpec((1, logits.shape[1]), lambda i: (i, 0)), pl.BlockSpec((1, 1), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
    )(logits, targets[:, None])


def noisy(x: jax.Array, key: jax.Array) -> jax.Array:
    return tailed(x + jax.random.bits(key, x.shape, jnp.uint32).astype(x.dtype))


def asking(x: jax.Array) -> jax.Array:
    """Asks for the TPU on which it runs."""
    from jax.experimental.pallas import tpu as pltpu

    size = 8 * pltpu.get_tpu_info().num_lanes
    return _copied(x, (pl.cdiv(x.shape[0], size),), (size,), lambda i: (i,))


def moved(x: jax.Array, y: jax.Array) -> jax.Array:
    """Each output is as long as its own input, but only `x` counts for the work."""

    def body(x_ref, y_ref, a_ref, b_ref):  # type: ignore[no-untyped-def]
        a_ref[...] = x_ref[...]
        b_ref[...] = y_ref[...]

    spec = pl.BlockSpec((BLOCK,), lambda i: (i,))
    grid = (pl.cdiv(x.shape[0], BLOCK),)
    return pl.pallas_call(body, out_shape=[x, y], grid=grid, in_specs=[spec] * 2, out_specs=[spec] * 2)(x, y)


def pair_of(x: jax.Array, points: jax.Array) -> jax.Array:
    """Reads two columns of `points`, whatever else it has."""
    return tailed(x + points[:, 0][: x.shape[0]].sum() + points[:, 1].sum())


TRACED = []


def tied(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Has twelve axes of the same length in a square example, of which three and three are tied, and three fixed."""
    TRACED.append(q.shape)
    if k.shape != v.shape or q.shape[::2] != k.shape[::2] or q.shape[3] != 16 or k.shape[3] != 16:
        raise ValueError("shapes")

    def body(q_ref, k_ref, v_ref, o_ref):  # type: ignore[no-untyped-def]
        o_ref[...] = q_ref[...] + k_ref[...].sum(axis=1, keepdims=True) + v_ref[...].sum(axis=1, keepdims=True)

    return pl.pallas_call(body, out_shape=q)(q, k, v)


TRIED = []


def slow(x: jax.Array) -> jax.Array:
    """Is traced at three other lengths within the limit, and at no fourth."""
    if x.shape != (100,):
        TRIED.append(x.shape)
    if len(TRIED) > 3:
        end_limit()
        time.sleep(9999)
    return tailed(x)
