"""A pairing of a kernel of flash-linear-attention (fla-core)."""

import numpy as np
import pytest

import kerneltest as kt

pytest.importorskip("triton")
sums = pytest.importorskip("fla.ops.utils.logcumsumexp")

CONFIGURATIONS = 0, 8  # of nine; blocks of 16 and of 64
FLOOR = "a sum is log(1e-20) if it is far below the largest element of a block, or below the 0 of its padding"
LATER = "the NaN and inf of a block reach the sums before them"
PAGE = "https://github.com/fla-org/flash-linear-attention/blob/main/fla/ops/utils/logcumsumexp.py"


@kt.oracle_for(
    kt.triton_kernel(
        sums.logcumsumexp_fwd_kernel,
        grid=lambda given: (len(given["s"]),),
        outputs=dict(z="s"),
        constants=dict(T=lambda given: given["s"].shape[1], S=lambda given: given["s"].shape[2]),
    ),
    s=kt.array("b t s", "float32"),
    config=kt.static(*CONFIGURATIONS),
    dims=dict(b=kt.dim(values=(1, 2)), t=kt.dim(values=(15, 80)), s=kt.dim(values=(16,))),
    batch_dims="b",
    xfail=[
        kt.xfail("mismatch", backend="simulate*", group="*", reason=FLOOR, url=PAGE),
        kt.xfail("special_mismatch", backend="simulate*", group="special", reason=LATER, url=PAGE),
    ],
)
def logcumsumexp(s):
    return np.logaddexp.accumulate(s, 1)
