"""Tests of the table of primitives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerneltest.trace.jax_compat.jaxprs import open_jaxpr
from kerneltest.trace.jax_compat.lowering_tables import lowered_primitives
from kerneltest.trace.primitives import PRIMITIVES, Kind, called_jaxpr, primitive_named, primitive_of


def test_every_primitive_that_pallas_lowers_or_interprets_has_a_row():
    missing = sorted(lowered_primitives() - PRIMITIVES.keys())
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


def test_other_equations_are_not_calls():
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x + 1, x))(1.0)
    assert [called_jaxpr(equation) for equation in jaxpr.eqns] == [None]
