"""Reads and writes of references, as Pallas' interpreter does them where an index leaves the array."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.places import Operand, Place, locator
from kerneltest.trace.batched_interpreter.values import Memory, Step, UnknownError, unwritten


def _starts(place: Place, shape: Sequence[int], *, padded: bool) -> list[tuple[int, ...]]:
    """The first element along each axis, for each row, one where all are alike: moved to where a slice fits.

    Args:
      place: of an access.
      shape: of the memory.
      padded: there is room for a slice behind the memory, and negative numbers count from the end of that.
    """
    found: list[int | list[int]] = []
    rows = 1
    for start, length, n in zip(place.starts, place.lengths, shape, strict=True):
        end = n + length if padded else n
        known = isinstance(start, int)
        if known or start.size == 1:  # in Python's numbers, which are a tenth of the work
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


def _sliced(memory: Array, place: Place, *, padded: bool) -> Array:
    starts = _starts(place, memory.shape[1:], padded=padded)
    if len(starts) == 1:
        return _part(memory, starts[0], place.lengths).reshape(len(memory), *place.kept)
    parts = [_part(memory[r if len(memory) > 1 else 0][None], at, place.lengths) for r, at in enumerate(starts)]
    return np.concatenate(parts).reshape(len(starts), *place.kept)


def _slices(starts: Sequence[int], lengths: Sequence[int]) -> list[slice]:
    return [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]


def _part(memory: Array, starts: Sequence[int], lengths: tuple[int, ...]) -> Array:
    inside = memory[(slice(None), *_slices(starts, lengths))]
    if inside.shape[1:] == lengths:
        return inside.copy()
    whole = unwritten((len(memory), *lengths), memory.dtype)
    whole[tuple(map(slice, inside.shape))] = inside
    return whole


def _store(memory: Memory, place: Place, values: Array, *, padded: bool) -> None:
    starts = _starts(place, memory.array.shape[1:], padded=padded)
    values = values.reshape(len(values), *place.lengths)
    _check_room(memory, max(len(values), len(starts)))
    for row, at in enumerate(starts):
        rows = slice(None) if len(starts) == 1 else slice(row, row + 1)
        inside = memory.array[(rows, *_slices(at, place.lengths))]
        one = values if len(starts) == 1 or len(values) == 1 else values[rows]
        inside[...] = one[(slice(None), *map(slice, inside.shape[1:]))]


def _check_room(memory: Memory, rows: int) -> None:
    if len(memory.array) < rows:
        raise UnknownError("rows that write to memory which they share")


def _positions(memory: Array, place: Place) -> tuple[tuple[Array, ...], Array]:
    """Where arrays of positions point, rows included, and which of them lie inside."""
    shape = memory.shape[1:]
    arrays = [np.asarray(each).astype(np.int64) for each in place.arrays]
    arrays = [each.reshape(1) if not each.ndim else each for each in arrays]
    most = max(each.ndim for each in arrays)
    arrays = [each.reshape(len(each), *(1,) * (most - each.ndim), *each.shape[1:]) for each in arrays]
    turned = [np.where(each < 0, each + n, each) for each, n in zip(arrays, shape, strict=True)]
    whole = np.broadcast_shapes(*(each.shape for each in turned))
    whole = (max(whole[0], len(memory)), *whole[1:])
    inside = np.ones(whole, bool)
    for each, n in zip(turned, shape, strict=True):
        inside &= (each >= 0) & (each < n)
    safe = [np.clip(each, 0, max(n - 1, 0)) for each, n in zip(turned, shape, strict=True)]
    row = np.arange(len(memory)).reshape(-1, *(1,) * (most - 1))
    return np.broadcast_arrays(row, *safe, inside)[:-1], inside


def _gathered(memory: Array, place: Place) -> Array:
    at, inside = _positions(memory, place)
    if not memory.size:
        return unwritten(inside.shape, memory.dtype)
    found = memory[at]
    return found if inside.all() else np.where(inside, found, unwritten((1,), memory.dtype))


def _scattered(memory: Memory, place: Place, values: Array, *, add: bool = False) -> None:
    at, inside = _positions(memory.array, place)
    _check_room(memory, max(len(inside), len(values)))
    values = np.broadcast_to(values, inside.shape)
    where = tuple(each[inside] for each in at)
    if add:
        np.add.at(memory.array, where, values[inside])
    else:
        memory.array[where] = values[inside]


def _access(equation: Any, operands: Sequence[Any]) -> Any:
    return jax.tree.unflatten(equation.params["tree"], operands)


def _numbered(equation: Any) -> list[Operand]:
    return [Operand(number, variable.aval) for number, variable in enumerate(equation.invars)]


def _get(equation: Any) -> Step:
    """`ref[...]`"""
    shape = equation.invars[0].aval.shape
    locate = locator(_access(equation, _numbered(equation)[1:]), shape)

    def step(operands: Sequence[Any]) -> Sequence[Any]:
        memory, place = operands[0].array, locate(operands)
        return (_gathered(memory, place) if place.arrays else _sliced(memory, place, padded=False),)

    return step


def _swap(equation: Any) -> Step:
    """`ref[...] = values`"""
    locate = locator(_access(equation, _numbered(equation)[2:]), equation.invars[0].aval.shape)
    used = _is_used(equation)

    def step(operands: Sequence[Any]) -> Sequence[Any]:
        memory, place = operands[0], locate(operands)
        if place.arrays:
            before = _gathered(memory.array, place)
            _scattered(memory, place, operands[1])
        else:
            before = _sliced(memory.array, place, padded=False) if used else memory.array[:, :0]
            _store(memory, place, operands[1], padded=False)
        return (before,)

    return step


def _addupdate(equation: Any) -> Step:
    """`ref[...] += values`"""
    locate = locator(_access(equation, _numbered(equation)[2:]), equation.invars[0].aval.shape)

    def step(operands: Sequence[Any]) -> Sequence[Any]:
        memory, place = operands[0], locate(operands)
        if place.arrays:
            _scattered(memory, place, operands[1], add=True)
        else:
            _store(memory, place, _sliced(memory.array, place, padded=False) + operands[1], padded=False)
        return ()

    return step


def _masked_load(equation: Any) -> Step:
    """`load(ref, mask=..., other=...)`"""
    _, transforms, mask, other = equation.params["args_tree"].unflatten(_numbered(equation))
    locate = locator(transforms, equation.invars[0].aval.shape)

    def step(operands: Sequence[Any]) -> Sequence[Any]:
        memory, place = operands[0].array, locate(operands)
        found = _gathered(memory, place) if place.arrays else _sliced(memory, place, padded=True)
        if mask is not None and other is not None:
            found = np.where(operands[mask.number], found, _filling(operands[other.number], found))
        return (found,)

    return step


def _masked_swap(equation: Any) -> Step:
    """`store(ref, values, mask=...)`"""
    _, transforms, given, mask = equation.params["args_tree"].unflatten(_numbered(equation))
    locate = locator(transforms, equation.invars[0].aval.shape)
    used = _is_used(equation)

    def step(operands: Sequence[Any]) -> Sequence[Any]:
        memory, place, values = operands[0], locate(operands), operands[given.number]
        if mask is None and not used and not place.arrays:
            _store(memory, place, values, padded=True)
            return (memory.array[:, :0],)
        before = _gathered(memory.array, place) if place.arrays else _sliced(memory.array, place, padded=True)
        result = before
        if mask is not None:
            chosen = operands[mask.number]
            values, result = np.where(chosen, values, before), np.where(chosen, before, values)
        if place.arrays:
            _scattered(memory, place, values)
        else:
            _store(memory, place, values, padded=True)
        return (result,)

    return step


def _filling(other: Array, found: Array) -> Array:
    """What a masked lane gets, beside what was found: a scalar has as many axes."""
    return other.reshape(len(other), *(1,) * (found.ndim - other.ndim), *other.shape[1:]).astype(found.dtype)


def _is_used(equation: Any) -> bool:
    """Whether anything may read what an equation gives."""
    return any(type(variable).__name__ != "DropVar" for variable in equation.outvars)


MEMORY: Mapping[str, Callable[[Any], Step]] = {
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
    "masked_load": _masked_load,
    "masked_swap": _masked_swap,
}
