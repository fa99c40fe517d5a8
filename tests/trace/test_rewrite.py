"""Rewritten jaxprs: a right kernel gives what it gave, and one that relies on chance does not."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import check_jaxpr, jaxpr_as_fun

from kerneltest.trace.rewrite import (
    Fill,
    Rule,
    fill_empty,
    fill_outputs,
    fill_padding,
    interpret_calls,
    reverse_grids,
    rewrite_jaxpr,
)
from kerneltest.trace.runnable import run_eagerly

TILE = 8


def _blocked(body: Callable[..., None], *arrays: jax.Array, shape: Any = None, out: Any = None, **options: Any) -> Any:
    n = arrays[0].shape[0]
    return pl.pallas_call(
        body,
        out_shape=shape or jax.ShapeDtypeStruct((n,), arrays[0].dtype),
        grid=(pl.cdiv(n, TILE),),
        in_specs=[pl.BlockSpec((TILE,), lambda i: (i,)) for _ in arrays],
        out_specs=out or pl.BlockSpec((TILE,), lambda i: (i,)),
        **options,
    )(*arrays)


def double(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return _blocked(body, x)


def in_place(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1

    return _blocked(body, x, input_output_aliases={0: 0})


def numbered(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + pl.program_id(0).astype(x_ref.dtype)

    return _blocked(body, x)


def looped(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        number = pl.program_id(0).astype(x_ref.dtype)
        o_ref[...] = jax.lax.fori_loop(0, 3, lambda _, v: v + number, x_ref[...])

    return jax.jit(lambda x: _blocked(body, x))(x)


def large_counted(x: jax.Array) -> Any:
    """How many are above 100: wrong where the tail's padding is."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = jnp.sum((x_ref[...] > 100).astype(x_ref.dtype))

    blocks = pl.cdiv(x.shape[0], TILE)
    one_each = pl.BlockSpec((1,), lambda i: (i,))
    return _blocked(body, x, shape=jax.ShapeDtypeStruct((blocks,), x.dtype), out=one_each).sum(keepdims=True)


def masked(other: Any, factor: float = 1.0) -> Callable[[jax.Array], Any]:
    def kernel(x: jax.Array) -> Any:
        n = x.shape[0]

        def body(x_ref: Any, o_ref: Any) -> None:
            at = jnp.arange(2 * TILE)
            v = plgpu.load(x_ref.at[at], mask=at < n, other=other)
            o_ref[0] = jnp.sum(jnp.where(at < n, v, 0) if other is None and factor else v)

        return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((1,), x.dtype))(x)

    return kernel


