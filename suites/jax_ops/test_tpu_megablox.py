"""Pairings of JAX's grouped matrix products: rows are cut into groups, and each has a matrix of its own."""

import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.megablox import gmm
from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm

import kerneltest as kt

TILES = (8, 128, 128)
FLOATS = ("float32", "bfloat16")
DIMS = dict(m=kt.dim(block=8, values=(24,)), k=kt.dim(values=(136,)), n=kt.dim(values=(136,)), cuts=kt.dim(values=(4,)))
GROUPS = dict(groups=kt.dim(values=(5,)))
CUTS = kt.lengths("cuts", up_to="m")


def sizes(cuts, m, xp):
    ends = xp.concatenate([xp.sort(cuts), xp.asarray([m], dtype=cuts.dtype)])
    return xp.diff(ends, prepend=ends[:1] * 0)


def product_by_group(lhs, rhs, cuts, transpose_rhs):
    return gmm(
        lhs, rhs.swapaxes(1, 2) if transpose_rhs else rhs, sizes(cuts, lhs.shape[0], jnp), lhs.dtype, TILES,
        transpose_rhs=transpose_rhs,
    )  # fmt: skip


def groups_of(cuts, m):
    return np.repeat(np.arange(len(cuts) + 1), sizes(cuts, m, np))


@kt.oracle_for(
    product_by_group,
    lhs=kt.array("m k", FLOATS, domain=(-100, 100)),
    rhs=kt.array("groups k n", FLOATS, domain=(-100, 100)),
    cuts=CUTS,
    transpose_rhs=kt.static(False, True),
    dims=DIMS | GROUPS,
    grad=True,
)
def by_group(lhs, rhs, cuts):
    return np.einsum("mk,mkn->mn", lhs, rhs[groups_of(cuts, len(lhs))])


def transposed_by_group(lhs, rhs, cuts):
    return tgmm(lhs, rhs, sizes(cuts, rhs.shape[0], jnp), lhs.dtype, TILES)


@kt.oracle_for(
    transposed_by_group,
    lhs=kt.array("k m", FLOATS, domain=(-100, 100)),
    rhs=kt.array("m n", FLOATS, domain=(-100, 100)),
    cuts=CUTS,
    dims=DIMS,
)
def sums_by_group(lhs, rhs, cuts):
    chosen = np.arange(len(cuts) + 1)[:, None] == groups_of(cuts, len(rhs))
    return np.einsum("km,gm,mn->gkn", lhs, chosen.astype(float), rhs)


def into_existing(lhs, rhs, existing_out, cuts):
    return gmm(lhs, rhs, sizes(cuts, lhs.shape[0], jnp), lhs.dtype, TILES, None, existing_out)


@kt.oracle_for(
    into_existing,
    lhs=kt.array("m k", "float32", domain=(-100, 100)),
    rhs=kt.array("groups k n", "float32", domain=(-100, 100)),
    existing_out=kt.array("m n", "float32", domain=(-100, 100)),
    cuts=CUTS,
    dims=DIMS | GROUPS | dict(n=kt.dim(values=(128,))),
    grad=True,
    xfail=[
        kt.xfail(
            "mismatch", backend="interpret*", family="gradient", reason="the gradient of what is overwritten is not 0",
            url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/tpu/megablox/ops.py#L106",
        )
    ],
)  # fmt: skip
def overwritten(lhs, rhs, existing_out, cuts):
    return np.einsum("mk,mkn->mn", lhs, rhs[groups_of(cuts, len(lhs))]) + 0 * existing_out
