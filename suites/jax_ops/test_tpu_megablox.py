"""Pairings of JAX's grouped matrix products: rows are parted into groups, and each has a matrix of its own."""

import numpy as np
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm

import kerneltest as kt

TILES = (8, 128, 128)
DIMS = dict(m=kt.dim(block=8, values=(24,)), k=kt.dim(values=(136,)), n=kt.dim(values=(128,)))
SIZES = dict(group_sizes=kt.partition("groups", of="m"))
GROUPS = dict(groups=kt.dim(values=(5,)))


def array(axes, *dtypes):
    return kt.array(axes, dtypes, domain=(-100, 100))


def groups_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def product_by_group(lhs, rhs, group_sizes, transpose_rhs):
    rhs = rhs.swapaxes(1, 2) if transpose_rhs else rhs
    return gmm(lhs, rhs, group_sizes, lhs.dtype, TILES, transpose_rhs=transpose_rhs)


@kt.oracle_for(
    product_by_group,
    lhs=array("m k", "float32", "bfloat16"),
    rhs=array("groups k n", "float32", "bfloat16"),
    **SIZES,
    transpose_rhs=kt.static(False, True),
    dims=DIMS | GROUPS,
    grad=True,
)
def by_group(lhs, rhs, group_sizes):
    return np.einsum("mk,mkn->mn", lhs, rhs[groups_of(group_sizes)])


def transposed_by_group(lhs, rhs, group_sizes):
    return tgmm(lhs, rhs, group_sizes, lhs.dtype, TILES)


@kt.oracle_for(
    transposed_by_group,
    lhs=array("k m", "float32", "bfloat16"),
    rhs=array("m n", "float32", "bfloat16"),
    **SIZES,
    dims=DIMS | GROUPS,
)
def sums_by_group(lhs, rhs, group_sizes):
    chosen = np.arange(len(group_sizes))[:, None] == groups_of(group_sizes)
    return np.einsum("km,gm,mn->gkn", lhs, chosen.astype(float), rhs)


def into_existing(lhs, rhs, group_sizes, existing_out):
    return gmm(lhs, rhs, group_sizes, lhs.dtype, TILES, None, existing_out)


@kt.oracle_for(
    into_existing,
    lhs=array("m k", "float32"),
    rhs=array("groups k n", "float32"),
    **SIZES,
    existing_out=array("m n", "float32"),
    dims=DIMS | GROUPS,
    grad=True,
    xfail=[
        kt.xfail(
            "mismatch", backend="interpret*", family="gradient", reason="the gradient of what is overwritten is not 0",
            url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/tpu/megablox/ops.py#L106",
        )
    ],
)  # fmt: skip
def overwritten(lhs, rhs, group_sizes, existing_out):
    return by_group(lhs, rhs, group_sizes) + 0 * existing_out
