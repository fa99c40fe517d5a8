"""Rules for reads and writes of references, which treat indices outside the array as Pallas' interpreter does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.numerics.device_operations import UPDATES
from kerneltest.trace.jax_compat.jaxprs import AbstractValue, Equation
from kerneltest.trace.machine import (
    BatchedRef,
    EquationFunction,
    Machine,
    Rule,
    UnknownError,
    Value,
    unwritten_memory,
)

# The region of memory that an access covers: slices by their first elements, or positions along each axis.


class AccessRegion:
    """The region that an access covers.

    Attributes:
      starts: for slices, the first position along each axis, (rows,) or an int; None for an access by arrays.
      lengths: the lengths of the slices.
      kept: the lengths of the axes that remain, which are those not indexed by a scalar.
      arrays: for an access by arrays, the positions along each axis, (rows, ...); None for slices.
    """

    __slots__ = ("arrays", "kept", "lengths", "starts")

    def __init__(self, starts: Any, lengths: tuple[int, ...], kept: tuple[int, ...], arrays: Any) -> None:
        self.starts, self.lengths, self.kept, self.arrays = starts, lengths, kept, arrays


# From an access's operands to its region.
Locate = Callable[[Sequence[Value]], AccessRegion]


def locators(transforms: Any, shape: Sequence[int]) -> list[Locate]:
    """Returns the functions to the regions that lead from a memory to what a reference of it refers to, in order.

    Args:
      transforms: the reference's, whose leaves are `OperandLeaf`s. `ref.at[slot][...]` has two.
      shape: the memory's.

    Raises:
      UnknownError: the access is of an unsupported kind.
    """
    steps = []
    for transform in transforms or ():
        steps.append(locator([transform], shape))
        shape = tuple(transform.get_indexer_shape())
    return steps or [locator((), shape)]


def locator(transforms: Any, shape: Sequence[int]) -> Locate:
    """Returns the function from an access's operands to its region.

    Args:
      transforms: the reference's, whose leaves are `OperandLeaf`s.
      shape: the memory's.

    Raises:
      UnknownError: the access is of an unsupported kind.
    """
    if not transforms:
        whole = AccessRegion([0] * len(shape), tuple(shape), tuple(shape), None)
        return lambda operands: whole
    if len(transforms) != 1 or not hasattr(transforms[0], "indices"):
        raise UnknownError("a reference that is reshaped, cast or indexed twice")
    indices = transforms[0].indices
    slices = [hasattr(each, "size") and hasattr(each, "start") for each in indices]
    flat = all(sliced or not _is_array(each) for each, sliced in zip(indices, slices, strict=True))
    if flat:
        if any(
            sliced and (each.stride != 1 or not isinstance(each.size, int))
            for each, sliced in zip(indices, slices, strict=True)
        ):
            raise UnknownError("a slice with a stride or of unknown length")
        lengths = tuple(each.size if sliced else 1 for each, sliced in zip(indices, slices, strict=True))
        kept = tuple(length for length, sliced in zip(lengths, slices, strict=True) if sliced)
        firsts = [each.start if sliced else each for each, sliced in zip(indices, slices, strict=True)]
        return lambda operands: AccessRegion([_read(each, operands) for each in firsts], lengths, kept, None)
    if any(slices):
        return _mixed_locator(transforms[0], slices)
    return lambda operands: AccessRegion(None, (), (), [_read(each, operands) for each in indices])


def _mixed_locator(indexer: Any, slices: Sequence[bool]) -> Locate:
    """Turns arrays of positions along adjacent axes, and slices along the others, into positions along all axes."""
    indexed = [axis for axis, sliced in enumerate(slices) if not sliced]
    first, behind = indexed[0], len(slices) - 1 - indexed[-1]
    if indexed[-1] - first + 1 != len(indexed) or not all(isinstance(n, int) for n in indexer.int_indexer_shape):
        raise UnknownError("arrays of positions along axes that are not adjacent")
    ndim = first + len(indexer.int_indexer_shape) + behind
    ranges = {}
    for axis, (index, sliced) in enumerate(zip(indexer.indices, slices, strict=True)):
        if sliced:
            if not isinstance(index.size, int):
                raise UnknownError("a slice of unknown length")
            at = axis if axis < first else axis - len(slices) + ndim
            shape = [1, *(index.size if each == at else 1 for each in range(ndim))]
            ranges[axis] = np.arange(index.size).reshape(shape) * index.stride

    def locate(operands: Sequence[Value]) -> AccessRegion:
        arrays = []
        for axis, index in enumerate(indexer.indices):
            if axis in ranges:
                start = np.asarray(_read(index.start, operands)).astype(np.int64).reshape(-1, *(1,) * ndim)
                arrays.append(start + ranges[axis])
            else:
                positions = np.asarray(_read(index, operands))
                positions = positions if positions.ndim else positions[None]
                missing = len(indexer.int_indexer_shape) + 1 - positions.ndim
                lengths = (*(1,) * (first + missing), *positions.shape[1:], *(1,) * behind)
                arrays.append(positions.reshape(len(positions), *lengths))
        return AccessRegion(None, (), (), arrays)

    return locate


class OperandLeaf:
    """A leaf of an access's index: the number of an operand, and the shape of its value."""

    __slots__ = ("ndim", "number", "shape")

    def __init__(self, number: int, aval: AbstractValue) -> None:
        self.number, self.shape = number, tuple(getattr(aval, "shape", ()))
        self.ndim = len(self.shape)


