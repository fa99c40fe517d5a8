"""Right kernels of kinds that no suite has, which nothing accuses, and a twin of each with one small mistake."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.declare.pairing import Pairing
from tests.found import findings

BLOCK = 16
KEPT, LIMIT = 0.9, int(0.9 * 2**32)


def like(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def log_scan(x: Any, *, wrong: bool) -> Any:
    """Prefix sums in the log domain; the twin carries the sum of the last tile alone."""
    m, n = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        row, lane = pl.program_id(0), jnp.arange(BLOCK)
        seen = lane[:, None] <= lane[None, :]

        def step(tile: Any, carry: Any) -> Any:
            at = tile * BLOCK + lane
            v = plgpu.load(x_ref.at[row, at], mask=at < n, other=-jnp.inf)
            top = jnp.maximum(jnp.max(jnp.where(seen, v[:, None], -jnp.inf), axis=0), carry)
            parts = jnp.where(seen, jnp.exp(v[:, None] - top[None, :]), 0.0)
            y = jnp.log(jnp.sum(parts, axis=0) + jnp.exp(carry - top)) + top
            plgpu.store(o_ref.at[row, at], y, mask=at < n)
            most = jnp.max(v)
            own = most + jnp.log(jnp.sum(jnp.exp(v - most)))
            return own if wrong else jnp.max(jnp.where(lane == BLOCK - 1, y, -jnp.inf))

        jax.lax.fori_loop(0, pl.cdiv(n, BLOCK), step, -jnp.inf)

    return pl.pallas_call(body, grid=(m,), out_shape=like(m, n))(x)


def resampled(x: Any, k: int, *, wrong: bool) -> Any:
    """Linear interpolation at k positions of each row; the twin extrapolates past the last element."""
    m, n = x.shape

    def body(x_ref: Any, o_ref: Any) -> None:
        row, at = pl.program_id(0), pl.program_id(1) * BLOCK + jnp.arange(BLOCK)
        position = jnp.maximum((2 * at + 1).astype(jnp.float32) * n / (2 * k) - 0.5, 0)
        position = position if wrong else jnp.minimum(position, n - 1)
        low = jnp.minimum(jnp.floor(position).astype(jnp.int32), max(n - 2, 0) if wrong else n - 1)
        part = position - low.astype(jnp.float32)
        a = plgpu.load(x_ref.at[row, low], mask=at < k, other=0.0)
        b = plgpu.load(x_ref.at[row, jnp.minimum(low + 1, n - 1)], mask=at < k, other=0.0)
        plgpu.store(o_ref.at[row, at], a + (b - a) * part, mask=at < k)

    return pl.pallas_call(body, grid=(m, pl.cdiv(k, BLOCK)), out_shape=like(m, k))(x)


def resampled_oracle(x: Any, k: int) -> Any:
    n = x.shape[1]
    position = np.clip((np.arange(k) + 0.5) * n / k - 0.5, 0, n - 1)
    low = np.floor(position).astype(int)
    return x[:, low] + (x[:, np.minimum(low + 1, n - 1)] - x[:, low]) * (position - low)


def sorted_in_segments(x: Any, segment: Any, *, wrong: bool) -> Any:
    """A stable sort by ranks; the twin gives equal elements in reverse order."""
    (n,) = x.shape

    def body(x_ref: Any, s_ref: Any, o_ref: Any, at_ref: Any) -> None:
        i = jnp.arange(pl.next_power_of_2(n))
        v, s = (plgpu.load(ref.at[i], mask=i < n, other=0) for ref in (x_ref, s_ref))
        first = i[:, None] > i[None, :] if wrong else i[:, None] < i[None, :]
        less = (v[:, None] < v[None, :]) | ((v[:, None] == v[None, :]) & first)
        before = (s[:, None] < s[None, :]) | ((s[:, None] == s[None, :]) & less)
        rank = jnp.sum((before & (i < n)[:, None]).astype(jnp.int32), axis=0)
        plgpu.store(o_ref.at[rank], v, mask=i < n)
        plgpu.store(at_ref.at[rank], i, mask=i < n)

    return pl.pallas_call(body, out_shape=[like(n, dtype=jnp.int32)] * 2)(x, segment)


def sorted_oracle(x: Any, segment: Any) -> Any:
    at = np.lexsort((x, segment))
    return x[at], at


def bags(table: Any, scale: Any, rows: Any, count: Any, *, wrong: bool) -> Any:
    """Means of quantised rows of a table; the twin divides those of one row by two."""
    b, d = rows.shape[0], table.shape[1]

    def body(table_ref: Any, scale_ref: Any, rows_ref: Any, count_ref: Any, o_ref: Any) -> None:
        bag, at = pl.program_id(0), jnp.arange(pl.next_power_of_2(d))

        def add(i: Any, total: Any) -> Any:
            row = rows_ref[bag, i]
            return total + plgpu.load(table_ref.at[row, at], mask=at < d, other=0).astype(jnp.float32) * scale_ref[row]

        total = jax.lax.fori_loop(0, count_ref[bag], add, jnp.zeros(at.shape, jnp.float32))
        size = jnp.maximum(count_ref[bag], 2 if wrong else 1).astype(jnp.float32)
        plgpu.store(o_ref.at[bag, at], total / size, mask=at < d)

    return pl.pallas_call(body, grid=(b,), out_shape=like(b, d))(table, scale, rows, count)


def bags_oracle(table: Any, scale: Any, rows: Any, count: Any) -> Any:
    wide = table * scale[:, None]
    return np.stack([wide[each[:c]].sum(0) / max(c, 1) for each, c in zip(rows, count, strict=True)])


def viterbi(score: Any, move: Any, emit: Any, *, wrong: bool) -> Any:
    """A step of Viterbi's algorithm, with the best predecessors; the twin takes the last of equal ones."""
    b, s = score.shape

    def body(score_ref: Any, move_ref: Any, emit_ref: Any, o_ref: Any, at_ref: Any) -> None:
        row, i = pl.program_id(0), jnp.arange(pl.next_power_of_2(s))
        known = i < s
        a = plgpu.load(score_ref.at[row, i], mask=known, other=-jnp.inf)
        mask = known[:, None] & known[None, :]
        paths = a[:, None] + plgpu.load(move_ref.at[i[:, None], i[None, :]], mask=mask, other=-jnp.inf)
        best = jnp.max(paths, axis=0)
        is_best = paths == best[None, :]
        last = jnp.max(jnp.where(is_best, i[:, None], -1), axis=0)
        first = jnp.min(jnp.where(is_best, i[:, None], len(i)), axis=0)
        plgpu.store(o_ref.at[row, i], best + plgpu.load(emit_ref.at[row, i], mask=known, other=0.0), mask=known)
        plgpu.store(at_ref.at[row, i], last if wrong else first, mask=known)

    return pl.pallas_call(body, grid=(b,), out_shape=[like(b, s), like(b, s, dtype=jnp.int32)])(score, move, emit)


