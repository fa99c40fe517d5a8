"""What changes the digest of a jaxpr, what does not, and which jaxprs have none."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from kerneltest.core.fingerprint import NotReusableError
from kerneltest.trace.jax_compat.rules import _registries, _with_inner, replaced_function
from kerneltest.trace.jaxpr_digest import RULES, jaxpr_fingerprint

X = jax.ShapeDtypeStruct((8,), np.float32)
TABLE = np.arange(8, dtype=np.float32)


def _kernel(
    *,
    factor: float = 2.0,
    table: Any = TABLE,
    block: int = 4,
    index: Callable[[Any], Any] = lambda i: i,
    warps: int = 4,
    shift: bool = False,
    dtype: Any = np.float32,
) -> Callable[..., Any]:
    def body(x_ref: Any, o_ref: Any) -> None:
        value = x_ref[...] * factor
        o_ref[...] = (value + 1 if shift else value).astype(o_ref.dtype)

    def kernel(x: Any) -> Any:
        spec = pl.BlockSpec((block,), lambda i: (index(i),))
        call = pl.pallas_call(
            body,
            grid=(8 // block,),
            in_specs=[spec],
            out_specs=spec,
            out_shape=jax.ShapeDtypeStruct((8,), dtype),
            compiler_params=plgpu.CompilerParams(num_warps=warps),
        )
        return call(x + table)

    return kernel


def _digest(kernel: Callable[..., Any], *, approximate: bool = False) -> str:
    return jaxpr_fingerprint(jax.make_jaxpr(kernel)(X), approximate=approximate).text


CHANGES: dict[str, dict[str, Any]] = {
    "a number": {"factor": 3.0},
    "a number in its last bit": {"factor": 2.0000002},
    "an array": {"table": TABLE + 1},
    "an array in one bit": {"table": np.nextafter(TABLE, np.float32(9))},
    "the block": {"block": 8},
    "the index map": {"index": lambda i: 1 - i},
    "a parameter of the compiler": {"warps": 8},
    "an operation": {"shift": True},
    "the dtype": {"dtype": np.float16},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_kernel_computes_changes_it(change: dict[str, Any]) -> None:
    assert _digest(_kernel(**change)) != _digest(_kernel())


def test_one_of_two_million_elements_changes_it() -> None:
    table = np.zeros(2_000_000, np.float32)
    before = _digest(lambda x: x + jnp.asarray(table)[:8])
    table[1_234_567] = 1
    assert _digest(lambda x: x + jnp.asarray(table)[:8]) != before


def test_names_and_lines_do_not_change_it() -> None:
    def body(source: Any, target: Any) -> None:
        # Another line, with other names.
        doubled = source[...] * 2.0
        target[...] = doubled.astype(target.dtype)

    def other(x: Any) -> Any:
        spec = pl.BlockSpec((4,), lambda place: (place,))
        parameters = plgpu.CompilerParams(num_warps=4)
        call = pl.pallas_call(body, grid=(2,), in_specs=[spec], out_specs=spec, out_shape=X, compiler_params=parameters)
        return call(x + TABLE)

    assert _digest(other) == _digest(_kernel())


def test_approximately_equal_constants_count_as_equal_only_where_asked() -> None:
    near = _kernel(table=np.nextafter(TABLE, np.float32(9)))
    assert _digest(near, approximate=True) == _digest(_kernel(), approximate=True)
    assert _digest(_kernel(table=TABLE * 1.001), approximate=True) != _digest(_kernel(), approximate=True)


def _with_rule(factor: float) -> Callable[..., Any]:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    f.defvjp(lambda x: (x * 2, None), lambda _, g: (factor * g,))
    return f


def test_rules_of_a_derivative_are_told_apart_once_it_is_taken() -> None:
    plain = jaxpr_fingerprint(jax.make_jaxpr(_with_rule(2))(X))
    assert RULES in plain.omits
    assert plain.text == _digest(_with_rule(3))
    assert not jaxpr_fingerprint(jax.make_jaxpr(_kernel())(X)).omits
    assert _digest(_gradient(_with_rule(2))) != _digest(_gradient(_with_rule(3)))


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda x: function(x).sum())


OPAQUE: dict[str, Callable[[Any], Any]] = {
    "pure_callback": lambda x: jax.pure_callback(np.sin, X, x),
    "io_callback": lambda x: jax.experimental.io_callback(np.sin, X, x),
    "a callback in a loop": lambda x: jax.lax.fori_loop(0, 2, lambda i, v: jax.pure_callback(np.sin, X, v), x),
    "debug.print": lambda x: jax.debug.print("{}", x) or x,
    "a kernel that prints": lambda x: pl.pallas_call(_printing, out_shape=X)(x),
}


def _printing(x_ref: Any, o_ref: Any) -> None:
    pl.debug_print("here")
    o_ref[...] = x_ref[...]


def _own_primitive(x: Any) -> Any:
    scaled = Primitive("scaled")
    scaled.def_abstract_eval(lambda x: x)
    return scaled.bind(x)


OPAQUE["a primitive that JAX does not define"] = _own_primitive


@pytest.mark.parametrize("kernel", OPAQUE.values(), ids=OPAQUE)
def test_what_calls_back_has_none(kernel: Callable[[Any], Any]) -> None:

    with pytest.raises(NotReusableError):
        _digest(kernel)


REGISTER: dict[str, Callable[[Any], None]] = {
    "for all platforms": lambda rule: mlir.register_lowering(
        jax.lax.tan_p, mlir.lower_fun(rule, multiple_results=False)
    ),
    "for one platform": lambda rule: mlir.register_lowering(jax.lax.tan_p, rule, platform="cpu"),
    "for vmap": lambda rule: batching.primitive_batchers.__setitem__(jax.lax.tan_p, functools.partial(rule, 1)),
    "for types": lambda rule: vars(jax.lax.tan_p).update(abstract_eval=rule),
}


@pytest.mark.parametrize("register", REGISTER.values(), ids=REGISTER)
def test_rules_of_another_for_a_primitive_of_jax_are_told(register: Callable[[Any], None]) -> None:
    jaxpr = jax.make_jaxpr(jnp.tan)(X)
    before = jaxpr_fingerprint(jaxpr)
    tables = (*_with_inner(_registries(len(sys.modules))[1]), vars(jax.lax.tan_p))
    kept = [(table, dict(table)) for table in tables]
    try:
        register(lambda *arguments: arguments)
        with pytest.raises(NotReusableError, match="tan has rules that are not JAX's"):
            jaxpr_fingerprint(jaxpr)
    finally:
        for table, entries in kept:
            table.clear()
            table.update(entries)
    assert jaxpr_fingerprint(jaxpr) == before


def test_a_function_in_the_place_of_a_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not replaced_function("nothing")
    monkeypatch.setattr(jax.lax, "tan", lambda x: x)
    assert replaced_function("a function") == "jax.lax.tan"
    monkeypatch.undo()
    monkeypatch.setattr(pl.BlockSpec, "__repr__", lambda self: "")
    assert replaced_function("a method").endswith("BlockSpec.__repr__")


def test_it_is_the_same_in_another_process() -> None:
    code = "from tests.trace.test_jaxpr_digest import _digest, _kernel; print(_digest(_kernel()))"
    variables = {**os.environ, "PYTHONHASHSEED": "7"}
    found = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == _digest(_kernel())


def test_keys_and_arrays_of_any_dtype_have_one() -> None:
    key = jax.random.key(0)
    assert _digest(lambda x: x + jax.random.normal(key, (8,))) != _digest(
        lambda x: x + jax.random.normal(jax.random.key(1), (8,))
    )
    assert _digest(lambda x: x + jnp.ones(8, jnp.bfloat16)) != _digest(lambda x: x + jnp.zeros(8, jnp.bfloat16))
