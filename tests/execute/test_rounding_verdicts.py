"""Correct kernels that simpler error models would fail, without a declared tolerance, and a wrong twin of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from tests.found import findings
from tests.sample import elementwise, whole

pytestmark = pytest.mark.usefixtures("values_alone")

BACKENDS = ["interpret", "simulate:sm_90"]


def _wide(function: Callable[..., Any]) -> Callable[..., jax.Array]:
    def kernel(**arguments: jax.Array) -> jax.Array:
        return elementwise(lambda *values: function(*(v.astype(jnp.float32) for v in values)), *arguments.values())

    return kernel


def _by_row(function: Callable[..., Any], dtype: Any = None) -> Callable[..., jax.Array]:
    def kernel(x: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(x.shape[:1], dtype or x.dtype)
        return whole(lambda x: function(x[...]).astype(out.dtype), out, x)

    return kernel


def _coarse(value: jax.Array) -> jax.Array:
    return value.astype(jnp.bfloat16).astype(value.dtype)


def _by_parts(x: jax.Array) -> jax.Array:
    """Sums whose partial sums have 16 bits."""
    parts = jnp.sum(x.astype(jnp.float32).reshape(x.shape[0], 32, -1), axis=-1)
    return jnp.sum(_coarse(parts), axis=-1)


def _sum_of_codes(dtype: Any) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jnp.sum(jnp.clip(x.astype(dtype), 0, 9.99).astype(jnp.int32), axis=-1)


@dataclass(frozen=True)
class Composed:
    """A formula with a correct kernel and a wrong one."""

    oracle: Callable[..., Any]
    right: Callable[..., jax.Array]
    wrong: Callable[..., jax.Array]
    arguments: dict[str, Any]


def _vectors(names: str) -> dict[str, Any]:
    vector = kt.array("n", ("float32", "bfloat16"))
    return dict.fromkeys(names.split(), vector) | {"dims": dict(n=kt.dim(values=(16,)))}


def _rows(dtypes: Any, length: int, **more: Any) -> dict[str, Any]:
    dims = dict(m=kt.dim(values=(4,)), n=kt.dim(values=(length,)))
    return {"x": kt.array("m n", dtypes, **more), "dims": dims}


def _last_of_the_largest(x: Any) -> Any:
    return jnp.max(jnp.where(x == jnp.max(x, axis=-1, keepdims=True), jnp.arange(x.shape[-1]), -1), axis=-1)


KERNELS = {
    "swish": Composed(
        lambda x: x / (1 + np.exp(-x)),
        _wide(lambda x: x * jax.nn.sigmoid(x)),
        _wide(lambda x: x * _coarse(jax.nn.sigmoid(x))),
        _vectors("x"),
    ),
    "rotation": Composed(
        lambda a, c, b, s: a * c - b * s,
        _wide(lambda a, c, b, s: a * c - b * s),
        _wide(lambda a, c, b, s: a * c - _coarse(b * s)),
        _vectors("a c b s"),
    ),
    "argmax": Composed(
        lambda x: np.argmax(x, axis=-1),
        _by_row(lambda x: jnp.argmax(x, axis=-1), jnp.int32),
        _by_row(lambda x: jnp.argmax(jnp.abs(x), axis=-1), jnp.int32),
        _rows("float32", 16, domain=(-1e3, 1e3)),
    ),
    "first of equal weights": Composed(
        lambda x: np.argmax(np.exp(x / 3) / np.exp(x / 3).sum(-1, keepdims=True), axis=-1),
        _by_row(lambda x: jnp.argmax(jax.nn.softmax(x / 3), axis=-1), jnp.int32),
        _by_row(lambda x: _last_of_the_largest(jax.nn.softmax(x / 3)), jnp.int32),
        _rows("float32", 16, domain=(-4, 4)),
    ),
    "argmax of near ties": Composed(
        lambda x: np.argmax(x / 3 + 1, axis=-1),
        _by_row(lambda x: jnp.argmax(x / 3 + 1, axis=-1), jnp.int32),
        _by_row(lambda x: jnp.argmax(_coarse(x / 3 + 1), axis=-1), jnp.int32),
        _rows("float32", 16, domain=(-1, 1)),
    ),
    "argmax of near ties in a form that loses more": Composed(
        lambda x: np.argmax(x / 3 + 1, axis=-1),
        _by_row(lambda x: jnp.argmax(x / 3 + 9, axis=-1), jnp.int32),
        _by_row(lambda x: jnp.argmax(_coarse(x / 3 + 9), axis=-1), jnp.int32),
        _rows("float32", 16, domain=(-1, 1)),
    ),
    "count": Composed(
        lambda x: np.sum(x * 0.1 > 0.03, axis=-1),
        _by_row(lambda x: jnp.sum((x * 0.1 > 0.03).astype(jnp.int32), axis=-1), jnp.int32),
        _by_row(lambda x: jnp.sum((x * 0.1 >= 0).astype(jnp.int32), axis=-1), jnp.int32),
        _rows("float32", 16),
    ),
    "count of what is not zero": Composed(
        lambda x: np.sum(x > 0, axis=-1),
        _by_row(lambda x: jnp.sum((x > 0).astype(jnp.int32), axis=-1), jnp.int32),
        _by_row(lambda x: jnp.sum((x > 1e-2).astype(jnp.int32), axis=-1), jnp.int32),
        _rows("float32", 16),
    ),
    "count above a limit in the input's 16 bits": Composed(
        lambda x: np.sum(x > 0.1, axis=-1),
        _by_row(lambda x: jnp.sum((x > 0.1).astype(jnp.int32), axis=-1), jnp.int32),
        _by_row(lambda x: jnp.sum((x > 0.1005).astype(jnp.int32), axis=-1), jnp.int32),
        _rows(("bfloat16", "float16"), 16),
    ),
    "count within limits in the input's 16 bits": Composed(
        lambda x: np.sum(np.clip(x, -0.1, 0.1) == x, axis=-1),
        _by_row(lambda x: jnp.sum((jnp.clip(x, -0.1, 0.1) == x).astype(jnp.int32), axis=-1), jnp.int32),
        _by_row(lambda x: jnp.sum((jnp.clip(x, -0.1, 0.1005) == x).astype(jnp.int32), axis=-1), jnp.int32),
        _rows(("bfloat16", "float16"), 16),
    ),
    "count above a limit that 16 bits make 0": Composed(
        lambda x: np.sum(np.maximum(x, 1e-9) > 0, axis=-1),
        _by_row(lambda x: jnp.sum((jnp.clip(x.astype(jnp.float32), 1e-9) > 0).astype(jnp.int32), axis=-1), jnp.int32),
        _by_row(lambda x: jnp.sum((jnp.clip(x, 1e-9) > 0).astype(jnp.int32), axis=-1), jnp.int32),
        _rows("float16", 16, domain=(-4, 4)),
    ),
    "codes up to a limit": Composed(
        lambda x: np.sum(np.trunc(np.clip(x, 0, 9.99)).astype(np.int32), axis=-1),
        _by_row(_sum_of_codes(jnp.float32), jnp.int32),
        _by_row(_sum_of_codes(jnp.bfloat16), jnp.int32),
        _rows("bfloat16", 16, domain=(-1000, 1000)),
    ),
    "underflow": Composed(
        lambda x: np.exp(-x * x) * 1e30 * 1e5,
        _wide(lambda x: jnp.exp(-x * x) * jnp.float32(1e30) * jnp.float32(1e5)),
        _wide(lambda x: _coarse(jnp.exp(-x * x)) * jnp.float32(1e30) * jnp.float32(1e5)),
        _vectors("x"),
    ),
    "long sums": Composed(
        lambda x: np.sum(x, axis=-1),
        _by_row(lambda x: jnp.sum(x.astype(jnp.float32), axis=-1)),
        _by_row(_by_parts),
        _rows(("bfloat16", "float16"), 1024),
    ),
}
EACH = pytest.mark.parametrize("name", KERNELS)


def _pairing(name: str, kernel: Callable[..., jax.Array]) -> kt.Pairing:
    composed = KERNELS[name]
    declared = dict(composed.arguments)
    dims = declared.pop("dims")
    made: kt.Pairing = kt.oracle_for(kernel, dims=dims, **declared)(composed.oracle)
    return made


@pytest.mark.sweep(3)
@EACH
def test_a_right_kernel_is_not_accused_and_something_is_compared(name: str) -> None:
    result = kt.check(_pairing(name, KERNELS[name].right), backends=BACKENDS, depth="quick")
    assert [(f.backend, f.family, f.message) for f in result.findings] == []
    assert {record.backend for record in result.records if record.compared} == set(BACKENDS)
    asked = [record for record in result.records if record.tolerance == "rounding()"]
    assert sum(bool(record.compared) for record in asked) > 0.8 * len(asked)


@pytest.mark.sweep(3)
@EACH
def test_its_wrong_twin_is_found_by_values(name: str) -> None:
    for backend in BACKENDS:
        found = next(findings(_pairing(name, KERNELS[name].wrong), [backend]))
        assert found.verdict in ("mismatch", "special_mismatch")
