"""Kernels at sizes of 2^31 elements and more, checked without an array of that size."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kernels.vector_add import vector_add_blocked
from tests.corpus import twin

BLOCK, COLUMNS = 64, 2**16


def _flat(x: jax.Array) -> jax.Array:
    """Copies the first block of each row of a matrix stored as a vector: row * COLUMNS wraps around at 2^32."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = pl.program_id(0) * COLUMNS + jnp.arange(BLOCK)
        o_ref[at] = x_ref[at]

    return pl.pallas_call(body, out_shape=x, grid=(x.shape[0] // COLUMNS,), compiler_params=plgpu.CompilerParams())(x)


def _matrix(x: jax.Array) -> jax.Array:
    """The same for a matrix, whose offsets JAX computes in 64 bits."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = (pl.program_id(0), pl.ds(0, BLOCK))
        o_ref[at] = x_ref[at]

    return pl.pallas_call(body, out_shape=x, grid=(x.shape[0],), compiler_params=plgpu.CompilerParams())(x)


def _shifted(x: jax.Array) -> jax.Array:
    """Stores before the array if the row's number does not fit in 31 bits."""

    def body(x_ref: Any, o_ref: Any) -> None:
        at = (pl.program_id(0) * COLUMNS + jnp.arange(BLOCK)) // 2
        o_ref[at] = x_ref[at]

    return pl.pallas_call(body, out_shape=x, grid=(x.shape[0] // COLUMNS,), compiler_params=plgpu.CompilerParams())(x)


DIMS = {"n": {"n": kt.dim(multiple_of=COLUMNS)}, "m n": {}}


def _pairing(kernel: Any, shape: str) -> kt.Pairing:
    return kt.oracle_for(kernel, x=kt.array(shape, "float32"), dims=DIMS[shape])(lambda x: x)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_an_index_that_wraps_around_is_found(target: str) -> None:
    faults = kt.check_addresses(_pairing(_flat, "n"), target=target, n=2**33)
    assert {(fault.verdict, fault.buffer) for fault in faults} >= {
        ("out_of_bounds", "x_ref"),
        ("out_of_bounds", "o_ref"),
    }
    assert "an index wraps around: 65,536 x 65,536 is past 2^31" in faults[0].message
    assert kt.check_addresses(_pairing(_flat, "n"), target=target, n=2**32) == ()


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_an_index_that_turns_negative_is_found(target: str) -> None:
    found = kt.check_addresses(_pairing(_shifted, "n"), target=target, n=3 * 2**30)
    assert {fault.verdict for fault in found} == {"out_of_bounds"}
    assert all("by program (" in fault.message for fault in found)
    assert kt.check_addresses(_pairing(_shifted, "n"), target=target, n=2**31) == ()


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_right_kernels_are_not_accused(target: str) -> None:
    assert kt.check_addresses(_pairing(_matrix, "m n"), target=target, m=2**17, n=COLUMNS) == ()
    add = kt.oracle_for(vector_add_blocked, x=kt.array("n", "float32"), y=kt.array("n", "float32"))(lambda x, y: x + y)
    assert kt.check_addresses(add, target=target, n=2**30 + 7) == ()


def test_ordinary_bugs_are_found_as_well() -> None:
    (fault,) = kt.check_addresses(twin("a store one element past the end").broken(), m=100)
    assert "store at o offset 100" in fault.message


@pytest.mark.parametrize(
    ("wrong", "words"), [(dict(target="sm_91"), "known are sm_80"), (dict(k=3), "has no dim 'k'; it has n")]
)
def test_bad_input_lists_what_is_known(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kt.check_addresses(_pairing(_flat, "n"), **wrong)
