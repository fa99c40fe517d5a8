"""Reads and writes of references, as Pallas' interpreter does them where an index leaves the array."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.jaxprs.rows.places import Operand, Place, locator
from kerneltest.jaxprs.rows.values import Memory, Step, UnknownError, unwritten


def _starts(place: Place, shape: Sequence[int], room: Sequence[int], *, padded: bool) -> list[tuple[int, ...]]:
    """The first element along each axis, for each row, one where all are alike: moved to where a slice fits.

    Args:
      place: of an access.
      shape: of the memory.
      room: what the slice has behind the memory.
      padded: negative numbers count from the end of memory and room.
    """
    found: list[int | Array] = []
    for start, length, n, more in zip(place.starts, place.lengths, shape, room, strict=True):
        wraps = padded or not isinstance(start, int)
        if isinstance(start, int) or np.size(start) == 1:  # in Python's numbers, which are a tenth of the work
            at = int(start) if isinstance(start, int) else int(start.reshape(-1)[0])
            found.append(min(max(at + n + more if wraps and at < 0 else at, 0), n + more - length))
        else:
            each = start.astype(np.int64).reshape(-1)
            found.append(np.clip(np.where(each < 0, each + n + more, each), 0, n + more - length))
    rows = max((len(each) for each in found if not isinstance(each, int)), default=1)
    return list(zip(*(_for_all(each, rows) for each in found), strict=True)) or [()]


def _for_all(start: "int | Array", rows: int) -> list[int]:
    return [start] * rows if isinstance(start, int) else start.tolist()


def _sliced(memory: Array, place: Place, *, padded: bool) -> Array:
    shape = memory.shape[1:]
    room = place.lengths if padded else (0,) * len(shape)
    starts = _starts(place, shape, room, padded=padded)
    if len(starts) == 1:
        return _part(memory, starts[0], place.lengths).reshape(len(memory), *_kept(place))
    parts = [_part(memory[r if len(memory) > 1 else 0][None], at, place.lengths) for r, at in enumerate(starts)]
    return np.concatenate(parts).reshape(len(starts), *_kept(place))


def _kept(place: Place) -> tuple[int, ...]:
    return tuple(length for axis, length in enumerate(place.lengths) if axis not in place.squeezed)


def _part(memory: Array, starts: Sequence[int], lengths: Sequence[int]) -> Array:
    inside = memory[(slice(None), *(slice(s, s + n) for s, n in zip(starts, lengths, strict=True)))]
    if inside.shape[1:] == tuple(lengths):
        return inside.copy()
    whole = unwritten((len(memory), *lengths), memory.dtype)
    whole[tuple(slice(n) for n in inside.shape)] = inside
    return whole


def _store(memory: Memory, place: Place, values: Array, *, padded: bool) -> None:
    array = memory.array
    shape = array.shape[1:]
    room = place.lengths if padded else (0,) * len(shape)
    starts = _starts(place, shape, room, padded=padded)
    values = values.reshape(len(values), *place.lengths)
    _check_room(memory, max(len(values), len(starts)))
    for row, at in enumerate(starts) if len(starts) > 1 else [(slice(None), starts[0])]:
        ends = [min(s + n, whole) for s, n, whole in zip(at, place.lengths, shape, strict=True)]
        where = (row, *(slice(s, e) for s, e in zip(at, ends, strict=True)))
        fitting = tuple(slice(max(e - s, 0)) for s, e in zip(at, ends, strict=True))
        one = values if isinstance(row, slice) else values[row if len(values) > 1 else 0]
        array[where] = one[(slice(None), *fitting) if isinstance(row, slice) else fitting]


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
