"""Reshaping, joining, splitting and filling."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .base import DTYPES, MATRIX, NUMBERS, SCALAR, VECTOR, Probe, first_available


def probes() -> Iterator[Probe]:
    """Of group `shape`."""
    yield _shape("reshape", lambda x: lax.reshape(x, (16, 8)))
    yield _shape("reshape[to 1D]", lambda x: lax.reshape(x, (128,)))
    yield _shape("transpose", lambda x: lax.transpose(x, (1, 0)))
    yield _shape("transpose[3D]", lambda x: lax.transpose(x, (2, 0, 1)), (2, 4, 8))
    yield _shape("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (8, 16), (1,)), VECTOR)
    yield _shape("broadcast_in_dim[scalar]", lambda x: lax.broadcast_in_dim(x, (8, 16), ()), SCALAR)
    yield _shape("broadcast_to[pl]", lambda x: first_available("pl.broadcast_to")(x, (8, 16)), (1, 16))
    yield _shape("expand_dims", lambda x: lax.expand_dims(x, (0,)))
    yield _shape("squeeze", lambda x: lax.squeeze(x, (0,)), (1, 16))
    yield _shape("concatenate", lambda x, y: lax.concatenate((x, y), 0), VECTOR, VECTOR)
    yield _shape("concatenate[last axis of 1]", lambda x, y: lax.concatenate((x, y), 1), (16, 1), (16, 1))
    yield _shape("stack", lambda x, y: first_available("lax.stack")([x, y], axis=1), VECTOR, VECTOR)
    yield _shape("unstack", lambda x: first_available("lax.unstack")(x, axis=1), (16, 2))
    yield _shape("pad", lambda x: lax.pad(x, np.zeros((), x.dtype), ((0, 16, 0),)), VECTOR)
    yield _shape("rev", lambda x: lax.rev(x, (0,)), VECTOR)
    yield _shape("split", lambda x: first_available("lax.split")(x, (8, 8), 1))
    yield _shape("slice", lambda x: lax.slice(x, (0,), (8,)), VECTOR)
    yield _shape("slice[strided]", lambda x: lax.slice(x, (0,), (16,), (2,)), VECTOR)
    yield _shape("tile", lambda x: first_available("lax.tile")(x, (2,)), VECTOR)
    yield _shape("copy", lambda x: jnp.array(x, copy=True), VECTOR)
    yield _shape("full", lambda x: lax.full(x.shape, 1, x.dtype), VECTOR)
    yield Probe("iota", "shape", lambda x: lax.broadcasted_iota(x.dtype, x.shape, 1), NUMBERS, (MATRIX,))


def _shape(name: str, body: Callable[..., Any], *operands: Any) -> Probe:
    return Probe(name, "shape", body, DTYPES, operands or (MATRIX,))
