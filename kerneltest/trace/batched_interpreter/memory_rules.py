"""Rules for reads and writes of references, which treat indices outside the array as Pallas' interpreter does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.numerics.device_operations import UPDATES
from kerneltest.trace.jax_compat.jaxprs import AbstractValue, Equation, transformed_shape
from kerneltest.trace.machine import (
    BatchedRef,
    EquationFunction,
    Machine,
    Rule,
    UnknownError,
    Value,
    pad_unwritten,
    unwritten_memory,
)
from kerneltest.trace.primitives import access_parts


class _Region(NamedTuple):
    """The region that an access covers: slices, or `arrays` of positions."""

    starts: Sequence[Any] = ()  # the first position along each axis, (rows,) or an int
    lengths: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()  # the lengths of the axes that remain, which are those not indexed by a scalar
    arrays: Sequence[Any] | None = None  # the positions along each axis, (rows, ...)


# From an access's operands to its region.
_Locate = Callable[[Sequence[Value]], _Region]


class OperandLeaf:
    """A leaf of an access's index: the number of an operand, and the shape of its value."""

    __slots__ = ("ndim", "number", "shape")

    def __init__(self, number: int, aval: AbstractValue) -> None:
        self.number, self.shape = number, tuple(getattr(aval, "shape", ()))
        self.ndim = len(self.shape)


def operand_leaves(equation: Equation) -> list[OperandLeaf]:
    """The operands of an equation as the leaves of its references and indices."""
    return [OperandLeaf(number, variable.aval) for number, variable in enumerate(equation.invars)]


def is_slice(index: object) -> bool:
    """Returns whether an index of a reference is a slice."""
    return hasattr(index, "size") and hasattr(index, "start")


def _value(index: Any, operands: Sequence[Value]) -> Any:
    return operands[index.number] if isinstance(index, OperandLeaf) else index


class _Relayout(NamedTuple):
    """A reordering of all elements of a memory: its axes in another order, then reshaped."""

    order: tuple[int, ...]
    ordered: tuple[int, ...]  # the lengths in that order
    shape: tuple[int, ...]

    def apply(self, x: Array) -> Array:
        return x.transpose(0, *(axis + 1 for axis in self.order)).reshape(len(x), *self.shape)

    def undo(self, x: Array) -> Array:
        return x.reshape(len(x), *self.ordered).transpose(0, *(np.argsort(self.order) + 1))


# The order of axes by which a transform of references begins, from the transform and the rank of the memory.
_ORDERS: Mapping[str, Callable[[Any, int], Sequence[int]]] = {
    **dict.fromkeys(("ReshapeTransform", "UnswizzleRef", "MemorySpaceCastTransform"), lambda _, rank: range(rank)),
    "TransposeTransform": lambda transform, rank: transform.permutation,
    "UntilingTransform": lambda transform, rank: _untiled(len(transform.tiling), rank),
}


def _untiled(tiled: int, rank: int) -> list[int]:
    blocks = range(rank - 2 * tiled, rank - tiled)
    return [*range(rank - 2 * tiled), *(axis for block in blocks for axis in (block, block + tiled))]


# From a memory to what a reference of it refers to.
_Step = _Locate | _Relayout


def _locators(transforms: Any, shape: Sequence[int], *, joined: bool = False) -> list[_Step]:
    # The steps that lead from a memory of a shape to what a reference of it refers to, in order; the last one is to a
    # region. `ref.at[slot][...]` has two, or one if slices of slices are joined.
    steps: list[_Step] = []
    outer: tuple[_Locate, list[int]] | None = None  # the last step if it slices, and the axes that it leaves
    for transform in transforms or ():
        if hasattr(transform, "indices"):
            locate, axes = _locator(transform), _sliced_axes(transform.indices)
            if joined and outer is not None and axes is not None:
                steps.pop()
                locate, axes = _within(*outer, locate), [outer[1][axis] for axis in axes]
            steps.append(locate)
            outer = None if axes is None else (locate, axes)
            shape = tuple(transform.get_indexer_shape())
        else:
            relayout = _relayout(transform, shape)
            steps.append(relayout)
            shape, outer = relayout.shape, None
    if not steps or isinstance(steps[-1], _Relayout):
        whole = _Region([0] * len(shape), tuple(shape), tuple(shape))
        steps.append(lambda operands: whole)
    return steps


