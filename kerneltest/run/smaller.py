"""What is smaller than a case and still one of its pairing's: plainer signatures, shorter dims, plainer values."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, is_float, widen
from kerneltest.declare.arguments import Static
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case, slot_of
from kerneltest.plan.drawn import DrawnCase
from kerneltest.plan.families import Slot
from kerneltest.plan.signatures import Signature

Arguments = Mapping[str, Array]
Make = Callable[[Slot, Array], Array]  # from an argument's elements to what each becomes, in the same dtype

_SCALE = "float8_e8m0fnu"  # has neither a zero nor a sign


def not_plain(pairing: Pairing, signature: Signature) -> list[str]:
    """What could be plainer: static arguments, by name, and dtypes, by the path of the first leaf that has them."""
    chosen = dict(signature.dtypes)
    first = {pairing.leaves[path].dtypes: path for path in reversed(list(pairing.leaves))}
    dtypes = [path for group, path in first.items() if chosen[path] != _plainest(group)]
    return [name for name, option in signature.statics if option != _first(pairing, name)] + sorted(dtypes)


def plainer(pairing: Pairing, signature: Signature, names: Collection[str]) -> Signature:
    """The signature with the first option of some static arguments, and the plainest of some leaves' dtypes.

    Args:
      pairing, signature: what is to be plainer.
      names: of static arguments and leaves, as `not_plain` gives them.
    """
    groups = {leaf.dtypes for path, leaf in pairing.leaves.items() if path in names}
    dtypes = tuple(
        (path, _plainest(group) if (group := pairing.leaves[path].dtypes) in groups else dtype)
        for path, dtype in signature.dtypes
    )
    statics = tuple((name, _first(pairing, name) if name in names else option) for name, option in signature.statics)
    # The widest choice among data is the dtype of ids, as in `signatures`.
    widest = max((leaf.dtypes for leaf in pairing.leaves.values() if leaf.role == "data"), key=len, default=None)
    dtype = next((dtype for path, dtype in dtypes if pairing.leaves[path].dtypes == widest), signature.dtype)
    return replace(signature, dtypes=dtypes, statics=statics, dtype=dtype)


def _plainest(dtypes: Sequence[str]) -> str:
    return "float32" if "float32" in dtypes else dtypes[0]


def _first(pairing: Pairing, static: str) -> str:
    argument = pairing.arguments[static]
    assert isinstance(argument, Static)
    return argument.options[0][0]


def with_lengths(signature: Signature, lengths: Mapping[str, int]) -> Signature:
    """The signature with other lengths of some dims."""
    return replace(signature, dims=tuple((name, lengths.get(name, length)) for name, length in signature.dims))


def telling_lengths(dim: Dim, length: int) -> list[int]:
    """Admitted lengths below one, the shortest first: the least, past each power of two, and around the first blocks.

    An empty axis says little, so that the least is not 0.
    """
    block = dim.block or 16
    powers = [2**exponent + 1 for exponent in range(length.bit_length())]
    wanted = dim.values or map(dim.fit, [1, *powers, block, block + 1, 2 * block, 2 * block + 1])
    return sorted({each for each in wanted if dim.admits(each) and 0 < each < length})


def between(dim: Dim, low: int, high: int) -> int | None:
    """The admitted length in the middle of those between two others; None where there is none.

    Where the only lengths are given one by one, all of them are telling.
    """
    step = dim.multiple_of
    middle = -(-(low + high) // 2 // step) * step
    return middle if low < middle < high and dim.admits(middle) and not dim.values else None


def fillings(
    pairing: Pairing, case: DrawnCase, signature: Signature, worst: Mapping[str, int], seed: int
) -> Iterator[Arguments]:
    """Arguments for another signature: parts of the case's own, and where its family can make some, these.

    Args:
      pairing, case: with the arguments.
      signature: no dim of it is longer.
      worst: along some dims, where the case is wrong.
      seed: of the run.
    """
    old, new = dict(case.signature.dims), dict(signature.dims)
    notable = _notable(pairing, case)
    starts: list[Callable[[str], int]] = [
        lambda name: 0,
        lambda name: old[name] - new[name],
        lambda name: min(worst.get(name, 0), old[name] - new[name]),
        lambda name: min(notable.get(name, 0), old[name] - new[name]),
    ]
    for start in starts:
        yield _part(pairing, case, signature, {name: start(name) + np.arange(new[name]) for name in new})
    halves = {name: np.arange(length) for name, length in new.items()}
    for name, kept in halves.items():
        kept[(len(kept) + 1) // 2 :] += old[name] - new[name]  # the first and the last elements
    yield _part(pairing, case, signature, halves)
    filled = Case(case.pairing_id, pairing.name, signature, case.family, case.target, seed)
    slots = _slots(pairing, signature)
    if case.arguments and any(case.family.applies(slots[path]) for path in slots if case.target in ("", path)):
        made = filled.fill(pairing)
        if unusual(made) <= unusual(case.arguments):
            yield made


def _notable(pairing: Pairing, case: DrawnCase) -> dict[str, int]:
    """Along each dim, the index of the element that stands out: the first NaN or infinity, or the largest number."""
    found: dict[str, int] = {}
    for path, values in sorted(case.arguments.items(), key=lambda each: each[0] != case.target):
        if values.size:
            size = np.abs(np.asarray(widen(values), np.float64))
            at = np.unravel_index(int(np.argmax(np.where(np.isfinite(size), size, np.inf))), values.shape)
            for name, index in zip(pairing.leaves[path].shape, at, strict=True):
                found.setdefault(str(name), int(index))
    return found


def _part(pairing: Pairing, case: DrawnCase, signature: Signature, kept: Mapping[str, Array]) -> Arguments:
    """The case's arguments at some indices of each dim, in the signature's dtypes."""
    parts: dict[str, Array] = {}
    slots = _slots(pairing, signature)
    for path, values in case.arguments.items():
        slot, leaf = slots[path], pairing.leaves[path]
        for axis, name in enumerate(leaf.shape):
            if isinstance(name, str) and values.shape[axis] != signature.shape(leaf)[axis]:
                values = values.take(kept[name], axis)
        if leaf.bounded_by and leaf.role in ("index", "length"):  # it goes on pointing at the same element
            moved = np.searchsorted(kept[leaf.bounded_by], values)
            values = np.clip(moved, 0, max(slot.end - (leaf.role == "index"), 0)).astype(values.dtype)
        elif leaf.role == "data":
            values = _converted(values, slot, whole=case.family.structural)
        parts[path] = values
    return parts


def _converted(values: Array, slot: Slot, *, whole: bool) -> Array:
    if values.dtype == slot.dtype:
        return values
    wide = widen(values)
    if whole:
        wide = np.clip(wide, -slot.exact_limit, slot.exact_limit)
    with np.errstate(all="ignore"):
        return slot.cast(wide)


def _slots(pairing: Pairing, signature: Signature) -> dict[str, Slot]:
    return {
        path: slot_of(pairing, signature, path, leaf, order)
        for order, (path, leaf) in enumerate(pairing.leaves.items())
    }


def unusual(arguments: Arguments) -> int:
    """How many elements are neither 0 nor 1."""
    return sum(int(_is_unusual(values).sum()) for values in arguments.values())


def _is_unusual(values: Array) -> Array:
    wide = widen(values)
    return np.asarray((wide != 0) & (wide != 1))


def nearest(slot: Slot, number: float) -> Array:
    """The number next to another one among those that an argument may hold, without axes."""
    match slot.role:
        case "mask":
            low, high = 0.0, 1.0
        case "index":
            low, high = 0.0, max(slot.end - 1.0, 0.0)
        case "length":
            low, high = 0.0, float(slot.end)
        case _:
            low, high = _range(slot)
    return np.asarray(min(max(number, low), high)).astype(slot.dtype)


def _range(slot: Slot) -> tuple[float, float]:
    if slot.dtype.name == _SCALE:
        return slot.domain or (1.0, np.inf)
    info = ml_dtypes.finfo(slot.dtype) if is_float(slot.dtype) else ml_dtypes.iinfo(slot.dtype)
    low, high = slot.domain or (float(info.min), float(info.max))
    return (low, high) if is_float(slot.dtype) else (float(np.ceil(low)), float(np.floor(high)))


def plain(slot: Slot, values: Array) -> Array:
    """Zeros; True in a mask, where that is nothing out of the ordinary."""
    return np.full_like(values, nearest(slot, float(slot.role == "mask")))


def zero(slot: Slot, values: Array) -> Array:
    """Zeros in place of what is neither 0 nor 1."""
    return np.where(_usual(slot, values), values, nearest(slot, 0))


def one(slot: Slot, values: Array) -> Array:
    """Ones in place of what is neither 0 nor 1."""
    return np.where(_usual(slot, values), values, nearest(slot, 1))


def _usual(slot: Slot, values: Array) -> Array:
    return np.asarray((values == nearest(slot, 0)) | (values == nearest(slot, 1)))


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


def rounded(slot: Slot, values: Array) -> Array:
    """A whole number in place of a fraction."""
    return _simpler(slot, values, np.rint(np.asarray(widen(values), np.float64)))


def _simpler(slot: Slot, values: Array, wanted: Array) -> Array:
    """Numbers in place of those that are harder to read, as far as the argument may hold them."""
    wide = np.asarray(widen(values), np.float64)
    low, high = (widen(nearest(slot, end)) for end in (-np.inf, np.inf))
    with np.errstate(all="ignore"):
        # None grows past its own size: sums of small whole numbers are to stay exact.
        fits = (wanted >= low) & (wanted <= high) & (np.abs(wanted) <= np.ceil(np.abs(wide)))
        better = ~_usual(slot, values) & np.isfinite(wide) & np.isfinite(wanted) & (_rank(wanted) < _rank(wide))
        made = np.where(fits & better, wanted, 0.0).astype(values.dtype)
    return np.where(fits & better & (widen(made) == wanted), made, values)


def _rank(numbers: Array) -> Array:
    """How hard numbers are to read: 0 and up."""
    exact = np.frexp(numbers)[0]
    whole = numbers == np.rint(numbers)
    kinds = [(numbers == 2) | (numbers == -1), whole & (np.abs(numbers) <= 10), np.abs(exact) == 0.5, whole]
    return np.select(kinds, range(len(kinds)), len(kinds))


def changed(pairing: Pairing, case: DrawnCase, makes: Sequence[Make]) -> list[Array]:
    """Argument by argument, which elements some of `makes` would change: indices into all arguments end to end."""
    slots = _slots(pairing, case.signature)
    found: list[Array] = []
    start = 0
    for path, values in case.arguments.items():
        differs = [_bits(make(slots[path], values)) != _bits(values) for make in makes]
        found.append(start + np.flatnonzero(np.any(differs, axis=0)))
        start += values.size
    return found


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)


def made(pairing: Pairing, case: DrawnCase, make: Make, chunk: Array) -> Arguments:
    """The case's arguments with some of their elements, as `changed` gives them, made into others."""
    slots = _slots(pairing, case.signature)
    arguments: dict[str, Array] = {}
    start = 0
    for path, values in case.arguments.items():
        inside = chunk[(chunk >= start) & (chunk < start + values.size)] - start
        start += values.size
        if inside.size:
            flat = values.reshape(-1).copy()
            flat[inside] = make(slots[path], flat[inside])
            values = flat.reshape(values.shape)
        arguments[path] = values
    return arguments
