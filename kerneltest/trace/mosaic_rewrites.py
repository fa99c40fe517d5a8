"""Mosaic kernels rewritten: with all programs in order, and so that JAX's interpreter runs all of `emit_pipeline`.

The interpreter refuses a predicated copy from shared to global memory, and it waits for so many copies where the
device waits for so many groups of copies. Both are mended in the jaxpr. A predicated copy becomes one in a `cond`. A
wait for `n` groups becomes one for the copies that `n` groups have at least, of which a predicated one is none: the
interpreter may then wait for more than the device does, and miss a race, but it never sees one that is none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import Literal

from kerneltest.trace.jax_compat.mosaic_interpreters import (
    ends_copy_group,
    is_copy_out,
    is_predicated_copy_out,
    is_wait_for_copies_out,
)
from kerneltest.trace.jax_compat.names import ClosedJaxpr
from kerneltest.trace.rewrite import Rule, within
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import nested


def interpreted(call: Call, changed: Mapping[str, Any]) -> Any:
    """The equation of one Mosaic call, as an interpreter runs it.

    Args:
      call: to interpret.
      changed: those of its parameters that say how it is interpreted.
    """
    bodies = [body for value in call.equation.params.values() for body in nested(value)]
    smallest = min((size for body in bodies for size in _groups(body)), default=1)

    def rule(equation: Any) -> list[Any] | None:
        if is_predicated_copy_out(equation):
            return _conditional(equation)
        if is_wait_for_copies_out(equation):
            return [equation.replace(params={**equation.params, "n": equation.params["n"] * smallest})]
        return None

    return call.equation.replace(params={**within(call.equation.params, rule), **changed})


def in_order() -> Rule:
    """No dimension of a grid is parallel."""

    def rule(equation: Any) -> list[Any] | None:
        compiler = equation.params.get("compiler_params")
        declared = getattr(compiler, "dimension_semantics", None)
        if declared is None:
            return None
        ordered = replace(compiler, dimension_semantics=("arbitrary",) * len(declared))
        return [equation.replace(params={**equation.params, "compiler_params": ordered})]

    return rule


def _groups(jaxpr: Any) -> Iterator[int]:
    """How many copies each group of copies to global memory has at least."""
    copies = 0
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in nested(value):
                yield from _groups(inner)
        if is_copy_out(equation) and not is_predicated_copy_out(equation):
            copies += 1
        if ends_copy_group(equation):
            yield copies
            copies = 0


def _conditional(equation: Any) -> list[Any]:
    """`copy(..., predicate=p)` as `cond(p, copy, nothing)`."""
    *operands, predicate = equation.invars
    copy = equation.replace(invars=operands, params={**equation.params, "has_user_predicate": False})
    template = jax.make_jaxpr(lambda p: jax.lax.cond(p, lambda: 1, lambda: 2))(True).jaxpr
    to_index, choose = template.eqns
    arguments = list(dict.fromkeys(operand for operand in operands if not isinstance(operand, Literal)))
    branches = tuple(ClosedJaxpr(_jaxpr(arguments, copies), ()) for copies in ([], [copy]))
    return [
        to_index.replace(invars=[predicate]),
        choose.replace(
            invars=[*to_index.outvars, *arguments],
            outvars=[],
            params={**choose.params, "branches": branches},
            effects=equation.effects,
        ),
    ]


def _jaxpr(invars: list[Any], equations: list[Any]) -> Any:
    return jax.make_jaxpr(lambda: None)().jaxpr.replace(invars=invars, eqns=equations)