# The axes that slices leave of a memory; None if positions are arrays or not adjacent.
def _sliced_axes(indices: Sequence[Any]) -> list[int] | None:
    axes = [axis for axis, index in enumerate(indices) if is_slice(index)]
    scalar = not any(getattr(index, "shape", ()) for index in indices if not is_slice(index))
    return axes if scalar and all(indices[axis].stride == 1 for axis in axes) else None


def _within(outer: _Locate, axes: Sequence[int], inner: _Locate) -> _Locate:
    def locate(operands: Sequence[Value]) -> _Region:
        region, part = outer(operands), inner(operands)
        starts, lengths = list(region.starts), list(region.lengths)
        for axis, start, length in zip(axes, part.starts, part.lengths, strict=True):
            starts[axis], lengths[axis] = starts[axis] + start, length
        return _Region(starts, tuple(lengths), part.kept)

    return locate


def _relayout(transform: Any, shape: Sequence[int]) -> _Relayout:
    order = _ORDERS.get(type(transform).__name__)
    if order is None:
        raise UnknownError("a reference that is cast")
    axes = tuple(order(transform, len(shape)))
    return _Relayout(axes, tuple(shape[axis] for axis in axes), transformed_shape(transform, shape))


def _locator(transform: Any) -> _Locate:
    indices = transform.indices
    if (axes := _sliced_axes(indices)) is not None:
        firsts = [index.start if is_slice(index) else index for index in indices]
        sizes = [index.size if is_slice(index) else 1 for index in indices]

        def locate(operands: Sequence[Value]) -> _Region:
            lengths = [_length(size, operands) for size in sizes]
            return _Region([_value(i, operands) for i in firsts], tuple(lengths), tuple(lengths[axis] for axis in axes))

        known = locate(()) if all(isinstance(number, int) for number in (*firsts, *sizes)) else None  # as of `ref[...]`
        return locate if known is None else lambda operands: known
    if any(map(is_slice, indices)):
        return _mixed_locator(transform)
    return lambda operands: _Region(arrays=[_value(index, operands) for index in indices])


def _length(size: Any, operands: Sequence[Value]) -> int:
    if isinstance(size, int):
        return size
    if len(value := np.unique(_value(size, operands))) != 1:
        raise UnknownError("a slice of different lengths")
    return int(value[0])


def _mixed_locator(indexer: Any) -> _Locate:
    # Turns numbers or arrays of positions along adjacent axes, and slices along the others, into positions along all
    # axes.
    indices = indexer.indices
    if not all(isinstance(index.size, int) for index in indices if is_slice(index)):
        raise UnknownError("a slice of unknown length")
    indexed = [axis for axis, index in enumerate(indices) if not is_slice(index)]
    first, behind = (indexed[0], len(indices) - 1 - indexed[-1]) if indexed else (0, len(indices))
    if first + len(indexed) + behind != len(indices) or not all(isinstance(n, int) for n in indexer.int_indexer_shape):
        raise UnknownError("arrays of positions along axes that are not adjacent")
    ndim = first + len(indexer.int_indexer_shape) + behind
    ranges = {}
    for axis, index in enumerate(indices):
        if is_slice(index):
            at = axis if axis < first else axis - len(indices) + ndim
            lengths = [index.size if i == at else 1 for i in range(ndim)]
            ranges[axis] = np.arange(index.size).reshape(1, *lengths) * index.stride

    def locate(operands: Sequence[Value]) -> _Region:
        arrays = []
        for axis, index in enumerate(indices):
            if axis in ranges:
                start = np.asarray(_value(index.start, operands)).astype(np.int64).reshape(-1, *(1,) * ndim)
                arrays.append(start + ranges[axis])
            else:
                at = np.asarray(_value(index, operands))
                at = at if at.ndim else at[None]
                missing = len(indexer.int_indexer_shape) + 1 - at.ndim
                arrays.append(at.reshape(len(at), *(1,) * (first + missing), *at.shape[1:], *(1,) * behind))
        return _Region(arrays=arrays)

    return locate


