"""Names for a TPU kernel's memory: JAX's interpreter knows buffers and semaphores only by order of allocation."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Equation, Jaxpr, Var
from kerneltest.trace.jax_compat.source_lines import is_of_jax, line_of

MAIN_MEMORY = frozenset({"any", "hbm"})
"""Memory whose arrays are passed to the kernel whole."""

_ROWS, _LANES = 8, 128  # of a tile


@dataclass(frozen=True, slots=True)
class KernelBuffer:
    """Memory that exists when the kernel starts.

    Attributes:
      name: the kernel's parameter.
      initial_shape: the shape of the array that it holds at the start; None if it holds nothing.
      padded: whether it is the block of an input, which may reach past the end of its array.
    """

    name: str
    initial_shape: tuple[int, ...] | None = None
    padded: bool = False


@dataclass(frozen=True, slots=True)
class EquationSite:
    """The origin of one of the kernel's equations, and the memory it concerns.

    Attributes:
      primitive: its name.
      line: FILE:LINE of the user's code; for JAX's own code, of the user's call to it.
      semaphore: the name of the semaphore that it counts, or "".
      allocates: the names of the buffers that it allocates.
    """

    primitive: str
    line: str
    semaphore: str = ""
    allocates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The memory of one call.

    Attributes:
      line: FILE:LINE of the call.
      buffers: in order of allocation.
      outputs: for each output, the index of its buffer.
      semaphores: the names of those that exist when the kernel starts, in their order.
      sites: the kernel's equations, by the id of their `source_info`.
    """

    line: str
    buffers: tuple[KernelBuffer, ...]
    outputs: tuple[int, ...]
    semaphores: tuple[str, ...]
    sites: Mapping[int, EquationSite]


def layout_of(equation: Equation) -> MemoryLayout:
    """The memory of a Pallas call."""
    params = equation.params
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["jaxprs"][0]
    mapping = params.get("grid_mapping")
    scalars = mapping.num_index_operands if mapping is not None else 0
    inputs = mapping.num_inputs if mapping is not None else len(equation.invars)
    aliased = {output: operand - scalars for operand, output in _alias_pairs(params["input_output_aliases"])}
    refs, names = jaxpr.invars, _names(jaxpr)
    ends = scalars + inputs, scalars + inputs + len(equation.outvars)

    arrays = [tuple(v.aval.shape) for v in equation.invars][len(equation.invars) - inputs :]
    buffers = [KernelBuffer(names[scalars + i], shape) for i, shape in enumerate(arrays)]
    outputs = []
    for i, name in enumerate(names[slice(*ends)]):
        outputs.append(aliased.get(i, len(buffers)))
        if i not in aliased:
            buffers.append(KernelBuffer(name))
    buffers += [KernelBuffer(name, tuple(ref.aval.shape)) for name, ref in zip(names[:scalars], refs, strict=False)]
    semaphores: list[str] = []
    for i, (name, ref) in enumerate(zip(names[scalars:], refs[scalars:], strict=True)):
        if _is_semaphore(ref):
            semaphores += _element_names(name, ref.aval.shape)
        elif i + scalars >= ends[1] or str(ref.aval.memory_space).lower() not in MAIN_MEMORY:
            buffers.append(KernelBuffer(name, padded=i < inputs))
    line = line_of(equation.source_info)
    sites = dict(_sites(jaxpr, dict(zip(refs, names, strict=True)), line))
    return MemoryLayout(line, tuple(buffers), tuple(outputs), tuple(semaphores), sites)


