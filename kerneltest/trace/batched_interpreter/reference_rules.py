"""Rules for reads and writes of references, which treat indices outside the array as Pallas' interpreter does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.access_regions import AccessRegion, Locate, OperandLeaf, locator, locators
from kerneltest.trace.batched_interpreter.array_accesses import check_room, gather, scatter
from kerneltest.trace.batched_interpreter.batched_values import (
    BatchedRef,
    EquationFunction,
    UnknownError,
    Value,
    unwritten_memory,
)
from kerneltest.trace.jax_compat.jaxpr_types import Equation


def _starts(region: AccessRegion, shape: Sequence[int], *, padded: bool) -> list[tuple[int, ...]]:
    """The first position of a slice along each axis, clamped so that the slice fits.

    Args:
      region: the access's.
      shape: the memory's.
      padded: whether the memory counts as longer by one slice, so that a slice may overhang it. Negative positions
        then count from that longer end.

    Returns:
      A tuple for each row, or a single one if all rows share it.
    """
    found: list[int | list[int]] = []
    rows = 1
    for start, length, n in zip(region.starts, region.lengths, shape, strict=True):
        end = n + length if padded else n
        known = isinstance(start, int)
        if known or start.size == 1:  # Python's integers take a tenth of the time of NumPy's
            at = start if known else start.item()
            if at < 0 and (padded or not known):
                at += end
            found.append(min(max(at, 0), end - length))
        else:
            each = start.astype(np.int64).reshape(-1)
            found.append(np.clip(np.where(each < 0, each + end, each), 0, end - length).tolist())
            rows = len(each)
    if rows == 1:
        return [tuple(found)]  # type: ignore[arg-type]
    return list(zip(*([each] * rows if isinstance(each, int) else each for each in found), strict=True))


def _read_slice(memory: Array, region: AccessRegion, *, padded: bool) -> Array:
    starts = _starts(region, memory.shape[1:], padded=padded)
    if len(starts) == 1:
        return _read_block(memory, starts[0], region.lengths).reshape(len(memory), *region.kept)
    parts = [_read_block(memory[r if len(memory) > 1 else 0][None], at, region.lengths) for r, at in enumerate(starts)]
    return np.concatenate(parts).reshape(len(starts), *region.kept)


def _slices(starts: Sequence[int], lengths: Sequence[int]) -> list[slice]:
    return [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]


def _read_block(memory: Array, starts: Sequence[int], lengths: tuple[int, ...]) -> Array:
    inside = memory[(slice(None), *_slices(starts, lengths))]
    if inside.shape[1:] == lengths:
        return inside.copy()
    whole = unwritten_memory((len(memory), *lengths), memory.dtype)
    whole[tuple(map(slice, inside.shape))] = inside
    return whole


def _store(memory: BatchedRef, region: AccessRegion, values: Array, *, padded: bool) -> None:
    starts = _starts(region, memory.array.shape[1:], padded=padded)
    values = values.reshape(len(values), *region.lengths)
    check_room(memory, max(len(values), len(starts)))
    for row, at in enumerate(starts):
        rows = slice(None) if len(starts) == 1 else slice(row, row + 1)
        inside = memory.array[(rows, *_slices(at, region.lengths))]
        one = values if len(starts) == 1 or len(values) == 1 else values[rows]
        inside[...] = one[(slice(None), *map(slice, inside.shape[1:]))]


def _transforms(equation: Equation, operands: Sequence[OperandLeaf]) -> Any:
    return jax.tree.unflatten(equation.params["tree"], operands)


def operand_leaves(equation: Equation) -> list[OperandLeaf]:
    """The operands of an equation as the leaves of its references and indices."""
    return [OperandLeaf(number, variable.aval) for number, variable in enumerate(equation.invars)]


def read_region(memory: Array, region: AccessRegion, *, padded: bool = False) -> Array:
    """Reads a region in a copy. Slices are clamped so that they fit, or may overhang if the memory is `padded`."""
    return gather(memory, region) if region.arrays else _read_slice(memory, region, padded=padded)


def write_region(memory: BatchedRef, region: AccessRegion, values: Array, *, padded: bool = False) -> None:
    """Writes to a region. Slices are clamped so that they fit, or may overhang if the memory is `padded`.

    Raises:
      UnknownError: rows write different values to memory that they share.
    """
    if region.arrays:
        scatter(memory, region, values)
    else:
        _store(memory, region, values, padded=padded)


def read_through(memory: Array, steps: Sequence[Locate], operands: Sequence[Value]) -> Array:
    """Reads what the last region selects of what those before it select."""
    for locate in steps:
        memory = read_region(memory, locate(operands))
    return memory


def write_through(memory: BatchedRef, steps: Sequence[Locate], operands: Sequence[Value], values: Array) -> None:
    """Writes to what the last region selects of what those before it select.

    Raises:
      UnknownError: rows write different values to memory that they share.
    """
    region = steps[0](operands)
    if len(steps) > 1:
        part = BatchedRef(read_region(memory.array, region))
        write_through(part, steps[1:], operands, values)
        values = part.array
    write_region(memory, region, values)


def _get(equation: Equation) -> EquationFunction:
    """Evaluates `ref[...]`."""
    steps = locators(_transforms(equation, operand_leaves(equation)[1:]), equation.invars[0].aval.shape)
    return lambda operands: (read_through(operands[0].array, steps, operands),)


def _swap(equation: Equation) -> EquationFunction:
    """Evaluates `ref[...] = values`."""
    steps = locators(_transforms(equation, operand_leaves(equation)[2:]), equation.invars[0].aval.shape)
    used = _is_used(equation)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory = operands[0]
        before = read_through(memory.array, steps, operands) if used else memory.array[:, :0]
        write_through(memory, steps, operands, operands[1])
        return (before,)

    return evaluate


def _addupdate(equation: Equation) -> EquationFunction:
    """`ref[...] += values`."""
    steps = locators(_transforms(equation, operand_leaves(equation)[2:]), equation.invars[0].aval.shape)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region = operands[0], steps[-1](operands)
        if not region.arrays:
            write_through(memory, steps, operands, read_through(memory.array, steps, operands) + operands[1])
        elif len(steps) > 1:
            raise UnknownError("a sum into positions of a part, which may repeat")
        else:
            scatter(memory, region, operands[1], add=True)
        return ()

    return evaluate


def _masked_load(equation: Equation) -> EquationFunction:
    """Evaluates `load(ref, mask=..., other=...)`."""
    _, transforms, mask, other = equation.params["args_tree"].unflatten(operand_leaves(equation))
    locate = locator(transforms, equation.invars[0].aval.shape)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region = operands[0].array, locate(operands)
        found = read_region(memory, region, padded=True)
        if mask is not None and other is not None:
            found = np.where(operands[mask.number], found, _align_other(operands[other.number], found))
        return (found,)

    return evaluate


def _masked_swap(equation: Equation) -> EquationFunction:
    """Evaluates `store(ref, values, mask=...)`."""
    _, transforms, stored, mask = equation.params["args_tree"].unflatten(operand_leaves(equation))
    locate = locator(transforms, equation.invars[0].aval.shape)
    used = _is_used(equation)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region, values = operands[0], locate(operands), operands[stored.number]
        if mask is None and not used and not region.arrays:
            _store(memory, region, values, padded=True)
            return (memory.array[:, :0],)
        before = read_region(memory.array, region, padded=True)
        result = before
        if mask is not None:
            chosen = operands[mask.number]
            values, result = np.where(chosen, values, before), np.where(chosen, before, values)
        write_region(memory, region, values, padded=True)
        return (result,)

    return evaluate


def _align_other(other: Array, found: Array) -> Array:
    """The value of the masked lanes of a load, with the dtype and the number of axes of the loaded array."""
    return other.reshape(len(other), *(1,) * (found.ndim - other.ndim), *other.shape[1:]).astype(found.dtype)


def _is_used(equation: Equation) -> bool:
    """Returns whether a result of an equation is used."""
    return any(type(variable).__name__ != "DropVar" for variable in equation.outvars)


MEMORY: Mapping[str, Callable[[Equation], EquationFunction]] = {
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
    "masked_load": _masked_load,
    "masked_swap": _masked_swap,
}
