"""The cotangents with which gradients are asked: weights of a kernel's outputs, each kind for a fault of its own."""

from collections.abc import Callable, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, DType

Rng = np.random.Generator
Weigh = Callable[[Rng, Array], Array]


def _signs(rng: Rng, where: Array) -> Array:
    return np.asarray(rng.choice((-1.0, -0.5, 0.5, 1.0), where.shape) * where)


def _magnitudes(rng: Rng, where: Array) -> Array:
    return _signs(rng, where) * 2.0 ** rng.integers(-8, 9, where.shape)


def _last(rng: Rng, where: Array) -> Array:
    weights = np.zeros(where.shape)
    weights.flat[np.flatnonzero(where)[-1:]] = 1.0
    return weights


COTANGENTS: dict[str, Weigh] = {
    "the gradient": _signs,
    "the gradient with weights from 1/512 to 256": _magnitudes,
    "the gradient of each output's last element": _last,
}
"""By the label of their check. Where all weights but one are zero, a division by the largest weight of a row fails."""


def cotangents(label: str, rng: Rng, defined: Sequence[Array], dtypes: Sequence[DType]) -> tuple[Array, ...]:
    """Returns the cotangent of each float output.

    Args:
      label: of the kind, in `COTANGENTS`.
      rng: chooses the weights.
      defined: bool, True for the elements that may have a weight.
      dtypes: of the outputs, and so of the cotangents.
    """
    return tuple(COTANGENTS[label](rng, where).astype(dtype) for where, dtype in zip(defined, dtypes, strict=True))
