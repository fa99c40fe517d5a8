"""The jaxpr of a kernel shows the faulty line with no lowering: for TPU kernels, gradients, and formulas."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jax.experimental.pallas import tpu as pltpu

import kerneltest as kt
import kerneltest.execute.invariants
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.localize.call_operators import call_repairs
from kerneltest.localize.sites import LocatedJaxpr, locate_equations
from kerneltest.trace.tracing import trace_function
from kerneltest.trace.walk import iter_equations, primitive_name
from tests.localize.fault_cases import locate_case, make_case, search_case

DIMS = {"m": kt.dim(values=(4,)), "n": kt.dim(values=(4,))}
PLAIN: dict[str, Any] = {}
TPU = dict(compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)))


def _call(body: Callable[..., None], options: dict[str, Any], *operands: Any) -> Any:
    shape = jax.ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
    return pl.pallas_call(body, out_shape=shape, grid=(1,), **options)(*operands)


def _scaled(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    y = jnp.cumsum(x, axis=1) * 0.25
    o_ref[...] = y + 0.5 * x  # FAULT


def _copied(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def _below_diagonal(x_ref: Any, o_ref: Any) -> None:
    at = jnp.arange(4)
    keep = at[:, None] > at[None, :]  # FAULT
    o_ref[...] = jnp.cumsum(jnp.where(keep, x_ref[...], 0.0), axis=1)


def _unguarded(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    total = jnp.cumsum(x, axis=1)
    o_ref[...] = x / total  # FAULT


def _rounded(x_ref: Any, o_ref: Any) -> None:
    total = jnp.cumsum(x_ref[...], axis=1)
    total = total.astype(jnp.bfloat16).astype(jnp.float32)  # FAULT
    o_ref[...] = total * total


def _begun_late(x_ref: Any, o_ref: Any) -> None:
    x = jnp.cumsum(x_ref[...], axis=1)
    o_ref[...] = jax.lax.fori_loop(1, 4, lambda i, total: total + x * (i + 1), jnp.zeros_like(x))  # FAULT


def _biased(x_ref: Any, o_ref: Any) -> None:
    total = jnp.cumsum(x_ref[...], axis=1)
    o_ref[...] = x_ref[...] / (total + 0.01)  # FAULT


def _rounded_twice(x_ref: Any, o_ref: Any) -> None:
    total = jnp.cumsum(x_ref[...], axis=1)
    low = total.astype(jnp.bfloat16) * jnp.sin(total).astype(jnp.bfloat16)  # FAULT
    o_ref[...] = low.astype(jnp.float32)


def _not_rescaled(x_ref: Any, o_ref: Any) -> None:
    def step(i: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x = x_ref[:, i]
        most = jnp.maximum(carry[0], x)
        return most, carry[1] + jnp.exp(x - most)  # FAULT

    _, total = jax.lax.fori_loop(0, 4, step, (jnp.full(4, -jnp.inf), jnp.zeros(4)))
    o_ref[...] = jnp.cumsum(jnp.broadcast_to(total[:, None], (4, 4)), axis=1)


def _partly_rescaled(x_ref: Any, o_ref: Any) -> None:
    def step(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        most = jnp.maximum(carry[0], x_ref[:, i])
        old, new = jnp.exp(carry[0] - most), jnp.exp(x_ref[:, i] - most)
        return most, old * carry[1] + new, carry[2] + new[:, None] * jnp.sin(x_ref[...] * i)  # FAULT

    _, total, sums = jax.lax.fori_loop(0, 4, step, (jnp.full(4, -jnp.inf), jnp.zeros(4), jnp.zeros((4, 4))))
    o_ref[...] = jnp.cumsum(sums / total[:, None], axis=1)


def _unmasked(x_ref: Any, o_ref: Any) -> None:
    x, at = x_ref[...], jnp.arange(8)
    total = jnp.sum(jnp.concatenate([x, x], axis=1) * at, axis=1)  # FAULT
    o_ref[...] = jnp.cumsum(jnp.broadcast_to(total[:, None], (4, 4)), axis=1)


def _partly_gated(x_ref: Any, o_ref: Any) -> None:
    total, gate = jnp.cumsum(x_ref[...], axis=1), jnp.exp(x_ref[:, 0])
    o_ref[...] = (jnp.sin(total) + jnp.cos(2 * total)) * gate[:, None]  # FAULT


def _partly_ignored(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    total = jnp.cumsum(x, axis=1)
    o_ref[...] = jnp.where(x < 1, 0.0, total * total) + 0.5 * jnp.sin(total)  # FAULT


def _started_anew(x_ref: Any, o_ref: Any) -> None:
    x = jnp.cumsum(x_ref[...], axis=1)
    total = jax.lax.fori_loop(0, 4, lambda i, total: jnp.sum(x * (i + 1), axis=1), jnp.zeros(4))  # FAULT
    o_ref[...] = x * total[:, None]


def _read_at_the_limit(x_ref: Any, o_ref: Any) -> None:
    before = jnp.clip(jnp.arange(4) - 2, 0)
    earlier = x_ref[:, before]  # FAULT
    o_ref[...] = jnp.cumsum(x_ref[...] * jnp.cos(earlier), axis=1)


def _at_the_first_of_equal(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    at = jnp.argmax(x, axis=1)  # FAULT
    o_ref[...] = jnp.cumsum(x, axis=1) * at[:, None]


def _stored_always(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    is_low = x[0, 0] < 0
    o_ref[...] = jnp.cumsum(x, axis=1) * jnp.where(is_low, 3.0, 2.0)
    o_ref[...] = -x  # FAULT


def _without_one(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    o_ref[...] = x / jnp.abs(jnp.cumsum(x, axis=1))  # FAULT


def _without_residual(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    o_ref[...] = jnp.tanh(jnp.cumsum(x, axis=1))  # FAULT


def _of_signed_values(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    most = jnp.max(x, axis=1, keepdims=True)  # FAULT
    o_ref[...] = jnp.cumsum(x, axis=1) / most


def _in_the_wrong_order(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    o_ref[...] = jnp.cumsum(x, axis=1) / 3.0 - x  # FAULT


def _at_the_complement(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    o_ref[...] = jnp.arctan2(x, jnp.cumsum(x, axis=1))  # FAULT


def _shifted(x_ref: Any, o_ref: Any) -> None:
    total = jnp.cumsum(x_ref[...] * 7, axis=1).astype(jnp.int32)
    o_ref[...] = (total >> 2).astype(jnp.float32)  # FAULT


def _masked_by_a_product(x_ref: Any, o_ref: Any) -> None:
    is_kept = jnp.arange(4) < 2
    kept = x_ref[...] * jnp.where(is_kept, 1.0, 0.0)  # FAULT
    o_ref[...] = jnp.cumsum(kept, axis=1)


def _exponentials(x_ref: Any, o_ref: Any) -> None:
    weights = jnp.exp(x_ref[...])  # FAULT
    o_ref[...] = jnp.cumsum(weights / jnp.sum(weights, axis=1, keepdims=True), axis=1)


def _softmax(x: Any) -> Any:
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)


def _scaled_too_early(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    o_ref[...] = x * jnp.cumsum(x, axis=1) - jnp.cos(x)  # FAULT


def _limited_above(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.minimum(jnp.cumsum(x_ref[...], axis=1), 1.5)  # FAULT


def _overflowing(x_ref: Any, o_ref: Any) -> None:
    counts = (1e5 * jnp.cumsum(x_ref[...], axis=1)).astype(jnp.int32)
    o_ref[...] = (counts * counts).astype(jnp.float32)  # FAULT


def _backward(x_ref: Any, g_ref: Any, o_ref: Any) -> None:
    o_ref[...] = g_ref[...] + 2.0 * x_ref[...]  # FAULT


@jax.custom_vjp
def _squares(x: Any) -> Any:
    return _call(_square, PLAIN, x)


def _square(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * x_ref[...] + 0.0 * jnp.cumsum(x_ref[...], axis=1)


_squares.defvjp(lambda x: (_squares(x), x), lambda x, g: (_call(_backward, PLAIN, x, g),))


def _safe(x: Any) -> Any:
    total = np.cumsum(x, axis=1)
    return np.where(total == 0, 0, x / np.where(total == 0, 1, total))


ORACLES: dict[Any, Callable[[Any], Any]] = {
    _scaled: lambda x: (np.cumsum(x, axis=1) + x) * 0.25,
    _below_diagonal: lambda x: np.cumsum(np.where(np.tri(4, dtype=bool), x, 0), axis=1),
    _unguarded: _safe,
    _rounded: lambda x: np.cumsum(x, axis=1) ** 2,
    _begun_late: lambda x: 10 * np.cumsum(x, axis=1),
    _biased: _safe,
    _rounded_twice: lambda x: np.cumsum(x, axis=1) * np.sin(np.cumsum(x, axis=1)),
    _not_rescaled: lambda x: np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True) * np.arange(1.0, 5.0),
    _partly_rescaled: lambda x: np.cumsum(
        sum(np.exp(x - x.max(axis=1, keepdims=True))[:, [i]] * np.sin(x * i) for i in range(4))
        / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True),
        axis=1,
    ),
    _unmasked: lambda x: (x * np.arange(4)).sum(axis=1, keepdims=True) * np.arange(1.0, 5.0),
    _partly_gated: lambda x: (
        np.exp(x[:, :1]) * (np.exp(x[:, :1]) * np.sin(np.cumsum(x, axis=1)) + np.cos(2 * np.cumsum(x, axis=1)))
    ),
    _partly_ignored: lambda x: np.where(x < 1, 0, np.cumsum(x, axis=1) ** 2 + 0.5 * np.sin(np.cumsum(x, axis=1))),
    _started_anew: lambda x: np.cumsum(x, axis=1) * 10 * np.cumsum(x, axis=1).sum(axis=1, keepdims=True),
    _read_at_the_limit: lambda x: np.cumsum(x * np.cos(np.pad(x, ((0, 0), (2, 0)))[:, :4]), axis=1),
    _at_the_first_of_equal: lambda x: np.cumsum(x, axis=1) * (3 - x[:, ::-1].argmax(axis=1))[:, None],
    _stored_always: lambda x: np.where(x[0, 0] < 0, -x, 2 * np.cumsum(x, axis=1)),
    _without_one: lambda x: x / (1 + np.abs(np.cumsum(x, axis=1))),
    _without_residual: lambda x: np.tanh(np.cumsum(x, axis=1)) + x,
    _of_signed_values: lambda x: np.cumsum(x, axis=1) / np.abs(x).max(axis=1, keepdims=True),
    _in_the_wrong_order: lambda x: x - np.cumsum(x, axis=1) / 3,
    _at_the_complement: lambda x: np.arctan2(np.cumsum(x, axis=1), x),
    _shifted: lambda x: (np.cumsum(x * 7, axis=1) + 2) // 4,
    _masked_by_a_product: lambda x: np.cumsum(np.where(np.arange(4) < 2, x, 0), axis=1),
    _exponentials: _softmax,
    _scaled_too_early: lambda x: (x - np.cos(x)) * np.cumsum(x, axis=1),
    _limited_above: lambda x: np.clip(np.cumsum(x, axis=1), -1.5, 1.5),
    _overflowing: lambda x: np.trunc(1e5 * np.cumsum(x, axis=1)) ** 2,
}
CAUSES = {
    **dict.fromkeys((_rounded, _rounded_twice), "a rounding to bfloat16"),
    **dict.fromkeys((_not_rescaled, _partly_rescaled), "a sum that is not rescaled"),
    **dict.fromkeys((_unmasked, _partly_ignored, _read_at_the_limit), "a missing mask"),
    _partly_gated: "a missing factor",
    _started_anew: "a sum that starts anew in each step of a loop",
    _stored_always: "a store that lacks its condition",
    _without_residual: "a missing term",
    _shifted: "a shift that rounds down",
    _of_signed_values: "a missing absolute value",
    _masked_by_a_product: "a masked-out value that is multiplied by 0 instead of left out",
    _overflowing: "an int32 product that overflows",
    _exponentials: "an exponential without the maximum subtracted",
    _biased: "a constant that is added to other numbers than 0",
}
WORDS = {
    _in_the_wrong_order: "exchanging the operands of - fixes the result",
    _at_the_complement: "exchanging the operands of atan2 fixes the result",
}
VALUES = {
    _unguarded: np.zeros((4, 4)),
    _at_the_first_of_equal: np.array([[0, 1, 1, 0], [2, 0, 0, 2], [1, 2, 3, 4], [7, 7, 7, 0]]),
    _biased: np.tri(4, 4, -1),
    _shifted: np.arange(16.0).reshape(4, 4),
    _of_signed_values: np.arange(-9.5, 6.5).reshape(4, 4),
    _masked_by_a_product: np.where(np.arange(4) < 2, 1, np.nan) + np.zeros((4, 4)),
    _exponentials: np.arange(16.0).reshape(4, 4) + 100,
    _limited_above: np.arange(-8.0, 8.0).reshape(4, 4) / 4,
    _overflowing: np.ones((4, 4)),
}


@pytest.mark.parametrize("options", [PLAIN, TPU], ids=["plain", "tpu"])
@pytest.mark.parametrize("body", ORACLES, ids=lambda body: body.__name__)
def test_the_faulty_line_is_named(body: Any, options: dict[str, Any]) -> None:
    """None of these lowers for a GPU, where `cumsum` has no rule."""
    oracle = ORACLES[body]

    def kernel(x: Any) -> Any:
        return _call(body, options, x)

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=DIMS)
    def pairing(x: Any) -> Any:
        return oracle(x)

    values = VALUES.get(body, np.arange(1.0, 17.0).reshape(4, 4) / 7)
    found = locate_case(pairing, make_case(pairing, {}, x=values), backend="interpret", family="normal")
    assert found is not None
    assert found.place == _fault(body)
    assert found.cause == CAUSES.get(body, "")
    assert WORDS.get(body, "") in found.words


def _not_rescaled_block(x_ref: Any, o_ref: Any) -> None:
    def step(i: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        at = 2 * i + jnp.arange(2)
        first = x_ref[0, :2]
        x = jnp.where((at >= 0) & (at < x_ref.shape[1]), x_ref[0, at], -jnp.inf) + jnp.sin(first - first)
        most = jnp.maximum(carry[0], x.max())
        scale, terms = jnp.exp(carry[0] - most), jnp.exp(x - most)
        return most, carry[1] + terms.sum(), carry[2] * scale + (x * terms).sum()  # FAULT

    _, total, weighted = jax.lax.fori_loop(0, 2, step, (jnp.float32(-jnp.inf), jnp.float32(0), jnp.float32(0)))
    o_ref[...] = jnp.cumsum(x_ref[...] * 0, axis=1) + x_ref[...] * weighted / total


def test_a_maximum_that_ignores_blocks_is_not_taken_for_one_that_is_masked() -> None:
    """A softmax is the same whatever is subtracted: with zeros for all but the first block, it needs no rescaling."""

    @kt.oracle_for(
        lambda x: _call(_not_rescaled_block, PLAIN, x),
        x=kt.array("h n", "float32"),
        dims=dict(h=kt.dim(values=(1,)), n=kt.dim(values=(4,))),
    )
    def pairing(x: Any) -> Any:
        return x * (x * np.exp(x)).sum() / np.exp(x).sum()

    case, *also = (make_case(pairing, {}, x=np.array([row])) for row in ([1, 0, 2, 3], [2, 3, 5, 1], [0, 1, 1, 4]))
    found = locate_case(pairing, case, backend="interpret", family="normal", also=also)
    assert found is not None
    assert (found.place, found.cause) == (_fault(_not_rescaled_block), "a sum that is not rescaled")


def _of_another_width(x_ref: Any, o_ref: Any) -> None:
    at = jnp.arange(x_ref.shape[1])
    rate = (at % 2) * (9.0 / x_ref.shape[1])  # FAULT
    turned = jnp.cumsum(x_ref[...], axis=1) * jnp.cos(rate)
    o_ref[...] = jnp.where(at < 3, turned, x_ref[...])


def test_a_constant_that_is_computed_from_a_length_is_named() -> None:
    @kt.oracle_for(
        lambda x: _call(_of_another_width, PLAIN, x),
        x=kt.array("m n", "float32"),
        dims=dict(m=kt.dim(values=(2,)), n=kt.dim(values=(4, 5, 7))),
    )
    def pairing(x: Any) -> Any:
        at = np.arange(x.shape[1])
        return np.where(at < 3, np.cumsum(x, axis=1) * np.cos(at % 2 * 3.0), x)

    failing, *also = (make_case(pairing, dict(n=n), x=1 / 7) for n in (4, 5, 7))
    found = locate_case(pairing, failing, backend="interpret", family="normal", also=also)
    assert found is not None
    assert (found.place, found.words) == (
        _fault(_of_another_width),
        "changing 2.25 to that with 3 for n=4, 3 fixes the result",
    )


def _aligned_at_the_top(x_ref: Any, o_ref: Any) -> None:
    rows, cols = (jnp.arange(length) for length in x_ref.shape)
    seen = cols[None, :] <= rows[:, None]  # FAULT
    o_ref[...] = jnp.cumsum(jnp.where(seen, x_ref[...], 0.0), axis=1)


def test_a_mask_at_the_wrong_corner_is_named() -> None:
    lengths = kt.dim(values=(2, 3, 4, 5))

    @kt.oracle_for(
        lambda x: _call(_aligned_at_the_top, PLAIN, x),
        x=kt.array("t s", "float32"),
        dims=dict(t=lengths, s=lengths),
        where=lambda t, s: t <= s,
    )
    def pairing(x: Any) -> Any:
        t, s = x.shape
        return np.cumsum(np.where(np.tri(t, s, s - t, dtype=bool), x, 0), axis=1)

    failing, *also = (make_case(pairing, dict(t=t, s=s), x=1 / 7) for t, s in ((2, 5), (3, 4), (4, 4), (2, 3)))
    found = locate_case(pairing, failing, backend="interpret", family="normal", also=also)
    assert found is not None
    assert (found.place, found.words) == (
        _fault(_aligned_at_the_top),
        "adding t - s to operand 1 of the comparison fixes the result",
    )


@pytest.mark.parametrize(
    ("count", "lengths", "cause"),
    [
        (pl.next_power_of_2, (3, 4, 5, 8), "the padded length of n in place of n"),
        (lambda _: 8, (5, 12, 20), ""),  # which only the first length is padded to
    ],
)
def test_a_mean_over_a_padded_length_is_named(
    count: Callable[[int], int], lengths: tuple[int, ...], cause: str
) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        o_ref[...] = jnp.cumsum(x, axis=1) - jnp.sum(x) / count(x.shape[1])  # FAULT

    @kt.oracle_for(
        lambda x: _call(body, PLAIN, x),
        x=kt.array("m n", "float32"),
        dims=dict(m=kt.dim(values=(1,)), n=kt.dim(values=lengths)),
    )
    def pairing(x: Any) -> Any:
        return np.cumsum(x, axis=1) - x.mean()

    failing, *also = (make_case(pairing, dict(m=1, n=n), x=np.arange(1.0, n + 1) / 7) for n in lengths)
    found = locate_case(pairing, failing, backend="interpret", family="normal", also=also)
    assert found is not None
    assert found.cause == cause
    assert found.place == _fault(test_a_mean_over_a_padded_length_is_named)


def test_the_wrong_axis_of_the_grid_in_an_index_is_named() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        i, j, at = pl.program_id(0), pl.program_id(1), jnp.arange(4)
        rows, columns = i * 4 + at, i * 4 + at  # FAULT
        o_ref[...] = jnp.cumsum(x_ref[...], axis=1)[rows[:, None], columns[None, :]] + j.astype(jnp.float32)

    def kernel(x: Any) -> Any:
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, grid=(2, 2), out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j)), out_shape=out)(x)

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dict(m=kt.dim(values=(8,)), n=kt.dim(values=(8,))))
    def pairing(x: Any) -> Any:
        return np.cumsum(x, axis=1) + np.arange(8) // 4

    failing = make_case(pairing, {}, x=np.arange(64.0).reshape(8, 8) / 7)
    found = locate_case(pairing, failing, backend="interpret", family="normal")
    assert found is not None
    assert found.words == "replacing program_id(0) by program_id(1) in mul fixes the result"
    assert found.place == _fault(test_the_wrong_axis_of_the_grid_in_an_index_is_named)


def test_a_value_that_is_read_on_the_same_line_is_called_another_one() -> None:
    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        x, y = x_ref[...], y_ref[...]
        o_ref[...] = jnp.cumsum(x * y, axis=1) - x  # FAULT

    @kt.oracle_for(
        lambda x, y: _call(body, PLAIN, x, y), x=kt.array("m n", "float32"), y=kt.array("m n", "float32"), dims=DIMS
    )
    def pairing(x: Any, y: Any) -> Any:
        return np.cumsum(x * y, axis=1) - y

    failing = make_case(pairing, {}, x=np.arange(16.0).reshape(4, 4) / 7, y=np.arange(16.0)[::-1].reshape(4, 4) / 3)
    found = locate_case(pairing, failing, backend="interpret", family="normal")
    assert found is not None
    where = _fault(test_a_value_that_is_read_on_the_same_line_is_called_another_one)
    line = int(where.rpartition(":")[2]) - 1
    assert found.place == where
    assert found.words == f"replacing the get of line {line} by another one in sub fixes the result"


def test_an_index_map_that_groups_programs_wrongly_is_named() -> None:
    def body(q_ref: Any, k_ref: Any, o_ref: Any) -> None:
        o_ref[...] = q_ref[...] * jnp.cumsum(k_ref[...], axis=1)

    def kernel(q: Any, k: Any) -> Any:
        heads, (keys, d) = q.shape[0], k.shape
        row = pl.BlockSpec((1, d), lambda i: (i, 0))
        shared = pl.BlockSpec((1, d), lambda i: (i % keys, 0))  # FAULT
        out = jax.ShapeDtypeStruct(q.shape, q.dtype)
        return pl.pallas_call(body, grid=(heads,), in_specs=[row, shared], out_specs=row, out_shape=out)(q, k)

    dims = dict(h=kt.dim(values=(1, 2, 3)), g=kt.dim(values=(1, 2, 4)), d=kt.dim(values=(4,)))

    @kt.oracle_for(kernel, q=kt.array("h*g d", "float32"), k=kt.array("h d", "float32"), dims=dims)
    def pairing(q: Any, k: Any) -> Any:
        return q * np.cumsum(np.repeat(k, len(q) // len(k), axis=0), axis=1)

    failing, *also = (
        make_case(pairing, dict(h=h, g=g, d=4), k=np.arange(1.0, h + 1)[:, None]) for h, g in ((2, 2), (3, 4), (3, 1))
    )
    found = locate_case(pairing, failing, backend="interpret", family="normal", also=also)
    assert found is not None
    assert found.place == _fault(test_an_index_map_that_groups_programs_wrongly_is_named)
    assert found.words == "using program_id(0) // 2 along axis 0 in the index map fixes the result"


@pytest.mark.parametrize(("programs", "grids"), [(1, {2, 3}), (2, {3}), (3, {3})])
def test_no_repair_launches_a_program_beyond_the_last_block(programs: int, grids: set[int]) -> None:
    block = pl.BlockSpec((16,), lambda i: (i,))

    def kernel(x: Any) -> Any:
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(_copied, grid=(programs,), in_specs=[block], out_specs=block, out_shape=out)(x)

    jaxpr = trace_function(lambda x: [kernel(x)], (ShapeDtype((40,), np.dtype(np.float32)),), "").jaxpr
    (call,) = (each for each, _ in iter_equations(jaxpr.jaxpr) if primitive_name(each) == "pallas_call")
    repair = next(each for each in call_repairs(call) if each.phrase.startswith("launching"))
    assert {each.params["grid_mapping"].grid[0] for each in repair.equations} == grids


def test_the_faulty_line_of_a_gradient_is_named() -> None:
    def kernel(x: Any) -> Any:
        return _squares(x)

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=DIMS, grad=True)
    def pairing(x: Any) -> Any:
        return x * x

    case = make_case(pairing, {}, x=np.arange(1.0, 17.0).reshape(4, 4))
    found = locate_case(pairing, case, backend="interpret", family="gradient")
    assert found is not None
    assert found.place == _fault(_backward)


def test_the_faulty_line_of_a_mosaic_gpu_kernel_is_named() -> None:
    def body(x_ref: Any, o_ref: Any, smem: Any, barrier: Any) -> None:
        mosaic_gpu.copy_gmem_to_smem(x_ref, smem, barrier)
        mosaic_gpu.barrier_wait(barrier)
        smem[...] = smem[...] * 2.0 + 1.0  # FAULT
        mosaic_gpu.commit_smem()
        mosaic_gpu.copy_smem_to_gmem(smem, o_ref)
        mosaic_gpu.wait_smem_to_gmem(0)

    def kernel(x: Any) -> Any:
        scratch: Any = dict(smem=mosaic_gpu.SMEM(x.shape, x.dtype), barrier=mosaic_gpu.Barrier())
        return mosaic_gpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_types=scratch)(x)

    @kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(128,))))
    def pairing(x: Any) -> Any:
        return x * 2

    found = locate_case(pairing, make_case(pairing, {}), backend="interpret-mosaic-gpu", family="normal")
    assert found is not None
    assert found.place == _fault(test_the_faulty_line_of_a_mosaic_gpu_kernel_is_named)


def test_lines_that_only_compute_wrong_values_are_shown_if_no_edit_helps() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        x = jnp.cumsum(x_ref[...], axis=1)
        top = jnp.tanh(x[0])  # FAULT
        rest = jnp.square(x[1:])
        rest = rest * 3.0 + jnp.cumsum(rest, axis=0)
        o_ref[0] = top
        o_ref[1:] = rest

    @kt.oracle_for(lambda x: _call(body, PLAIN, x), x=kt.array("m n", "float32"), dims=DIMS)
    def pairing(x: Any) -> Any:
        x = np.cumsum(x, axis=1)
        rest = np.square(x[1:])
        return np.concatenate([np.arctan(x[:1]) ** 3, rest * 3 + np.cumsum(rest, axis=0)])

    case = make_case(pairing, {}, x=np.arange(1.0, 17.0).reshape(4, 4) / 7)
    found = search_case(pairing, case, backend="interpret", family="normal")
    assert found.location is None
    assert _fault(test_lines_that_only_compute_wrong_values_are_shown_if_no_edit_helps) in found.computed
    assert len(found.computed) <= 2


def test_values_have_the_names_that_the_source_gives_them() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        whole = x_ref[...]
        o_ref[...] = jax.lax.fori_loop(0, 3, lambda i, total: total * whole + jnp.sin(total), whole)

    located = LocatedJaxpr(locate_equations(jax.make_jaxpr(lambda x: _call(body, PLAIN, x))(jnp.ones((4, 4)))))
    scopes = {site.name: [str(value) for value in site.scope[:2]] for site in located.sites()}
    load, carried = scopes["sin"]
    assert (scopes["get"], carried) == (["x_ref", "o_ref"], "total")
    assert load.startswith("the get of line ")  # what the loop uses of the kernel around it


def _fault(body: Any) -> str:
    """The line of a body that ends in `# FAULT`."""
    first = body.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if n > first and line.endswith("# FAULT"))
    return f"tests/localize/test_equation_mutants.py:{number}"
