"""Pairings of kernels of liger-kernel."""

import numpy as np
import pytest

import kerneltest as kt

triton = pytest.importorskip("triton")
softmaxes = pytest.importorskip("liger_kernel.ops.softmax")
BLOCK = 64  # the library's is up to 65536


def softmax_oracle(X_ptr):  # noqa: N803 - as the library calls it
    e = np.exp(X_ptr - X_ptr.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def paired(kernel, longest, **more):
    function = kt.triton_kernel(
        kernel,
        grid=lambda given: (len(given["X_ptr"]),),
        outputs=dict(Y_ptr="X_ptr"),
        constants=dict(
            n_cols=lambda given: given["X_ptr"].shape[1],
            X_row_stride=lambda given: given["n_cols"],
            Y_row_stride=lambda given: given["n_cols"],
            BLOCK_SIZE=BLOCK,
        ),
    )
    dims = dict(m=kt.dim(values=(1, 3)), n=kt.dim(block=BLOCK, maximum=longest))
    return kt.oracle_for(function, X_ptr=kt.array("m n", "float32"), dims=dims, batch_dims="m", **more)(softmax_oracle)


one_block = paired(softmaxes._softmax_single_block_forward_kernel, BLOCK)
several_blocks = paired(
    softmaxes._softmax_multi_block_forward_kernel,
    3 * BLOCK,
    xfail=[
        kt.xfail(
            "compile_error", backend="lower*", reason="tl.float32(...) is not a call of Triton's",
            url="https://github.com/linkedin/Liger-Kernel/blob/main/src/liger_kernel/ops/softmax.py",
        )
    ],
)  # fmt: skip
