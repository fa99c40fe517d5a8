"""Changes by which numbers keep more of what they hold: casts left out, sums and what is loaded in float32."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Type
from kerneltest.backends.simulate.listing import Change, Edits, Listing, computed, fresh
from kerneltest.core.dtypes import is_float

_NUMBERS = "extf truncf extsi extui trunci sitofp uitofp fptosi fptoui".split()
_CASTS = frozenset((*(f"arith.{name}" for name in _NUMBERS), "tt.fp_to_fp"))
_FLOAT32 = np.dtype(np.float32)


def widenings(listing: Listing) -> Iterator[Change]:
    """The casts of a line left out, products summed in float32, and loads taken as float32."""
    lines: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for i, op in enumerate(listing.operations):
        source = listing.sources[i]
        if not source.place:
            continue
        if op.name in _CASTS and listing.is_users(i) and np.bool_ not in (op.operand_types[0].dtype, op.types[0].dtype):
            lines.setdefault((source.place, source.callers), []).append(i)
        elif op.name == "tt.load" and _is_narrow(op.types[0]):
            yield Change(i, "with what is loaded taken as float32", 2, partial(_widened, sources=(i,)))
        elif op.name == "tt.dot" and _is_narrow(op.types[0]):
            yield Change(i, "with sums in float32", 1, partial(_widened, sources=(i,)))
    for casts in lines.values():
        names = dict.fromkeys(listing.operations[i].types[0].dtype.name for i in casts)
        words = f"without the cast to {' and '.join(names)}"
        yield Change(casts[0], words, 1, partial(_widened, casts=tuple(casts)))


def _is_narrow(kind: Type) -> bool:
    return not kind.pointer and is_float(kind.dtype) and kind.dtype.itemsize < 4


def _widened(listing: Listing, casts: Collection[int] = (), sources: Collection[int] = ()) -> Edits:
    """Some casts left out and some results in float32, with all that follows; what is stored has its array's dtype."""
    edits: dict[int, Sequence[Operation]] = {}
    wide: set[int] = set()
    for _ in range(2):  # what a loop carries may be widened by its end
        for i, op in enumerate(listing.operations):
            if i in casts:
                edits[i] = [computed(op, lambda x: x, op.operands, op.results, op.types)]
            elif i in sources and op.name == "tt.load":
                raw = fresh(i)
                wider = computed(op, lambda x: x.astype(_FLOAT32), [raw], op.results, [_wider(op.types[0])])
                edits[i] = [replace(op, results=(raw,)), wider]
            elif op.name == "scf.for":
                region = op.regions[0]
                for k, (start, end) in enumerate(zip(op.operands[3:], region.yields, strict=True)):
                    if start in wide or end in wide:
                        wide |= {region.arguments[k + 1], op.results[k]}
                continue
            elif i not in sources and (wide.isdisjoint(op.operands) or op.name in _CASTS):
                continue
            elif op.name == "tt.store":
                edits[i] = _stored(listing, i)
            elif any(is_float(kind.dtype) for kind in op.types):
                exact = {"inputPrecision": 2} if op.name == "tt.dot" else {}
                edits[i] = [replace(op, types=tuple(map(_wider, op.types)), attributes={**op.attributes, **exact})]
            wide.update(number for number, kind in zip(op.results, op.types, strict=True) if kind.dtype != np.bool_)
    return edits


def _stored(listing: Listing, i: int) -> Sequence[Operation]:
    """A store with a cast to the array's dtype before it."""
    op = listing.operations[i]
    pointer, value, *mask = op.operands
    kind = listing.types[value]
    back = computed(op, lambda x: x.astype(kind.dtype), [value], [fresh(i)], [kind])
    return [back, replace(op, operands=(pointer, fresh(i), *mask))]


def _wider(kind: Type) -> Type:
    return replace(kind, dtype=_FLOAT32) if _is_narrow(kind) else kind
