"""Claims of `invariant_to=` about bits: what holds is certified, and what does not is shown by values."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.records.schema import Record

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


def _first_row_by_halves(x: Any) -> Any:
    def body(x_ref: Any, out_ref: Any) -> None:
        row = x_ref[...]
        out_ref[0, 0] = jnp.where(pl.program_id(0) == 0, _parts(row, 2), row.sum())

    return _by_row(body, x)


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
    def body(x_ref: Any, out_ref: Any) -> None:
        out_ref[0, 0] = _parts(x_ref[...], x.shape[1] // block)

    return _by_row(body, x)


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


def _masked_oracle(x: Any, lengths: Any) -> Any:
    return np.where(np.arange(x.shape[1]) < lengths[:, None], x, 0).sum(1, keepdims=True)


def _masked_softmax_oracle(x: Any, lengths: Any) -> Any:
    rows = [(row[:n], np.exp(row[:n] - row[:n].max(initial=-np.inf))) for row, n in zip(x, lengths, strict=True)]
    return np.array([[(row * e).sum() / e.sum() if len(row) else 0.0] for row, e in rows])


_X = {"x": kt.array("m n", "float32")}
_ROWS = {"m": kt.dim(maximum=9), "n": kt.dim(values=(_COLUMNS,))}
_BATCH = {**_X, "dims": _ROWS, "batch_dims": "m", "invariant_to": "batch"}
_GRID = {**_X, "dims": _ROWS, "invariant_to": "grid"}
_BLOCK = {**_X, "block": kt.static(16, 32), "dims": _ROWS, "invariant_to": "block"}
_PADDED = {
    **_X, "lengths": kt.lengths("m", up_to="n"), "dims": {"m": kt.dim(values=(3,)), "n": kt.dim(multiple_of=16)},
    "invariant_to": "padding",
}  # fmt: skip


def _named(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    kernel.__name__ = name
    return kernel


def _choice_of(kernel: Callable[..., Any]) -> str:
    return f"test_certificate.py:{kernel.__code__.co_firstlineno}"


def _split(m: int) -> int:
    return 4 if m <= 2 else 1


def _longer(n: int) -> int:
    return 16 if n <= 16 else 32 if n % 32 == 0 else 16


# By name: the kernel, its oracle, its declaration, and whether the claim holds.
_ROWS_OF_TABLE: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], bool]] = {
    "one sum a row": (_sum_in(lambda m: 1), _row_sums, _BATCH, True),
    "four parts a row": (_sum_in(lambda m: 4), _row_sums, _BATCH, True),
    "more parts in small batches": (_sum_in(_split), _row_sums, _BATCH, False),
    "a fast path for a batch of one": (_sum_in(lambda m: 2 if m == 1 else 1), _row_sums, _BATCH, False),
    "parts by occupancy": (_sum_in(lambda m: 2 if m % 4 == 0 else 1), _row_sums, _BATCH, False),
    "the first row in another way": (_first_row_by_halves, _row_sums, _BATCH, False),
    "scaled by the whole batch": (_scaled_by_batch, _row_sums, _BATCH, False),
    "softmax": (_softmax, _softmax_oracle, _BATCH, True),
    "a sum over programs": (_accumulated, lambda x: x.sum(keepdims=True), _GRID, False),
    "a maximum over programs": (_largest, lambda x: x.max(keepdims=True), _GRID, True),
    "rows in any order": (_softmax, _softmax_oracle, _GRID, True),
    "a tuned sum": (_tuned, lambda x, block: x.sum(1, keepdims=True), _BLOCK, False),
    "a tuned move": (_moved, lambda x, block: 2 * x, _BLOCK, True),
    "blocks of one length": (partial(_masked_sum, block=lambda n: 16), _masked_oracle, _PADDED, True),
    "blocks by the length": (partial(_masked_sum, block=_longer), _masked_oracle, _PADDED, False),
    "maxima so far, -inf": (partial(_masked_softmax, fill=-1e30), _masked_softmax_oracle, _PADDED, True),
}


def _bits(kernel: Callable[..., Any], oracle: Callable[..., Any], declared: dict[str, Any]) -> list[Record]:
    pairing = kt.oracle_for(kernel, **declared)(oracle)
    items = plan_pairing(pairing, "p", resolve(["interpret"]), RunSettings.of(depth="quick")).items
    chosen = [item for item in items if item.group.name == GroupName.BITS]
    return [outcome.record for item in chosen for outcome in run_item(item, Cache())]


@pytest.mark.parametrize("name", _ROWS_OF_TABLE)
def test_claims(name: str) -> None:
    kernel, oracle, declared, holds = _ROWS_OF_TABLE[name]
    records = _bits(kernel, oracle, declared)
    assert records
    if holds:
        assert {record.verdict for record in records} == {Verdict.PASS}, records[0].message
    else:
        assert Verdict.NONDETERMINISTIC in {record.verdict for record in records}, records[0].message
