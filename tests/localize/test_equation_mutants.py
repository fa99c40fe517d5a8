"""The jaxpr of a kernel shows the faulty line with no lowering: for TPU kernels, gradients, and formulas."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import kerneltest as kt
import kerneltest.execute.invariants
from tests.localize.fault_cases import locate_case, make_case

DIMS = {"m": kt.dim(values=(4,)), "n": kt.dim(values=(4,))}
PLAIN: dict[str, Any] = {}
TPU = dict(compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)))


def _call(body: Callable[..., None], options: dict[str, Any], *operands: Any) -> Any:
    shape = jax.ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
    return pl.pallas_call(body, out_shape=shape, grid=(1,), **options)(*operands)


def _scaled(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    y = jnp.cumsum(x, axis=1) * 0.25
    o_ref[...] = y + 0.5 * x  # FAULT


def _below_diagonal(x_ref: Any, o_ref: Any) -> None:
    at = jnp.arange(4)
    keep = at[:, None] > at[None, :]  # FAULT
    o_ref[...] = jnp.cumsum(jnp.where(keep, x_ref[...], 0.0), axis=1)


def _unguarded(x_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    total = jnp.cumsum(x, axis=1)
    o_ref[...] = x / total  # FAULT


def _rounded(x_ref: Any, o_ref: Any) -> None:
    total = jnp.cumsum(x_ref[...], axis=1)
    total = total.astype(jnp.bfloat16).astype(jnp.float32)  # FAULT
    o_ref[...] = total * total


def _backward(x_ref: Any, g_ref: Any, o_ref: Any) -> None:
    o_ref[...] = g_ref[...] + 2.0 * x_ref[...]  # FAULT


@jax.custom_vjp
def _squares(x: Any) -> Any:
    return _call(_square, PLAIN, x)


def _square(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * x_ref[...] + 0.0 * jnp.cumsum(x_ref[...], axis=1)


_squares.defvjp(lambda x: (_squares(x), x), lambda x, g: (_call(_backward, PLAIN, x, g),))


def _safe(x: Any) -> Any:
    total = np.cumsum(x, axis=1)
    return np.where(total == 0, 0, x / np.where(total == 0, 1, total))


ORACLES: dict[Any, Callable[[Any], Any]] = {
    _scaled: lambda x: (np.cumsum(x, axis=1) + x) * 0.25,
    _below_diagonal: lambda x: np.cumsum(np.where(np.tri(4, dtype=bool), x, 0), axis=1),
    _unguarded: _safe,
    _rounded: lambda x: np.cumsum(x, axis=1) ** 2,
}


@pytest.mark.parametrize("options", [PLAIN, TPU], ids=["plain", "tpu"])
@pytest.mark.parametrize("body", ORACLES, ids=lambda body: body.__name__)
def test_the_faulty_line_is_named(body: Any, options: dict[str, Any]) -> None:
    """None of these lowers for a GPU, where `cumsum` has no rule."""
    oracle = ORACLES[body]

    def kernel(x: Any) -> Any:
        return _call(body, options, x)

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=DIMS)
    def pairing(x: Any) -> Any:
        return oracle(x)

    values = np.zeros((4, 4)) if body is _unguarded else np.arange(1.0, 17.0).reshape(4, 4) / 7
    found = locate_case(pairing, make_case(pairing, {}, x=values), backend="interpret", family="normal")
    assert found is not None
    assert found.place == _fault(body)


def test_the_faulty_line_of_a_gradient_is_named() -> None:
    def kernel(x: Any) -> Any:
        return _squares(x)

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=DIMS, grad=True)
    def pairing(x: Any) -> Any:
        return x * x

    case = make_case(pairing, {}, x=np.arange(1.0, 17.0).reshape(4, 4))
    found = locate_case(pairing, case, backend="interpret", family="gradient")
    assert found is not None
    assert found.place == _fault(_backward)


def _fault(body: Any) -> str:
    """The line of a body that ends in `# FAULT`."""
    first = body.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    number = next(n for n, line in enumerate(lines, 1) if n > first and line.endswith("# FAULT"))
    return f"tests/localize/test_equation_mutants.py:{number}"
