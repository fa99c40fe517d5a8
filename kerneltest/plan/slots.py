"""What a family is told of each array argument that it fills."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from kerneltest.core.dtypes import Array, dtype_named, is_float, is_integer
from kerneltest.declare.axes import Axis, length_of, names_in
from kerneltest.declare.domains import Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature

_LARGEST_SCALE = 12  # as an exponent: a product with it stays finite in most formats


@dataclass(frozen=True, slots=True)
class Slot:
    """One array argument of one signature, which a family fills.

    Attributes:
      role: `data`, or another of `ArrayArgument`: `mask`, `index`, `length`, `partition`, ...
      shape: its lengths in elements, outermost first.
      dtype: of its values.
      blocks: the kernel's block length for each axis, in elements, or None.
      domain: which data it may hold.
      order: its position among the array arguments.
      end: the length of what an index points into, a length counts, or a partition adds up to; of the last axis where
        nothing else is declared.
      limit: finds out `exact_limit`, for which it evaluates the oracle once a signature.
      whole: a partition comes to all of `end`, and offsets end there.
      apart: no two indices of a permutation are the same in the whole array, and not in each row alone.
      fills: what a mask holds where an element does not count, and where it does.
      end_block: the kernel's block length of what `end` is the length of, in elements, or all of it.
    """

    role: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: tuple[int | None, ...]
    domain: Interval
    order: int
    end: int
    limit: Callable[[], int]
    whole: bool = False
    apart: bool = False
    fills: tuple[float, float] = (0, 1)
    end_block: int = 1

    @property
    def exact_limit(self) -> int:
        """Integers up to it may be multiplied in pairs and summed without any rounding."""
        return self.limit()

    @property
    def is_float_data(self) -> bool:
        """Whether it holds data of a floating dtype."""
        return self.role == "data" and is_float(self.dtype)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape))

    @property
    def block(self) -> int:
        """The block length of the last axis, or all of its length; 1 without axes."""
        return (self.blocks[-1] or max(self.shape[-1], 1)) if self.shape else 1

    def cast(self, values: Array) -> Array:
        """`values` moved into the domain, as the slot's dtype: integers wrap around, finite floats stay finite.

        A scale (`float8_e8m0fnu`) has no sign and no zero, so that `values` are its exponents.
        """
        if self.dtype.name == "float8_e8m0fnu":
            values = np.exp2(np.clip(np.rint(np.asarray(values, np.float64)), -_LARGEST_SCALE, _LARGEST_SCALE))
        if not self.domain.unbounded:
            low, high = self.domain.ends(self.dtype)
            if self.domain.bounded:
                values = np.where((values < low) | (values > high), low + np.abs(values) % (high - low or 1), values)
            values = np.clip(values, low, high)
        elif is_integer(self.dtype) and self.dtype.itemsize < 8:
            info = ml_dtypes.iinfo(self.dtype)
            span = int(info.max) - int(info.min) + 1
            values = (np.asarray(values, np.int64) - int(info.min)) % span + int(info.min)
        if is_float(self.dtype):
            most = float(ml_dtypes.finfo(self.dtype).max)
            values = np.where(np.isfinite(values), np.clip(values, -most, most), values)
        return np.asarray(values).astype(self.dtype)

    def kept(self, values: Array) -> Array:
        """`values` as the role has them: numbers for the booleans of a mask, data without zeros."""
        if self.role == "mask" and values.dtype == np.bool_:
            return np.where(values, *self.fills[::-1]).astype(self.dtype)
        if self.role == "data" and self.domain.nonzero:
            small = float(ml_dtypes.finfo(self.dtype).smallest_normal) if is_float(self.dtype) else 1
            tiny = np.abs(np.asarray(values, np.float64)) < small
            return np.where(tiny, self._nonzero, values).astype(values.dtype)
        return values

    @property
    def _nonzero(self) -> float:
        """What stands where a zero may not be: 1, or the number next to it in the domain."""
        if self.domain.high >= 1:
            return max(1.0, self.domain.low)
        return self.domain.high if self.domain.high > 0 else min(max(-1.0, self.domain.low), self.domain.high)


def slots(pairing: Pairing, signature: Signature, limit: Callable[[], int]) -> dict[str, Slot]:
    """What there is to know of each array argument that is not absent, by path.

    Args:
      pairing, signature: what is called.
      limit: finds out `Slot.exact_limit`.
    """
    lengths, dtypes = dict(signature.dims), dict(signature.dtypes)

    def block(axis: Axis) -> int | None:
        named = names_in(axis)  # that of the innermost dim, whose elements lie side by side
        return pairing.dims[named[-1]].block if named else None

    found = {}
    for order, (path, leaf) in enumerate(pairing.leaves.items()):
        if path in dtypes:
            shape = signature.shape(leaf)
            by = leaf.bounded_by if leaf.bounded_by is not None else leaf.shape[-1] if leaf.shape else 0
            end = length_of(by, lengths)
            found[path] = Slot(
                role=leaf.role,
                shape=shape,
                dtype=dtype_named(dtypes[path]),
                blocks=tuple(map(block, leaf.shape)),
                domain=leaf.interval(dtypes[path]),
                order=order,
                end=end,
                limit=limit,
                whole=leaf.whole,
                apart=leaf.bounded_by is not None,
                fills=leaf.fills,
                end_block=block(by) or end,
            )
    return found