# Accesses by arrays of positions along each axis. Positions outside the memory are as in Pallas' interpreter.


def _check_room(memory: BatchedRef, rows: int) -> None:
    if len(memory.array) < rows:
        raise UnknownError("rows that write different values to memory that they share")


def _positions(memory: Array, arrays: Sequence[Array]) -> tuple[tuple[Array, ...], Array | None]:
    # The positions of an access along each axis, rows first, and a mask of those inside; None if all are.
    row = np.arange(len(memory)).reshape(-1, *(1,) * (arrays[0].ndim - 1))
    inside: Array | None = None
    found = [row]
    for at, n in zip(arrays, memory.shape[1:], strict=True):
        least, most = (int(at.min()), int(at.max())) if at.size else (0, 0)
        if least < 0:
            at = np.where(at < 0, at + n, at)
        if most >= n or least < -n:
            here = (at >= 0) & (at < n)
            inside = here if inside is None else inside & here
            at = np.clip(at, 0, max(n - 1, 0))
        found.append(at)
    return tuple(found), inside


def _aligned(region: _Region) -> list[Array]:
    # The positions of an access by arrays along each axis of the memory, in arrays of the same rank.
    arrays = [np.asarray(at).astype(np.int64, copy=False) for at in region.arrays or ()]
    arrays = [at if at.ndim else at.reshape(1) for at in arrays]
    most = max(at.ndim for at in arrays)
    return [at.reshape(len(at), *(1,) * (most - at.ndim), *at.shape[1:]) for at in arrays]


def _as_slices(
    arrays: Sequence[Array], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[int, ...], tuple[int, ...]] | None:
    # The slices with the same elements in the same order, if the positions along each axis count up by one from at
    # least 0, each along an axis of its own; else None. The slices are cut off at the memory's end. After them, the
    # number of positions along each axis, inside and beyond its end, and the shape of the result without rows.
    last = 0
    found, lengths = [slice(None)], []
    for at, n in zip(arrays, shape, strict=True):
        flat = at.reshape(-1)
        if not flat.size:
            return None
        start, end = int(flat[0]), int(flat[-1]) + 1
        if start < 0 or end - start != flat.size:
            return None
        if flat.size > 1:
            axis = at.shape.index(max(at.shape))
            if at.shape[axis] != flat.size or axis <= last or (np.diff(flat) != 1).any():
                return None
            last = axis
        found.append(slice(start, min(end, n)))
        lengths.append(flat.size)
    return tuple(found), tuple(lengths), np.broadcast(*arrays).shape[1:]


def _gather(memory: Array, region: _Region) -> Array:
    arrays = _aligned(region)
    if not memory.size:
        return unwritten_memory(np.broadcast(*arrays).shape, memory.dtype)
    if (slices := _as_slices(arrays, memory.shape[1:])) is not None:
        inside, lengths, shape = slices
        return _read_clamped(memory, inside, lengths).reshape(len(memory), *shape)
    at, _ = _positions(memory, arrays)
    return memory[at]


def _read_clamped(memory: Array, at: tuple[slice, ...], lengths: tuple[int, ...]) -> Array:
    # Reads slices in a copy; past the memory's end, the last element counts.
    found = memory
    for axis, (part, length) in enumerate(zip(at[1:], lengths, strict=True), 1):
        if part.stop - part.start == length:
            found = found[(slice(None),) * axis + (part,)]
        else:
            last = memory.shape[axis] - 1
            found = found.take(np.minimum(np.arange(part.start, part.start + length), last), axis)
    return found.copy()


def _scatter(memory: BatchedRef, region: _Region, values: Array, *, add: bool = False) -> None:
    arrays = _aligned(region)
    slices = None if add else _as_slices(arrays, memory.array.shape[1:])
    if slices is not None:
        inside, lengths, shape = slices
        _check_room(memory, len(values))
        values = np.broadcast_to(values, (len(values), *shape)).reshape(len(values), *lengths)
        _write_block(memory.array, inside, values)
        return
    at, mask = _positions(memory.array, arrays)
    whole = np.broadcast(*at).shape
    _check_room(memory, max(whole[0], len(values)))
    # Of equal positions, the last one in this order counts. NumPy may visit arrays of several axes in another.
    chosen = slice(None) if mask is None else np.broadcast_to(mask, whole).ravel()
    at = tuple(np.broadcast_to(along, whole).ravel()[chosen] for along in at)
    values = np.broadcast_to(values, whole).ravel()[chosen]
    if add:
        np.add.at(memory.array, at, values)
    else:
        memory.array[at] = values


