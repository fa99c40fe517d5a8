"""Branches, loops, and the transformations that leave a call in the jaxpr."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import lax

from .base import SCALAR, VECTOR, Probe


def probes() -> Iterator[Probe]:
    """Of group `control flow`."""
    number = (SCALAR, "int32")
    yield _control("cond", lambda x, i: lax.cond(i > 0, lambda: x + x, lambda: x), number)
    yield _control("cond[switch of three]", lambda x, i: lax.switch(i, [lambda: x, lambda: x + x, lambda: -x]), number)
    yield _control("while", _while, number)
    yield _control("fori_loop[static]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x))
    yield _control("fori_loop[dynamic]", lambda x, n: lax.fori_loop(0, n, lambda _, s: s + s, x), number)
    yield _control("fori_loop[unrolled]", lambda x: lax.fori_loop(0, 4, lambda _, s: s + s, x, unroll=True))
    yield _control("scan[carry]", lambda x: lax.scan(lambda s, _: (s + s, None), x, None, length=4)[0])
    yield _control("scan[inputs]", lambda x, y: lax.scan(lambda s, v: (s + v, None), x, y)[0], (4, 16))
    yield _control("scan[outputs]", lambda x: lax.scan(lambda s, _: (s + s, s), x, None, length=4)[1])
    yield _control("map", lambda x: lax.map(_double, x))
    yield _control("jit", lambda x: jax.jit(_double)(x))
    yield _control("checkpoint", lambda x: jax.checkpoint(_double)(x))
    yield _control("custom_jvp_call", lambda x: _custom_jvp()(x))
    yield _control("custom_vjp_call", lambda x: _custom_vjp()(x))
    yield _control("stop_gradient", lambda x: lax.stop_gradient(x))
    yield _control("optimization_barrier", lambda x: lax.optimization_barrier(x))
    yield _control("vmap", lambda x: jax.vmap(_double)(x))
    yield _control("linear_solve", lambda x: lax.custom_linear_solve(lambda v: v, x, lambda f, b: f(b)))


def _control(name: str, body: Callable[..., Any], *others: Any) -> Probe:
    return Probe(name, "control flow", body, ("float32", "int32", "int64"), (VECTOR, *others))


def _double(x: Any) -> Any:
    return x + x


def _while(x: Any, n: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + s[1]), (n * 0, x))


def _custom_jvp() -> Any:
    function = jax.custom_jvp(_double)
    function.defjvp(lambda primals, tangents: (function(*primals), tangents[0]))
    return function


def _custom_vjp() -> Any:
    function = jax.custom_vjp(_double)
    function.defvjp(lambda x: (x + x, None), lambda _, g: (g,))
    return function
