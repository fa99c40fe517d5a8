"""Pairings of ejkernel's grouped matrix products: rows are parted into groups, and each has a matrix of its own."""

import numpy as np
import pytest

import kerneltest as kt

first = pytest.importorskip("ejkernel.kernels._pallas.tpu.grouped_matmul").grouped_matmul
second = pytest.importorskip("ejkernel.kernels._pallas.tpu.grouped_matmulv2").grouped_matmulv2
third = pytest.importorskip("ejkernel.kernels._pallas.tpu.grouped_matmulv3").grouped_matmulv3

TILES = (8, 128, 128)
DIMS = dict(
    m=kt.dim(block=8, values=(24,)), k=kt.dim(values=(256,)), n=kt.dim(values=(128,)), groups=kt.dim(values=(5,))
)  # fmt: skip
ANY_DEPTH = DIMS | dict(k=kt.dim(values=(136,)))  # the last block of k overhangs
SIZES = dict(group_sizes=kt.partition("groups", of="m"))
OPTIONS = dict(tiling=kt.static(TILES), preferred_element_type=kt.static("float32"))


def array(axes, *dtypes):
    return kt.array(axes, dtypes, domain=(-100, 100))


ARRAYS = dict(lhs=array("m k", "float32", "bfloat16"), rhs=array("groups k n", "float32", "bfloat16"))


def by_group(lhs, rhs, group_sizes):
    return np.einsum("mk,mkn->mn", lhs, rhs[np.repeat(np.arange(len(group_sizes)), group_sizes)])


@kt.oracle_for(first, **ARRAYS, **SIZES, **OPTIONS, dims=ANY_DEPTH, returns="float32", grad=True)
def version_1(lhs, rhs, group_sizes):
    return by_group(lhs, rhs, group_sizes)


@kt.oracle_for(second, **ARRAYS, **SIZES, **OPTIONS, dims=ANY_DEPTH, returns="float32", grad=True)
def version_2(lhs, rhs, group_sizes):
    return by_group(lhs, rhs, group_sizes)


@kt.oracle_for(third, **ARRAYS, **SIZES, **OPTIONS, dims=ANY_DEPTH, returns="float32", grad=True)
def version_3(lhs, rhs, group_sizes):
    return by_group(lhs, rhs, group_sizes)


@kt.oracle_for(
    first,
    lhs=array("m k", "float32"),
    rhs=array("groups k n", "float32"),
    **SIZES,
    existing_out=array("m n", "float32"),
    **OPTIONS,
    dims=DIMS,
    xfail=[
        kt.xfail(
            "mismatch", backend="interpret*", group="*", reason="existing_out is overwritten, not accumulated into",
            url="https://github.com/erfanzar/ejkernel/blob/main/ejkernel/kernels/_pallas/tpu/grouped_matmul",
        )
    ],
)  # fmt: skip
def accumulated(lhs, rhs, group_sizes, existing_out):
    return by_group(lhs, rhs, group_sizes) + existing_out
