"""Changes by which numbers keep more of what they hold: casts of a line that are left out, values computed in float32."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Region, Type
from kerneltest.backends.simulate.listing import Edits, Listing, computed, fresh
from kerneltest.core.dtypes import is_float

_CASTS = frozenset(
    "arith." + name for name in "extf truncf extsi extui trunci sitofp uitofp fptosi fptoui".split()
) | {"tt.fp_to_fp"}
_WIDE = np.dtype(np.float32)


def widenings(listing: Listing) -> Iterator[tuple[int, str, int, Callable[[Listing], Edits]]]:
    """The first operation that each concerns, what it does in words, how far it reaches, and what it changes."""
    lines: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for i, op in enumerate(listing.operations):
        source = listing.sources[i]
        if not source.place:
            continue
        if op.name in _CASTS and not listing.is_address(i):
            if np.bool_ not in (op.operand_types[0].dtype, op.types[0].dtype):
                lines.setdefault((source.place, source.callers), []).append(i)
        elif op.name == "tt.load" and _is_narrow(op.types[0]):
            yield i, "with what is loaded taken as float32", 2, lambda l, i=i: _widened(l, (), (i,))
        elif op.name == "tt.dot" and _is_narrow(op.types[0]):
            yield i, "with sums in float32", 1, lambda l, i=i: _widened(l, (), (i,))
    for casts in lines.values():
        kinds = {listing.operations[i].types[0].dtype.name for i in casts}
        words = f"without the cast to {' and '.join(sorted(kinds))}" if len(casts) < 3 else "without the casts of this line"
        yield casts[0], words, 1, lambda l, casts=tuple(casts): _widened(l, casts, ())


def _is_narrow(kind: Type) -> bool:
    return not kind.pointer and is_float(kind.dtype) and kind.dtype.itemsize < 4


def _widened(listing: Listing, casts: Sequence[int], sources: Sequence[int]) -> Edits:
    """Some casts left out and some results turned into float32; what is stored in the end has the buffer's dtype."""
    edits: dict[int, Sequence[Operation]] = {}
    wide: set[int] = set()
    loops: dict[int, tuple[Operation, Region]] = {}
    for _ in range(2):  # what a loop carries may be widened by its end
        for i, op in enumerate(listing.operations):
            if i in casts:
                edits[i] = [computed(op, lambda x: x, op.operands, op.results, op.types)]
                wide.update(op.results)
            elif i in sources and op.name == "tt.dot":
                edits[i] = [replace(op, types=tuple(map(_retyped, op.types)))]
                wide.update(op.results)
            elif i in sources:
                raw = fresh(10 + i)
                cast = computed(op, lambda x: x.astype(_WIDE), [raw], op.results, [_retyped(op.types[0])])
                edits[i] = [replace(op, results=(raw,)), cast]
                wide.update(op.results)
            elif op.name == "scf.for":
                region = op.regions[0]
                for k, (start, end) in enumerate(zip(op.operands[3:], region.yields, strict=True)):
                    if start in wide or end in wide:
                        wide |= {region.arguments[k + 1], op.results[k]}
                loops[i] = (op, region)
            elif wide.isdisjoint(op.operands) or op.name in _CASTS:
                continue
            elif op.name == "tt.store":
                value = op.operands[1]
                narrow = fresh(10 + i)
                dtype = listing.types[value].dtype
                back = computed(op, lambda x, dtype=dtype: _back(x, dtype), [value], [narrow], [listing.types[value]])
                edits[i] = [back, replace(op, operands=(op.operands[0], narrow, *op.operands[2:]))]
            elif op.results and any(_is_narrow(t) or is_float(t.dtype) for t in op.types if not t.pointer):
                more: Mapping[str, Any] = op.attributes
                if op.name == "tt.dot":
                    more = {**op.attributes, "inputPrecision": 2}
                edits[i] = [replace(op, types=tuple(map(_retyped, op.types)), attributes=more)]
                wide.update(op.results)
            elif op.results and all(t.dtype != np.bool_ for t in op.types):
                wide.update(op.results)
    return edits


def _back(x: Any, dtype: np.dtype[Any]) -> Any:
    return x if x.dtype == dtype else x.astype(dtype)


def _retyped(kind: Type) -> Type:
    return replace(kind, dtype=_WIDE) if _is_narrow(kind) else kind
