"""Rules for the operations of addresses and masks: the result at given coordinates, from those of the operands."""

from collections.abc import Callable, Mapping

import numpy as np

from kerneltest.extensions.proofs.lowered_code import SliceStep
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    TRUE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    at_most,
    equal,
    less,
    negate,
    poly,
)
from kerneltest.extensions.proofs.symbolic_values import Coordinates, SymbolicPointer, SymbolicValue, SymbolicValues

Rule = Callable[[SymbolicValues, SliceStep[Polynomial], Coordinates], SymbolicValue | None]


def _bits(step: SliceStep[Polynomial]) -> int:
    return 8 * np.dtype(step.types[0].dtype).itemsize


def _is_boolean(e: SymbolicValues, number: int) -> bool:
    return e.types[number].dtype == "bool"


def _operands(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> tuple[Polynomial, Polynomial]:
    return e.integer(step.operands[0], at), e.integer(step.operands[1], at)


def _integer_operation(compute: Callable[[Polynomial, Polynomial], Polynomial]) -> Rule:
    def rule(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
        if _is_boolean(e, step.operands[0]):
            return None
        return e.require_fit(step, compute(*_operands(e, step, at)))

    return rule


def _division(wanted: str, *, signed: bool) -> Rule:
    def rule(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
        if _is_boolean(e, step.operands[0]):
            return None
        a, b = _operands(e, step, at)
        if b.constant is not None and b.constant < 1:
            return None
        if b.constant is None:
            e.require(step, at_most(1, b))
        if not signed:
            e.require(step, at_most(0, a))
        quotient, rest = e.divide(a, b, truncated=signed)
        return quotient if wanted == "quotient" else rest

    return rule


def _min_max(*, greatest: bool, signed: bool) -> Rule:
    def rule(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
        if _is_boolean(e, step.operands[0]):
            return None
        a, b = _operands(e, step, at)
        if not signed:
            e.require(step, all_of(at_most(0, a), at_most(0, b)))
        return e.select(at_most(b, a) if greatest else at_most(a, b), a, b)

    return rule


def _and(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    if _is_boolean(e, step.operands[0]):
        return all_of(*(e.boolean(n, at) for n in step.operands))
    a, b = _operands(e, step, at)
    for value, mask in ((a, b), (b, a)):
        if mask.constant is not None and mask.constant >= 0 and mask.constant & (mask.constant + 1) == 0:
            return e.divide(value, mask + 1, truncated=False)[1]
    return None


def _or(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    return any_of(*(e.boolean(n, at) for n in step.operands)) if _is_boolean(e, step.operands[0]) else None


def _xor(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    if not _is_boolean(e, step.operands[0]):
        return None
    a, b = (e.boolean(n, at) for n in step.operands)
    return negate(a) if b == TRUE else negate(b) if a == TRUE else _differ(a, b)


def _differ(a: Constraint, b: Constraint) -> Constraint:
    return any_of(all_of(a, negate(b)), all_of(negate(a), b))


def _shift(direction: str) -> Rule:
    def rule(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
        if _is_boolean(e, step.operands[0]):
            return None
        a, b = _operands(e, step, at)
        if b.constant is None or not 0 <= b.constant < _bits(step):
            return None
        if direction == "left":
            return e.require_fit(step, a * 2**b.constant)
        if direction == "unsigned":
            e.require(step, at_most(0, a))
        return e.divide(a, poly(2**b.constant), truncated=False)[0]

    return rule


# By number: eq ne slt sle sgt sge ult ule ugt uge.
_COMPARISONS: tuple[Callable[[Polynomial, Polynomial], Constraint], ...] = (
    equal,
    lambda a, b: negate(equal(a, b)),
    *(2 * (less, at_most, lambda a, b: less(b, a), lambda a, b: at_most(b, a))),
)


def _compare(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    predicate: int = dict(step.fixed)["predicate"]
    if _is_boolean(e, step.operands[0]):
        a, b = (e.boolean(n, at) for n in step.operands)
        return {0: negate(_differ(a, b)), 1: _differ(a, b)}.get(predicate)
    x, y = _operands(e, step, at)
    if predicate > 5:
        e.require(step, all_of(at_most(0, x), at_most(0, y)))
    return _COMPARISONS[predicate](x, y)


def _select(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    condition, yes, no = step.operands
    where = at if e.types[condition].shape else ()
    return e.select(e.boolean(condition, where), e.value(yes, at), e.value(no, at))


def _extend(*, signed: bool) -> Rule:
    def rule(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
        if _is_boolean(e, step.operands[0]):
            return e.select(e.boolean(step.operands[0], at), poly(-1 if signed else 1), ZERO)
        value = e.integer(step.operands[0], at)
        if not signed:
            e.require(step, at_most(0, value))
        return value

    return rule


def _truncate(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    if step.types[0].dtype == "bool":
        return None
    return e.require_fit(step, e.integer(step.operands[0], at))


def _same_bits(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    before, after = e.types[step.operands[0]], step.types[0]
    if before.pointer and after.pointer:
        size = [np.dtype(kind.dtype).itemsize for kind in (before, after) if kind.dtype != "bfloat16"]
        return e.value(step.operands[0], at) if len(size) == 2 and size[0] == size[1] else None
    return e.value(step.operands[0], at) if before == after else None


def _constant(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    if not step.numbers:
        return None
    (value,) = step.numbers
    if step.types[0].dtype != "bool":
        return value
    return TRUE if value.constant else negate(TRUE) if value.constant == 0 else negate(equal(value, 0))


def _range(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    return step.numbers[0] + at[0]


def _program_id(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    return e.program_id(dict(step.fixed)["axis"])


def _program_ranges(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    axis: int = dict(step.fixed)["axis"]
    return e.code.grid[axis]


def _advance(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    pointer = e.value(step.operands[0], at)
    assert isinstance(pointer, SymbolicPointer)
    return SymbolicPointer(pointer.buffer, pointer.offset + e.integer(step.operands[1], at))


def _splat(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    return e.value(step.operands[0], ())


def _broadcast(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    before, after = e.types[step.operands[0]].shape, step.types[0].shape
    if any(one not in (ONE, other) for one, other in zip(before, after, strict=True)):
        return None
    return e.value(step.operands[0], tuple(c if b == a else ZERO for c, b, a in zip(at, before, after, strict=True)))


def _expand(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    axis = dict(step.fixed)["axis"]
    return e.value(step.operands[0], (*at[:axis], *at[axis + 1 :]))


def _transpose(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    order = dict(step.fixed)["order"]
    before = [ZERO] * len(at)
    for axis, source in enumerate(order):
        before[source] = at[axis]
    return e.value(step.operands[0], tuple(before))


def _reshape(e: SymbolicValues, step: SliceStep[Polynomial], at: Coordinates) -> SymbolicValue | None:
    before, after = e.types[step.operands[0]].shape, step.types[0].shape
    kept = [c for c, length in zip(at, after, strict=True) if length != ONE]
    if [n for n in before if n != ONE] == [n for n in after if n != ONE]:
        moved = iter(kept)
        return e.value(step.operands[0], tuple(ZERO if n == ONE else next(moved) for n in before))
    flat = ZERO
    for c, length in zip(at, after, strict=True):
        flat = flat * length + c
    found: list[Polynomial] = []
    for length in reversed(before[1:]):
        flat, rest = e.divide(flat, length, truncated=False)
        found.append(rest)
    return e.value(step.operands[0], (flat, *reversed(found)) if before else ())


RULES: Mapping[str, Rule] = {
    "arith.addi": _integer_operation(lambda a, b: a + b),
    "arith.subi": _integer_operation(lambda a, b: a - b),
    "arith.muli": _integer_operation(lambda a, b: a * b),
    "arith.divsi": _division("quotient", signed=True),
    "arith.divui": _division("quotient", signed=False),
    "arith.remsi": _division("rest", signed=True),
    "arith.remui": _division("rest", signed=False),
    "arith.maxsi": _min_max(greatest=True, signed=True),
    "arith.minsi": _min_max(greatest=False, signed=True),
    "arith.maxui": _min_max(greatest=True, signed=False),
    "arith.minui": _min_max(greatest=False, signed=False),
    "arith.andi": _and,
    "arith.ori": _or,
    "arith.xori": _xor,
    "arith.shli": _shift("left"),
    "arith.shrsi": _shift("signed"),
    "arith.shrui": _shift("unsigned"),
    "arith.cmpi": _compare,
    "arith.select": _select,
    "arith.extsi": _extend(signed=True),
    "arith.extui": _extend(signed=False),
    "arith.trunci": _truncate,
    "arith.index_cast": lambda e, step, at: e.value(step.operands[0], at),
    "arith.bitcast": _same_bits,
    "tt.bitcast": _same_bits,
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _program_ranges,
    "tt.addptr": _advance,
    "tt.splat": _splat,
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand,
    "tt.trans": _transpose,
    "tt.reshape": _reshape,
}
