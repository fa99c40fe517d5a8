"""Pairings of the cross-entropy kernels: of logits, with one label a row."""

import numpy as np

import kerneltest as kt
from kernels.cross_entropy import BLOCK, cross_entropy, cross_entropy_tiled

DIMS = dict(m=kt.dim(values=(3, 1, 5)), n=kt.dim(block=BLOCK))
SOFTCAP = kt.static(None, 30.0)


def losses(logits: np.ndarray, labels: np.ndarray, softcap: float | None) -> np.ndarray:
    if softcap is not None:
        logits = softcap * np.tanh(logits / softcap)
    maximum = logits.max(axis=-1, keepdims=True)
    shifted = logits - np.where(np.isfinite(maximum), maximum, 0)
    label = np.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
    return np.log(np.exp(shifted).sum(axis=-1)) - label


@kt.oracle_for(
    cross_entropy,
    logits=kt.array("m n"),
    labels=kt.indices("m", into="n"),
    softcap=SOFTCAP,
    dims=DIMS,
    batch_dims="m",
    invariant_to="grid",
)
def whole_rows(logits: np.ndarray, labels: np.ndarray, softcap: float | None) -> np.ndarray:
    return losses(logits, labels, softcap)


@kt.oracle_for(
    cross_entropy_tiled,
    logits=kt.array("m n"),
    labels=kt.indices("m", into="n"),
    softcap=SOFTCAP,
    block=kt.static(BLOCK, 16),
    dims=DIMS,
    batch_dims="m",
    invariant_to="grid",
)
def tiled(logits: np.ndarray, labels: np.ndarray, softcap: float | None) -> np.ndarray:
    return losses(logits, labels, softcap)
