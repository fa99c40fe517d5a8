"""Pairings of JAX's GPU softmax: one program a row, in a block that is the next power of two long."""

import numpy as np
from jax.experimental.pallas.ops.gpu.softmax import softmax

import kerneltest as kt

ROUNDED = [
    kt.xfail(
        "mismatch",
        backend=backend,
        dtype=dtype,
        reason="the maximum is subtracted in the input's dtype, and what is left is made float32 afterwards",
        url="https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/experimental/pallas/ops/gpu/softmax.py#L42",
    )
    for backend, dtype in (("interpret", "float16"), ("simulate:*", "*"), ("cuda", "*"))
]  # XLA on a CPU keeps what is left of bfloat16 in float32


@kt.oracle_for(
    softmax,
    x=kt.array("b m n", domain=(-np.inf, np.inf)),
    dims=dict(b=kt.dim(values=(2,)), m=kt.dim(values=(3, 1)), n=kt.dim(block=16, values=(1, 7, 16, 33))),
    batch_dims="m",
    tolerance=kt.tolerance.rounding(compute="input"),
)
def rows(x):
    terms = np.exp(x - x.max(axis=-1, keepdims=True))
    return terms / terms.sum(axis=-1, keepdims=True)


@kt.oracle_for(
    softmax,
    x=kt.derived("m n", lambda rng, m, n: rng.normal(0, 4, (m, n)), dtypes=("bfloat16", "float16")),
    dims=dict(m=kt.dim(values=(3,)), n=kt.dim(values=(100,))),
    xfail=ROUNDED,
)
def in_float32(x):
    return rows(x)
