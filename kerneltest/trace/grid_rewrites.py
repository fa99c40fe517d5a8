"""Rewrites of the order in which a grid's programs run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from kerneltest.trace.jax_compat.jaxprs import ClosedJaxpr, Equation, Jaxpr, Literal, Var, inner_jaxprs, with_constvars
from kerneltest.trace.rewrite import Rule, inline_equations, is_plain_call, rewrite_jaxpr, rewrite_params
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import new_variable, primitive_name


def reverse_grids() -> Rule:
    """Runs every grid from its last program to its first."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if not is_plain_call(equation):
            return None
        params = equation.params
        mapping = params["grid_mapping"]
        maps = [_reverse_index_map(block.index_map_jaxpr, mapping.grid) for block in mapping.block_mappings]
        blocks = [b.replace(index_map_jaxpr=i) for b, i in zip(mapping.block_mappings, maps, strict=True)]
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
    return index_map.replace(invars=[*outer, *index_map.invars[len(grid) :]], eqns=[*reverse, *index_map.eqns])


def _from_last(number: Var, length: int, result: Var) -> list[Equation]:
    """The equations of `result = length - 1 - number`."""
    return inline_equations(lambda p: jnp.asarray(length - 1, p.dtype) - p, [number], [result])


# Rewrites of Mosaic kernels: for programs in order, and so that JAX's interpreter runs all of `emit_pipeline`.
#
# The interpreter refuses a predicated copy from shared to global memory, and its wait for `n` counts copies where the
# device counts groups of copies. Both are corrected in the jaxpr. A predicated copy becomes a copy in a `cond`. A wait
# for `n` groups becomes one for the least number of copies that `n` groups contain, not counting predicated ones: the
# interpreter may then wait for more than the device does, and miss a race, but it never reports a false one. It also
# refuses a scope with both registers and other memory, which becomes two.


def rewrite_for_interpreter(call: Call, changed: Mapping[str, Any]) -> Equation:
    """The equation of one Mosaic call, rewritten for the interpreter that the `changed` parameters select."""
    smallest = min((size for body in inner_jaxprs(call.equation) for size in _group_sizes(body)), default=1)

    def rule(equation: Equation) -> list[Equation] | None:
        if _is_copy_out(equation, predicated=True):
            return _conditional(equation)
        if primitive_name(equation) == "run_scoped" and (mixed := _registers_apart(equation)) is not None:
            return [mixed.replace(params=rewrite_params(mixed.params, rule))]
        # In JAX 0.10.2 `n` is an operand, and the interpreter does not wait.
        if primitive_name(equation) == "wait_smem_to_gmem" and "n" in equation.params:
            return [equation.replace(params={**equation.params, "n": equation.params["n"] * smallest})]
        return None

    return call.equation.replace(params={**rewrite_params(call.equation.params, rule), **changed})


def _registers_apart(equation: Equation) -> Equation | None:
    """The same `run_scoped` with its registers in a scope within that of the rest; None if it has not both."""
    params, body = equation.params, equation.params["jaxpr"]
    in_registers = [str(v.aval.memory_space).lower() == "regs" for v in body.invars]
    if all(in_registers) or not any(in_registers):
        return None

    def chosen(values: Sequence[Any], wanted: bool) -> list[Any]:
        return [value for value, own in zip(values, in_registers, strict=True) if own is wanted]

    def scope(jaxpr: Jaxpr, wanted: bool) -> dict[str, Any]:
        shared = {} if wanted else {"collective_axes": params["collective_axes"]}
        transforms = tuple(chosen(params["ref_transforms"], wanted))
        return {**params, "collective_axes": (), **shared, "jaxpr": jaxpr, "ref_transforms": transforms}

    outer = list(map(new_variable, body.constvars)), list(map(new_variable, chosen(body.invars, False)))
    results = list(map(new_variable, equation.outvars))
    inner = with_constvars(body, [*body.constvars, *chosen(body.invars, False)], invars=chosen(body.invars, True))
    registers = equation.replace(invars=[*outer[0], *outer[1]], outvars=results, params=scope(inner, True))
    whole = with_constvars(body, outer[0], invars=outer[1], eqns=[registers], outvars=results)
    return equation.replace(params=scope(whole, False))


def _group_sizes(jaxpr: Jaxpr) -> Iterator[int]:
    """Yields the least number of copies in each group of copies to global memory."""
    copies = 0
    for equation in jaxpr.eqns:
        for inner in inner_jaxprs(equation):
            yield from _group_sizes(inner)
        copies += _is_copy_out(equation, predicated=False)
        if primitive_name(equation) == "commit_group" or equation.params.get("commit_group"):
            yield copies
            copies = 0


def _is_copy_out(equation: Equation, *, predicated: bool) -> bool:
    if primitive_name(equation) != "copy_smem_to_gmem":
        return False
    return bool(equation.params["has_user_predicate"]) is predicated


def _conditional(equation: Equation) -> list[Equation]:
    """Rewrites `copy(..., predicate=p)` as `cond(p, copy, nothing)`."""
    *operands, predicate = equation.invars
    copy = equation.replace(invars=operands, params={**equation.params, "has_user_predicate": False})
    to_index, choose = jax.make_jaxpr(lambda p: jax.lax.cond(p, lambda: 1, lambda: 2))(True).jaxpr.eqns
    arguments = list(dict.fromkeys(operand for operand in operands if not isinstance(operand, Literal)))
    empty = jax.make_jaxpr(lambda: None)().jaxpr.replace(invars=arguments)
    branches = (ClosedJaxpr(empty, ()), ClosedJaxpr(empty.replace(eqns=[copy]), ()))
    return [
        to_index.replace(invars=[predicate]),
        choose.replace(
            invars=[*to_index.outvars, *arguments],
            outvars=[],
            params={**choose.params, "branches": branches},
            effects=equation.effects,
        ),
    ]
