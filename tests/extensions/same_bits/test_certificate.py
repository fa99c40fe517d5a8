"""Claims of `invariant_to=` about bits: what holds is certified, and what does not is shown by values."""

import functools
import linecache
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item, run_single_case
from kerneltest.execute.settings import RunSettings
from kerneltest.execute.verdict_key import verdict_key
from kerneltest.extensions.same_bits import group, ways
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.records.schema import Record
from kerneltest.reproduce.rerun import record_signature
from kerneltest.trace.tracing import Traced
from suites import test_pipeline_copy as pipelines

_COLUMNS = 64


def _by_row(body: Callable[..., None], x: Any, *more: Any, columns: int = 1) -> Any:
    # One program a row, which sees its row and all of `more`.
    row = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    whole = [pl.BlockSpec(m.shape, lambda i, rank=m.ndim: (0,) * rank) for m in more]
    out = pl.BlockSpec((1, columns), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((x.shape[0], columns), x.dtype)
    call = pl.pallas_call(body, shape, grid=(x.shape[0],), in_specs=[row, *whole], out_specs=out)
    return call(x, *more)


def _parts(x: Any, parts: int) -> Any:
    # The sum of a row, in so many parts.
    total = jnp.zeros((), x.dtype)
    for part in jnp.split(x.reshape(-1), parts):
        total = total + part.sum()
    return total


def _sum_in(parts: Callable[[int], int]) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        count = parts(x.shape[0])

        def body(x_ref: Any, out_ref: Any) -> None:
            out_ref[0, 0] = _parts(x_ref[...], count)

        return _by_row(body, x)

    return kernel


def _row_by_row(of_row: Callable[[Any, int, Any], Any], columns: int = 1) -> Callable[[Any], Any]:
    # `of_row` gets a row, the length of the batch and the number of the row.
    def kernel(x: Any) -> Any:
        def body(x_ref: Any, out_ref: Any) -> None:
            out_ref[...] = jnp.reshape(of_row(x_ref[...], x.shape[0], pl.program_id(0)), (1, columns))

        return _by_row(body, x, columns=columns)

    return kernel


def _norm(row: Any) -> Any:
    return jax.lax.rsqrt((row * row).sum())


def _pairs_scaled(x: Any) -> Any:
    # Softmax of each row, less the maximum of it and its neighbour.
    def body(x_ref: Any, all_ref: Any, out_ref: Any) -> None:
        row = pl.program_id(0)
        other = jnp.minimum(row + 1 - 2 * (row % 2), x.shape[0] - 1)
        e = jnp.exp(x_ref[...] - jnp.maximum(x_ref[...].max(), all_ref[pl.ds(other, 1), :].max()))
        out_ref[...] = e / e.sum()

    return _by_row(body, x, x, columns=x.shape[1])


def _chained(x: Any) -> Any:
    # Each program adds what the one before it wrote.
    def body(x_ref: Any, start_ref: Any, out_ref: Any) -> None:
        row = pl.program_id(0)
        out_ref[pl.ds(row, 1), :] = x_ref[...] + 0.5 * out_ref[pl.ds(jnp.maximum(row - 1, 0), 1), :]

    row, whole = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec(x.shape, lambda i: (0, 0))
    return pl.pallas_call(
        body, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(x.shape[0],), in_specs=[row, whole], out_specs=whole,
        input_output_aliases={1: 0},
    )(x, jnp.zeros_like(x))  # fmt: skip


def _overlapping(x: Any) -> Any:
    # Two programs write each row, the second one by another order of the sum.
    def body(x_ref: Any, start_ref: Any, out_ref: Any) -> None:
        i = pl.program_id(0)
        row, halves = i // 2, i % 2
        part = x_ref[pl.ds(row, 1), :]
        out_ref[row, 0] = jnp.where(halves == 1, _parts(part, 2), part.sum())

    whole, out = pl.BlockSpec(x.shape, lambda i: (0, 0)), pl.BlockSpec((x.shape[0], 1), lambda i: (0, 0))
    return pl.pallas_call(
        body, jax.ShapeDtypeStruct((x.shape[0], 1), x.dtype), grid=(2 * x.shape[0],), in_specs=[whole, out],
        out_specs=out, input_output_aliases={1: 0},
    )(x, jnp.zeros((x.shape[0], 1), x.dtype))  # fmt: skip


def _merged_means(x: Any) -> Any:
    # A mean so far, to which each program adds its row.
    def body(x_ref: Any, start_ref: Any, out_ref: Any) -> None:
        count, mean = out_ref[0, 0], out_ref[0, 1]
        out_ref[0, 0] = count + x.shape[1]
        out_ref[0, 1] = mean + (x_ref[...] - mean).sum() / (count + x.shape[1])

    row, whole = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec((1, 2), lambda i: (0, 0))
    return pl.pallas_call(
        body, jax.ShapeDtypeStruct((1, 2), x.dtype), grid=(x.shape[0],), in_specs=[row, whole], out_specs=whole,
        input_output_aliases={1: 0},
    )(x, jnp.zeros((1, 2), x.dtype))  # fmt: skip


def _matmul(tile: Callable[[int], int]) -> Callable[[Any, Any], Any]:
    def kernel(x: Any, y: Any) -> Any:
        rows, depth = tile(x.shape[0]), x.shape[1]

        def body(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
            out_ref[...] = jnp.dot(x_ref[...], y_ref[...], precision="highest")

        specs = [pl.BlockSpec((rows, depth), lambda i: (i, 0)), pl.BlockSpec(y.shape, lambda i: (0, 0))]
        return pl.pallas_call(
            body, jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype), grid=(pl.cdiv(x.shape[0], rows),),
            in_specs=specs, out_specs=pl.BlockSpec((rows, y.shape[1]), lambda i: (i, 0)),
        )(x, y)  # fmt: skip

    return kernel


def _split_matmul(apart: bool) -> Callable[[Any, Any], Any]:
    # Rows of a small batch are split along the depth; the parts are summed `apart`, or each from the sum before it.
    return lambda x, y: _split(x, y, apart, 2 if x.shape[0] < 4 else 1)


def _split(x: Any, y: Any, apart: bool, parts: int) -> Any:
    deep = x.shape[1] // parts

    def body(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        total = jnp.zeros(out_ref.shape, out_ref.dtype)
        for part in range(parts):
            at = pl.ds(part * deep, deep)
            product = jnp.dot(x_ref[:, at], y_ref[at, :], precision="highest")
            total = total + (product * 1.0 if apart else product)
        out_ref[...] = total

    specs = [pl.BlockSpec((16, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec(y.shape, lambda i: (0, 0))]
    return pl.pallas_call(
        body, jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype), grid=(pl.cdiv(x.shape[0], 16),),
        in_specs=specs, out_specs=pl.BlockSpec((16, y.shape[1]), lambda i: (i, 0)),
    )(x, y)  # fmt: skip


def _scaled_by_batch(x: Any) -> Any:
    # Exact in real numbers, whatever the largest element of the batch is.
    def body(x_ref: Any, all_ref: Any, out_ref: Any) -> None:
        largest = jnp.max(jnp.abs(all_ref[...]))
        out_ref[0, 0] = (x_ref[...] / largest).sum() * largest

    return _by_row(body, x, x)


def _softmax(x: Any) -> Any:
    def body(x_ref: Any, out_ref: Any) -> None:
        e = jnp.exp(x_ref[...] - x_ref[...].max())
        out_ref[...] = e / e.sum()

    return _by_row(body, x, columns=x.shape[1])


def _differentiable(parts: Callable[[int], int]) -> Callable[[Any], Any]:
    # Softmax, whose gradient sums each row in so many parts.
    @jax.custom_vjp
    def softmax(x: Any) -> Any:
        return _softmax(x)

    def pull(y: Any, weights: Any) -> tuple[Any]:
        count = parts(y.shape[0])

        def body(y_ref: Any, weights_ref: Any, out_ref: Any) -> None:
            row, given = y_ref[...], weights_ref[pl.ds(pl.program_id(0), 1), :]
            out_ref[...] = row * (given - _parts(row * given, count))

        return (_by_row(body, y, weights, columns=y.shape[1]),)

    softmax.defvjp(lambda x: (y := _softmax(x), y), pull)
    return lambda x: softmax(x)


def _softmax_oracle(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _row_sums(x: Any) -> Any:
    return x.sum(1, keepdims=True)


def _accumulated(x: Any) -> Any:
    # All programs add to one element.
    def body(x_ref: Any, out_ref: Any) -> None:
        out_ref[0, 0] += x_ref[...].sum()

    row = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct((1, 1), x.dtype)
    spec, zeros = pl.BlockSpec((1, 1), lambda i: (0, 0)), jnp.zeros((1, 1), x.dtype)

    def add(x_ref: Any, start_ref: Any, out_ref: Any) -> None:
        body(x_ref, out_ref)

    return pl.pallas_call(
        add, out, grid=(x.shape[0],), in_specs=[row, spec], out_specs=spec, input_output_aliases={1: 0}
    )(x, zeros)


def _largest(x: Any) -> Any:
    # All programs take the maximum with one element, which is exact in any order.
    def body(x_ref: Any, start_ref: Any, out_ref: Any) -> None:
        out_ref[0, 0] = jnp.maximum(out_ref[0, 0], x_ref[...].max())

    row, spec = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec((1, 1), lambda i: (0, 0))
    start = jnp.full((1, 1), -jnp.inf, x.dtype)
    out = jax.ShapeDtypeStruct((1, 1), x.dtype)
    return pl.pallas_call(
        body, out, grid=(x.shape[0],), in_specs=[row, spec], out_specs=spec, input_output_aliases={1: 0}
    )(x, start)


def _tuned(x: Any, block: int) -> Any:
    return _row_by_row(lambda row, m, i: _parts(row, x.shape[1] // block))(x)


def _tuned_width(x: Any, block: int) -> Any:
    return _row_by_row(lambda row, m, i: (row if block == 16 else row.astype(jnp.bfloat16)).astype(x.dtype).sum())(x)


def _tuned_rows(x: Any, block: int) -> Any:
    # So many rows a program; each is summed by itself.
    def body(x_ref: Any, out_ref: Any) -> None:
        for row in range(block):
            out_ref[row, 0] = x_ref[pl.ds(row, 1), :].sum()

    specs = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec((block, 1), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((x.shape[0], 1), x.dtype)
    return pl.pallas_call(body, shape, grid=(pl.cdiv(x.shape[0], block),), in_specs=specs[:1], out_specs=specs[1])(x)


def _moved(x: Any, block: int) -> Any:
    # Twice each element, in blocks of any length.
    def body(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((1, block), lambda i, j: (i, j))
    grid = (x.shape[0], x.shape[1] // block)
    return pl.pallas_call(body, jax.ShapeDtypeStruct(x.shape, x.dtype), grid=grid, in_specs=[spec], out_specs=spec)(x)


def _masked_sum(x: Any, lengths: Any, *, block: Callable[[int], int], fill: float = 0.0) -> Any:
    # The sum of the first elements of each row, block by block.
    size = block(x.shape[1])

    def body(x_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        count = lengths_ref[pl.program_id(0)]
        total = jnp.zeros((), x.dtype)
        for start in range(0, x.shape[1], size):
            at = start + jnp.arange(size)
            total = total + jnp.where(at < count, x_ref[0, pl.ds(start, size)], fill).sum()
        out_ref[0, 0] = total

    return _by_row(body, x, lengths)


def _masked_halves(x: Any, lengths: Any) -> Any:
    # Two halves of the blocks, each of which is summed by itself.
    def body(x_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        count = lengths_ref[pl.program_id(0)]
        sums = [
            jnp.where(start + jnp.arange(16) < count, x_ref[0, pl.ds(start, 16)], 0).sum()
            for start in range(0, x.shape[1], 16)
        ]
        middle = len(sums) // 2
        out_ref[0, 0] = sum(sums[:middle], jnp.zeros((), x.dtype)) + sum(sums[middle:], jnp.zeros((), x.dtype))

    return _by_row(body, x, lengths)


def _masked_whole(x: Any, lengths: Any) -> Any:
    # One sum, of a tile as long as the row.
    def body(x_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        count = lengths_ref[pl.program_id(0)]
        out_ref[0, 0] = jnp.where(jnp.arange(x.shape[1]) < count, x_ref[0, :], 0).sum()

    return _by_row(body, x, lengths)


def _masked_product(x: Any, lengths: Any) -> Any:
    # Masked by a product, from the last block to the first.
    def body(x_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        count, total = lengths_ref[pl.program_id(0)], jnp.zeros((), x.dtype)
        for start in reversed(range(0, x.shape[1], 16)):
            total += (x_ref[0, pl.ds(start, 16)] * (start + jnp.arange(16) < count)).sum()
        out_ref[0, 0] = total

    return _by_row(body, x, lengths)


def _masked_softmax(x: Any, lengths: Any, *, fill: float) -> Any:
    # The sum of the first elements of each row, weighted by their exponentials, with the maximum so far.
    def body(x_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        count = lengths_ref[pl.program_id(0)]
        largest, total, weights = jnp.full((), fill, x.dtype), jnp.zeros((), x.dtype), jnp.zeros((), x.dtype)
        for start in range(0, x.shape[1], 16):
            part = x_ref[0, pl.ds(start, 16)]
            is_in = start + jnp.arange(16) < count
            part = jnp.where(is_in, part, fill)
            new = jnp.maximum(largest, part.max())
            scale, e = jnp.exp(largest - new), jnp.where(is_in, jnp.exp(part - new), 0)
            total, weights = total * scale + (e * jnp.where(is_in, part, 0)).sum(), weights * scale + e.sum()
            largest = new
        out_ref[0, 0] = jnp.where(weights > 0, total / jnp.where(weights > 0, weights, 1), 0)

    return _by_row(body, x, lengths)


Blocks = list[tuple[int, int]]  # from one key to another
_KEYS = 2  # of a block
_LONGEST = 2 * _KEYS + 1


def _causal(groups: Callable[[int, int], list[Blocks]]) -> Callable[[Any, Any, Any], Any]:
    # Attention of the last positions of a sequence. Each group of blocks of keys has its own statistics.
    def kernel(q: Any, k: Any, v: Any) -> Any:
        rows, keys = q.shape[0], k.shape[0]

        def body(q_ref: Any, k_ref: Any, v_ref: Any, out_ref: Any) -> None:
            parts = []
            for blocks in groups(rows, keys):
                largest, total, weights = jnp.full((), -1e30, q.dtype), jnp.zeros(v.shape[1], q.dtype), jnp.zeros(())
                for start, end in blocks:
                    key = start + jnp.arange(_KEYS)
                    seen = (key <= keys - rows + pl.program_id(0)) & (key < end)
                    scores = jnp.where(seen, (k_ref[pl.ds(start, _KEYS), :] * q_ref[...]).sum(1), -1e30)
                    new = jnp.maximum(largest, scores.max())
                    scale, e = jnp.exp(largest - new), jnp.where(seen, jnp.exp(scores - new), 0)
                    total = total * scale + (e[:, None] * v_ref[pl.ds(start, _KEYS), :]).sum(0)
                    weights, largest = weights * scale + e.sum(), new
                parts.append((largest, total, weights))
            largest = functools.reduce(jnp.maximum, [part[0] for part in parts])
            total, weights = (sum(jnp.exp(part[0] - largest) * part[i] for part in parts) for i in (1, 2))
            out_ref[...] = (total / weights)[None]

        padding = (0, _KEYS), (0, 0)
        return _by_row(body, q, jnp.pad(k, padding), jnp.pad(v, padding), columns=v.shape[1])

    return kernel


def _blocks(first: int, last: int) -> Blocks:
    return [(start, min(start + _KEYS, last)) for start in range(first, last, _KEYS)]


def _causal_oracle(q: Any, k: Any, v: Any) -> Any:
    rows, keys = len(q), len(k)
    scores = np.where(np.arange(keys) <= keys - rows + np.arange(rows)[:, None], q @ k.T, -np.inf)
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ v


def _masked_oracle(x: Any, lengths: Any) -> Any:
    return np.where(np.arange(x.shape[1]) < lengths[:, None], x, 0).sum(1, keepdims=True)


def _masked_softmax_oracle(x: Any, lengths: Any) -> Any:
    rows = [(row[:n], np.exp(row[:n] - row[:n].max(initial=-np.inf))) for row, n in zip(x, lengths, strict=True)]
    return np.array([[(row * e).sum() / e.sum() if len(row) else 0.0] for row, e in rows])


_X = {"x": kt.array("m n", "float32")}
_ROWS = {"m": kt.dim(maximum=9), "n": kt.dim(values=(_COLUMNS,))}
_BATCH = {**_X, "dims": _ROWS, "batch_dims": "m", "invariant_to": "batch"}
_GRID = {**_X, "dims": {**_ROWS, "m": kt.dim(values=(3, 4))}, "invariant_to": "grid"}
_GRADIENT = {**_BATCH, "grad": True}
_BLOCK = {**_X, "block": kt.static(16, 32), "dims": {**_ROWS, "m": kt.dim(values=(3,))}, "invariant_to": "block"}
_PADDED = {
    **_X, "lengths": kt.lengths("m", up_to="n"), "dims": {"m": kt.dim(values=(3,)), "n": kt.dim(multiple_of=16)},
    "invariant_to": "padding",
}  # fmt: skip


_CHUNKS = {
    "q": kt.array("q d", "float32"), "k": kt.array("n d", "float32"), "v": kt.array("n d", "float32"),
    "dims": {"q": kt.dim(maximum=_LONGEST), "n": kt.dim(maximum=_LONGEST), "d": kt.dim(values=(4,))},
    "where": lambda q, n: q <= n, "chunk_dims": {"q": "n"}, "invariant_to": "chunks",
}  # fmt: skip


def _few(m: int) -> int:
    return 4 if m <= 2 else 1


def _longer(n: int) -> int:
    return 16 if n <= 16 else 32 if n % 32 == 0 else 16


_MATMUL = {
    "x": kt.array("m k", "float32"), "y": kt.array("k n", "float32"), "batch_dims": "m", "invariant_to": "batch",
    "dims": {"m": kt.dim(maximum=17), "k": kt.dim(values=(32,)), "n": kt.dim(values=(8,))},
}  # fmt: skip


def _total(x: Any) -> Any:
    return x.sum(keepdims=True)


def _halves(row: Any, m: int, i: Any) -> Any:
    return jnp.where(i == 0, _parts(row, 2), row.sum())


def _tail(row: Any, m: int, i: Any) -> Any:
    return jnp.where(i >= m // 4 * 4, _parts(row, 4), row.sum())


def _in_bfloat16(row: Any, m: int, i: Any) -> Any:
    return (row if m < 4 else row.astype(jnp.bfloat16).astype(row.dtype)).sum()


def _by_power(row: Any, m: int, i: Any) -> Any:
    shifted = row - row.max()
    e = jnp.exp(shifted) if m > 1 else jnp.exp2(shifted * np.float32(1 / np.log(2)))
    return e / e.sum()


def _added_narrowly(row: Any, m: int, i: Any) -> Any:
    narrow, half = row.astype(jnp.bfloat16), row.shape[1] // 2
    one, other = (part if m <= 2 else part.astype(row.dtype) for part in (narrow[:, :half], narrow[:, half:]))
    return (one + other).astype(row.dtype)


def _position(row: Any, m: int, i: Any) -> Any:
    number = jax.lax.broadcasted_iota(jnp.int32, row.shape, 1) + 257
    return row + (number.astype(jnp.bfloat16).astype(row.dtype) if m <= 2 else number.astype(row.dtype))


def _counted(row: Any, m: int, i: Any) -> Any:
    # A comparison of numbers that are known.
    few = jnp.full((), m, jnp.int32).astype(row.dtype) > 4.5
    return jnp.where(few, jnp.exp(row) + 1, jnp.exp(row + 1e-3) + 1)


def _by_float_mask(x: Any, lengths: Any) -> Any:
    def body(x_ref: Any, lengths_ref: Any, out_ref: Any) -> None:
        count, total = lengths_ref[pl.program_id(0)].astype(x.dtype), jnp.zeros((), x.dtype)
        for start in range(0, x.shape[1], 16):
            at = jax.lax.broadcasted_iota(x.dtype, (16,), 0) + start
            total += jnp.where(at < count, x_ref[0, pl.ds(start, 16)], 0).sum()
        out_ref[0, 0] = total

    return _by_row(body, x, lengths)


def _converged(row: Any, m: int, i: Any) -> Any:
    # A loop that ends when its result changes no more.
    squares = (row * row).sum()
    return jax.lax.while_loop(
        lambda s: jnp.abs(s * s - squares) > 1e-3 * squares, lambda s: 0.5 * (s + squares / s), squares + 1
    )


# By name: the kernel, its oracle, its declaration, and what comes of the claim. It is open if the order within one
# operation, which its target chooses, may differ.
HOLDS, BROKEN, OPEN = Verdict.PASS, Verdict.NONDETERMINISTIC, Verdict.UNAVAILABLE
TABLE: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], Verdict]] = {
    "one sum a row": (_sum_in(lambda m: 1), _row_sums, _BATCH, HOLDS),
    "four parts a row": (_sum_in(lambda m: 4), _row_sums, _BATCH, HOLDS),
    "more parts in small batches": (_sum_in(_few), _row_sums, _BATCH, BROKEN),
    "a fast path for a batch of one": (_sum_in(lambda m: 2 if m == 1 else 1), _row_sums, _BATCH, BROKEN),
    "parts by occupancy": (_sum_in(lambda m: 2 if m % 4 == 0 else 1), _row_sums, _BATCH, BROKEN),
    "fewer parts the more rows": (_sum_in(lambda m: max(8 // m, 1)), _row_sums, _BATCH, BROKEN),
    "the first row in another way": (_row_by_row(_halves), _row_sums, _BATCH, BROKEN),
    "the rows past whole blocks in another way": (_row_by_row(_tail), _row_sums, _BATCH, BROKEN),
    "narrower in large batches": (_row_by_row(_in_bfloat16), _row_sums, _BATCH, BROKEN),
    "another exponential for a batch of one": (_row_by_row(_by_power, _COLUMNS), _softmax_oracle, _BATCH, BROKEN),
    "another root for a batch of one": (
        _row_by_row(lambda row, m, i: row * (_norm(row) if m > 1 else 1 / jnp.sqrt((row * row).sum())), _COLUMNS),
        lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)), _BATCH, OPEN,
    ),
    "added in bfloat16 in small batches": (_row_by_row(_added_narrowly, 32), _row_sums, _BATCH, BROKEN),
    "positions in bfloat16 in small batches": (_row_by_row(_position, _COLUMNS), _row_sums, _BATCH, BROKEN),
    "another fill in small batches": (
        _row_by_row(lambda row, m, i: jnp.where(row > 0, row, -1e30 if m <= 2 else -1e20), _COLUMNS),
        _row_sums, _BATCH, BROKEN,
    ),
    "rounded by another constant": (
        _row_by_row(lambda row, m, i: (row + (c := 2.0**10 if m <= 2 else 2.0**13)) - c, _COLUMNS),
        _row_sums, _BATCH, BROKEN,
    ),
    "a known comparison": (_row_by_row(_counted, _COLUMNS), _row_sums, _BATCH, BROKEN),
    "a loop that converges": (_row_by_row(_converged), _row_sums, _BATCH, OPEN),
    "to an integer and back": (
        _row_by_row(lambda row, m, i: row.astype(jnp.int32).astype(row.dtype), _COLUMNS), _row_sums, _BATCH, OPEN,
    ),
    "scaled by the whole batch": (_scaled_by_batch, _row_sums, _BATCH, BROKEN),
    "scaled by a neighbour": (_pairs_scaled, _softmax_oracle, _BATCH, BROKEN),
    "softmax": (_softmax, _softmax_oracle, _BATCH, HOLDS),
    "a gradient": (_differentiable(lambda m: 1), _softmax_oracle, _GRADIENT, HOLDS),
    "a gradient by the batch": (_differentiable(_few), _softmax_oracle, _GRADIENT, BROKEN),
    "tiles of one shape": (_matmul(lambda m: 16), lambda x, y: x @ y, _MATMUL, HOLDS),
    "tiles by the batch": (_matmul(lambda m: min(m, 16)), lambda x, y: x @ y, _MATMUL, OPEN),
    "a product that is added up in small batches": (_split_matmul(False), lambda x, y: x @ y, _MATMUL, OPEN),
    "a product that is split in small batches": (_split_matmul(True), lambda x, y: x @ y, _MATMUL, BROKEN),
    "a sum over programs": (_accumulated, _total, _GRID, BROKEN),
    "a mean so far": (_merged_means, _total, _GRID, BROKEN),
    "a maximum over programs": (_largest, lambda x: x.max(keepdims=True), _GRID, HOLDS),
    "rows in any order": (_softmax, _softmax_oracle, _GRID, HOLDS),
    "each program reads the one before": (_chained, lambda x: x, _GRID, BROKEN),
    "two programs write a row": (_overlapping, _row_sums, _GRID, BROKEN),
    "a tuned sum": (_tuned, lambda x, block: x.sum(1, keepdims=True), _BLOCK, BROKEN),
    "a tuned width": (_tuned_width, lambda x, block: x.sum(1, keepdims=True), _BLOCK, BROKEN),
    "tuned rows": (_tuned_rows, lambda x, block: x.sum(1, keepdims=True), _BLOCK, HOLDS),
    "a tuned move": (_moved, lambda x, block: 2 * x, _BLOCK, HOLDS),
    "blocks of one length": (functools.partial(_masked_sum, block=lambda n: 16), _masked_oracle, _PADDED, HOLDS),
    "blocks by the length": (functools.partial(_masked_sum, block=_longer), _masked_oracle, _PADDED, BROKEN),
    "halves of the blocks": (_masked_halves, _masked_oracle, _PADDED, BROKEN),
    "masked by positions in floats": (_by_float_mask, _masked_oracle, _PADDED, HOLDS),
    "masked by a product": (_masked_product, _masked_oracle, _PADDED, HOLDS),
    "a tile as long as the row": (_masked_whole, _masked_oracle, _PADDED, OPEN),
    "rows in pieces": (
        _row_by_row(lambda row, m, i: row * _norm(row), _COLUMNS),
        lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
        {**_X, "dims": _ROWS, "chunk_dims": "m", "invariant_to": "chunks"}, HOLDS,
    ),
    "blocks of keys at fixed places": (_causal(lambda q, n: [_blocks(0, n)]), _causal_oracle, _CHUNKS, HOLDS),
    "blocks of keys that begin at the piece": (
        _causal(lambda q, n: [_blocks(0, n - q) + _blocks(n - q, n)]), _causal_oracle, _CHUNKS, BROKEN
    ),
    "statistics of a piece by itself": (
        _causal(lambda q, n: [_blocks(n - q, n), *([_blocks(0, n - q)] if q < n else [])]),
        _causal_oracle, _CHUNKS, BROKEN,
    ),
    "keys split for a short piece": (
        _causal(lambda q, n: [_blocks(0, n)] if q > 2 else [[block] for block in _blocks(0, n)]),
        _causal_oracle, _CHUNKS, BROKEN,
    ),
    "keys split for a whole sequence": (
        _causal(lambda q, n: [_blocks(0, n)] if q < _LONGEST else [[block] for block in _blocks(0, n)]),
        _causal_oracle, _CHUNKS, BROKEN,
    ),
    "maxima so far": (functools.partial(_masked_softmax, fill=-1e30), _masked_softmax_oracle, _PADDED, HOLDS),
}  # fmt: skip


def _items(pairing: Pairing, backend: str = "interpret") -> list[Item]:
    items = plan_pairing(pairing, "p", resolve([backend]), RunSettings.of(depth="quick")).items
    return [item for item in items if item.group.name == GroupName.BITS]


def _records(items: list[Item]) -> list[Record]:
    return [outcome.record for item in items for outcome in run_item(item, Cache())]


@functools.cache
def _outcomes(name: str) -> list[tuple[Item, Outcome]]:
    kernel, oracle, declared, _ = TABLE[name]
    items = _items(kt.oracle_for(kernel, **declared)(oracle))
    return [(item, outcome) for item in items for outcome in run_item(item, Cache())]


def _bits(name: str) -> list[Record]:
    return [outcome.record for _, outcome in _outcomes(name)]


@pytest.mark.parametrize("name", TABLE)
def test_claims(name: str) -> None:
    records, wanted = _bits(name), TABLE[name][-1]
    found = {record.verdict for record in records}
    assert wanted in found, records[0].message
    assert wanted is BROKEN or found == {wanted}, records[0].message


def _again(item: Item, outcome: Outcome, scale: int) -> Record:
    record = outcome.record
    signature = record_signature(item.pairing, record)
    assert signature is not None
    assert outcome.arguments is not None
    arguments = {path: (value * scale).astype(value.dtype) for path, value in outcome.arguments.items()}
    family = item.group.find_family(record.family)
    assert family is not None
    return run_single_case(item, ExplicitCase(record.pairing, signature, arguments, family=family), Cache()).record


@pytest.mark.parametrize(
    "name",
    [
        "more parts in small batches",
        "a gradient by the batch",
        "two programs write a row",
        "a tuned width",
        "halves of the blocks",
    ],
)
def test_the_inputs_of_a_finding_show_it_again_and_others_are_not_tried(name: str) -> None:
    for item, outcome in _outcomes(name):
        if outcome.record.verdict is BROKEN:
            assert _again(item, outcome, 1).verdict is BROKEN
            if name == "more parts in small batches":
                assert _again(item, outcome, 0).verdict is OPEN


def test_a_verdict_is_reused_until_the_kernel_changes_at_some_length() -> None:
    _, oracle, declared, _ = TABLE["one sum a row"]
    found = []
    for parts in (lambda m: 1, lambda m: 1, lambda m: 2 if m == 9 else 1):
        items = _items(kt.oracle_for(_sum_in(parts), **declared)(oracle))
        found.append(verdict_key(items, Cache()))
    assert found[0] == found[1] != found[2]


def test_what_has_one_way_is_not_certified() -> None:
    kernel, oracle, declared, _ = TABLE["softmax"]
    alone = {**declared, "dims": {"m": kt.dim(values=(8,)), "n": kt.dim(values=(_COLUMNS,))}}
    (record,) = _records(_items(kt.oracle_for(kernel, **alone)(oracle)))
    assert record.verdict is OPEN
    assert "there is only one way" in record.message


@pytest.mark.parametrize(
    ("name", "one", "other", "line"),
    [
        ("a product that is split in small batches", " with m=4, 5, ", " with m=1, 2 or 3;", "2 if x.shape[0] < 4"),
        ("keys split for a short piece", " with q=0:1, 0:2, ", " with q=4:5 or 3:5;", "if q > 2 else"),
    ],
)
def test_a_finding_names_both_sides_and_the_choice(name: str, one: str, other: str, line: str) -> None:
    message = _bits(name)[0].message
    assert one in message
    assert other in message
    found = re.search(r"test_certificate.py:(\d+)", message)
    assert found
    assert line in linecache.getline(__file__, int(found[1]))


def test_programs_on_cores_are_not_certified_for_any_order() -> None:
    records = _records(_items(replace(pipelines.copy, invariant_to=("grid",)), "interpret-mosaic-gpu"))
    assert {record.verdict for record in records} == {OPEN}
    assert "cannot be run in reverse order" in records[0].message


def test_programs_are_reversed_once_for_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the verdict, the comparison and the statement share it."""
    reversed_traces, cache = list[Traced](), Cache()

    def reverse(traced: Traced) -> Traced:
        reversed_traces.append(traced)
        return ways.reverse_programs(traced)

    monkeypatch.setattr(group, "reverse_programs", reverse)
    kernel, oracle, declared, _ = TABLE["rows in any order"]
    (item,) = _items(kt.oracle_for(kernel, **declared)(oracle))
    cache.switch_to(item.pairing, item.dtype)
    keys = {item.group.fingerprint(item, case, cache) for case in item.cases()}
    assert {outcome.record.verdict for outcome in run_item(item, cache)} == {HOLDS}
    assert len(reversed_traces) == len(keys)


def test_the_gradient_is_a_claim_of_its_own() -> None:
    verdicts = {record.family: record.verdict for record in _bits("a gradient by the batch")}
    assert verdicts == {"bits_in_any_batch": HOLDS, "gradient_bits_in_any_batch": BROKEN}


def test_a_pass_names_what_was_compared() -> None:
    message = _bits("softmax")[0].message
    compared, _, digest = message.partition("; kernel ")
    assert compared == "the same expressions with m=1, 2, 3, 4, 5, 7, 8 and 9, at each place"
    assert len(digest) == 32
