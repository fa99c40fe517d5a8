"""A pairing of a kernel of conch-triton-kernels."""

import numpy as np
import pytest

import kerneltest as kt

triton = pytest.importorskip("triton")
norms = pytest.importorskip("conch.kernels.normalization.rms_norm")

FLOATS = "float32", "bfloat16"
UNMASKED = kt.xfail(
    "uninitialised", backend="simulate*", signature="*n=100*", group="*",
    reason="a row is loaded under a mask without other=, and what is there is added to the sum of squares",
    url="https://github.com/stackav-oss/conch/blob/main/conch/kernels/normalization/rms_norm.py",
)  # fmt: skip


def step_by_step(x_ptr, weight_ptr):
    x = x_ptr.astype(np.float32)
    return (x / np.sqrt(np.mean(x**2, -1, keepdims=True) + np.float32(1e-6))).astype(x_ptr.dtype) * weight_ptr


@kt.oracle_for(
    kt.triton_kernel(
        norms._rms_norm_kernel,
        grid=lambda given: (len(given["x_ptr"]),),
        outputs=dict(output_ptr="x_ptr"),
        constants=dict(
            residual_ptr=None,
            hidden_size=lambda given: given["x_ptr"].shape[1],
            epsilon=1e-6,
            cxpr_block_size=lambda given: triton.next_power_of_2(given["hidden_size"]),
            cxpr_use_residual=False,
        ),
    ),
    x_ptr=kt.array("m n", FLOATS),
    weight_ptr=kt.array("n", FLOATS),
    dims=dict(m=kt.dim(values=(1, 3)), n=kt.dim(values=(64, 100))),
    batch_dims="m",
    tolerance=kt.tolerance.reference(step_by_step),
    xfail=[UNMASKED],
)
def rms_norm(x_ptr, weight_ptr):
    return x_ptr / np.sqrt(np.mean(x_ptr**2, -1, keepdims=True) + 1e-6) * weight_ptr