def accumulated(x: jax.Array) -> Any:
    """A running total in one block of the output that nobody sets to zero."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.where(o_ref[...] > 0, o_ref[...], 0) + x_ref[...]

    return _blocked(body, x[: x.shape[0] // TILE * TILE], shape=jax.ShapeDtypeStruct((TILE,), x.dtype),
                    out=pl.BlockSpec((TILE,), lambda i: (0,)))  # fmt: skip


def empty(filled: bool) -> Callable[[jax.Array], Any]:
    """Written over an array that nobody filled, of which one element stays as it was or does not."""

    def body(x_ref: Any, _: Any, o_ref: Any) -> None:
        o_ref[pl.ds(0, TILE)] = x_ref[pl.ds(0, TILE)]
        if filled:
            o_ref[TILE] = x_ref[TILE]

    def kernel(x: jax.Array) -> Any:
        x = x[: TILE + 1]
        return pl.pallas_call(body, out_shape=x, input_output_aliases={1: 0})(x, jax.lax.empty(x.shape, x.dtype))

    return kernel


def in_a_batch(x: jax.Array) -> Any:
    """`vmap` adds an axis to the grid, which the programs do not count."""
    return jax.vmap(numbered)(jnp.stack([x, x + 1, x + 2]))


def last_wins(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    return _blocked(body, x[: x.shape[0] // TILE * TILE], shape=jax.ShapeDtypeStruct((TILE,), x.dtype),
                    out=pl.BlockSpec((TILE,), lambda i: (0,)))  # fmt: skip


RULES: dict[str, Rule] = {
    "nan padding": fill_padding(Fill(nan=True)),
    "large padding": fill_padding(Fill(nan=False)),
    "reversed": reverse_grids(),
    "nan before": fill_outputs(Fill(nan=True)),
    "large before": fill_outputs(Fill(nan=False)),
    "large empties": fill_empty(Fill(nan=False)),
}
RIGHT = [double, in_place, numbered, in_a_batch, looped, masked(0), masked(None), empty(True)]
WRONG = {
    "large padding": (large_counted, masked(None, 0.0)),
    "nan padding": (masked(None, 0.0),),
    "reversed": (last_wins,),
    "large before": (accumulated,),
    "large empties": (empty(False),),
}


def _interpreted(jaxpr: Any, x: jax.Array) -> np.ndarray:
    return np.asarray(jaxpr_as_fun(rewrite_jaxpr(jaxpr, interpret_calls(True)))(x)[0])


@cache  # for all rules
def _plain(kernel: Callable[..., Any], kind: str, n: int) -> tuple[jax.Array, Any, np.ndarray]:
    x = jnp.arange(1, n + 1).astype(kind)
    plain = jax.make_jaxpr(kernel)(x)
    return x, plain, _interpreted(plain, x)


def _results(kernel: Callable[..., Any], rule: Rule, kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    x, plain, result = _plain(kernel, kind, n)
    changed = rewrite_jaxpr(plain, rule)
    check_jaxpr(getattr(changed, "jaxpr", changed))
    return result, _interpreted(changed, x)


@pytest.mark.sweep(29)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kernel", RIGHT, ids=lambda k: k.__qualname__)
@pytest.mark.parametrize(("kind", "n"), [("float32", 13), ("bfloat16", 16), ("int32", 13)])
def test_a_right_kernel_gives_what_it_gave(rule: str, kernel: Callable[..., Any], kind: str, n: int) -> None:
    plain, changed = _results(kernel, RULES[rule], kind, n)
    assert plain.shape == changed.shape
    assert np.array_equal(plain, changed)


@pytest.mark.parametrize(("rule", "kernel"), [(r, k) for r, kernels in WRONG.items() for k in kernels])
def test_a_kernel_that_relies_on_chance_does_not(rule: str, kernel: Callable[..., Any]) -> None:
    plain, changed = _results(kernel, RULES[rule], "float32", 13 if "padding" in rule else 24)
    assert not np.array_equal(plain, changed)


def test_what_nobody_filled_is_nan_in_the_interpreter() -> None:
    plain = jax.make_jaxpr(empty(False))(jnp.arange(13.0))
    (result,) = jaxpr_as_fun(rewrite_jaxpr(plain, interpret_calls(True)))(jnp.arange(13.0))
    assert np.isnan(np.asarray(result)).tolist() == [False] * TILE + [True]


@pytest.mark.parametrize("kernel", [double, jax.jit(double), looped, lambda x: jax.vmap(double)(x[None])[0]])
def test_a_kernel_is_interpreted_outside_of_jit(kernel: Callable[..., Any]) -> None:
    seen = []

    def spied(x: jax.Array) -> Any:
        seen.append(isinstance(x, jax.core.Tracer))
        return kernel(x)

    x = jnp.arange(13.0)
    found = run_eagerly(spied, interpret=True)(x)
    assert seen == [False]
    assert np.array_equal(np.asarray(found), np.asarray(x) + (np.arange(13) // TILE * 3 if kernel is looped else x))
    with pytest.raises(ValueError, match="interpret"):
        run_eagerly(double, interpret=False)(x)  # a CPU has no other way, and nothing is left switched on


@pytest.mark.parametrize("jit", [False, True])
def test_a_kernel_that_asks_for_interpret_mode_is_compiled_outside_of_jit_where_that_is_tested(jit: bool) -> None:
    def kernel(x: jax.Array) -> Any:
        return pl.pallas_call(_negate, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)

    with pytest.raises(ValueError, match="interpret mode is supported on CPU"):
        run_eagerly(jax.jit(kernel) if jit else kernel, interpret=False)(jnp.arange(4.0))


def _negate(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = -x_ref[...]
