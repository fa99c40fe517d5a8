"""Random bits, and keys in a kernel."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import random as extend_random

from .base import SCALAR, VECTOR, Probe


def probes() -> Iterator[Probe]:
    """Of group `random`."""
    yield _random("threefry2x32", lambda *x: extend_random.threefry2x32_p.bind(*x), *(VECTOR,) * 4)
    yield _random("random_bits", _of_key(lambda key: jax.random.bits(key, (16,))), (2,))
    yield _random("random_split", _of_key(lambda key: jax.random.key_data(jax.random.split(key))), (2,))
    yield _random("rng_bit_generator", lambda x: lax.rng_bit_generator(x, (16,), dtype=jnp.uint32)[1], (4,))
    yield _random("rng_uniform", lambda a, b: lax.rng_uniform(a, b, (16,)), SCALAR, SCALAR, dtype="float32")


def _random(name: str, body: Callable[..., Any], *operands: Any, dtype: str = "uint32") -> Probe:
    return Probe(name, "random", body, (dtype,), operands)


def _of_key(draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: draw(jax.random.wrap_key_data(x))
