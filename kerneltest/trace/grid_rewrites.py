"""Rewrites of the order in which a grid's programs run."""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp

from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Equation, Jaxpr, Var
from kerneltest.trace.rewrite import Rule, inline_equations, is_plain_call, rewrite_jaxpr
from kerneltest.trace.walk import new_variable, primitive_name


def reverse_grids() -> Rule:
    """Runs every grid from its last program to its first."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if not is_plain_call(equation):
            return None
        params = equation.params
        mapping = params["grid_mapping"]
        blocks = [
            b.replace(index_map_jaxpr=_reverse_index_map(b.index_map_jaxpr, mapping.grid))
            for b in mapping.block_mappings
        ]

        # A body's axis numbers do not count the axes that vmap has added.
        own = [length for axis, length in enumerate(mapping.grid) if axis not in mapping.vmapped_dims]

        def programs(inner: Equation) -> Sequence[Equation] | None:
            if primitive_name(inner) != "program_id":
                return None
            (number,) = inner.outvars
            raw = new_variable(number)
            return [inner.replace(outvars=[raw]), *_from_last(raw, own[inner.params["axis"]], number)]

        changed = {
            "jaxpr": rewrite_jaxpr(params["jaxpr"], programs),
            "grid_mapping": mapping.replace(block_mappings=tuple(blocks)),
        }
        return [equation.replace(params={**params, **changed})]

    return rule


def run_in_order() -> Rule:
    """Makes no dimension of a grid parallel."""

    def rule(equation: Equation) -> list[Equation] | None:
        compiler = equation.params.get("compiler_params")
        declared = getattr(compiler, "dimension_semantics", None)
        if declared is None:
            return None
        ordered = replace(compiler, dimension_semantics=("arbitrary",) * len(declared))
        return [equation.replace(params={**equation.params, "compiler_params": ordered})]

    return rule


def _reverse_index_map(index_map: Jaxpr, grid: tuple[int, ...]) -> Jaxpr:
    if isinstance(index_map, ClosedJaxpr) and index_map.jaxpr is not index_map:
        return index_map.replace(jaxpr=_reverse_index_map(index_map.jaxpr, grid))
    inner = index_map.invars[: len(grid)]
    outer = [new_variable(v) for v in inner]
    reverse = [e for i, length in enumerate(grid) for e in _from_last(outer[i], length, inner[i])]
    invars = [*outer, *index_map.invars[len(grid) :]]
    return index_map.replace(invars=invars, eqns=[*reverse, *index_map.eqns])


def _from_last(number: Var, length: int, result: Var) -> list[Equation]:
    """The equations of `result = length - 1 - number`."""
    return inline_equations(lambda p: jnp.asarray(length - 1, p.dtype) - p, [number], [result])
