"""Rewrites of jaxprs, by which any kernel can be interpreted, padded with chosen values, or run in reverse order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import DType, is_float
from kerneltest.trace.jax_compat.jaxprs import (
    Atom,
    BlockMapping,
    ClosedJaxpr,
    Equation,
    JaxArray,
    Jaxpr,
    Literal,
    OpenJaxpr,
    Params,
    Var,
    dialect_of,
    inner_jaxprs,
    with_constvars,
)
from kerneltest.trace.primitives import Kind, access_parts, kind_of, with_access_parts
from kerneltest.trace.walk import new_variable, primitive_name

# From an equation to those that replace it; None to keep it and rewrite the jaxprs nested in it.
Rule = Callable[[Equation], Sequence[Equation] | None]

# From a dtype to the value of memory that has not been filled.
_ChooseFill = Callable[[DType], Any]


@dataclass(frozen=True, slots=True)
class Fill:
    """A value for memory that was never filled, which neither sums nor comparisons can hide."""

    nan: bool  # NaN, or the least integer; if not, the largest finite number, or the greatest integer

    def __call__(self, dtype: DType) -> Any:
        if is_float(dtype):
            return np.array(np.nan if self.nan else ml_dtypes.finfo(dtype).max, dtype)
        if dtype == np.bool_:
            return np.array(not self.nan)
        info = ml_dtypes.iinfo(dtype)
        return np.array(info.min if self.nan else info.max, dtype)


def rewrite_jaxpr(jaxpr: Jaxpr, rule: Rule) -> Jaxpr:
    """Applies `rule` to every equation, at any depth, of a jaxpr that is open or closed."""
    if isinstance(jaxpr, ClosedJaxpr) and jaxpr.jaxpr is not jaxpr:  # since JAX 0.12 a closed jaxpr is its own
        return jaxpr.replace(jaxpr=rewrite_jaxpr(jaxpr.jaxpr, rule))
    equations: list[Equation] = []
    for equation in jaxpr.eqns:
        new = rule(equation)
        equations += [equation.replace(params=rewrite_params(equation.params, rule))] if new is None else new
    return jaxpr.replace(eqns=equations)


def rewrite_params(params: Params, rule: Rule) -> dict[str, Any]:
    """Applies `rule` to the jaxprs in an equation's parameters."""
    return map_jaxprs(params, lambda jaxpr: rewrite_jaxpr(jaxpr, rule))


def map_jaxprs(params: Params, change: Callable[[Jaxpr], Jaxpr]) -> dict[str, Any]:
    """Returns an equation's parameters with all jaxprs in them changed, open or closed."""

    def inner(value: Any) -> Any:
        if isinstance(value, (ClosedJaxpr, OpenJaxpr)):
            return change(value)
        if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, OpenJaxpr)) for v in value):
            return type(value)(map(inner, value))
        return value

    return {key: inner(value) for key, value in params.items()}


def interpret_calls(interpret: bool) -> Rule:
    """Has every Pallas call interpreted, with poisoned `jax.lax.empty` arrays, or has every one compiled.

    In interpreted calls, the masked lanes of a store store nothing, as on a device.
    """
    poison_empty = fill_empty(Fill(nan=True))

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if interpret and kind_of(equation) is Kind.EMPTY:
            return poison_empty(equation)
        if interpret and primitive_name(equation) == "masked_swap":
            return _skip_masked_lanes(equation)
        if kind_of(equation) is not Kind.KERNEL or "interpret" not in equation.params:
            return None
        return [equation.replace(params={**rewrite_params(equation.params, rule), "interpret": interpret})]

    return rule


# Has the masked lanes of a store to positions in arrays store past the end, where nothing is stored. For these, Pallas'
# interpreter stores the old value, also over what another lane stores to the same element.
def _skip_masked_lanes(equation: Equation) -> Sequence[Equation] | None:
    parts = access_parts(equation)
    if parts is None or parts.mask is None or not hasattr(indexer := (parts.transforms or [None])[-1], "indices"):
        return None
    first, *others = indexer.indices or [None]
    lanes = parts.value.aval.shape
    if not lanes or any(not hasattr(index, "aval") for index in (first, *others)):
        return None
    positions = type(parts.value)(parts.value.aval.update(dtype=np.dtype(np.int32), weak_type=False))
    define = inline_equations(
        lambda mask, index: jnp.where(jnp.broadcast_to(mask, lanes), index, indexer.shape[0]).astype(np.int32),
        [parts.mask, first],
        [positions],
    )
    transforms = (*parts.transforms[:-1], replace(indexer, indices=(positions, *others)))
    return [*define, with_access_parts(equation, parts._replace(transforms=transforms))]