# Accesses by slices, which are clamped so that they fit, or may overhang memory that counts as padded.


def _starts(region: _Region, shape: Sequence[int], *, padded: bool) -> list[tuple[int, ...]]:
    # The first position of a slice along each axis, clamped so that the slice fits: one tuple for each row, or a single
    # one if all rows share it. Padded memory counts as longer by one slice, so that a slice may overhang it; negative
    # positions then count from that longer end.
    if region.lengths == shape and not padded:
        return [(0,) * len(shape)]
    found: list[int | list[int]] = []
    rows = 1
    for start, length, n in zip(region.starts, region.lengths, shape, strict=True):
        end = n + length if padded else n
        if length > end:
            raise UnknownError("a slice that is longer than its memory")
        known = isinstance(start, int)
        if known or start.size == 1:  # Python's integers take a tenth of the time of NumPy's
            at = start if known else start.item()
            if at < 0 and (padded or not known):
                at += end
            found.append(min(max(at, 0), end - length))
        else:
            numbers = start.astype(np.int64).reshape(-1)
            found.append(np.clip(np.where(numbers < 0, numbers + end, numbers), 0, end - length).tolist())
            rows = len(numbers)
    if rows == 1:
        return [tuple(found)]  # type: ignore[arg-type]
    return list(zip(*([at] * rows if isinstance(at, int) else at for at in found), strict=True))


def _block(rows: slice, starts: Sequence[int], lengths: Sequence[int]) -> tuple[slice, ...]:
    return (rows, *(slice(start, start + length) for start, length in zip(starts, lengths, strict=True)))


def _read_block(memory: Array, at: tuple[slice, ...], lengths: tuple[int, ...]) -> Array:
    # Reads slices in a copy; what is beyond the memory's end is unwritten.
    inside = memory[at]
    return inside.copy() if inside.shape[1:] == lengths else pad_unwritten(inside, lengths)


def _write_block(memory: Array, at: tuple[slice, ...], values: Array) -> None:
    inside = memory[at]
    inside[...] = values[(slice(None), *map(slice, inside.shape[1:]))]


def _read(memory: Array, region: _Region, *, padded: bool = False) -> Array:
    if region.arrays:
        return _gather(memory, region)
    starts, lengths = _starts(region, memory.shape[1:], padded=padded), region.lengths
    if len(starts) == 1:
        return _read_block(memory, _block(slice(None), starts[0], lengths), lengths).reshape(len(memory), *region.kept)
    rows = [slice(r, r + 1) if len(memory) > 1 else slice(None) for r in range(len(starts))]
    parts = [_read_block(memory, _block(row, at, lengths), lengths) for row, at in zip(rows, starts, strict=True)]
    return np.concatenate(parts).reshape(len(starts), *region.kept)


def _write(memory: BatchedRef, region: _Region, values: Array, *, padded: bool = False) -> None:
    if region.arrays:
        _scatter(memory, region, values)
        return
    starts = _starts(region, memory.array.shape[1:], padded=padded)
    values = values.reshape(len(values), *region.lengths)
    _check_room(memory, max(len(values), len(starts)))
    for row, at in enumerate(starts):
        rows = slice(None) if len(starts) == 1 else slice(row, row + 1)
        _write_block(memory.array, _block(rows, at, region.lengths), values if len(values) == 1 else values[rows])


def read_through(memory: Array, steps: Sequence[_Step], operands: Sequence[Value], *, padded: bool = False) -> Array:
    """Reads what a reference refers to, from the memory and the steps that lead there."""
    for step in steps:
        memory = step.apply(memory) if isinstance(step, _Relayout) else _read(memory, step(operands), padded=padded)
    return memory


