"""Jaxprs with some equations replaced: how a kernel is interpreted, padded or turned round without its help."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.extend.core import Jaxpr

from kerneltest.core.dtypes import is_float
from kerneltest.trace.jax_compat.names import ClosedJaxpr, dialect_of
from kerneltest.trace.walk import ENTRIES, name_of

EMPTY = frozenset({"empty", "empty2"})

# From an equation to those that take its place, or None where it stays and what is nested in it is looked into.
Rule = Callable[[Any], Sequence[Any] | None]


def rewritten(jaxpr: Any, rule: Rule) -> Any:
    """A jaxpr, open or closed, with every equation at any depth as `rule` has it."""
    if isinstance(jaxpr, ClosedJaxpr) and jaxpr.jaxpr is not jaxpr:  # since JAX 0.12 a closed jaxpr is its own
        return jaxpr.replace(jaxpr=rewritten(jaxpr.jaxpr, rule))
    kept: list[Any] = []
    for equation in jaxpr.eqns:
        others = rule(equation)
        kept += [equation.replace(params=within(equation.params, rule))] if others is None else others
    return jaxpr.replace(eqns=kept)


def within(params: Mapping[str, Any], rule: Rule) -> dict[str, Any]:
    """An equation's parameters, the jaxprs in them rewritten."""

    def inner(value: Any) -> Any:
        if isinstance(value, (ClosedJaxpr, Jaxpr)):
            return rewritten(value, rule)
        if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
            return type(value)(map(inner, value))
        return value

    return {key: inner(value) for key, value in params.items()}


def interpreting(interpret: bool) -> Rule:
    """Every Pallas call is interpreted, and what nobody filled is poisoned; or every one is compiled."""
    emptied = empties(Fill(nan=True))

    def rule(equation: Any) -> Sequence[Any] | None:
        if interpret and name_of(equation) in EMPTY:
            return emptied(equation)
        if name_of(equation) not in ENTRIES or "interpret" not in equation.params:
            return None
        return [equation.replace(params={**within(equation.params, rule), "interpret": interpret})]

    return rule


def empties(fill: Callable[[np.dtype[Any]], Any]) -> Rule:
    """Every `jax.lax.empty` holds `fill`: on the CPU it is zeros, and on a device what stood there before."""

    def rule(equation: Any) -> Sequence[Any] | None:
        if name_of(equation) not in EMPTY:
            return None
        (made,) = equation.outvars
        return inlined(lambda: jnp.full(made.aval.shape, fill(np.dtype(made.aval.dtype))), [], [made])

    return rule


def padding(fill: Callable[[np.dtype[Any]], Any]) -> Rule:
    """Where a block reaches past its array, and where a load is masked and says no other value, there is `fill`."""

    def rule(equation: Any) -> Sequence[Any] | None:
        if not is_plain_call(equation):
            return None
        masked = equation.replace(params={**equation.params, "jaxpr": rewritten(equation.params["jaxpr"], lanes)})
        return _padded_call(masked, fill)

    def lanes(equation: Any) -> Sequence[Any] | None:
        if name_of(equation) != "masked_load":
            return None
        _, _, mask, other = equation.params["args_tree"].unflatten(equation.invars)
        if mask is None or other is not None:
            return None
        (loaded,) = equation.outvars
        raw = _like(loaded)
        return [
            equation.replace(outvars=[raw]),
            *inlined(lambda m, v: jnp.where(m, v, fill(np.dtype(v.dtype))), [mask, raw], [loaded]),
        ]

    return rule


