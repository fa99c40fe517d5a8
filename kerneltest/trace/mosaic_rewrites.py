"""Rewrites of Mosaic kernels: for programs in order, and so that JAX's interpreter runs all of `emit_pipeline`.

The interpreter refuses a predicated copy from shared to global memory, and its wait for `n` counts copies where the
device counts groups of copies. Both are corrected in the jaxpr. A predicated copy becomes a copy in a `cond`. A wait
for `n` groups becomes one for the least number of copies that `n` groups contain, not counting predicated ones: the
interpreter may then wait for more than the device does, and miss a race, but it never reports a false one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax

from kerneltest.trace.jax_compat.jaxpr_types import Atom, ClosedJaxpr, Equation, Jaxpr, Literal
from kerneltest.trace.jax_compat.mosaic_gpu_interpreter import (
    ends_copy_group,
    is_copy_out,
    is_predicated_copy_out,
    is_wait_for_copies_out,
)
from kerneltest.trace.rewrite import rewrite_params
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import nested_jaxprs


def rewrite_for_interpreter(call: Call, changed: Mapping[str, Any]) -> Equation:
    """The equation of one Mosaic call, rewritten for an interpreter.

    Args:
      call: to interpret.
      changed: the parameters that select the interpreter, in place of the call's own.
    """
    bodies = [body for value in call.equation.params.values() for body in nested_jaxprs(value)]
    smallest = min((size for body in bodies for size in _group_sizes(body)), default=1)

    def rule(equation: Equation) -> list[Equation] | None:
        if is_predicated_copy_out(equation):
            return _conditional(equation)
        if is_wait_for_copies_out(equation):
            return [equation.replace(params={**equation.params, "n": equation.params["n"] * smallest})]
        return None

    return call.equation.replace(params={**rewrite_params(call.equation.params, rule), **changed})


def _group_sizes(jaxpr: Jaxpr) -> Iterator[int]:
    """Yields the least number of copies in each group of copies to global memory."""
    copies = 0
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for inner in nested_jaxprs(value):
                yield from _group_sizes(inner)
        if is_copy_out(equation) and not is_predicated_copy_out(equation):
            copies += 1
        if ends_copy_group(equation):
            yield copies
            copies = 0


def _conditional(equation: Equation) -> list[Equation]:
    """Rewrites `copy(..., predicate=p)` as `cond(p, copy, nothing)`."""
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


def _jaxpr(invars: list[Atom], equations: list[Equation]) -> Jaxpr:
    return jax.make_jaxpr(lambda: None)().jaxpr.replace(invars=invars, eqns=equations)
