"""Reductions and scans along an axis."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .base import BITWISE, FLOATS, MATRIX, NUMBERS, VECTOR, Probe, first_available, lax_function


def probes() -> Iterator[Probe]:
    """Of groups `reduction` and `scan`."""
    for name in "reduce_sum reduce_prod reduce_max reduce_min".split():
        yield _reduction(name, NUMBERS)
    for name in "reduce_and reduce_or reduce_xor".split():
        yield _reduction(name, BITWISE)
    yield _reduction("reduce_sum", NUMBERS, "[first axis]", (0,))
    yield _reduction("reduce_sum", NUMBERS, "[all axes]", (0, 1))
    for name in ("argmax", "argmin"):
        yield Probe(name, "reduction", lax_function(name, 1, jnp.int32), NUMBERS, (MATRIX,))
    yield Probe("reduce", "reduction", _reduce_by_function, NUMBERS, (MATRIX,))
    yield Probe("reduce_window_sum", "reduction", _reduce_windows, NUMBERS, (MATRIX,))

    for name in "cumsum cumprod cummax cummin".split():
        yield Probe(name, "scan", lax_function(name, 0), NUMBERS, (VECTOR,))
    yield Probe("cumlogsumexp", "scan", lax_function("cumlogsumexp", 0), FLOATS, (VECTOR,))
    yield Probe("cumsum[reverse]", "scan", lax_function("cumsum", 0, reverse=True), NUMBERS, (VECTOR,))
    yield Probe("associative_scan", "scan", lambda x: lax.associative_scan(jnp.maximum, x), NUMBERS, (VECTOR,))


def _reduction(name: str, dtypes: tuple[str, ...], variant: str = "", axes: tuple[int, ...] = (1,)) -> Probe:
    def body(x: Any) -> Any:
        if hasattr(lax, name):
            return getattr(lax, name)(x, axes)
        return first_available(f"lax.{name}_p").bind(x, axes=axes)  # the primitive is older than the function

    return Probe(name + variant, "reduction", body, dtypes, (MATRIX,))


def _reduce_by_function(x: Any) -> Any:
    return lax.reduce(x, np.zeros((), x.dtype), lambda a, b: a + b + b, (1,))


def _reduce_windows(x: Any) -> Any:
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, (1, 2), (1, 2), "VALID")
