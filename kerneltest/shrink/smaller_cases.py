"""Smaller signatures: shorter dims, plainer dtypes and static arguments, with arguments cut from the case's own."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import Array, widen
from kerneltest.declare.dims import Dim, dims_in, positions_along
from kerneltest.declare.pairing import ABSENT, Pairing
from kerneltest.plan.cases import Case, signature_slots
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.signatures import Signature, dtype_groups
from kerneltest.plan.slots import Slot, fill_derived

# Simpler values: 0 and 1 if the case still fails with them, else small and round numbers.
#
# A `Simplifier` proposes one simpler value for each element of an argument. It leaves elements alone that are simple
# already, and returns only values that the argument may have.

Arguments = Mapping[str, Array]  # array arguments by path
# Takes an argument's values, and returns simpler ones of the same shape and dtype.
Simplifier = Callable[[Slot, Array], Array]


def count_nontrivial(arguments: Arguments) -> int:
    """Returns the number of elements that are neither 0 nor 1."""
    return sum(int(np.sum((wide != 0) & (wide != 1))) for wide in map(widen, arguments.values()))


def to_simplest(slot: Slot, values: Array) -> Array:
    """Returns an argument's simplest values: zeros, a mask that hides nothing, equal parts, indices in order."""
    return slot.kind.simplify(slot, values)


def _is_trivial(slot: Slot, values: Array) -> Array:
    return np.asarray((values == slot.nearest(0)) | (values == slot.nearest(1)))


def _nearest_to(number: int) -> Simplifier:
    # For numbers other than 0 and 1: this number, or the nearest one that the argument may have.
    return lambda slot, values: np.where(_is_trivial(slot, values), values, slot.nearest(number))


def _easier(make: Callable[[Array], Array]) -> Simplifier:
    # For numbers that are harder to read: those that a function makes of them in float64.
    def simplifier(slot: Slot, values: Array) -> Array:
        wide = np.asarray(widen(values), np.float64)
        with np.errstate(all="ignore"):
            low, high = (widen(slot.nearest(end)) for end in (-np.inf, np.inf))
            wanted = make(wide)
            # No number grows, so that sums of small integers stay exact.
            fits = (wanted >= low) & (wanted <= high) & (np.abs(wanted) <= np.ceil(np.abs(wide)))
            better = (
                ~_is_trivial(slot, values) & np.isfinite(wide) & np.isfinite(wanted) & (_rank(wanted) < _rank(wide))
            )
            made = np.where(fits & better, wanted, 0.0).astype(values.dtype)
            return np.where(fits & better & (widen(made) == wanted), made, values)

    return simplifier


def _first_digit(wide: Array) -> Array:
    scale = 10.0 ** np.floor(np.log10(np.abs(wide)))
    return np.asarray(np.trunc(wide / scale) * scale)  # 77 becomes 70


to_zero, to_one = _nearest_to(0), _nearest_to(1)
to_two, to_minus_one = _easier(lambda wide: np.full(wide.shape, 2.0)), _easier(lambda wide: np.full(wide.shape, -1.0))
to_power_of_two = _easier(lambda wide: np.copysign(np.exp2(np.floor(np.log2(np.abs(wide)))), wide))
to_one_digit, to_integer = _easier(_first_digit), _easier(np.rint)
# Each step's simplifiers, the preferred ones first.
SIMPLIFIERS: Sequence[Sequence[Simplifier]] = (
    (to_zero, to_one),
    (to_simplest,),
    (to_two, to_minus_one, to_power_of_two, to_one_digit, to_integer),
)


def _rank(numbers: Array) -> Array:
    # How hard numbers are to read, from 0 to 5.
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
    """Returns the elements that some functions would change, as indices into all arguments laid end to end."""
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
    """Returns the case's arguments with the elements of a chunk (indices from `simplifiable`) replaced."""
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
    return fill_derived(pairing, case.signature, arguments, case.draw)


def _apply(slot: Slot, simplifier: Simplifier, values: Array) -> Array:
    # Elements that depend on each other only change to the simplest ones.
    if slot.kind.jointly_constrained and simplifier is not to_simplest:
        return values
    return slot.repair(simplifier(slot, values))


def simplifiable_choices(pairing: Pairing, signature: Signature) -> list[str]:
    """Returns the static arguments and the dtypes that are not the plainest.

    Static arguments are given by name, a dtype that several leaves share by the path of the first of them.
    """
    chosen = dict(signature.dtypes)
    first = {pairing.leaves[path].dtypes: path for path, _ in reversed(signature.dtypes)}
    dtypes = [path for group, path in first.items() if chosen[path] != _plainest(group)]
    return [name for name, option in signature.statics if option != _first_option(pairing, name)] + sorted(dtypes)


def simplify_choices(pairing: Pairing, signature: Signature, names: Collection[str]) -> Signature:
    """Returns the signature with the first option and the plainest dtype of what `simplifiable_choices` names."""
    groups = {leaf.dtypes for path, leaf in pairing.leaves.items() if path in names}
    chosen = dict.fromkeys(dtype_groups(pairing)[:1], signature.dtype)
    chosen |= {pairing.leaves[path].dtypes: dtype for path, dtype in signature.dtypes}
    chosen |= {group: _plainest(group) for group in groups}
    statics = {name: _first_option(pairing, name) if name in names else option for name, option in signature.statics}
    return Signature.from_choices(pairing, dict(signature.dims), statics, chosen)


def _plainest(dtypes: Sequence[str]) -> str:
    return "float32" if "float32" in dtypes else dtypes[0]


def _first_option(pairing: Pairing, static: str) -> str:
    return ABSENT if static in pairing.optionals else pairing.options()[static][0]