def _is_array(index: object) -> bool:
    return bool(getattr(index, "shape", ()))


def _read(index: Any, operands: Sequence[Value]) -> Any:
    return operands[index.number] if isinstance(index, OperandLeaf) else index


# Accesses by arrays of positions along each axis. Positions outside the memory are as in Pallas' interpreter.


class _Slices(NamedTuple):
    """Slices that an access by arrays amounts to.

    Attributes:
      inside: the slices, cut off at the memory's end; the first one is that of all rows.
      lengths: the number of positions along each axis of the memory, inside and beyond its end.
      shape: the shape of the access's result, without rows.
    """

    inside: tuple[slice, ...]
    lengths: tuple[int, ...]
    shape: tuple[int, ...]


def check_room(memory: BatchedRef, rows: int) -> None:
    """Checks that each of the rows that write to a memory has its own.

    Raises:
      UnknownError: they share it.
    """
    if len(memory.array) < rows:
        raise UnknownError("rows that write different values to memory that they share")


def positions(memory: Array, arrays: Sequence[Array]) -> tuple[tuple[Array, ...], Array | None]:
    """The positions of an access along each axis, rows first, and a mask of those inside the memory.

    Args:
      memory: that is accessed.
      arrays: the access's positions, as `aligned_positions` returns them.

    Returns:
      Arrays that broadcast together, and the mask; None if all positions are inside.
    """
    shape = memory.shape[1:]
    row = np.arange(len(memory)).reshape(-1, *(1,) * (arrays[0].ndim - 1))
    inside: Array | None = None
    found = [row]
    for each, n in zip(arrays, shape, strict=True):
        least, most = (int(each.min()), int(each.max())) if each.size else (0, 0)
        at = np.where(each < 0, each + n, each) if least < 0 else each
        if most >= n or least < -n:
            here = (at >= 0) & (at < n)
            inside = here if inside is None else inside & here
            at = np.clip(at, 0, max(n - 1, 0))
        found.append(at)
    return tuple(found), inside


def aligned_positions(region: AccessRegion) -> list[Array]:
    """The positions of an access by arrays along each axis of the memory, in arrays of the same rank."""
    arrays = [np.asarray(each).astype(np.int64, copy=False) for each in region.arrays]
    arrays = [each.reshape(1) if not each.ndim else each for each in arrays]
    most = max(each.ndim for each in arrays)
    return [each.reshape(len(each), *(1,) * (most - each.ndim), *each.shape[1:]) for each in arrays]


def _as_slices(arrays: Sequence[Array], shape: Sequence[int]) -> _Slices | None:
    """Returns slices of all rows with the same elements in the same order; None if no slices have them.

    Slices have them if the positions along each axis count up by one from at least 0, each along an axis of its own.
    """
    last = 0
    found, lengths = [slice(None)], []
    for each, n in zip(arrays, shape, strict=True):
        flat = each.reshape(-1)
        if not flat.size:
            return None
        start, end = int(flat[0]), int(flat[-1]) + 1
        if start < 0 or end - start != flat.size:
            return None
        if flat.size > 1:
            axis = each.shape.index(max(each.shape))
            if each.shape[axis] != flat.size or axis <= last or (np.diff(flat) != 1).any():
                return None
            last = axis
        found.append(slice(start, min(end, n)))
        lengths.append(flat.size)
    return _Slices(tuple(found), tuple(lengths), np.broadcast(*arrays).shape[1:])


def gather(memory: Array, region: AccessRegion) -> Array:
    """Reads by arrays of positions; those outside read unwritten memory."""
    arrays = aligned_positions(region)
    slices = _as_slices(arrays, memory.shape[1:])
    if slices is not None:
        part = memory[slices.inside]
        if part.shape[1:] == slices.lengths:
            return part.reshape(len(memory), *slices.shape).copy()
        whole = unwritten_memory((len(memory), *slices.lengths), memory.dtype)
        whole[tuple(map(slice, part.shape))] = part
        return whole.reshape(len(memory), *slices.shape)
    at, inside = positions(memory, arrays)
    if not memory.size:
        return unwritten_memory(np.broadcast(*at).shape, memory.dtype)
    found = memory[at]
    return found if inside is None else np.where(inside, found, unwritten_memory((1,), memory.dtype))