def padded_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Returns the shape of an array in a TPU's main memory, which holds whole tiles.

    A tile has 8 rows of 128 elements, or fewer rows for an array with few of them: at least as many as 32 bits hold
    elements. An array of one axis has tiles of 128 times as many.

    Source: `infer_tiling` in JAX's `tpu_info`, for TPU v4 and later.
    """
    if not shape or dtype.itemsize > 4:
        return shape
    packing = 4 // dtype.itemsize
    if len(shape) == 1:
        return (_round_up(shape[0], packing * _LANES),)
    rows = packing
    while rows < min(shape[-2], _ROWS):
        rows *= 2
    return (*shape[:-2], _round_up(shape[-2], rows), _round_up(shape[-1], _LANES))


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def overhanging_alias(equation: Equation) -> str:
    """The name of an output that takes an input's memory and ends within a block, or "".

    JAX's interpreter gives such an output the shape of whole blocks, and XLA then refuses the call.
    """
    mapping = equation.params.get("grid_mapping")
    if mapping is None:
        return ""
    names: list[str] = _names(equation.params["jaxpr"])[mapping.num_index_operands :]
    for _, output in _alias_pairs(equation.params["input_output_aliases"]):
        number = mapping.num_inputs + output
        block = mapping.block_mappings[number]
        sizes = [getattr(each, "block_size", 1) for each in block.block_shape]
        if any(length % size for length, size in zip(block.array_aval.shape, sizes, strict=True)):
            return names[int(number)]
    return ""


def _alias_pairs(aliases: Any) -> list[tuple[int, int]]:
    """Pairs of an operand and the output that takes its memory."""
    return list(aliases.items() if hasattr(aliases, "items") else aliases)


def _names(jaxpr: Jaxpr) -> list[str]:
    names = list(getattr(jaxpr.debug_info, "arg_names", None) or ())
    count = len(jaxpr.invars)
    known = names if len(names) == count else [""] * count
    return [name or f"argument {i}" for i, name in enumerate(known)]


def _is_semaphore(ref: Var) -> bool:
    return "semaphore" in str(getattr(ref.aval, "memory_space", ""))


def _element_names(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    for i in range(math.prod(shape)):
        at: list[str] = []
        for length in reversed(shape):
            i, rest = divmod(i, length)
            at.insert(0, str(rest))
        yield f"{name}[{', '.join(at)}]" if shape else name


# For each primitive that counts a semaphore: the parameter with the tree of its operands, and the index in it.
_COUNTED = {"dma_start": ("tree", 2), "dma_wait": ("tree", 2), "semaphore_signal": ("args_tree", 0)}
_COUNTED["semaphore_wait"] = _COUNTED["semaphore_signal"]


def _sites(jaxpr: Jaxpr, names: Mapping[Var, str], outer: str) -> Iterator[tuple[int, EquationSite]]:
    """The sites of a jaxpr, in which some variables have names and which is called from the line `outer`."""
    for equation in jaxpr.eqns:
        primitive = str(equation.primitive.name)
        site = EquationSite(primitive, line_of(equation.source_info) or outer)
        if primitive in _COUNTED:
            tree, number = _COUNTED[primitive]
            ref = jax.tree.unflatten(equation.params[tree], equation.invars)[number]
            site = replace(site, semaphore=names.get(getattr(ref, "ref", ref), ""))
        for inner in _nested(equation):
            inside = _inner_names(primitive, equation, inner, names)
            if primitive == "run_scoped" and not is_of_jax(inner):
                own = dict(zip(inner.invars, _names(inner), strict=True))
                inside.update(own)
                site = replace(site, allocates=tuple(n for v, n in own.items() if not _is_semaphore(v)))
            yield from _sites(inner, inside, site.line)
        yield id(equation.source_info), site


def _nested(equation: Equation) -> Iterator[Jaxpr]:
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = item.jaxpr if isinstance(item, ClosedJaxpr) else item
            if hasattr(inner, "eqns"):
                yield inner


def _inner_names(primitive: str, equation: Equation, inner: Jaxpr, names: Mapping[Var, str]) -> dict[Var, str]:
    """Names for the inputs of a nested jaxpr. A branch's or a loop body's operands are the last of the equation's."""
    if primitive == "run_scoped":
        pairs = zip(inner.constvars, equation.invars, strict=False)
    else:
        pairs = zip(reversed(inner.invars), reversed(equation.invars), strict=False)
    return {new: names[old] for new, old in pairs if not hasattr(old, "val") and old in names}