def reversing() -> Rule:
    """Every grid runs from its end to its start."""

    def rule(equation: Any) -> Sequence[Any] | None:
        if not is_plain_call(equation):
            return None
        params = equation.params
        mapping = params["grid_mapping"]
        blocks = [
            b.replace(index_map_jaxpr=_from_the_end(b.index_map_jaxpr, mapping.grid)) for b in mapping.block_mappings
        ]

        # A body counts the axes of its own grid: those that vmap has added are not among them.
        own = [length for axis, length in enumerate(mapping.grid) if axis not in mapping.vmapped_dims]

        def programs(inner: Any) -> Sequence[Any] | None:
            if name_of(inner) != "program_id":
                return None
            (number,) = inner.outvars
            raw = _like(number)
            return [inner.replace(outvars=[raw]), *_from_last(raw, own[inner.params["axis"]], number)]

        changed = {
            "jaxpr": rewritten(params["jaxpr"], programs),
            "grid_mapping": mapping.replace(block_mappings=tuple(blocks)),
        }
        return [equation.replace(params={**params, **changed})]

    return rule


def before(fill: Callable[[np.dtype[Any]], Any]) -> Rule:
    """Every output that is not one of the inputs holds `fill` before its kernel runs."""

    def rule(equation: Any) -> Sequence[Any] | None:
        if not is_plain_call(equation):
            return None
        params, avals = equation.params, [v.aval for v in equation.outvars]
        aliased = {output for _, output in params["input_output_aliases"]}
        fresh = [i for i in range(len(avals)) if i not in aliased]
        count = len(equation.invars)
        aliases = (*params["input_output_aliases"], *((count + k, i) for k, i in enumerate(fresh)))
        changed = {**params, **_with_operands(params, fresh, count), "input_output_aliases": aliases}

        def call(*operands: Any) -> list[Any]:
            old = [jnp.full(avals[i].shape, fill(np.dtype(avals[i].dtype)), avals[i].dtype) for i in fresh]
            return list(equation.primitive.bind(*operands, *old, **changed))

        return inlined(call, equation.invars, equation.outvars)

    return rule


def is_plain_call(equation: Any, *, sized: bool = True) -> bool:
    """A `pallas_call` of arrays, not in Mosaic GPU, whose copies pad with zeros; if `sized`, on a grid known before."""
    if name_of(equation) != "pallas_call":
        return False
    mapping, compiler = equation.params["grid_mapping"], equation.params["compiler_params"]
    arrays = all(hasattr(v.aval, "shape") and not hasattr(v.aval, "inner_aval") for v in equation.invars)
    return arrays and dialect_of(compiler) != "mosaic_gpu" and not (sized and mapping.num_dynamic_grid_bounds)


def _padded_call(equation: Any, fill: Callable[[np.dtype[Any]], Any]) -> Sequence[Any]:
    params = equation.params
    mapping = params["grid_mapping"]
    skipped = len(equation.invars) - mapping.num_inputs  # of scalar prefetch, which has no blocks
    whole = [tuple(b.array_aval.shape) for b in mapping.block_mappings]
    shapes = [filled_up(b) for b in mapping.block_mappings]
    for operand, output in params["input_output_aliases"]:
        both = (operand - skipped, mapping.num_inputs + output)
        largest = tuple(map(max, *(shapes[i] for i in both)))
        for i in both:
            shapes[i] = largest
    if shapes == whole:
        return [equation]
    blocks = [
        block.replace(array_aval=block.array_aval.update(shape=shape))
        for block, shape in zip(mapping.block_mappings, shapes, strict=True)
    ]
    outputs = range(mapping.num_inputs, len(shapes))
    out_avals = tuple(a.update(shape=shapes[i]) for a, i in zip(params["out_avals"], outputs, strict=True))
    changed = {**params, "grid_mapping": mapping.replace(block_mappings=tuple(blocks)), "out_avals": out_avals}

    def call(*operands: Any) -> list[Any]:
        given = [
            *operands[:skipped],
            *(_pad(x, shape, fill) for x, shape in zip(operands[skipped:], shapes, strict=False)),
        ]
        results = equation.primitive.bind(*given, **changed)
        return [x[tuple(map(slice, whole[i]))] for x, i in zip(results, outputs, strict=True)]

    return inlined(call, equation.invars, equation.outvars)


