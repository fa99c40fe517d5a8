"""Bugs that show at some lengths, numbers or calls only: two signatures or families find each at `quick`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from tests.sample import elementwise, whole

BLOCK = 16
SOME = (-9, 9)


def copied_through_slots(x: jax.Array, wrong: bool) -> jax.Array:
    """Copies through two slots, which the wrong kernel takes from the first one on in each row."""
    m, n = x.shape

    def body(x_ref: Any) -> jax.Array:
        def step(t: Any, state: Any) -> Any:
            slots, out = state
            value = jnp.sum(jnp.where(jnp.arange(m * n) == t, x_ref[...].reshape(-1), 0))
            slots = jnp.where(jnp.arange(2) == t % 2, value, slots)
            read = jnp.sum(jnp.where(jnp.arange(2) == (t % n if wrong else t) % 2, slots, 0))
            return slots, jnp.where(jnp.arange(m * n) == t, read, out)

        return jax.lax.fori_loop(0, m * n, step, (jnp.zeros(2), jnp.zeros(m * n)))[1].reshape(m, n)

    return whole(body, x, x)


def doubled_in_pairs(x: jax.Array, wrong: bool) -> jax.Array:
    """Doubles blocks of 128; the wrong kernel leaves out the last of an odd number, but for a single one."""
    n = len(x)
    end = n // 256 * 256 if wrong and n > 128 else n
    return elementwise(lambda v: jnp.where(jnp.arange(n) < end, 2 * v, v), x)


def decayed(x: jax.Array, wrong: bool) -> jax.Array:
    """Sums decaying along each row; the wrong gradient takes the rest of the length as the length of the last block."""
    n = x.shape[1]
    factors = np.tril(0.5 ** np.abs(np.arange(n)[:, None] - np.arange(n)))
    live = np.arange(n) < (n - 1) // BLOCK * BLOCK + (n % BLOCK if wrong else BLOCK)

    def product(a: jax.Array, b: np.ndarray) -> jax.Array:
        return whole(lambda a, b: jnp.dot(a[...], b[...], precision="highest"), a, a, b.astype(np.float32))

    sums = jax.custom_vjp(lambda x: product(x, factors.T))
    sums.defvjp(lambda x: (sums(x), None), lambda _, dy: (product(jnp.where(live, dy, 0), factors),))
    return sums(x)


def decaying_sums(x: np.ndarray) -> np.ndarray:
    y, last = np.zeros(x.shape), np.zeros(len(x))
    for j in range(x.shape[1]):
        y[:, j] = last = 0.5 * last + x[:, j]
    return y


Kernel = Callable[..., jax.Array]
SLOTS = dict(x=kt.array("m n", "float32", domain=SOME))
TWO = kt.dim(values=(2,))
# By what is wrong: the declaration, the oracle and the kernel, which takes whether it is wrong as its last argument.
ROWS: Mapping[str, tuple[dict[str, Any], Callable[..., Any], Kernel]] = {
    "an odd one of few lengths": (
        dict(**SLOTS, dims=dict(m=TWO, n=kt.dim(minimum=2, maximum=8))),
        lambda x: x,
        copied_through_slots,
    ),
    "an odd length up to 16": (
        dict(**SLOTS, dims=dict(m=TWO, n=kt.dim(minimum=2, maximum=16))),
        lambda x: x,
        copied_through_slots,
    ),
    "an odd multiple": (
        dict(x=kt.array("n", "float32", domain=SOME), dims=dict(n=kt.dim(multiple_of=128))),
        lambda x: 2 * x,
        doubled_in_pairs,
    ),
    "the gradient of whole blocks": (
        dict(
            x=kt.array("m n", "float32", domain=SOME), grad=True,
            dims=dict(m=kt.dim(values=(2, 1)), n=kt.dim(block=BLOCK, maximum=40)),
        ),
        decaying_sums,
        decayed,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_two_signatures_or_families_find_it_with_any_seed(what: str) -> None:
    declared, oracle, kernel = ROWS[what]
    names = [name for name, value in declared.items() if not isinstance(value, (dict, bool))]

    def made(wrong: bool) -> kt.Pairing:
        function = {
            1: lambda x: kernel(x, wrong),
            2: lambda x, y: kernel(x, y, wrong),
        }[len(names)]
        return kt.oracle_for(function, **declared)(oracle)

    assert not kt.check(made(False), depth="quick").findings
    for seed in range(3):
        found = kt.check(made(True), depth="quick", seed=seed).findings
        assert max(len({finding.family for finding in found}), len({finding.signature for finding in found})) >= 2