def check_inside(memory: Array, steps: Sequence[_Step], operands: Sequence[Value]) -> None:
    """Raises UnknownError if slices reach past the end of a memory."""
    for step in steps:
        if isinstance(step, _Relayout):
            return  # what is left keeps its shape
        region = step(operands)
        ends = () if region.arrays else zip(region.starts, region.lengths, memory.shape[1:], strict=True)
        for start, length, n in ends:
            if np.any(np.asarray(start) + length > n):
                raise UnknownError("a copy past an array's end")
        if len(steps) > 1:
            memory = _read(memory, region)


def write_through(
    memory: BatchedRef, steps: Sequence[_Step], operands: Sequence[Value], values: Array, *, padded: bool = False
) -> None:
    """Writes to what a reference refers to."""
    step, *others = steps
    if isinstance(step, _Relayout):
        part = BatchedRef(np.array(step.apply(memory.array)))
        write_through(part, others, operands, values, padded=padded)
        memory.array[...] = step.undo(part.array)
        return
    region = step(operands)
    if others:
        part = BatchedRef(_read(memory.array, region, padded=padded))
        write_through(part, others, operands, values, padded=padded)
        values = part.array
    _write(memory, region, values, padded=padded)


# Rules for accesses of references.


def _steps(equation: Equation) -> list[_Step]:
    access: Any = access_parts(equation, operand_leaves(equation))
    return _locators(access.transforms, equation.invars[0].aval.shape)


def _step(equation: Equation) -> tuple[Any, _Locate]:
    access: Any = access_parts(equation, operand_leaves(equation))
    locate, *others = _locators(access.transforms, equation.invars[0].aval.shape)
    if others or isinstance(locate, _Relayout):
        raise UnknownError("a reference that is indexed twice")
    return access, locate


def _get(machine: Machine, equation: Equation) -> EquationFunction:
    steps = _steps(equation)
    return lambda operands: (read_through(operands[0].array, steps, operands),)


def _swap(machine: Machine, equation: Equation) -> EquationFunction:
    steps, used = _steps(equation), _is_used(equation)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory = operands[0]
        before = read_through(memory.array, steps, operands) if used else memory.array[:, :0]
        write_through(memory, steps, operands, operands[1])
        return (before,)

    return evaluate


def _addupdate(machine: Machine, equation: Equation) -> EquationFunction:
    steps, add = _steps(equation), machine.rules.updating(np.add, np.dtype(equation.invars[0].aval.dtype))
    locate = steps[-1]
    assert not isinstance(locate, _Relayout)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region = operands[0], locate(operands)
        if not region.arrays:
            write_through(memory, steps, operands, add(read_through(memory.array, steps, operands), operands[1]))
        elif len(steps) > 1 or add is not np.add:
            raise UnknownError("a sum into positions of a part, which may repeat")
        else:
            _scatter(memory, region, operands[1], add=True)
        return ()

    return evaluate


def _masked_load(machine: Machine, equation: Equation) -> EquationFunction:
    access, locate = _step(equation)
    mask, other = access.mask, access.other

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        found = _read(operands[0].array, locate(operands), padded=True)
        if mask is not None and other is not None:
            fill = operands[other.number]
            fill = fill.reshape(len(fill), *(1,) * (found.ndim - fill.ndim), *fill.shape[1:]).astype(found.dtype)
            found = np.where(operands[mask.number], found, fill)
        return (found,)

    return evaluate


def _masked_swap(machine: Machine, equation: Equation) -> EquationFunction:
    access, locate = _step(equation)
    mask, used = access.mask, _is_used(equation)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region, values = operands[0], locate(operands), operands[access.value.number]
        if mask is None and not used and not region.arrays:
            _write(memory, region, values, padded=True)
            return (memory.array[:, :0],)
        before = _read(memory.array, region, padded=True)
        result = before
        if mask is not None:
            chosen = operands[mask.number]
            values, result = np.where(chosen, values, before), np.where(chosen, before, values)
        _write(memory, region, values, padded=True)
        return (result,)

    return evaluate


def _is_used(equation: Equation) -> bool:
    return any(type(variable).__name__ != "DropVar" for variable in equation.outvars)


