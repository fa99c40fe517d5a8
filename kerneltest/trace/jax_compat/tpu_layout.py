"""What a TPU kernel's memory is called: JAX's interpreter knows buffers and semaphores by the order of allocation."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from kerneltest.trace.jax_compat.names import ClosedJaxpr, is_of_jax, line_of

_MAIN = frozenset({"any", "hbm"})  # memory whose arrays the kernel is given as they are


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that is there when the kernel starts.

    Attributes:
      name: of the kernel's parameter.
      given: the shape of the array that it holds then; None where it holds nothing.
      padded: it is the block of an input, whose end lies past the array's in the last block of an axis.
    """

    name: str
    given: tuple[int, ...] | None = None
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """An equation of the kernel.

    Attributes:
      primitive: its name.
      line: of the user's code; for code of JAX's own, of the user's call of that.
      semaphore: the name of the one that it counts, or "".
      allocates: the names of what it allocates, but for semaphores.
    """

    primitive: str
    line: str
    semaphore: str = ""
    allocates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The memory of one call.

    Attributes:
      line: of the call.
      buffers: in the order in which they are allocated.
      outputs: of each output, the number of its buffer.
      semaphores: the name of each that is there when the kernel starts, in their order.
      places: of its equations, by the id of their `source_info`.
    """

    line: str
    buffers: tuple[Buffer, ...]
    outputs: tuple[int, ...]
    semaphores: tuple[str, ...]
    places: Mapping[int, Place]


def layout_of(equation: Any) -> Layout:
    """The memory of a Pallas call."""
    params = equation.params
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["jaxprs"][0]
    mapping = params.get("grid_mapping")
    scalars = mapping.num_index_operands if mapping is not None else 0
    inputs = mapping.num_inputs if mapping is not None else len(equation.invars)
    aliased = {output: operand - scalars for operand, output in _pairs(params["input_output_aliases"])}
    refs, names = jaxpr.invars, _names(jaxpr)
    ends = scalars + inputs, scalars + inputs + len(equation.outvars)

    arrays = [tuple(v.aval.shape) for v in equation.invars][len(equation.invars) - inputs :]
    buffers = [Buffer(names[scalars + i], shape) for i, shape in enumerate(arrays)]
    outputs = []
    for i, name in enumerate(names[slice(*ends)]):
        outputs.append(aliased.get(i, len(buffers)))
        if i not in aliased:
            buffers.append(Buffer(name))
    buffers += [Buffer(name, tuple(ref.aval.shape)) for name, ref in zip(names[:scalars], refs, strict=False)]
    semaphores: list[str] = []
    for i, (name, ref) in enumerate(zip(names[scalars:], refs[scalars:], strict=True)):
        if _is_semaphore(ref):
            semaphores += _elements(name, ref.aval.shape)
        elif i + scalars >= ends[1] or str(ref.aval.memory_space).lower() not in _MAIN:
            buffers.append(Buffer(name, padded=i < inputs))
    line = line_of(equation.source_info)
    places = dict(_places(jaxpr, dict(zip(refs, names, strict=True)), line))
    return Layout(line, tuple(buffers), tuple(outputs), tuple(semaphores), places)


def overhanging_alias(equation: Any) -> str:
    """The name of an output that takes an input's memory and ends within a block, or ""; JAX's interpreter gives it the
    shape of whole blocks, and XLA then refuses the call."""
    mapping = equation.params.get("grid_mapping")
    if mapping is None:
        return ""
    names: list[str] = _names(equation.params["jaxpr"])[mapping.num_index_operands :]
    for _, output in _pairs(equation.params["input_output_aliases"]):
        number = mapping.num_inputs + output
        block = mapping.block_mappings[number]
        sizes = [getattr(each, "block_size", 1) for each in block.block_shape]
        if any(length % size for length, size in zip(block.array_aval.shape, sizes, strict=True)):
            return names[int(number)]
    return ""


def _pairs(aliases: Any) -> list[tuple[int, int]]:
    return list(aliases.items() if hasattr(aliases, "items") else aliases)


def _names(jaxpr: Any) -> list[str]:
    names = list(getattr(jaxpr.debug_info, "arg_names", None) or ())
    count = len(jaxpr.invars)
    known = names if len(names) == count else [""] * count
    return [name or f"argument {i}" for i, name in enumerate(known)]


def _is_semaphore(ref: Any) -> bool:
    return "semaphore" in str(getattr(ref.aval, "memory_space", ""))


def _elements(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    for i in range(math.prod(shape)):
        at: list[str] = []
        for length in reversed(shape):
            i, rest = divmod(i, length)
            at.insert(0, str(rest))
        yield f"{name}[{', '.join(at)}]" if shape else name


# Where a primitive has the semaphore that it counts, among its operands.
_COUNTED = {"dma_start": ("tree", 2), "dma_wait": ("tree", 2), "semaphore_signal": ("args_tree", 0)}
_COUNTED["semaphore_wait"] = _COUNTED["semaphore_signal"]


def _places(jaxpr: Any, names: Mapping[Any, str], outer: str) -> Iterator[tuple[int, Place]]:
    """Those of a jaxpr, in which some variables have names, called from the line `outer`."""
    for equation in jaxpr.eqns:
        primitive = str(equation.primitive.name)
        place = Place(primitive, line_of(equation.source_info) or outer)
        if primitive in _COUNTED:
            tree, number = _COUNTED[primitive]
            ref = jax.tree.unflatten(equation.params[tree], equation.invars)[number]
            place = replace(place, semaphore=names.get(getattr(ref, "ref", ref), ""))
        for inner in _nested(equation):
            inside = _passed(primitive, equation, inner, names)
            if primitive == "run_scoped" and not is_of_jax(inner):
                own = dict(zip(inner.invars, _names(inner), strict=True))
                inside.update(own)
                place = replace(place, allocates=tuple(n for v, n in own.items() if not _is_semaphore(v)))
            yield from _places(inner, inside, place.line)
        yield id(equation.source_info), place


def _nested(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = item.jaxpr if isinstance(item, ClosedJaxpr) else item
            if hasattr(inner, "eqns"):
                yield inner


def _passed(primitive: str, equation: Any, inner: Any, names: Mapping[Any, str]) -> dict[Any, str]:
    """The names of what a nested jaxpr is given: the operands of a branch's or a loop's body come last."""
    if primitive == "run_scoped":
        pairs = zip(inner.constvars, equation.invars, strict=False)
    else:
        pairs = zip(reversed(inner.invars), reversed(equation.invars), strict=False)
    return {new: names[old] for new, old in pairs if not hasattr(old, "val") and old in names}
