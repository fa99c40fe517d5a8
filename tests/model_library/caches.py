"""Keys and values that decoding keeps, written in place."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from tests.model_library.config import CacheConfig


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """What decoding keeps: `entries` (batch, capacity, d), and how many of them count, `used` (batch,) of int32."""

    entries: jax.Array
    used: jax.Array


def _body(new_ref: Any, used_ref: Any, entries_ref: Any, out_ref: Any, *, ring: bool) -> None:
    capacity = entries_ref.shape[1]
    used = used_ref[0]
    at = jax.lax.rem(used, capacity) if ring else jnp.minimum(used, capacity - 1)
    row = jax.lax.broadcasted_iota(jnp.int32, entries_ref.shape, 1)
    written = (row == at) & (ring | (used < capacity))
    out_ref[...] = jnp.where(written, new_ref[...][:, None, :], entries_ref[...])


@functools.partial(jax.jit, static_argnames="config", donate_argnames="cache")
def append(cache: Cache, new: jax.Array, config: CacheConfig) -> Cache:
    """The cache with one more entry for each sequence; the old one is given up.

    Args:
      cache: to write to; `used` may exceed the capacity of a ring.
      new: the entries, (batch, d).
      config: what happens where it is full.
    """
    batch, capacity, d = cache.entries.shape
    of_sequence = pl.BlockSpec((1, capacity, d), lambda b: (b, 0, 0))
    entries = pl.pallas_call(
        functools.partial(_body, ring=config.ring),
        grid=(batch,),
        in_specs=[pl.BlockSpec((1, d), lambda b: (b, 0)), pl.BlockSpec((1,), lambda b: (b,)), of_sequence],
        out_specs=of_sequence,
        out_shape=jax.ShapeDtypeStruct(cache.entries.shape, cache.entries.dtype),
        input_output_aliases={2: 0},
    )(new, cache.used, cache.entries)
    return Cache(entries, cache.used + 1)