def with_lengths(pairing: Pairing, signature: Signature, lengths: Mapping[str, int]) -> Signature:
    """Returns the signature with other lengths of some dims, and of those that the pairing relates to them.

    Returns the signature unchanged if a dim would be longer, or if the pairing does not admit these lengths.
    """
    resized, old = signature.resized(pairing, lengths), dict(signature.dims)
    return signature if resized is None or any(n > old[name] for name, n in resized.dims) else resized


def candidate_lengths(dim: Dim, length: int) -> list[int]:
    """Returns admitted lengths below a given one, shortest first: 1, 2^i + 1, and those around one and two blocks.

    0 is left out, since a case without elements shows little.
    """
    block = dim.block or 16
    powers = [2**exponent + 1 for exponent in range(length.bit_length())]
    wanted = dim.values or map(dim.fit, [1, *powers, block, block + 1, 2 * block, 2 * block + 1])
    return sorted({each for each in wanted if dim.admits(each) and 0 < each < length})


def middle_length(dim: Dim, low: int, high: int) -> int | None:
    """Returns the admitted length halfway between two lengths; None if there is none.

    A dim with explicit `values` has none, since `candidate_lengths` returns all of them.
    """
    step = dim.multiple_of
    middle = -(-(low + high) // 2 // step) * step
    return middle if low < middle < high and dim.admits(middle) and not dim.values else None


def candidate_arguments(
    pairing: Pairing, case: ExplicitCase, signature: Signature, worst: Mapping[str, int], seed: int
) -> Iterator[Arguments]:
    """Yields arguments for a shorter signature: parts of the case's own, then the family's own values if there are any.

    The parts begin at the start, end at the end, and begin at the worst and at the most notable element.

    Args:
      pairing, case: the case and its arguments.
      signature: the shorter signature; none of its dims is longer than the case's.
      worst: the index of the case's worst element along some dims.
      seed: the run's seed.
    """
    old, new = dict(case.signature.dims), dict(signature.dims)
    notable = _notable_place(pairing, case)
    starts: list[Callable[[str], int]] = [
        lambda name: 0,
        lambda name: old[name] - new[name],
        lambda name: min(worst.get(name, 0), old[name] - new[name]),
        lambda name: min(notable.get(name, 0), old[name] - new[name]),
    ]
    for start in starts:
        yield _part(pairing, case, signature, {name: start(name) + np.arange(new[name]) for name in new})
    filled = Case(case.pairing_id, pairing.name, signature, case.family, case.target, seed)
    slots = signature_slots(pairing, signature)
    if case.arguments and any(case.family.applies(slots[path]) for path in slots if case.target in ("", path)):
        made = filled.fill(pairing)
        if count_nontrivial(made) <= count_nontrivial(case.arguments):
            yield made


def stretched_arguments(pairing: Pairing, case: ExplicitCase, signature: Signature) -> Iterator[Arguments]:
    """Yields arguments for another signature: the case's own, repeated along axes that are longer there, or cut.

    The first begin at the start; the second, if an axis is shorter, end at the end.
    """
    old, new = dict(case.signature.dims), dict(signature.dims)
    for starts in ({}, {name: max(old[name] - length, 0) for name, length in new.items()}):
        positions = {name: (starts.get(name, 0) + np.arange(length)) % old[name] for name, length in new.items()}
        if not starts or any(starts.values()):
            yield _part(pairing, case, signature, positions)


def _notable_place(pairing: Pairing, case: ExplicitCase) -> dict[str, int]:
    # The first NaN or infinity, or else the largest number.
    found: dict[str, int] = {}
    for path, values in sorted(case.arguments.items(), key=lambda each: each[0] != case.target):
        if values.size:
            size = np.abs(np.asarray(widen(values), np.float64))
            at = np.unravel_index(int(np.argmax(np.where(np.isfinite(size), size, np.inf))), values.shape)
            for axis, index in zip(pairing.leaves[path].shape, at, strict=True):
                if isinstance(axis, str):
                    found.setdefault(axis, int(index))
    return found


def _part(pairing: Pairing, case: ExplicitCase, signature: Signature, positions: Mapping[str, Array]) -> Arguments:
    parts: dict[str, Array] = {}
    old = dict(case.signature.dims)
    for path, slot in signature_slots(pairing, signature).items() if case.arguments else ():
        leaf, values = pairing.leaves[path], case.arguments.get(path)
        if values is None:  # absent from the case
            parts[path] = slot.canonical()
            continue
        for place, axis in enumerate(leaf.shape):
            if any(len(positions[name]) != old[name] for name in dims_in(axis)):
                values = values.take(positions_along(axis, old, positions), place)
        bound = leaf.bounded_by if leaf.kind.pointwise and isinstance(leaf.bounded_by, str) else ""
        if bound and bool((np.diff(positions[bound]) > 0).all()):
            at = np.searchsorted(positions[bound], values)  # so that it still points at the same element
            values = at if leaf.sentinel is None else np.where(values == leaf.sentinel, values, at)
        elif leaf.kind.is_data:
            values = _convert(values, slot, exact=case.family.structural)
        parts[path] = slot.repair(values) if slot.shape == values.shape else slot.canonical()
    return fill_derived(pairing, signature, parts, case.draw) if parts else parts


def _convert(values: Array, slot: Slot, *, exact: bool) -> Array:
    # If `exact`, to values whose arithmetic is exact there.
    if values.dtype == slot.dtype:
        return values
    wide = widen(values)
    if exact:
        wide = np.clip(wide, -slot.exact_limit, slot.exact_limit)
    with np.errstate(all="ignore"):
        return slot.cast(wide)
