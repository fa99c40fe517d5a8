"""Pairings of JAX's GPU normalisations, forward and backward: one program a row, looping over its columns."""

import numpy as np
from jax.experimental.pallas.ops.gpu.layer_norm import layer_norm
from jax.experimental.pallas.ops.gpu.rms_norm import rms_norm

import kerneltest as kt

EPSILON = 1e-5
ARRAYS = dict(
    x=kt.array("b m n", domain=(-np.inf, np.inf)),
    weight=kt.array("n", domain=(-9, 9)),
    bias=kt.array("n", domain=(-9, 9)),
)
OPS = "https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu"
DIMS = dict(b=kt.dim(values=(2,)), m=kt.dim(values=(3, 1)), n=kt.dim(block=128, values=(1, 100, 259)))


def rounded(what, url):
    reason = f"the forward pass keeps {what} in the input's dtype for the backward pass"
    return [
        kt.xfail("mismatch", backend=backend, dtype="*float16", family="gradient", reason=reason, url=f"{OPS}/{url}")
        for backend in ("interpret", "simulate:*", "cuda")
    ]


@kt.oracle_for(
    layer_norm,
    **ARRAYS,
    dims=DIMS,
    batch_dims="m",
    grad=True,
    xfail=rounded("mean and reciprocal deviation", "layer_norm.py#L106"),
)
def layer(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * weight + bias


@kt.oracle_for(
    rms_norm,
    **ARRAYS,
    dims=DIMS,
    batch_dims="m",
    grad=True,
    xfail=rounded("the reciprocal root mean square", "rms_norm.py#L84"),
)
def root_mean_square(x, weight, bias):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight + bias
