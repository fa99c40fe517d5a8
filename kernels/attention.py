"""Causal attention, `softmax(mask(q kᵀ / sqrt(d))) v`: all keys in one block, or block by block with online softmax.

The last query sees all keys and each one before it sees one key fewer: query `i` sees key `j` where
`j <= i + sk - sq`. A query that sees no key (there are more queries than keys) yields zeros. Whatever a query does not
see has weight 0, and blocks past the diagonal are not skipped: as in the plain formula, an infinity or a NaN in `v`
reaches all queries, since 0 times it is NaN.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK_Q, BLOCK_K = 16, 32


def _dot(x: jax.Array, y: jax.Array, precision: str | None) -> jax.Array:
    return jnp.dot(x, y, precision=precision, preferred_element_type=jnp.float32)


def _rows(ref: Any, matrix: Any, start: Any, block: tuple[int, int], sizes: tuple[int, int]) -> tuple[Any, jax.Array]:
    """Where a block of rows of a matrix `(rows, d)` lies, and what of it is inside."""
    row, column = start + jnp.arange(block[0]), jnp.arange(block[1])
    inside = (row < sizes[0])[:, None] & (column < sizes[1])[None, :]
    return ref.at[matrix, row[:, None], column[None, :]], inside


def _load(ref: Any, matrix: Any, start: Any, block: tuple[int, int], sizes: tuple[int, int]) -> jax.Array:
    at, inside = _rows(ref, matrix, start, block, sizes)
    return plgpu.load(at, mask=inside, other=0)


def _store(ref: Any, matrix: Any, start: Any, value: jax.Array, sizes: tuple[int, int]) -> None:
    at, inside = _rows(ref, matrix, start, value.shape, sizes)
    plgpu.store(at, value.astype(ref.dtype), mask=inside)


def _scores(
    q: jax.Array, k: jax.Array, starts: tuple[Any, Any], *, sizes: tuple[int, int, int], precision: str | None
) -> jax.Array:
    """`q kᵀ / sqrt(d)` in float32, -inf where a query does not see a key."""
    sq, sk, d = sizes
    scores = _dot(q, k.T, precision) * (1 / math.sqrt(d))
    row, column = starts[0] + jnp.arange(q.shape[0]), starts[1] + jnp.arange(k.shape[0])
    seen = (column[None, :] <= row[:, None] + (sk - sq)) & (column < sk)[None, :]
    return jnp.where(seen, scores, -jnp.inf)


def _shift(maximum: jax.Array) -> jax.Array:
    """What to subtract: a maximum of -inf would turn `x - maximum` into NaN, so 0 takes its place."""
    return jnp.where(maximum == -jnp.inf, 0.0, maximum)


def _divide(x: jax.Array, total: jax.Array) -> jax.Array:
    return x / jnp.where(total == 0.0, 1.0, total)[:, None]


def _one_block(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    o_ref: Any,
    *,
    sizes: tuple[int, int, int],
    block: tuple[int, int, int],
    precision: str | None,
) -> None:
    sq, sk, d = sizes
    block_q, block_k, block_d = block
    matrix = pl.program_id(0)
    q = _load(q_ref, matrix, 0, (block_q, block_d), (sq, d))
    k = _load(k_ref, matrix, 0, (block_k, block_d), (sk, d))
    v = _load(v_ref, matrix, 0, (block_k, block_d), (sk, d))
    scores = _scores(q, k, (0, 0), sizes=sizes, precision=precision)
    e = jnp.exp(scores - _shift(jnp.max(scores, axis=1))[:, None])
    weights = _divide(e, jnp.sum(e, axis=1))
    _store(o_ref, matrix, 0, _dot(weights.astype(v.dtype), v, precision), (sq, d))


def _online(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    o_ref: Any,
    *,
    sizes: tuple[int, int, int],
    block: tuple[int, int, int],
    precision: str | None,
) -> None:
    sq, sk, d = sizes
    block_q, block_k, block_d = block
    matrix, start_q = pl.program_id(0), pl.program_id(1) * block_q
    q = _load(q_ref, matrix, start_q, (block_q, block_d), (sq, d))

    def step(i: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        maximum, total, accumulator = carry
        start_k = i * block_k
        k = _load(k_ref, matrix, start_k, (block_k, block_d), (sk, d))
        v = _load(v_ref, matrix, start_k, (block_k, block_d), (sk, d))
        scores = _scores(q, k, (start_q, start_k), sizes=sizes, precision=precision)
        larger = jnp.maximum(maximum, jnp.max(scores, axis=1))
        shift = _shift(larger)
        rescale = jnp.exp(maximum - shift)
        e = jnp.exp(scores - shift[:, None])
        total = total * rescale + jnp.sum(e, axis=1)
        accumulator = accumulator * rescale[:, None] + _dot(e.astype(v.dtype), v, precision)
        return larger, total, accumulator

    start = (
        jnp.full(block_q, -jnp.inf, jnp.float32),
        jnp.zeros(block_q, jnp.float32),
        jnp.zeros((block_q, block_d), jnp.float32),
    )
    _, total, accumulator = jax.lax.fori_loop(0, pl.cdiv(sk, block_k), step, start)
    _store(o_ref, matrix, start_q, _divide(accumulator, total), (sq, d))


def _padded(length: int) -> int:
    """The least length of a block for products that holds `length`."""
    return max(pl.next_power_of_2(length), 16)


def _call(
    body: Any, q: jax.Array, k: jax.Array, v: jax.Array, block_q: int, block_k: int, precision: str | None
) -> jax.Array:
    """One program for each matrix and each block of queries; leading axes become one."""
    (sq, d), sk = q.shape[-2:], k.shape[-2]
    batch = math.prod(q.shape[:-2])
    out = pl.pallas_call(
        functools.partial(body, sizes=(sq, sk, d), block=(block_q, block_k, _padded(d)), precision=precision),
        grid=(batch, pl.cdiv(sq, block_q)),
        out_shape=jax.ShapeDtypeStruct((batch, sq, d), q.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(q.reshape(batch, sq, d), k.reshape(batch, sk, d), v.reshape(batch, sk, d))
    return out.reshape(q.shape)


def causal_attention(q: jax.Array, k: jax.Array, v: jax.Array, *, precision: str | None = None) -> jax.Array:
    """Causal attention by one program for each matrix, which holds all queries and keys at once.

    Scores and softmax are computed in float32; the weights are rounded to the inputs' dtype for the second product.

    Args:
      q: `(..., sq, d)`, floating point, with any leading axes (batch, heads), and any lengths from 1.
      k, v: `(..., sk, d)` of the same dtype and leading axes. Scores must be finite in float32.
      precision: of float32 products, as for `jnp.dot`; `None` lets a GPU use TF32.
    """
    return _call(_one_block, q, k, v, _padded(q.shape[-2]), _padded(k.shape[-2]), precision)


def causal_attention_online(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    precision: str | None = None,
    block: tuple[int, int] = (BLOCK_Q, BLOCK_K),
) -> jax.Array:
    """The same by online softmax: one program for each block of queries goes over the blocks of keys.

    It keeps each query's largest score so far, the sum of exponentials and the weighted sum of `v`, all in float32,
    and scales the latter two down when a block brings a larger score.

    Args:
      q, k, v, precision: as for `causal_attention`; exponentials are rounded to the inputs' dtype for the product.
      block: lengths of the blocks of queries and of keys: powers of two, at least 16.
    """
    return _call(_online, q, k, v, *block, precision)