def _atomic_rmw(machine: Machine, equation: Equation) -> EquationFunction:
    # Evaluates `atomic_add(ref, index, values, mask=...)` and the like, whose result is what was there before. Lanes
    # update one after another, in the order of the programs; any order gives the same up to the rounding of a sum.
    # Pallas' interpreter takes no mask here, and loses all but one of several updates of one element.
    function = UPDATES.get(equation.params["atomic_type"].value)
    if function is None or not machine.rules.counts_all_updates:
        raise UnknownError("an atomic exchange" if function is None else "an atomic update as Pallas interprets it")
    access, locate = _step(equation)
    mask, update = access.mask, machine.rules.updating(function, np.dtype(equation.invars[0].aval.dtype))

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        memory, region, values = operands[0], locate(operands), operands[access.value.number]
        chosen = np.ones(1, bool) if mask is None else operands[mask.number]
        before = _read(memory.array, region, padded=True)
        if region.arrays:
            return (_update_in_turn(memory, region, before, values, chosen, update),)
        _write(memory, region, np.where(chosen, update(before, values), before), padded=True)
        return (before,)

    return evaluate


def _update_in_turn(
    memory: BatchedRef, region: _Region, before: Array, values: Array, chosen: Array, update: Callable[..., Array]
) -> Array:
    # Updates the chosen positions, some of them several times, and returns what each update finds there. `before` is
    # what is there before the first update.
    at, inside = _positions(memory.array, _aligned(region))
    whole = np.broadcast(*at, chosen).shape
    inside = np.broadcast_to(chosen if inside is None else inside & chosen, whole)
    at = tuple(np.broadcast_to(along, whole) for along in at)
    _check_room(memory, max(len(inside), len(values)))
    found = np.broadcast_to(before, inside.shape).copy()
    values = np.broadcast_to(values, inside.shape)
    turns = np.where(inside, 0, -1)
    turns[inside] = _occurrence(np.ravel_multi_index(tuple(along[inside] for along in at), memory.array.shape))
    for turn in range(turns.max(initial=-1) + 1):
        now = turns == turn
        where = tuple(along[now] for along in at)
        found[now] = memory.array[where]
        memory.array[where] = update(found[now], values[now])
    return found


def _occurrence(numbers: Array) -> Array:
    # Returns how often each number occurs before its place: 0 for 7, 1 for the next 7.
    order = np.argsort(numbers, kind="stable")
    is_first = np.diff(numbers[order], prepend=-1) != 0
    place = np.arange(len(numbers))
    occurrence = np.empty_like(place)
    occurrence[order] = place - np.maximum.accumulate(np.where(is_first, place, 0))
    return occurrence


# Rules for asynchronous copies, which are made when they start, as by Pallas' interpreter. That one shifts copies past
# an array's end; on TPUs, and so in a kernel's formula, they reach into the padding of its last tile.


def _dma_start(machine: Machine, equation: Equation) -> EquationFunction:
    source, target, *_, device = equation.params["tree"].unflatten(operand_leaves(equation))
    if device is not None or equation.params.get("add"):
        raise UnknownError("a copy to another device, or one that adds")
    (read, read_steps), (written, write_steps) = _memory(equation, source), _memory(equation, target)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        values = read_through(operands[read].array, read_steps, operands, padded=machine.rules.promotes)
        write_through(operands[written], write_steps, operands, values, padded=machine.rules.promotes)
        return ()

    return evaluate


def _memory(equation: Equation, reference: Any) -> tuple[int, list[_Step]]:
    leaf: OperandLeaf = getattr(reference, "ref", reference)
    return leaf.number, memory_parts(equation, leaf.number, getattr(reference, "transforms", ()))


def memory_parts(equation: Equation, number: int, transforms: Any, *, joined: bool = False) -> list[_Step]:
    """The steps from the memory of an operand to what transforms of it refer to.

    Interpreters clamp each of several slices. If they are joined, the outer ones may reach past the memory's end as
    long as the innermost does not, which is what hardware does.
    """
    return _locators(transforms, tuple(equation.invars[number].aval.shape), joined=joined)


MEMORY_RULES: Mapping[str, Rule] = {
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
    "masked_load": _masked_load,
    "masked_swap": _masked_swap,
    "atomic_rmw": _atomic_rmw,
    "dma_start": _dma_start,
    "dma_wait": lambda machine, equation: lambda operands: (),
}
