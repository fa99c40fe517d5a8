"""Values plainer than a case's: 0 and 1 where they will do, else small and round numbers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, widen
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.slots import Slot, fill_derived

Arguments = Mapping[str, Array]  # array arguments, by path
Make = Callable[[Slot, Array], Array]  # from an argument's elements to what each becomes, in the same dtype


def unusual(arguments: Arguments) -> int:
    """How many elements are neither 0 nor 1."""
    return sum(int(_is_unusual(values).sum()) for values in arguments.values())


def _is_unusual(values: Array) -> Array:
    wide = widen(values)
    return np.asarray((wide != 0) & (wide != 1))


def plain(slot: Slot, values: Array) -> Array:
    """Zeros; in a mask what is shown, where that is nothing out of the ordinary; parts alike, and indices in order."""
    return slot.kind.simplify(slot, values)


def zero(slot: Slot, values: Array) -> Array:
    """Zeros in place of what is neither 0 nor 1."""
    return np.where(_usual(slot, values), values, slot.nearest(0))


def one(slot: Slot, values: Array) -> Array:
    """Ones in place of what is neither 0 nor 1."""
    return np.where(_usual(slot, values), values, slot.nearest(1))


def _usual(slot: Slot, values: Array) -> Array:
    return np.asarray((values == slot.nearest(0)) | (values == slot.nearest(1)))


def two(slot: Slot, values: Array) -> Array:
    """2 in place of what is no simple number."""
    return _simpler(slot, values, np.full(values.shape, 2.0))


def minus_one(slot: Slot, values: Array) -> Array:
    """-1 in place of what is no simple number."""
    return _simpler(slot, values, np.full(values.shape, -1.0))


def power_of_two(slot: Slot, values: Array) -> Array:
    """The next power of two towards zero in place of what is no simple number."""
    wide = np.asarray(widen(values), np.float64)
    with np.errstate(all="ignore"):
        return _simpler(slot, values, np.copysign(np.exp2(np.floor(np.log2(np.abs(wide)))), wide))


def one_digit(slot: Slot, values: Array) -> Array:
    """Its first decimal digit and zeros in place of a whole number that is no simple one."""
    wide = np.asarray(widen(values), np.float64)
    with np.errstate(all="ignore"):
        scale = 10.0 ** np.floor(np.log10(np.abs(wide)))
        return _simpler(slot, values, np.trunc(wide / scale) * scale)


def rounded(slot: Slot, values: Array) -> Array:
    """A whole number in place of a fraction."""
    return _simpler(slot, values, np.rint(np.asarray(widen(values), np.float64)))


def _simpler(slot: Slot, values: Array, wanted: Array) -> Array:
    """Numbers in place of those that are harder to read, as far as the argument may hold them."""
    wide = np.asarray(widen(values), np.float64)
    low, high = (widen(slot.nearest(end)) for end in (-np.inf, np.inf))
    with np.errstate(all="ignore"):
        # None grows past its own size: sums of small whole numbers are to stay exact.
        fits = (wanted >= low) & (wanted <= high) & (np.abs(wanted) <= np.ceil(np.abs(wide)))
        better = ~_usual(slot, values) & np.isfinite(wide) & np.isfinite(wanted) & (_rank(wanted) < _rank(wide))
        made = np.where(fits & better, wanted, 0.0).astype(values.dtype)
    return np.where(fits & better & (widen(made) == wanted), made, values)


def _rank(numbers: Array) -> Array:
    """How hard numbers are to read: 0 and up."""
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


def changed(pairing: Pairing, case: ExplicitCase, makes: Sequence[Make]) -> list[Array]:
    """Argument by argument, which elements some of `makes` would change: indices into all arguments end to end."""
    slots = signature_slots(pairing, case.signature)
    found: list[Array] = []
    start = 0
    for path, values in case.arguments.items():
        differs = [_bits(_of(slots[path], make, values)) != _bits(values) for make in makes]
        found.append(start + np.flatnonzero(np.any(differs, axis=0)))
        start += values.size
    return found


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)


def made(pairing: Pairing, case: ExplicitCase, make: Make, chunk: Array) -> Arguments:
    """The case's arguments with some of their elements, as `changed` gives them, made into others."""
    slots = signature_slots(pairing, case.signature)
    arguments: dict[str, Array] = {}
    start = 0
    for path, values in case.arguments.items():
        inside = chunk[(chunk >= start) & (chunk < start + values.size)] - start
        start += values.size
        if inside.size and slots[path].kind.jointly_constrained:
            values = _of(slots[path], make, values)  # all of it, or it would be none any more
        elif inside.size:
            flat = values.reshape(-1).copy()
            flat[inside] = _of(slots[path], make, values).reshape(-1)[inside]
            values = flat.reshape(values.shape)
        arguments[path] = values
    return fill_derived(pairing, case.signature, arguments)


def _of(slot: Slot, make: Make, values: Array) -> Array:
    """What becomes of an argument; of one whose elements hang together only the plainest."""
    if slot.kind.jointly_constrained and make is not plain:
        return values
    return slot.repair(make(slot, values))
