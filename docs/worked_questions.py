"""The findings of the worked example of tolerances.md: `PYTHONPATH=$PWD python docs/worked_questions.py`."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import kerneltest as kt


def layer_norm(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def right(x: jax.Array) -> jax.Array:
    mean = x.mean(axis=1, keepdims=True)
    centred = x - mean
    return centred * jax.lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def another_epsilon(x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + 0.005)


def in_16_bits(x: jax.Array) -> jax.Array:
    centred = x - x.mean(axis=1, keepdims=True)
    squares = (centred * centred).astype(jnp.bfloat16).astype(jnp.float32)
    return centred * jax.lax.rsqrt(squares.mean(axis=1, keepdims=True) + 1e-5)


def by_moments(x: jax.Array) -> jax.Array:
    mean = x.mean(axis=1, keepdims=True)
    variance = jnp.maximum((x * x).mean(axis=1, keepdims=True) - mean * mean, 0.0)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def findings(function: Callable[[jax.Array], jax.Array]) -> list[str]:
    """Returns the messages of a kernel's findings."""

    def kernel(x: jax.Array) -> jax.Array:
        def body(x_ref, o_ref):
            o_ref[...] = function(x_ref[...])

        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    x = kt.array("m 32", "float32", domain=(-1000, 1000))
    pairing = kt.oracle_for(kernel, x=x, dims={"m": kt.dim(values=(3,))})(layer_norm)
    return [each.message for each in kt.check(pairing, depth="quick").findings]


def lines() -> Iterator[str]:
    """Yields the first finding of each kernel."""
    for function in (right, another_epsilon, in_16_bits, by_moments):
        found = findings(function)
        yield f"{function.__name__}: {len(found)} findings"
        yield from found[0].splitlines() if found else ()


if __name__ == "__main__":
    print("\n".join(lines()))
