"""Casts from each dtype to each other, by value and by bits."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from .base import DTYPES, NUMBERS, VECTOR, Probe


def probes() -> Iterator[Probe]:
    """Of group `cast`; a probe's dtypes are those cast from."""
    for target in DTYPES:
        others = tuple(dtype for dtype in DTYPES if dtype != target)
        yield _cast("convert_element_type", target, others)
    for target in NUMBERS:
        size = jnp.dtype(target).itemsize
        same = tuple(dtype for dtype in NUMBERS if dtype != target and jnp.dtype(dtype).itemsize == size)
        yield _cast("bitcast_convert_type", target, same)


def _cast(primitive: str, target: str, dtypes: tuple[str, ...]) -> Probe:
    def body(x: Any) -> Any:
        return getattr(lax, primitive)(x, jnp.dtype(target))

    return Probe(f"{primitive}[to {target}]", "cast", body, dtypes, (VECTOR,))