def scatter(memory: BatchedRef, region: AccessRegion, values: Array, *, add: bool = False) -> None:
    """Writes by arrays of positions, or adds there; those outside are left out.

    Raises:
      UnknownError: as `check_room` does.
    """
    arrays = aligned_positions(region)
    slices = None if add else _as_slices(arrays, memory.array.shape[1:])
    if slices is not None:
        check_room(memory, len(values))
        part = memory.array[slices.inside]
        values = np.broadcast_to(values, (len(values), *slices.shape)).reshape(len(values), *slices.lengths)
        part[...] = values[(slice(None), *map(slice, part.shape[1:]))]
        return
    at, inside = positions(memory.array, arrays)
    whole = np.broadcast(*at).shape
    check_room(memory, max(whole[0], len(values)))
    # Of equal positions, the last one in this order counts. NumPy may visit arrays of several axes in another.
    values = np.broadcast_to(values, whole).ravel()
    at = tuple(np.broadcast_to(each, whole).ravel() for each in at)
    if inside is not None:
        chosen = np.broadcast_to(inside, whole).ravel()
        values, at = values[chosen], tuple(each[chosen] for each in at)
    if add:
        np.add.at(memory.array, at, values)
    else:
        memory.array[at] = values


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


# Rules for atomic updates of memory, one lane after another and in the order of the programs.
#
# Any order gives the same up to the rounding of a sum. Only a kernel with its floats promoted is evaluated so: Pallas'
# interpreter takes no mask here, and loses all but one of several updates of one element.


def _atomic_rmw(machine: Machine, equation: Equation) -> EquationFunction:
    """Evaluates `atomic_add(ref, index, values, mask=...)` and the like, whose result is what was there before."""
    update = UPDATES.get(equation.params["atomic_type"].value)
    if update is None or not machine.rules.promotes:
        raise UnknownError("an atomic exchange" if update is None else "an atomic update as Pallas interprets it")
    _, transforms, new, mask = equation.params["args_tree"].unflatten(operand_leaves(equation))
    locate = locator(transforms, equation.invars[0].aval.shape)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region, values = operands[0], locate(operands), operands[new.number]
        chosen = np.ones(1, bool) if mask is None else operands[mask.number]
        before = read_region(memory.array, region, padded=True)
        if region.arrays:
            return (_update_in_turn(memory, region, before, values, chosen, update),)
        write_region(memory, region, np.where(chosen, update(before, values), before), padded=True)
        return (before,)

    return evaluate


def _update_in_turn(
    memory: BatchedRef, region: AccessRegion, before: Array, values: Array, chosen: Array, update: np.ufunc
) -> Array:
    """Updates positions, some of them several times, and returns what each update finds there.

    Args:
      memory, region: what is updated.
      before: what is there before the first update.
      values: what it is updated with.
      chosen: the lanes that do so.
      update: combines what is there with a value.
    """
    at, inside = positions(memory.array, aligned_positions(region))
    whole = np.broadcast(*at, chosen).shape
    inside = np.broadcast_to(chosen if inside is None else inside & chosen, whole)
    at = tuple(np.broadcast_to(each, whole) for each in at)
    check_room(memory, max(len(inside), len(values)))
    found = np.broadcast_to(before, inside.shape).copy()
    values = np.broadcast_to(values, inside.shape)
    turns = np.where(inside, 0, -1)
    turns[inside] = _occurrence(np.ravel_multi_index(tuple(each[inside] for each in at), memory.array.shape))
    for turn in range(turns.max(initial=-1) + 1):
        now = turns == turn
        where = tuple(each[now] for each in at)
        found[now] = memory.array[where]
        memory.array[where] = update(found[now], values[now])
    return found


def _occurrence(numbers: Array) -> Array:
    """Returns how often each number occurs before its place: 0 for 7, 1 for the next 7."""
    order = np.argsort(numbers, kind="stable")
    is_first = np.diff(numbers[order], prepend=-1) != 0
    place = np.arange(len(numbers))
    occurrence = np.empty_like(place)
    occurrence[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return occurrence


ATOMICS: Mapping[str, Rule] = {"atomic_rmw": _atomic_rmw}


# Rules for asynchronous copies, which are made when they start, as by Pallas' interpreter.


def _dma_start(equation: Equation) -> EquationFunction:
    """Evaluates `make_async_copy(source, target, semaphore).start()`.

    Raises:
      UnknownError: it copies to another device, or adds to what is there.
    """
    source, target, *_, device = equation.params["tree"].unflatten(operand_leaves(equation))
    if device is not None or equation.params.get("add"):
        raise UnknownError("a copy to another device, or one that adds")
    (read, read_steps), (written, write_steps) = _memory(equation, source), _memory(equation, target)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        values = read_through(operands[read].array, read_steps, operands)
        write_through(operands[written], write_steps, operands, values)
        return ()

    return evaluate


def _memory(equation: Equation, reference: Any) -> tuple[int, list[Locate]]:
    """The number of a reference's operand, and the regions that lead from its memory to what it refers to."""
    leaf: OperandLeaf = getattr(reference, "ref", reference)
    return leaf.number, locators(getattr(reference, "transforms", ()), tuple(equation.invars[leaf.number].aval.shape))


def _wait(equation: Equation) -> EquationFunction:
    """Evaluates `make_async_copy(...).wait()`, which has nothing left to do."""
    return lambda operands: ()


COPIES: Mapping[str, Callable[[Equation], EquationFunction]] = {
    "dma_start": _dma_start,
    "dma_wait": _wait,
}
