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


def _tile(x_ref: Any, row: jax.Array, at: jax.Array, *, columns: int, softcap: float | None) -> jax.Array:
    """Logits of a row, capped; past its end there is -inf, which no softcap may touch."""
    inside = at < columns
    x = plgpu.load(x_ref.at[row, at], mask=inside, other=0).astype(jnp.float32)
    return jnp.where(inside, x if softcap is None else softcap * jnp.tanh(x / softcap), -jnp.inf)


def _shift(maximum: jax.Array) -> jax.Array:
    """What to subtract: 0 in place of a maximum that is infinite or NaN, since inf - inf would be NaN."""
    return jnp.where(jnp.abs(maximum) < jnp.inf, maximum, 0.0)


def _at_label(x: jax.Array, at: jax.Array, label: jax.Array) -> jax.Array:
    """The label's logit if it is among these, and 0 if not: picked, so that it has the same bits as in the sum."""
    return jnp.sum(jnp.where(at == label, x, 0.0))


def _row(x_ref: Any, labels_ref: Any, o_ref: Any, *, block: int, columns: int, softcap: float | None) -> None:
    row, at = pl.program_id(0), jnp.arange(block)
    x = _tile(x_ref, row, at, columns=columns, softcap=softcap)
    shift = _shift(jnp.max(x))
    total = jnp.sum(jnp.exp(x - shift))
    o_ref[row] = jnp.log(total) - (_at_label(x, at, labels_ref[row]) - shift)


def _row_of_tiles(x_ref: Any, labels_ref: Any, o_ref: Any, *, block: int, columns: int, softcap: float | None) -> None:
    row = pl.program_id(0)
    label = labels_ref[row]

    def step(tile: jax.Array, so_far: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """A greater maximum shrinks the sum so far. NaN may get lost in a maximum, never in a sum."""
        maximum, total, at_label = so_far
        at = tile * block + jnp.arange(block)
        x = _tile(x_ref, row, at, columns=columns, softcap=softcap)
        greater = jnp.maximum(maximum, jnp.max(x))
        shift = _shift(greater)
        total = total * jnp.exp(maximum - shift) + jnp.sum(jnp.exp(x - shift))
        return greater, total, at_label + _at_label(x, at, label)

    nothing = jnp.float32(-jnp.inf), jnp.float32(0.0), jnp.float32(0.0)
    maximum, total, at_label = jax.lax.fori_loop(0, pl.cdiv(columns, block), step, nothing)
    o_ref[row] = jnp.log(total) - (at_label - _shift(maximum))


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
