"""Production sizes: arrays too large for memory, whose elements are computed from their positions."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import Stated, Unavailable
from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import DeclarationError, Failure, convert_exceptions
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.dims import positions_along
from kerneltest.declare.domains import DType
from kerneltest.declare.kinds.base import Namespace, XpArray
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.format_limits import OracleCost, signature_in_turn
from kerneltest.plan.signatures import Signature, boundary_lengths, dtype_groups
from kerneltest.plan.slots import Slot, exact_limit

# The change of an element's code with a step along each axis, the last axis first.
_STRIDES = (1, 7, 31, 53, 97, 113, 131, 151)
_CODES = 251  # prime, so that no power of two brings a code back


def production_signatures(pairing: Pairing) -> tuple[Signature, ...]:
    """Returns one signature for each dtype, with dims at their production lengths; () if no dim declares one."""
    if not any(dim.production for dim in pairing.dims.values()):
        return ()
    groups = dtype_groups(pairing)
    lengths = {name: dim.production or boundary_lengths(dim)[0] for name, dim in pairing.dims.items()}
    fixed = [name for name, dim in pairing.dims.items() if dim.production]
    numbers = range(len(groups[0]) if groups else 1)
    return tuple(filter(None, (signature_in_turn(pairing, lengths, number, fixed) for number in numbers)))


@dataclass(frozen=True, eq=False, slots=True)
class PositionCodedArray:
    """The position-coded contents of an array argument, in which a misplaced element is recognisable.

    The table has the value of each code in the slot's dtype, or is empty if the kind computes values from positions.
    """

    slot: Slot
    table: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.slot.shape

    @property
    def dtype(self) -> DType:
        return self.slot.dtype

    def at(self, indices: Sequence[XpArray], xp: Namespace = np) -> XpArray:
        """Returns the elements at positions: 64-bit integers for each axis, in NumPy or `xp`, broadcast together."""
        code = xp.asarray(17 * self.slot.order)
        for index, stride in zip(reversed(indices), _STRIDES, strict=False):
            code = code + index * stride + index // _CODES * (stride + 2)  # codes differ also at a distance of _CODES
        if self.table.size:
            return xp.asarray(self.table)[code % _CODES]
        return self.slot.kind.element_at(self.slot, indices, code, xp).astype(self.slot.dtype)

    def materialize(self, where: Sequence[Array]) -> Array:
        """Returns the part at some positions along each axis as an array."""
        values = self.at(np.meshgrid(*where, indexing="ij", sparse=True))
        return np.array(np.broadcast_to(values, [span.size for span in where]))


def position_coded_arrays(pairing: Pairing, signature: Signature) -> dict[str, PositionCodedArray]:
    """Returns the contents of each array argument of a production signature, by path.

    Failure: `unavailable`; the elements of an argument do not follow from their positions.
    """
    lengths = {name: length for name, length in signature.dims if name in pairing.needs and length}
    places = itertools.product(*((0, length // 2, length - 1) for length in lengths.values()))
    parts = (required_part(pairing, signature, dict(zip(lengths, place, strict=True))) for place in places)
    largest = max(parts, key=lambda part: part.elements)
    limit = exact_limit(pairing, largest.signature) if largest.elements <= MOST_EXACT else 1
    filled = signature_slots(pairing, signature)
    contents = {}
    for path, slot in filled.items():
        if not slot.kind.positional:
            reason = f"the elements of argument {path!r} do not follow from their positions"
            raise Failure(Verdict.UNAVAILABLE, Unavailable(f"production sizes are not run: {reason}"))
        limited = replace(slot, limit=lambda: limit)
        contents[path] = PositionCodedArray(limited, slot.kind.code_table(limited, np.arange(_CODES)))
    return contents


# Exponents of two at which offsets, in elements or bytes, overflow; the most important ones come first.
_EXPONENTS = (31, 32, 30, 24, 16, 15, 29, 33, 28, 11, 8, 7)


def sample_positions(count: int, most: int, sizes: Sequence[int]) -> Array:
    """Returns a sample of the numbers below `count`, ascending, int64.

    It has at most `most` numbers. It prefers both ends, then the numbers at which an offset into arrays of these
    `sizes` (in elements), over which they are spread evenly, reaches a power of two, then random ones.
    """
    if not count:
        return np.zeros(0, np.int64)
    reached = [2**each * count // size for each in _EXPONENTS for size in sizes if 2**each < size]
    wanted = [0, count - 1, *(number + step for number in reached for step in (0, 1, -1)), 1, count - 2]
    wanted += [2**exponent for exponent in reversed(range(count.bit_length()))]
    wanted += np.random.Generator(np.random.PCG64(count)).integers(0, count, most).tolist()
    chosen = [number for number in dict.fromkeys(wanted) if 0 <= number < count][:most]
    return np.array(sorted(chosen), np.int64)


_BAD_SLICE = (
    "needs of {dim!r}: for position {position} of {length} it returned {slice}, which must contain the position, lie "
    "within the dim and have step 1"
)

# The most elements of a part that an oracle is evaluated on: once, and many times for an error bound.
MOST_EXACT, MOST_BOUNDED = 2**25, 2**21


@dataclass(frozen=True, slots=True)
class RequiredPart:
    """The part of the inputs that one output element needs."""

    # signature, of: with the part's lengths, and with those of the whole
    signature: Signature
    of: Signature
    start: Mapping[str, int]  # the part's first position, by dim
    # the approximate number of elements of all array arguments, or of the oracle's intermediate values if these are
    # more
    elements: int


def required_part(pairing: Pairing, signature: Signature, place: Mapping[str, int]) -> RequiredPart:
    """Returns the part of the inputs that the output element at a place needs, as `needs` and `batch_dims` declare it.

    Along dims without a position in `place`, the element needs everything. Failure: `oracle_error`; `needs` raises, or
    returns a slice that does not lie in the dim and contain the position.
    """
    spans = {name: slice(0, length) for name, length in signature.dims}
    for name, position in place.items():
        if name in pairing.needs:
            length = spans[name].stop
            with convert_exceptions(f"needs of {name!r}", Verdict.ORACLE_ERROR, with_source=True):
                span = pairing.needs[name](position)
                if not isinstance(span, slice):
                    raise DeclarationError(f"it returned {span!r} instead of a slice")
            first, last = span.start or 0, length if span.stop is None else span.stop
            if not (0 <= first <= position < last <= length and span.step in (None, 1)):
                values: dict[str, int | str] = {"dim": name, "position": position, "length": length, "slice": str(span)}
                raise Failure(Verdict.ORACLE_ERROR, Stated(_BAD_SLICE, values))
            spans[name] = slice(first, last)
    part = replace(signature, dims=tuple((name, span.stop - span.start) for name, span in spans.items()))
    inputs = sum(math.prod(part.shape(leaf)) for leaf in part.leaves(pairing).values())
    intermediate, _ = OracleCost.measure(pairing).at(dict(part.dims))
    start = {name: span.start for name, span in spans.items()}
    return RequiredPart(part, signature, start, int(max(inputs, intermediate)))


def part_arguments(
    pairing: Pairing, part: RequiredPart, contents: Mapping[str, PositionCodedArray]
) -> dict[str, Array]:
    """Returns the values of a part's array arguments, by path."""
    values, whole = {}, dict(part.of.dims)
    spans = {name: np.arange(part.start.get(name, 0), part.start.get(name, 0) + n) for name, n in part.signature.dims}
    for path, leaf in part.signature.leaves(pairing).items():
        values[path] = contents[path].materialize([positions_along(axis, whole, spans) for axis in leaf.shape])
        assert values[path].dtype == parse_dtype(dict(part.signature.dtypes)[path])
    return values
