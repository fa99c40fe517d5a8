"""The pairing of rotary position embedding, from the first position on and from a later one."""

import numpy as np

import kerneltest as kt
from kernels.rotary import BASE, BLOCK, rotary


@kt.oracle_for(
    rotary,
    x=kt.array("b s d"),
    first=kt.static(0, 1000),
    dims=dict(b=kt.dim(values=(2, 1)), s=kt.dim(block=BLOCK), d=kt.dim(values=(16, 24, 2))),
    batch_dims="b",
    invariant_to="grid",
)
def rotated(x: np.ndarray, first: int) -> np.ndarray:
    s, d = x.shape[-2:]
    frequency = BASE ** (-2 * np.arange(d // 2) / d)
    angle = (first + np.arange(s))[:, None] * frequency
    a, b = x[..., : d // 2], x[..., d // 2 :]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cosine - b * sine, a * sine + b * cosine], axis=-1)
