"""Rules for atomic updates of memory, one lane after another and in the order of the programs.

Any order gives the same up to the rounding of a sum. Only a kernel with its floats promoted is evaluated so: Pallas'
interpreter takes no mask here, and loses all but one of several updates of one element.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.access_regions import AccessRegion, locator
from kerneltest.trace.batched_interpreter.array_accesses import aligned_positions, check_room, positions
from kerneltest.trace.batched_interpreter.batched_values import (
    BatchedRef,
    EquationFunction,
    UnknownError,
    Value,
    is_promoting,
)
from kerneltest.trace.batched_interpreter.reference_rules import operand_leaves, read_region, write_region
from kerneltest.trace.jax_compat.jaxpr_types import Equation

_UPDATES: Mapping[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _atomic_rmw(equation: Equation) -> EquationFunction:
    """Evaluates `atomic_add(ref, index, values, mask=...)` and the like, whose result is what was there before."""
    update = _UPDATES.get(equation.params["atomic_type"].value)
    if update is None or not is_promoting():
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


ATOMICS: Mapping[str, Callable[[Equation], EquationFunction]] = {"atomic_rmw": _atomic_rmw}