def fill_empty(fill: _ChooseFill) -> Rule:
    """Fills every `jax.lax.empty` with `fill`: it is zeros on the CPU, and the old content of memory on a device."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if kind_of(equation) is not Kind.EMPTY:
            return None
        (result,) = equation.outvars
        return inline_equations(lambda: jnp.full(result.aval.shape, fill(np.dtype(result.aval.dtype))), [], [result])

    return rule


def fill_padding(fill: _ChooseFill) -> Rule:
    """Pads with `fill`: blocks that overhang their array, and the masked lanes of a load without `other`."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if not is_plain_call(equation):
            return None
        masked = equation.replace(params={**equation.params, "jaxpr": rewrite_jaxpr(equation.params["jaxpr"], lanes)})
        return _pad_call(masked, fill)

    def lanes(equation: Equation) -> Sequence[Equation] | None:
        if primitive_name(equation) != "masked_load":
            return None
        parts = access_parts(equation)
        if parts is None or parts.mask is None or parts.other is not None:
            return None
        (loaded,) = equation.outvars
        raw = new_variable(loaded)
        return [
            equation.replace(outvars=[raw]),
            *inline_equations(lambda m, v: jnp.where(m, v, fill(np.dtype(v.dtype))), [parts.mask, raw], [loaded]),
        ]

    return rule


def fill_outputs(fill: _ChooseFill) -> Rule:
    """Fills every output that is not aliased to an input with `fill` before its kernel runs."""

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if not is_plain_call(equation):
            return None
        params, avals = equation.params, [v.aval for v in equation.outvars]
        aliased = {output for _, output in params["input_output_aliases"]}
        fresh = [i for i in range(len(avals)) if i not in aliased]
        count = len(equation.invars)
        aliases = (*params["input_output_aliases"], *((count + k, i) for k, i in enumerate(fresh)))
        changed = {**params, **_with_operands(params, fresh, count), "input_output_aliases": aliases}

        def call(*operands: JaxArray) -> list[JaxArray]:
            old = [jnp.full(avals[i].shape, fill(np.dtype(avals[i].dtype)), avals[i].dtype) for i in fresh]
            return list(equation.primitive.bind(*operands, *old, **changed))

        return inline_equations(call, equation.invars, equation.outvars)

    return rule


def is_plain_call(equation: Equation, *, sized: bool = True) -> bool:
    """Returns whether it is a `pallas_call` on arrays, and not in Mosaic GPU, whose copies pad with zeros.

    If it is to be `sized`, its grid must not be computed at run time.
    """
    if primitive_name(equation) != "pallas_call":
        return False
    mapping, compiler = equation.params["grid_mapping"], equation.params["compiler_params"]
    arrays = all(hasattr(v.aval, "shape") and not hasattr(v.aval, "inner_aval") for v in equation.invars)
    return arrays and dialect_of(compiler) != "mosaic_gpu" and not (sized and mapping.num_dynamic_grid_bounds)


def _pad_call(equation: Equation, fill: _ChooseFill) -> Sequence[Equation]:
    params = equation.params
    mapping = params["grid_mapping"]
    skipped = len(equation.invars) - mapping.num_inputs  # prefetched scalars, which have no blocks
    whole = [tuple(b.array_aval.shape) for b in mapping.block_mappings]
    shapes = [padded_shape(b) for b in mapping.block_mappings]
    for operand, output in params["input_output_aliases"]:
        both = (operand - skipped, mapping.num_inputs + output)
        largest = tuple(map(max, *(shapes[i] for i in both)))
        for i in both:
            shapes[i] = largest
    if shapes == whole:
        return [equation]
    pairs = zip(mapping.block_mappings, shapes, strict=True)
    blocks = [block.replace(array_aval=block.array_aval.update(shape=shape)) for block, shape in pairs]
    outputs = range(mapping.num_inputs, len(shapes))
    out_avals = tuple(a.update(shape=shapes[i]) for a, i in zip(params["out_avals"], outputs, strict=True))
    changed = {**params, "grid_mapping": mapping.replace(block_mappings=tuple(blocks)), "out_avals": out_avals}

    def call(*operands: JaxArray) -> list[JaxArray]:
        blocked = zip(operands[skipped:], shapes, strict=False)
        padded = [*operands[:skipped], *(_pad(x, shape, fill) for x, shape in blocked)]
        results = equation.primitive.bind(*padded, **changed)
        return [x[tuple(map(slice, whole[i]))] for x, i in zip(results, outputs, strict=True)]

    return inline_equations(call, equation.invars, equation.outvars)


