"""Production sizes: what users run, with contents that follow from an element's place, so that nobody holds them."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, ShapeDtype, dtype_named
from kerneltest.core.failures import Failure, convert_exceptions
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.axes import along
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import slots_of
from kerneltest.plan.exactness import exact_limit
from kerneltest.plan.format_limits import Cost
from kerneltest.plan.lengths import boundary_lengths
from kerneltest.plan.signatures import Signature, dtype_groups
from kerneltest.plan.slots import Slot

# What a step along each axis adds to an element's code, the last axis first.
_STRIDES = (1, 7, 31, 53, 97, 113, 131, 151)
_CODES = 251  # prime, so that no power of two brings a code back


def production_signatures(pairing: Pairing) -> tuple[Signature, ...]:
    """One for each dtype, all dims that declare it at their production length; none where no dim does."""
    if not any(dim.production for dim in pairing.dims.values()):
        return ()
    groups, options = dtype_groups(pairing), pairing.options()
    lengths = {name: dim.production or boundary_lengths(dim)[0] for name, dim in pairing.dims.items()}
    fixed = [name for name, dim in pairing.dims.items() if dim.production]
    planned = []
    for number in range(len(groups[0]) if groups else 1):
        statics = {name: each[number % len(each)] for name, each in options.items()}
        chosen = {group: group[number % len(group)] for group in groups}
        if admitted := pairing.fitted(lengths, statics, fixed):
            planned.append(Signature.of(pairing, admitted, statics, chosen))
    return tuple(planned)


@dataclass(frozen=True, eq=False, slots=True)
class Content:
    """What an array argument holds: position-coded, so that an element of another place shows.

    Attributes:
      slot: the argument.
      table: the value for each code, in the slot's dtype; empty for indices and lengths.
    """

    slot: Slot
    table: Array

    @classmethod
    def of(cls, slot: Slot) -> "Content":
        """Integers for which sums of products are exact, moved into the domain; masks of which few are False."""
        return cls(slot, slot.kind.code_table(slot, np.arange(_CODES)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.slot.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.slot.dtype

    def at(self, indices: Sequence[Any], xp: Any = np) -> Any:
        """The elements at some places.

        Args:
          indices: one array of 64-bit integers for each axis, that broadcast to a common shape.
          xp: NumPy, or the namespace of other arrays that `indices` are.
        """
        code = xp.asarray(17 * self.slot.order)
        for index, stride in zip(reversed(indices), _STRIDES, strict=False):
            code = code + index * stride + index // _CODES * (stride + 2)  # so that no shift along it is hidden
        if self.table.size:
            return xp.asarray(self.table)[code % _CODES]
        return self.slot.kind.element_at(self.slot, indices, code, xp).astype(self.slot.dtype)

    def part(self, where: Sequence[Array]) -> Array:
        """A part that can be held, at some positions along each axis."""
        values = self.at(np.meshgrid(*where, indexing="ij", sparse=True))
        return np.array(np.broadcast_to(values, [span.size for span in where]))


def contents(pairing: Pairing, signature: Signature) -> dict[str, Content]:
    """What each array argument of a production signature holds, by path."""
    lengths = {name: length for name, length in signature.dims if name in pairing.needs and length}
    places = itertools.product(*((0, length // 2, length - 1) for length in lengths.values()))
    parts = (part_of(pairing, signature, dict(zip(lengths, place, strict=True))) for place in places)
    largest = max(parts, key=lambda part: part.elements)
    limit = exact_limit(pairing, largest.signature) if largest.elements <= MOST_EXACT else 1
    filled = slots_of(pairing, signature)
    for path in filled:
        if not filled[path].kind.positional:
            raise Failure(
                Verdict.UNAVAILABLE,
                f"argument {path!r} cannot be made element by element, so production sizes are not run",
            )
    return {path: Content.of(replace(slot, limit=lambda: limit)) for path, slot in filled.items()}


# Elements of a part that an oracle is evaluated on: bit for bit, and with its bound, which takes many evaluations.
MOST_EXACT, MOST_BOUNDED = 2**25, 2**21


@dataclass(frozen=True, slots=True)
class Part:
    """What of the inputs one output element needs.

    Attributes:
      signature: of the part: its lengths.
      of: the signature of the whole.
      start: where it begins, by dim.
      elements: of all array arguments, or of all that the oracle makes of them, about.
    """

    signature: Signature
    of: Signature
    start: Mapping[str, int]
    elements: int


def part_of(pairing: Pairing, signature: Signature, place: Mapping[str, int]) -> Part:
    """The part that an output element needs.

    Args:
      pairing: `needs` and `batch_dims` tell.
      signature: of the whole.
      place: the element's position along dims; along others it needs everything.

    Raises:
      Failure: `oracle_error`; a declared `needs` gives no slice that lies in the dim and holds the position.
    """
    spans = {name: slice(0, length) for name, length in signature.dims}
    for name, position in place.items():
        if name in pairing.needs:
            length = spans[name].stop
            with convert_exceptions(f"needs of {name!r}", Verdict.ORACLE_ERROR, located=True):
                span = pairing.needs[name](position)
                first, last = span.start or 0, length if span.stop is None else span.stop
            if not (0 <= first <= position < last <= length and span.step in (None, 1)):
                raise Failure(
                    Verdict.ORACLE_ERROR,
                    f"needs of {name!r}: for position {position} of {length} it gives {span}, which is no part of it "
                    "that holds the position: it starts at 0 or later and steps by 1",
                )
            spans[name] = slice(first, last)
    part = replace(signature, dims=tuple((name, span.stop - span.start) for name, span in spans.items()))
    given = sum(math.prod(part.shape(leaf)) for leaf in part.leaves(pairing).values())
    made = Cost.of(pairing).elements_at(dict(part.dims))
    return Part(part, signature, {name: span.start for name, span in spans.items()}, int(max(given, made)))


def place_of(names: Sequence[str], index: Sequence[int]) -> dict[str, int]:
    """Where an output element lies along dims, by name; "" is no dim, and one of two axes needs everything."""
    return {name: i for name, i in zip(names, index, strict=True) if name and names.count(name) == 1}


def output_of(part: Part, output: ShapeDtype, names: Sequence[str]) -> ShapeDtype:
    """The shape and dtype that an output has for a part; `names` are the dims of its axes, "" for none."""
    lengths = dict(part.signature.dims)
    shape = tuple(lengths.get(name, length) for name, length in zip(names, output.shape, strict=True))
    return ShapeDtype(shape, output.dtype)


def arguments_of(pairing: Pairing, part: Part, held: Mapping[str, Content]) -> dict[str, Array]:
    """The values of a part's array arguments, by path."""
    values, whole = {}, dict(part.of.dims)
    spans = {name: np.arange(part.start.get(name, 0), part.start.get(name, 0) + n) for name, n in part.signature.dims}
    for path, leaf in part.signature.leaves(pairing).items():
        values[path] = held[path].part([along(axis, whole, spans) for axis in leaf.shape])
        assert values[path].dtype == dtype_named(dict(part.signature.dtypes)[path])
    return values