def viterbi_oracle(score: Any, move: Any, emit: Any) -> Any:
    paths = score[:, :, None] + move
    return paths.max(1) + emit, paths.argmax(1)


def dropped(x: Any, bits: Any, rest: Any, *, wrong: bool) -> Any:
    """Dropout by given bits, fused with a sum; the twin keeps one number of bits more, of 2^32."""
    (n,) = x.shape

    def body(x_ref: Any, bits_ref: Any, rest_ref: Any, o_ref: Any) -> None:
        at = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
        v, bits, rest = (plgpu.load(ref.at[at], mask=at < n, other=0) for ref in (x_ref, bits_ref, rest_ref))
        is_kept = bits <= jnp.uint32(LIMIT) if wrong else bits < jnp.uint32(LIMIT)
        plgpu.store(o_ref.at[at], rest + jnp.where(is_kept, v / KEPT, 0.0), mask=at < n)

    return pl.pallas_call(body, grid=(pl.cdiv(n, BLOCK),), out_shape=like(n))(x, bits, rest)


def _array(axes: str, domain: Any = (-9, 9), dtype: str = "float32") -> Any:
    return kt.array(axes, dtype, domain=domain)


@dataclass(frozen=True)
class Kind:
    kernel: Callable[..., Any]
    oracle: Callable[..., Any]
    declared: dict[str, Any]

    def pairing(self, wrong: bool) -> Pairing:
        made = kt.oracle_for(lambda **arguments: self.kernel(**arguments, wrong=wrong), **self.declared)(self.oracle)
        assert isinstance(made, Pairing)
        return made


_FEW = {"b": kt.dim(values=(3, 1)), "s": kt.dim(maximum=20)}
KINDS = {
    "log scan": Kind(
        log_scan,
        lambda x: np.logaddexp.accumulate(x, axis=1),
        dict(x=_array("m n", (-80, 80)), dims=dict(m=kt.dim(values=(3, 1)), n=kt.dim(block=BLOCK))),
    ),
    "resampling": Kind(
        resampled,
        resampled_oracle,
        dict(x=_array("m n"), k=kt.dim_size("k"), dims=dict(m=kt.dim(values=(3, 1)), n=kt.dim(minimum=1))),
    ),
    "sort": Kind(
        sorted_in_segments,
        sorted_oracle,
        dict(
            x=kt.array("n", "int32"),
            segment=kt.array("n", "int32", domain=(0, 3)),
            dims=dict(n=kt.dim(maximum=40)),
        ),
    ),
    "bags": Kind(
        bags,
        bags_oracle,
        dict(
            table=kt.array("t d", "int8"),
            scale=_array("t", (0.01, 2)),
            rows=kt.indices("b l", into="t"),
            count=kt.lengths("b", up_to="l"),
            dims=dict(b=kt.dim(values=(3, 1)), t=kt.dim(values=(7,)), l=kt.dim(maximum=9), d=kt.dim(maximum=20)),
        ),
    ),
    "viterbi": Kind(
        viterbi, viterbi_oracle, dict(score=_array("b s"), move=_array("s s"), emit=_array("b s"), dims=_FEW)
    ),
    "dropout": Kind(
        dropped,
        lambda x, bits, rest: rest + np.where(bits < LIMIT, x / KEPT, 0),
        dict(x=_array("n"), bits=kt.array("n", "uint32"), rest=_array("n"), dims=dict(n=kt.dim(block=BLOCK))),
    ),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("backend", ["interpret", "simulate:sm_90"])
@pytest.mark.parametrize("name", KINDS)
def test_a_right_kernel_of_another_kind_is_not_accused_and_its_twin_is_found(name: str, backend: str) -> None:
    right, twin = (KINDS[name].pairing(wrong) for wrong in (False, True))
    checked = kt.check(right, backends=[backend], depth="quick")
    assert checked.ok, checked.findings[:1]
    assert next(findings(twin, [backend]), None)
