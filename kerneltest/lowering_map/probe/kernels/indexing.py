"""Gathers, scatters, dynamic slices and sorting."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from .base import DTYPES, NUMBERS, SCALAR, VECTOR, Probe

_SCATTERS = {
    "scatter": "set",
    "scatter_add": "add",
    "scatter_mul": "multiply",
    "scatter_min": "min",
    "scatter_max": "max",
}


def probes() -> Iterator[Probe]:
    """Of group `indexing`."""
    indices, start = (VECTOR, "int32"), (SCALAR, "int32")
    yield _indexing("gather[take]", lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (VECTOR, indices))
    yield _indexing("gather[take_along_axis]", _take_along_axis, (VECTOR, indices))
    for name, method in _SCATTERS.items():
        yield _indexing(name, _scatter(method), (VECTOR, indices, VECTOR), NUMBERS)
    yield _indexing("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i,), (8,)), (VECTOR, start))
    yield _indexing("dynamic_update_slice", lambda x, v, i: lax.dynamic_update_slice(x, v, (i,)), (VECTOR, (8,), start))
    yield _indexing("sort", lambda x: lax.sort(x), (VECTOR,))
    yield _indexing("sort[keys and values]", lambda x, v: lax.sort_key_val(x, v), (VECTOR, indices))
    yield _indexing("top_k", lambda x: lax.top_k(x, 4), (VECTOR,), NUMBERS)
    yield _indexing("approx_top_k", lambda x: lax.approx_max_k(x, 4), (VECTOR,), ("float32", "bfloat16"))


def _indexing(name: str, body: Callable[..., Any], operands: Any, dtypes: tuple[str, ...] = DTYPES) -> Probe:
    return Probe(name, "indexing", body, dtypes, operands)


def _take_along_axis(x: Any, i: Any) -> Any:
    return jnp.take_along_axis(x, i, axis=0, mode="clip")


def _scatter(method: str) -> Callable[..., Any]:
    return lambda x, i, v: getattr(x.at[i], method)(v)
