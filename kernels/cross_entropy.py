"""Cross-entropy of rows of logits with one label each: `logsumexp(row) - row[label]`, in float32.

With a softcap `c` the logits are `c tanh(x / c)`. A logit of -inf has probability 0, so a label there costs inf.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK = 32


def _capped(x: jax.Array, softcap: float | None) -> jax.Array:
    x = x.astype(jnp.float32)
    return x if softcap is None else softcap * jnp.tanh(x / softcap)


def _tile(x_ref: Any, tile: Any, *, block: int, columns: int, softcap: float | None) -> jax.Array:
    """A tile of this program's row; past the end it has -inf, which no softcap may touch."""
    at = tile * block + jnp.arange(block)
    x = plgpu.load(x_ref.at[pl.program_id(0), pl.ds(tile * block, block)], mask=at < columns, other=0)
    return jnp.where(at < columns, _capped(x, softcap), -jnp.inf)


def _shift(maximum: jax.Array) -> jax.Array:
    """What to subtract: 0 in place of a maximum that is infinite or NaN, since inf - inf would be NaN."""
    return jnp.where(jnp.abs(maximum) < jnp.inf, maximum, 0.0)


def _store_loss(
    x_ref: Any, labels_ref: Any, o_ref: Any, shift: jax.Array, total: jax.Array, softcap: float | None
) -> None:
    """The shift is taken from the label's logit before its size can drown the logarithm."""
    row = pl.program_id(0)
    label = _capped(x_ref[row, labels_ref[row]], softcap)
    o_ref[row] = jnp.log(total) - (label - shift)


def _row(x_ref: Any, labels_ref: Any, o_ref: Any, *, block: int, columns: int, softcap: float | None) -> None:
    x = _tile(x_ref, 0, block=block, columns=columns, softcap=softcap)
    shift = _shift(jnp.max(x))
    _store_loss(x_ref, labels_ref, o_ref, shift, jnp.sum(jnp.exp(x - shift)), softcap)


def _row_of_tiles(x_ref: Any, labels_ref: Any, o_ref: Any, *, block: int, columns: int, softcap: float | None) -> None:
    def step(tile: jax.Array, so_far: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """A greater maximum shrinks the sum so far. NaN may get lost in a maximum, never in a sum."""
        maximum, total = so_far
        x = _tile(x_ref, tile, block=block, columns=columns, softcap=softcap)
        greater = jnp.maximum(maximum, jnp.max(x))
        shift = _shift(greater)
        return greater, total * jnp.exp(_shift(maximum) - shift) + jnp.sum(jnp.exp(x - shift))

    nothing = jnp.float32(-jnp.inf), jnp.float32(0.0)
    maximum, total = jax.lax.fori_loop(0, pl.cdiv(columns, block), step, nothing)
    _store_loss(x_ref, labels_ref, o_ref, _shift(maximum), total, softcap)


def cross_entropy(logits: jax.Array, labels: jax.Array, *, softcap: float | None = None) -> jax.Array:
    """The loss of each row of `(m, n)`, a float32 `(m,)`, by one program a row that holds all of it; any `n > 0`.

    Args:
      logits: `(m, n)`, floating point.
      labels: `(m,)`, integers from 0 to `n - 1`.
      softcap: the bound that `c tanh(x / c)` puts on the logits; None for none.
    """
    return _losses(_row, logits, labels, pl.next_power_of_2(logits.shape[1]), softcap)


def cross_entropy_tiled(
    logits: jax.Array, labels: jax.Array, *, softcap: float | None = None, block: int = BLOCK
) -> jax.Array:
    """The same by one program a row that keeps a running maximum and sum over tiles of `block` logits."""
    return _losses(_row_of_tiles, logits, labels, block, softcap)


def _losses(body: Any, logits: jax.Array, labels: jax.Array, block: int, softcap: float | None) -> jax.Array:
    m, n = logits.shape
    return pl.pallas_call(
        functools.partial(body, block=block, columns=n, softcap=softcap),
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct((m,), jnp.float32),
        compiler_params=plgpu.CompilerParams(),
    )(logits, labels)
