"""Tests of the table of primitives."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.extend.core import Primitive

from kerneltest.core.dtypes import ShapeDtype
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel
from kerneltest.trace.index_maps import calls_with_index_maps
from kerneltest.trace.jax_compat.jaxprs import open_jaxpr
from kerneltest.trace.primitives import PRIMITIVES, Kind, called_jaxpr, primitive_named, primitive_of
from kerneltest.trace.tracing import trace_function
from kerneltest.trace.walk import is_exact, lowering_differences, unconditional_equations

# Modules that register rules by which Pallas lowers primitives, or interprets them.
_RULES = """pallas.triton.lowering pallas.triton.primitives pallas.mosaic_gpu.lowering pallas.mosaic_gpu.primitives
    pallas.mosaic.lowering pallas.mosaic.sc_lowering pallas.mosaic.sc_primitives pallas.hlo_interpreter
    state.discharge""".split()


def _primitives_in(table):
    for key, value in table.items() if isinstance(table, dict) else ():
        yield from [str(key.name)] if isinstance(key, Primitive) else _primitives_in(value)


def test_every_primitive_that_pallas_lowers_or_interprets_has_a_row():
    tables = [table for name in _RULES for table in vars(import_module(f"jax._src.{name}")).values()]
    found = {name.removesuffix("_p") for table in tables for name in _primitives_in(table)}
    missing = sorted(found - PRIMITIVES.keys())
    assert not missing, f"add a row to kerneltest/trace/primitives.py for each of {', '.join(missing)}"


def test_what_a_primitive_may_be_mistaken_for_is_in_the_table():
    known = PRIMITIVES.keys() | {"x", "swapped", "true"}
    assert [p.name for p in PRIMITIVES.values() if not known.issuperset(p.mistaken_for)] == []


def test_unknown_primitives_are_callbacks_by_name():
    assert primitive_named("some_callback").kind is Kind.FOREIGN
    assert primitive_named("something").kind is Kind.UNKNOWN
    assert not primitive_named("something").exact


def _with_custom_jvp(function):
    wrapped = jax.custom_jvp(function)
    wrapped.defjvp(lambda primals, tangents: (wrapped(*primals), tangents[0]))
    return wrapped


def _with_custom_vjp(function):
    wrapped = jax.custom_vjp(function)
    wrapped.defvjp(lambda x: (wrapped(x), None), lambda _, t: (t,))
    return wrapped


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, _with_custom_jvp, _with_custom_vjp])
def test_calls_hold_one_jaxpr_of_their_operands(wrap):
    (call,) = jax.make_jaxpr(wrap(lambda x: jnp.sin(x) + np.arange(3.0)))(jnp.ones(3)).eqns
    assert primitive_of(call).kind is Kind.CALL
    inner = called_jaxpr(call)
    assert [equation.primitive.name for equation in open_jaxpr(inner).eqns] == ["sin", "add"]
    assert len(open_jaxpr(inner).invars) == len(call.invars)


# Constants that a kernel captures, by whether its arithmetic on them is exact.
TABLES = {True: np.array([1.0, -2.0, -np.inf], np.float32), False: np.array([1.0, 0.5, 3.0], np.float32)}


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, _with_custom_jvp, _with_custom_vjp])
def test_a_call_changes_no_property_of_a_kernel(wrap):
    jaxpr = jax.make_jaxpr(wrap(lambda x: (x + 1).astype(jnp.bfloat16)))(jnp.ones(3)).jaxpr
    assert is_exact(jaxpr)
    assert not is_exact(jax.make_jaxpr(wrap(jnp.exp))(jnp.ones(3)).jaxpr)
    tables = {exact: jax.make_jaxpr(wrap(lambda x, t=t: x * t))(jnp.ones(3)) for exact, t in TABLES.items()}
    assert {exact: is_exact(closed) for exact, closed in tables.items()} == {True: True, False: False}
    assert lowering_differences(jaxpr) == ("bfloat16",)
    names = [(e.primitive.name, operands[0]) for e, operands in unconditional_equations(jaxpr, {jaxpr.invars[0]: 7})]
    assert names[-2:] == [("add", 7), ("convert_element_type", None)]


def _under_checkpoint(x):
    def body(x_ref, o_ref):
        o_ref[...] = jax.checkpoint(lambda x: x * x)(x_ref[...])

    spec = pl.BlockSpec((4,), jax.checkpoint(lambda i: i + 1))
    return jax.checkpoint(
        pl.pallas_call(body, x, grid=(2,), in_specs=[spec], out_specs=pl.BlockSpec((4,), lambda i: i))
    )(x)


def test_a_kernel_under_jax_checkpoint_is_evaluated_and_checked():
    shape = ShapeDtype((8,), np.dtype(np.float32))
    traced = trace_function(lambda x: [_under_checkpoint(x)], (shape,), "here")
    x = np.arange(8, dtype=np.float32)
    (output,) = BatchedKernel(traced)([x[None]])
    assert output[0, :4].tolist() == [16, 25, 36, 49]
    (call,) = calls_with_index_maps(traced)
    assert "takes block 2 of x_ref" in str(call.find_outside_block())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.square(x) + x,
        lambda x: x.at[jnp.array([0, 0])].add(x[:2]),
        lambda x: jnp.stack([x, x[::-1]]),
        lambda x: jnp.sort(jnp.tile(x, 2)),
    ],
)
def test_sums_moves_and_one_product_of_integers_are_exact(function):
    assert is_exact(jax.make_jaxpr(function)(jnp.ones(3)).jaxpr)
    assert not is_exact(jax.make_jaxpr(lambda x: jnp.square(function(jnp.square(x))))(jnp.ones(3)).jaxpr)


def test_other_equations_are_not_calls():
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1, x))(1.0)
    assert [called_jaxpr(equation) for equation in jaxpr.eqns] == [None]
