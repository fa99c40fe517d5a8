"""Simpler values: 0 and 1 if the case still fails with them, else small and round numbers.

A `Simplifier` proposes one simpler value for each element of an argument. It leaves elements alone that are simple
already, and returns only values that the argument may have.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, widen
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.slots import Slot, fill_derived

Arguments = Mapping[str, Array]  # array arguments by path
Simplifier = Callable[
    [Slot, Array], Array
]  # takes an argument's values, returns simpler ones of the same shape and dtype


def count_nontrivial(arguments: Arguments) -> int:
    """Returns the number of elements that are neither 0 nor 1."""
    return sum(int(_is_nontrivial(values).sum()) for values in arguments.values())


def _is_nontrivial(values: Array) -> Array:
    wide = widen(values)
    return np.asarray((wide != 0) & (wide != 1))


def to_simplest(slot: Slot, values: Array) -> Array:
    """Returns an argument's simplest values: zeros, a mask that hides nothing, equal parts, indices in order."""
    return slot.kind.simplify(slot, values)


def to_zero(slot: Slot, values: Array) -> Array:
    """Replaces numbers other than 0 and 1 by 0, or by the nearest number that the argument may have."""
    return np.where(_is_trivial(slot, values), values, slot.nearest(0))


def to_one(slot: Slot, values: Array) -> Array:
    """Replaces numbers other than 0 and 1 by 1, or by the nearest number that the argument may have."""
    return np.where(_is_trivial(slot, values), values, slot.nearest(1))


def _is_trivial(slot: Slot, values: Array) -> Array:
    return np.asarray((values == slot.nearest(0)) | (values == slot.nearest(1)))


def to_two(slot: Slot, values: Array) -> Array:
    """Replaces numbers that are harder to read than 2 by 2."""
    return _replace_harder(slot, values, np.full(values.shape, 2.0))


def to_minus_one(slot: Slot, values: Array) -> Array:
    """Replaces numbers that are harder to read than -1 by -1."""
    return _replace_harder(slot, values, np.full(values.shape, -1.0))


def to_power_of_two(slot: Slot, values: Array) -> Array:
    """Replaces numbers by the next power of two towards zero, if that is easier to read."""
    wide = np.asarray(widen(values), np.float64)
    with np.errstate(all="ignore"):
        return _replace_harder(slot, values, np.copysign(np.exp2(np.floor(np.log2(np.abs(wide)))), wide))


def to_one_digit(slot: Slot, values: Array) -> Array:
    """Replaces all decimal digits but the first by zeros, if the result is easier to read: 77 becomes 70."""
    wide = np.asarray(widen(values), np.float64)
    with np.errstate(all="ignore"):
        scale = 10.0 ** np.floor(np.log10(np.abs(wide)))
        return _replace_harder(slot, values, np.trunc(wide / scale) * scale)


def to_integer(slot: Slot, values: Array) -> Array:
    """Replaces fractions by the nearest integer."""
    return _replace_harder(slot, values, np.rint(np.asarray(widen(values), np.float64)))


def _replace_harder(slot: Slot, values: Array, wanted: Array) -> Array:
    """Replaces numbers by wanted ones that are easier to read, if the argument may have these."""
    wide = np.asarray(widen(values), np.float64)
    low, high = (widen(slot.nearest(end)) for end in (-np.inf, np.inf))
    with np.errstate(all="ignore"):
        # No number grows, so that sums of small integers stay exact.
        fits = (wanted >= low) & (wanted <= high) & (np.abs(wanted) <= np.ceil(np.abs(wide)))
        better = ~_is_trivial(slot, values) & np.isfinite(wide) & np.isfinite(wanted) & (_rank(wanted) < _rank(wide))
        made = np.where(fits & better, wanted, 0.0).astype(values.dtype)
    return np.where(fits & better & (widen(made) == wanted), made, values)


def _rank(numbers: Array) -> Array:
    """Returns how hard numbers are to read, from 0 for 2 and -1 to 5 for fractions."""
    fraction = np.frexp(numbers)[0]
    whole = numbers == np.rint(numbers)
    with np.errstate(all="ignore"):
        digits = numbers / 10.0 ** np.floor(np.log10(np.abs(numbers)))
    kinds = [
        (numbers == 2) | (numbers == -1),
        whole & (np.abs(numbers) <= 10),
        np.abs(fraction) == 0.5,
        whole & (digits == np.rint(digits)),
        whole,
    ]
    return np.select(kinds, range(len(kinds)), len(kinds))


def simplifiable(pairing: Pairing, case: ExplicitCase, simplifiers: Sequence[Simplifier]) -> list[Array]:
    """Returns the elements that at least one of some functions would change.

    Args:
      pairing, case: the case with the arguments.
      simplifiers: functions that simplify values.

    Returns:
      For each argument, indices into all arguments laid end to end.
    """
    slots = signature_slots(pairing, case.signature)
    found: list[Array] = []
    start = 0
    for path, values in case.arguments.items():
        differs = [_bits(_apply(slots[path], make, values)) != _bits(values) for make in simplifiers]
        found.append(start + np.flatnonzero(np.any(differs, axis=0)))
        start += values.size
    return found


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)


def simplify(pairing: Pairing, case: ExplicitCase, simplifier: Simplifier, chunk: Array) -> Arguments:
    """Returns the case's arguments with some elements replaced.

    Args:
      pairing, case: the case with the arguments.
      simplifier: simplifies the values.
      chunk: the elements to replace, as indices from `simplifiable`.
    """
    slots = signature_slots(pairing, case.signature)
    arguments: dict[str, Array] = {}
    start = 0
    for path, values in case.arguments.items():
        inside = chunk[(chunk >= start) & (chunk < start + values.size)] - start
        start += values.size
        if inside.size and slots[path].kind.jointly_constrained:
            values = _apply(slots[path], simplifier, values)  # as a whole, since its elements depend on each other
        elif inside.size:
            flat = values.reshape(-1).copy()
            flat[inside] = _apply(slots[path], simplifier, values).reshape(-1)[inside]
            values = flat.reshape(values.shape)
        arguments[path] = values
    return fill_derived(pairing, case.signature, arguments)


def _apply(slot: Slot, simplifier: Simplifier, values: Array) -> Array:
    """Returns an argument's simpler values. If its elements depend on each other, only `to_simplest` changes them."""
    if slot.kind.jointly_constrained and simplifier is not to_simplest:
        return values
    return slot.repair(simplifier(slot, values))