def _pad(x: JaxArray, shape: tuple[int, ...], fill: _ChooseFill) -> JaxArray:
    ends = [(0, to - length) for length, to in zip(x.shape, shape, strict=True)]
    return jnp.pad(x, ends, constant_values=fill(np.dtype(x.dtype))) if x.shape != shape else x


def padded_shape(block: BlockMapping) -> tuple[int, ...]:
    """The shape of a block mapping's array, rounded up to whole blocks."""
    # A dimension that is indexed by elements, squeezed or dynamic is not blocked.
    sizes = [n if isinstance(n, int) else n.block_size if isinstance(n, pl.Blocked) else 1 for n in block.block_shape]
    return tuple(-(-length // size) * size for length, size in zip(block.array_aval.shape, sizes, strict=True))


def _with_operands(params: Params, outputs: Sequence[int], operands: int) -> dict[str, Any]:
    """The parameters of a call that list its `operands`, with one operand more for each of some outputs, by index."""
    mapping, jaxpr = params["grid_mapping"], params["jaxpr"]
    inputs = mapping.num_inputs
    blocks = list(mapping.block_mappings)
    added = [blocks[inputs + i] for i in outputs]
    refs = list(jaxpr.invars)
    extra = [new_variable(refs[operands + i]) for i in outputs]
    names = getattr(jaxpr.debug_info, "arg_names", None)
    if names is not None:
        old = tuple(f"{names[operands + i]} before" for i in outputs)
        names = (*names[:operands], *old, *names[operands:])
    return {
        "grid_mapping": mapping.replace(
            block_mappings=(*blocks[:inputs], *added, *blocks[inputs:]), num_inputs=inputs + len(added)
        ),
        "jaxpr": jaxpr.replace(
            invars=[*refs[:operands], *extra, *refs[operands:]],
            debug_info=jaxpr.debug_info._replace(arg_names=names),
        ),
    }


def inline_equations(function: Callable[..., Any], operands: Sequence[Atom], results: Sequence[Var]) -> list[Equation]:
    """The equations that define `results` as a function of `operands`, all of them values of one jaxpr."""
    return rename_equations(trace_equations(function, operands), operands, results)


def trace_equations(function: Callable[..., Any], operands: Sequence[Atom]) -> OpenJaxpr:
    """The jaxpr of a function of operands."""
    jaxpr: OpenJaxpr = jax.make_jaxpr(function)(
        *(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in operands)
    ).jaxpr
    assert not jaxpr.constvars
    return jaxpr


def rename_equations(jaxpr: OpenJaxpr, operands: Sequence[Atom], results: Sequence[Var]) -> list[Equation]:
    """The equations of a jaxpr, with its inputs and outputs replaced and other variables renewed."""
    names = dict(zip(jaxpr.invars, operands, strict=True)) | dict(zip(jaxpr.outvars, results, strict=True))
    for equation in jaxpr.eqns:
        names.update((v, new_variable(v)) for v in equation.outvars if v not in names)
    return [
        equation.replace(
            invars=[v if hasattr(v, "val") else names[v] for v in equation.invars],
            outvars=[names[v] for v in equation.outvars],
        )
        for equation in jaxpr.eqns
    ]


# Rewrites of the order in which a grid's programs run.


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


def rewrite_for_interpreter(call: Equation, changed: Mapping[str, Any]) -> Equation:
    """The equation of one Mosaic call, rewritten for the interpreter that the `changed` parameters select."""
    smallest = min((size for body in inner_jaxprs(call) for size in _group_sizes(body)), default=1)

    def rule(equation: Equation) -> list[Equation] | None:
        if _is_copy_out(equation, predicated=True):
            return _conditional(equation)
        if primitive_name(equation) == "run_scoped" and (mixed := _registers_apart(equation)) is not None:
            return [mixed.replace(params=rewrite_params(mixed.params, rule))]
        # In JAX 0.10.2 `n` is an operand, and the interpreter does not wait.
        if primitive_name(equation) == "wait_smem_to_gmem" and "n" in equation.params:
            return [equation.replace(params={**equation.params, "n": equation.params["n"] * smallest})]
        return None

    return call.replace(params={**rewrite_params(call.params, rule), **changed})


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