def _pad(x: Any, shape: tuple[int, ...], fill: Callable[[np.dtype[Any]], Any]) -> Any:
    ends = [(0, to - length) for length, to in zip(x.shape, shape, strict=True)]
    return jnp.pad(x, ends, constant_values=fill(np.dtype(x.dtype))) if x.shape != shape else x


def filled_up(block: Any) -> tuple[int, ...]:
    """The array's shape, rounded up to whole blocks."""
    sizes = [length if isinstance(length, int) else _blocked(length) for length in block.block_shape]
    return tuple(
        -(-length // size) * size if size else length
        for length, size in zip(block.array_aval.shape, sizes, strict=True)
    )


def _blocked(length: Any) -> int:
    """The size of a blocked dimension; 0 for what is indexed by elements, squeezed or dynamic."""
    return int(length.block_size) if type(length).__name__ == "Blocked" else 0


def _from_the_end(index_map: Any, grid: tuple[int, ...]) -> Any:
    if isinstance(index_map, ClosedJaxpr) and index_map.jaxpr is not index_map:
        return index_map.replace(jaxpr=_from_the_end(index_map.jaxpr, grid))
    inner = index_map.invars[: len(grid)]
    outer = [_like(v) for v in inner]
    turned = [e for i, length in enumerate(grid) for e in _from_last(outer[i], length, inner[i])]
    invars = [*outer, *index_map.invars[len(grid) :]]
    return index_map.replace(invars=invars, eqns=[*turned, *index_map.eqns])


def _from_last(number: Any, length: int, result: Any) -> list[Any]:
    return inlined(lambda p: jnp.asarray(length - 1, p.dtype) - p, [number], [result])


def _with_operands(params: Mapping[str, Any], outputs: Sequence[int], operands: int) -> dict[str, Any]:
    """The parts of a call's parameters that say which operands it has, with one more for each of some outputs."""
    mapping, jaxpr = params["grid_mapping"], params["jaxpr"]
    inputs = mapping.num_inputs
    blocks = list(mapping.block_mappings)
    added = [blocks[inputs + i] for i in outputs]
    refs = list(jaxpr.invars)
    extra = [_like(refs[operands + i]) for i in outputs]
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
            effects={_moved(effect, operands, len(extra)) for effect in jaxpr.effects},
            debug_info=jaxpr.debug_info._replace(arg_names=names),
        ),
    }


def _moved(effect: Any, start: int, by: int) -> Any:
    """An effect on the input at `start` or later, when `by` inputs have come before it."""
    at = getattr(effect, "input_index", None)
    return effect.replace(input_index=at + by) if at is not None and at >= start else effect


def _like(variable: Any) -> Any:
    return type(variable)(variable.aval)


def inlined(function: Callable[..., Any], operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The equations of a function of some of a jaxpr's values, which define others of them."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in operands]
    jaxpr = jax.make_jaxpr(function)(*shapes).jaxpr
    assert not jaxpr.constvars
    names = dict(zip(jaxpr.invars, operands, strict=True)) | dict(zip(jaxpr.outvars, results, strict=True))
    return [
        equation.replace(
            invars=[v if hasattr(v, "val") else names.get(v, v) for v in equation.invars],
            outvars=[names.get(v, v) for v in equation.outvars],
        )
        for equation in jaxpr.eqns
    ]


@dataclass(frozen=True, slots=True)
class Fill:
    """What stands where nothing was put: a number that no sum loses and no comparison mistakes.

    Attributes:
      nan: NaN, and the least integer; else the largest finite number, and the greatest integer.
    """

    nan: bool

    def __call__(self, dtype: np.dtype[Any]) -> Any:
        if is_float(dtype):
            return np.array(np.nan if self.nan else ml_dtypes.finfo(dtype).max, dtype)
        if dtype == np.bool_:
            return np.array(not self.nan)
        info = ml_dtypes.iinfo(dtype)
        return np.array(info.min if self.nan else info.max, dtype)
