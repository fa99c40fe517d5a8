"""Mutation operators on precision: casts removed, and sums and loads in float32."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kerneltest.backends.simulate.ir import Operation, Type
from kerneltest.core.dtypes import is_float
from kerneltest.localize.listing import Edits, Listing, Mutation, new_value, numpy_operation

_NUMBERS = "extf truncf extsi extui trunci sitofp uitofp fptosi fptoui".split()
_CASTS = frozenset((*(f"arith.{name}" for name in _NUMBERS), "tt.fp_to_fp"))
_FLOAT32 = np.dtype(np.float32)


def precision_mutations(listing: Listing) -> Iterator[Mutation]:
    """Yields the casts of a line removed, products summed in float32, and loads converted to float32."""
    lines: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for i, op in enumerate(listing.operations):
        source = listing.sources[i]
        if not source.place:
            continue
        if op.name in _CASTS and listing.is_written_by_user(i) and not _is_boolean(op):
            lines.setdefault((source.place, source.callers), []).append(i)
        elif op.name == "tt.load" and _is_narrow(op.types[0]):
            yield Mutation(i, "converting the loaded values to float32", 2, partial(_widen, sources=(i,)))
        elif op.name == "tt.dot" and _is_narrow(op.types[0]):
            yield Mutation(i, "summing in float32", 1, partial(_widen, sources=(i,)))
    for casts in lines.values():
        names = dict.fromkeys(listing.operations[i].types[0].dtype.name for i in casts)
        phrase = f"removing the cast to {' and '.join(names)}"
        yield Mutation(casts[0], phrase, 1, partial(_widen, casts=tuple(casts)))


def _is_boolean(op: Operation) -> bool:
    return np.bool_ in (op.operand_types[0].dtype, op.types[0].dtype)


def _is_narrow(kind: Type) -> bool:
    return not kind.pointer and is_float(kind.dtype) and kind.dtype.itemsize < 4


def _widen(listing: Listing, casts: Collection[int] = (), sources: Collection[int] = ()) -> Edits:
    """Removes casts, computes the results of `sources` in float32, and so all that depends on them up to the stores."""
    edits: dict[int, Sequence[Operation]] = {}
    wide: set[int] = set()
    for _ in range(2):  # the end of a loop may widen the values that it carries
        for i, op in enumerate(listing.operations):
            if i in casts:
                edits[i] = [numpy_operation(op, lambda x: x, op.operands, op.results, op.types)]
            elif i in sources and op.name == "tt.load":
                raw = new_value(i)
                wider = numpy_operation(op, lambda x: x.astype(_FLOAT32), [raw], op.results, [_wider(op.types[0])])
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
                edits[i] = _narrow_store(listing, i)
            elif any(is_float(kind.dtype) for kind in op.types):
                exact = {"inputPrecision": 2} if op.name == "tt.dot" else {}
                edits[i] = [replace(op, types=tuple(map(_wider, op.types)), attributes={**op.attributes, **exact})]
            wide.update(number for number, kind in zip(op.results, op.types, strict=True) if kind.dtype != np.bool_)
    return edits


def _narrow_store(listing: Listing, i: int) -> Sequence[Operation]:
    """Returns a store after a cast to the array's dtype."""
    op = listing.operations[i]
    pointer, value, *mask = op.operands
    kind = listing.types[value]
    narrow = new_value(i)
    cast = numpy_operation(op, lambda x: x.astype(kind.dtype), [value], [narrow], [kind])
    return [cast, replace(op, operands=(pointer, narrow, *mask))]


def _wider(kind: Type) -> Type:
    return replace(kind, dtype=_FLOAT32) if _is_narrow(kind) else kind
