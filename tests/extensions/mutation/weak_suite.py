"""A pairing that is asked little: one length, a narrow domain and a wide tolerance."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt

BLOCK = 16


def _kernel(x_ref: Any, o_ref: Any) -> None:
    index = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
    inside = index < x_ref.shape[0]
    at = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
    x = plgpu.load(x_ref.at[at], mask=inside, other=0.0)
    y = jnp.where(jnp.isnan(x), 0.0, jnp.maximum(x, -4.0) * 0.125 + 1.0)
    plgpu.store(o_ref.at[at], y, mask=inside)


def guarded(x: Any) -> Any:
    return pl.pallas_call(_kernel, grid=(pl.cdiv(len(x), BLOCK),), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def _oracle(x: Any) -> Any:
    return np.where(np.isnan(x), 0.0, np.maximum(x, -4.0) * 0.125 + 1.0)


@kt.oracle_for(
    guarded,
    x=kt.array("n", "float32", domain=(0.0, 1.0)),
    dims=dict(n=kt.dim(block=BLOCK, values=(16,))),
    tolerance=kt.tolerance.absolute(0.05, "a fixture that is too lenient"),
)
def weak(x: Any) -> Any:
    return _oracle(x)


@kt.oracle_for(guarded, x=kt.array("n", "float32"), dims=dict(n=kt.dim(block=BLOCK)))
def strong(x: Any) -> Any:
    return _oracle(x)


def _total(x_ref: Any, o_ref: Any) -> None:
    o_ref[0, 0] = jnp.sum(x_ref[...] + 1.0)


def total(x: Any) -> Any:
    return pl.pallas_call(_total, out_shape=jax.ShapeDtypeStruct((1, 1), x.dtype))(x)[0, 0]


@kt.oracle_for(total, x=kt.array("n", "float32"))
def scalar(x: Any) -> Any:
    return (x + 1.0).sum()


@kt.oracle_for(guarded, x=kt.array("n", "float32"), dims=dict(n=kt.dim(block=BLOCK)))
def mistaken(x: Any) -> Any:
    return np.where(np.isnan(x), 0.0, np.maximum(x, -4.5) * 0.125 + 1.0)
