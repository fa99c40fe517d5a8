"""Atomic updates in a kernel whose floats are promoted: in sequence, masked, at positions that repeat."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced, trace_function

X = np.array([0.1, -2.5, 3.0, 0.25, 7.0, -0.1], np.float32)
WIDE = X.astype(np.float64)
AT = np.array([2, 0, 2, 1, 0, 2], np.int32)


def _traced(update: Callable[[Any, Array, Any, Any], Any], start: float = 0.0) -> Traced:
    """Two programs of four lanes, of which six are elements; each calls `update(reference, index, values, mask)`."""

    def body(x_ref: Any, at_ref: Any, start_ref: Any, o_ref: Any) -> None:
        lanes = pl.program_id(0) * 4 + jnp.arange(4)
        inside = lanes < len(X)
        x = plgpu.load(x_ref.at[lanes], mask=inside, other=0)
        index = plgpu.load(at_ref.at[lanes], mask=inside, other=0)
        update(o_ref, index, x, inside)

    def kernel(x: jax.Array, at: jax.Array) -> list[Any]:
        out = jax.ShapeDtypeStruct((3,), x.dtype)
        call = pl.pallas_call(body, grid=(2,), out_shape=out, input_output_aliases={2: 0})
        return [call(x, at, jnp.full(3, start, x.dtype))]

    return trace_function(kernel, (ShapeDtype(X.shape, X.dtype), ShapeDtype(AT.shape, AT.dtype)), "")


def _evaluate(update: Callable[[Any, Array, Any, Any], Any], start: float = 0.0) -> Array:
    return PromotedKernel(_traced(update, start))([X[None], AT[None]])[0][0]


def _combine(ufunc: np.ufunc, start: float) -> Array:
    out = np.full(3, start, np.float64)
    ufunc.at(out, AT, WIDE)
    return out


@pytest.mark.parametrize(
    ("update", "expected", "start"),
    [
        (lambda o, at, x, inside: plgpu.atomic_add(o, (at,), x, mask=inside), _combine(np.add, 1), 1),
        (lambda o, at, x, inside: plgpu.atomic_max(o, (at,), x, mask=inside), _combine(np.maximum, -1), -1),
        (lambda o, at, x, inside: plgpu.atomic_min(o, (at,), x, mask=inside), _combine(np.minimum, 1), 1),
        (lambda o, at, x, inside: plgpu.atomic_add(o, (pl.ds(1, 1),), x.sum()[None]), [1, 1 + WIDE.sum(), 1], 1),
    ],
    ids=["add", "max", "min", "one element"],
)
def test_updates_of_one_element_follow_each_other(
    update: Callable[[Any, Array, Any, Any], Any], expected: Array, start: float
) -> None:
    np.testing.assert_allclose(_evaluate(update, start), expected, rtol=1e-15)


def test_each_update_finds_what_those_before_it_left() -> None:
    def slices(o: Any, at: Array, x: Any, inside: Any) -> None:
        o[pl.ds(pl.program_id(0) + 1, 1)] = plgpu.atomic_add(o, (pl.ds(0, 1),), jnp.ones(1, x.dtype))

    def positions(o: Any, at: Array, x: Any, inside: Any) -> None:
        found = plgpu.atomic_add(o, (jnp.zeros_like(at),), jnp.ones_like(x), mask=inside)
        plgpu.store(o.at[pl.ds(1, 1)], found.max(keepdims=True))

    assert _evaluate(slices, 5).tolist() == [7, 5, 6]
    assert _evaluate(positions, 5).tolist() == [11, 10, 5]


def test_pallas_own_interpreter_is_not_imitated() -> None:
    traced = _traced(lambda o, at, x, inside: plgpu.atomic_add(o, (at,), x, mask=inside))
    with pytest.raises(UnknownError, match="as Pallas interprets it"):
        BatchedKernel(traced)
