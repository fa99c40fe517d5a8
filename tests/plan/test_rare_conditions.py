"""Bugs that show at some lengths, numbers or calls only: two signatures or families find each at `quick`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from tests.found import found_twice
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


def quantised(x: jax.Array, y: jax.Array, wrong: bool) -> jax.Array:
    """Divides and rounds to integers, halves to even ones; the wrong kernel rounds these up."""
    return elementwise(lambda x, y: jnp.floor(x / y + 0.5) if wrong else jnp.round(x / y), x, y)


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


def bytes_multiplied(x: jax.Array, y: jax.Array, wrong: bool) -> jax.Array:
    dtype = jnp.float32 if wrong else jnp.int32  # float32 has every integer up to 2^24, that is 258 products of bytes
    out = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), jnp.int32)

    def product(x_ref: Any, y_ref: Any) -> jax.Array:
        sums = jnp.dot(x_ref[...].astype(dtype), y_ref[...].astype(dtype), preferred_element_type=dtype)
        return sums.astype(jnp.int32)

    return whole(product, out, x, y)


def bytes_summed(x: jax.Array, wrong: bool) -> jax.Array:
    dtype = jnp.int16 if wrong else jnp.int32
    out = jax.ShapeDtypeStruct(x.shape[:1], jnp.int32)
    return whole(lambda x: jnp.sum(x[...].astype(dtype), axis=1, dtype=dtype).astype(jnp.int32), out, x)


MODULUS, TOP = 12_289, 0.375


def reduced(x: jax.Array, wrong: bool) -> jax.Array:
    return elementwise(lambda v: jnp.where(v > MODULUS if wrong else v >= MODULUS, v - MODULUS, v), x)


def is_high(x: jax.Array, wrong: bool) -> jax.Array:
    return elementwise(lambda v: v > TOP if wrong else v >= TOP, x, dtype=jnp.int32)


def thousands(x: jax.Array, wrong: bool) -> jax.Array:
    return elementwise(lambda v: jnp.where(wrong & (v > 1000), (v - 1) // 1000, v // 1000), x)


def clipped(x: jax.Array, wrong: bool) -> jax.Array:
    return elementwise(lambda v: jnp.clip(v, -TOP, TOP) + (4.0 * (v == -TOP) if wrong else 0.0), x)


def signs(x: jax.Array, wrong: bool) -> jax.Array:
    def is_negative(v: jax.Array) -> jax.Array:
        size = jnp.where(v < 0, -v, v) if wrong else jnp.abs(v)
        return jax.lax.bitcast_convert_type(size, jnp.int32) < 0

    return elementwise(is_negative, x, dtype=jnp.int32)


def scaled(x: jax.Array, s: jax.Array, wrong: bool) -> jax.Array:
    """Scales rows; the wrong rule of `jax.vmap` takes all arrays to have the new axis."""

    made = jax.custom_batching.custom_vmap(lambda x, s: whole(lambda x, s: x[...] * s[...], x, x, s))

    @made.def_vmap
    def rule(size: int, batched: Any, x: jax.Array, s: jax.Array) -> Any:
        if not wrong:
            x, s = (a if b else jnp.broadcast_to(a, (size, *a.shape)) for a, b in zip((x, s), batched, strict=True))
        s = jnp.pad(s.reshape(-1), (0, 2 * x.size), mode="edge")[: x.size].reshape(x.shape)
        return whole(lambda x, s: x[...] * s[...], x, x, s), True

    return made(x, s)


def masked(x: jax.Array, y: jax.Array, wrong: bool) -> jax.Array:
    return whole(lambda x, y: x[...] * y[...] if wrong else jnp.where(y[...] > 0, x[...], 0), x, x, y)


def up_to_each_length(x: jax.Array, y: jax.Array, wrong: bool) -> jax.Array:
    def body(x_ref: Any, y_ref: Any) -> jax.Array:
        live = jnp.arange(x.shape[1]) < y_ref[...][:, None]
        return jnp.sum(x_ref[...] * live if wrong else jnp.where(live, x_ref[...], 0), axis=1)

    return whole(body, jax.ShapeDtypeStruct(y.shape, x.dtype), x, y)


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
    "259 products of bytes in float32": (
        dict(
            x=kt.array("m k", "uint8"), y=kt.array("k n", "uint8"),
            dims=dict(m=TWO, n=kt.dim(values=(3,)), k=kt.dim(block=BLOCK)),
        ),
        lambda x, y: x @ y,
        bytes_multiplied,
    ),
    "384 products of bytes in float32": (
        dict(
            x=kt.array("m k", "uint8"), y=kt.array("k n", "uint8"),
            dims=dict(m=kt.dim(values=(2, 3)), n=kt.dim(values=(3,)), k=kt.dim(multiple_of=128)),
        ),
        lambda x, y: x @ y,
        bytes_multiplied,
    ),
    "129 bytes in 16 bits": (
        dict(x=kt.array("m k", "uint8"), dims=dict(m=TWO, k=kt.dim(block=BLOCK, maximum=140))),
        lambda x: x.sum(axis=1),
        bytes_summed,
    ),
    "an integer that is compared": (
        dict(x=kt.array("n", "int32", domain=(0, 2 * MODULUS - 1))),
        lambda x: np.where(x >= MODULUS, x - MODULUS, x),
        reduced,
    ),
    "a multiple of a divisor": (
        dict(x=kt.array("n", "int32", domain=(0, 10**6))),
        lambda x: x // 1000,
        thousands,
    ),
    "a float that is compared": (
        dict(x=kt.array("n", "float32", domain=(-1, 1))),
        lambda x: (x >= TOP).astype(np.int64),
        is_high,
    ),
    "a quotient halfway between integers": (
        dict(x=kt.array("n", "float32", domain=(-99, 200)), y=kt.scalar("float32", domain=(0.25, 4))),
        lambda x, y: np.rint(x / y),
        quantised,
    ),
    "an end of a clip": (
        dict(x=kt.array("n", "float32", domain=(-1, 1))),
        lambda x: np.clip(x, -TOP, TOP),
        clipped,
    ),
    "a negative zero": (
        dict(x=kt.array("n", "float32", domain=SOME)),
        lambda x: np.zeros(x.shape, np.int64),
        signs,
    ),
    "an array without the new axis under vmap": (
        dict(x=kt.array("n", "float32", domain=SOME), y=kt.array("n", "float32", domain=SOME)),
        lambda x, y: x * y,
        scaled,
    ),
    "NaN under a mask, with a domain": (
        dict(x=kt.array("n", "float32", domain=SOME), y=kt.mask("n", "float32"), dims=dict(n=kt.dim(block=BLOCK))),
        lambda x, y: np.where(y > 0, x, 0),
        masked,
    ),
    "NaN past a length, with a domain": (
        dict(**SLOTS, y=kt.lengths("m", up_to="n"), dims=dict(m=TWO, n=kt.dim(values=(8, 16)))),
        lambda x, y: np.array([row[:n].sum() for row, n in zip(x, y, strict=True)]),
        up_to_each_length,
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


@pytest.mark.sweep(1)
@pytest.mark.parametrize("what", ROWS)
def test_two_signatures_or_families_find_it_with_any_seed(what: str, recwarn: pytest.WarningsRecorder) -> None:
    declared, oracle, kernel = ROWS[what]

    def made(wrong: bool) -> kt.Pairing:
        function = (lambda x, y: kernel(x, y, wrong)) if "y" in declared else (lambda x: kernel(x, wrong))
        return kt.oracle_for(function, **declared)(oracle)

    assert not kt.check(made(False), depth="quick").findings
    for seed in (0, 1):
        assert found_twice(made(True), seed)
    assert not [warning for warning in recwarn if warning.category is RuntimeWarning]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("limit", [0.7, 0.3, 1 / 3])
def test_a_number_that_kernel_and_oracle_round_differently_accuses_no_kernel(limit: float) -> None:
    pairing = kt.oracle_for(
        lambda x: elementwise(lambda v: v >= limit, x, dtype=jnp.int32),
        x=kt.array("n", ("float32", "float16"), domain=(-1, 1)),
    )
    assert not kt.check(pairing(lambda x: (x >= limit).astype(np.int64)), depth="quick").findings
