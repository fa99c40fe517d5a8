"""Symbolic execution of one program: its values over sizes, program ids, lanes and loop iterations.

Values are computed on demand, at given coordinates of a tensor: an operation that moves axes only moves coordinates.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.grouping import reach
from kerneltest.extensions.proofs.formulas import split_multiple
from kerneltest.extensions.proofs.lowered_code import (
    LoweredCode,
    SliceBlock,
    SliceStep,
    Undecided,
    ValueType,
    address_operands,
)
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    TRUE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    between,
    equal,
    poly,
    symbol,
)

Step = SliceStep[Polynomial]
Block = SliceBlock[Polynomial]
Coordinates = tuple[Polynomial, ...]
Key = tuple[int, Coordinates]


@dataclass(frozen=True)
class SymbolicPointer:
    """An element of an array."""

    buffer: int  # the array's number
    offset: Polynomial  # in elements


SymbolicValue = Polynomial | Constraint | SymbolicPointer


@dataclass(frozen=True)
class Requirement:
    """A condition under which the machine computes what a polynomial says."""

    step: Step  # the operation
    condition: Constraint  # for example that the result fits its type
    value: Polynomial | None = None  # the result if it must fit its type, else None
    end: int = 0  # one past the greatest integer of that type


@dataclass(frozen=True)
class Producer:
    """The step that defines a value."""

    step: Step  # the operation
    block: int  # the number of its block of which the value is an argument; -1 for a result of the step
    index: int  # of the argument or result


class Symbols:
    """Names of integers whose values are not known, with the constraints that hold of them."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[Constraint, ...]] = {}
        self._names: dict[object, str] = {}
        # of integers about which too little is known: the operations that compute them
        self.unknown: dict[str, str] = {}
        self.loaded: dict[str, SymbolicPointer] = {}  # of loaded integers: their elements
        self.value_numbers: dict[str, int] = {}  # in the code

    def assume(self, name: str, *facts: Constraint) -> None:
        self._facts[name] = facts

    def name_for(self, prefix: str, key: object) -> tuple[str, bool]:
        """Returns the name for a key, and whether it is new."""
        count = len(self._names)
        name = self._names.setdefault((prefix, key), f"{prefix}#{count}")
        return name, len(self._names) > count

    def dependencies(self, names: Iterable[str]) -> set[str]:
        """Returns some names and all names that the facts about them mention, directly or through others."""

        def mentioned(name: str) -> Iterator[str]:
            yield from (other for fact in self._facts.get(name, ()) for other in fact.names)
            yield from self.loaded[name].offset.names if name in self.loaded else ()

        return set(reach(names, mentioned))

    def facts(self, names: Iterable[str]) -> list[Constraint]:
        """Returns the facts about some names and about their dependencies."""
        return [fact for name in sorted(self.dependencies(names)) for fact in self._facts.get(name, ())]


class SymbolicExecution:
    """The values of one program (by its suffix) of a code; `declared` constrains the integers of arrays, by number."""

    def __init__(
        self,
        code: LoweredCode[Polynomial],
        symbols: Symbols,
        declared: Mapping[int, Callable[[Polynomial], Constraint]],
        suffix: str = "",
    ) -> None:
        self.code, self.symbols, self.declared, self.suffix = code, symbols, declared, suffix
        self.types: dict[int, ValueType[Polynomial]] = {}
        self._producers: dict[int, Producer] = {}
        self._loop_values: dict[int, set[int]] = {}  # by loop: the values that it defines
        self._memo: dict[Key, SymbolicValue] = {}
        self._uses: dict[Key, list[Key]] = {}  # the values from which each was computed
        self._requirements: dict[Key, list[Requirement]] = {}
        self._current: list[Key] = []  # the values that are being computed, the innermost last
        self._index_values(code.body)

    def _index_values(self, block: Block) -> set[int]:
        """Records type and producer of each value in a block; returns their numbers."""
        defined = set(block.arguments)
        self.types.update(zip(block.arguments, block.types, strict=True))
        for step in block.steps:
            self.types.update(zip(step.results, step.types, strict=True))
            self._producers.update((number, Producer(step, -1, i)) for i, number in enumerate(step.results))
            defined.update(step.results)
            inner: set[int] = set()
            for b, nested in enumerate(step.blocks):
                self._producers.update((number, Producer(step, b, i)) for i, number in enumerate(nested.arguments))
                inner |= self._index_values(nested)
            if inner:
                self._loop_values[id(step)] = inner
                defined |= inner
        return defined - {-1}

    # Values

    def value(self, number: int, coordinates: Coordinates = ()) -> SymbolicValue:
        if number < 0:
            raise Undecided("an address depends on a value that cannot be followed")
        key = (number, coordinates)
        if self._current:
            self._uses[self._current[-1]].append(key)
        if key not in self._memo:
            self._current.append(key)
            self._uses[key], self._requirements[key] = [], []
            try:
                self._memo[key] = self._compute(number, coordinates)
            finally:
                self._current.pop()
        return self._memo[key]

    def integer(self, number: int, coordinates: Coordinates = ()) -> Polynomial:
        value = self.value(number, coordinates)
        assert isinstance(value, Polynomial)
        return value

    def boolean(self, number: int, coordinates: Coordinates = ()) -> Constraint:
        value = self.value(number, coordinates)
        assert isinstance(value, Constraint)
        return value

    def pointer(self, number: int, coordinates: Coordinates = ()) -> SymbolicPointer:
        value = self.value(number, coordinates)
        assert isinstance(value, SymbolicPointer)
        return value

    def _compute(self, number: int, coordinates: Coordinates) -> SymbolicValue:
        if number in self.code.body.arguments:
            return SymbolicPointer(self.code.body.arguments.index(number), ZERO)
        producer = self._producers[number]
        step = producer.step
        found: SymbolicValue | None = None
        if producer.block >= 0:
            found = self._block_argument(number, producer, coordinates)
        elif step.name in ("scf.for", "scf.if", "scf.while"):
            found = self._control_flow_result(producer, coordinates)
        elif rule := _RULES.get(step.name):
            found = rule(self, step, coordinates)
        if found is not None:
            return found
        kind = self.types[number]  # nothing else is known of the value
        where = f" at {step.place}" if step.place else ""
        if kind.pointer:
            raise Undecided(f"{step.name}{where} computes a pointer that cannot be followed")
        name, _ = self.symbols.name_for("unknown", (number, coordinates, self.suffix))
        self.symbols.unknown[name] = f"{step.name}{where}"
        self.symbols.value_numbers[name] = number
        if kind.dtype == "bool":
            return Constraint("free", name=name)
        self.symbols.assume(name, _fits(symbol(name), kind.dtype))
        return symbol(name)

    def is_boolean(self, number: int) -> bool:
        return self.types[number].dtype == "bool"

    def require(self, step: Step, holds: Constraint) -> None:
        self._requirements[self._current[-1]].append(Requirement(step, holds))

    def require_fit(self, step: Step, value: Polynomial, dtype: str = "") -> Polynomial:
        """Requires that a value fits its type, and returns it."""
        end = _end_of(dtype or step.types[0].dtype)
        if value.constant is None or not -end <= value.constant < end:
            requirement = Requirement(step, between(value, -end, end), value, end)
            self._requirements[self._current[-1]].append(requirement)
        return value

    def select(self, condition: Constraint, yes: SymbolicValue, no: SymbolicValue) -> SymbolicValue:
        """Returns `yes` where a condition holds, else `no`; raises Undecided for pointers into different arrays."""
        if yes == no:
            return yes
        if isinstance(yes, SymbolicPointer) and isinstance(no, SymbolicPointer):
            if yes.buffer != no.buffer:
                raise Undecided("a pointer into one of two arrays cannot be followed")
            offset = self.select(condition, yes.offset, no.offset)
            assert isinstance(offset, Polynomial)
            return SymbolicPointer(yes.buffer, offset)
        if isinstance(yes, Constraint) and isinstance(no, Constraint):
            return (condition & yes) | (~condition & no)
        assert isinstance(yes, Polynomial)
        assert isinstance(no, Polynomial)
        name, new = self.symbols.name_for("chosen", (condition, yes, no))
        value = symbol(name)
        if new:
            self.symbols.assume(name, (condition & equal(value, yes)) | (~condition & equal(value, no)))
        return value

    def program_id(self, axis: int) -> Polynomial:
        name = f"program {axis}{self.suffix}"
        self.symbols.assume(name, between(symbol(name), 0, self.code.grid[axis]))
        return ZERO if self.code.grid[axis] == ONE else symbol(name)

    def divide(self, a: Polynomial, b: Polynomial, *, truncated: bool) -> tuple[Polynomial, Polynomial]:
        """Returns quotient and remainder by a positive divisor, rounded towards zero if `truncated`, else down."""
        if b == ONE:
            return a, ZERO
        if a.constant is not None and b.constant is not None:
            quotient, rest = divmod(abs(a.constant) if truncated else a.constant, b.constant)
            sign = -1 if truncated and a.constant < 0 else 1
            return poly(sign * quotient), poly(sign * rest)
        key = ("truncated" if truncated else "floored", a, b)
        (q_name, new), (r_name, _) = (self.symbols.name_for(part, key) for part in ("quotient", "rest"))
        q, r = symbol(q_name), symbol(r_name)
        if new:
            up = all_of(r >= 0, q >= 0, q <= a)
            down = all_of(r <= 0, q <= 0, a <= q)
            signs = ((a >= 0) & up) | ((a < 0) & down) if truncated else (r >= 0) & ((a < 0) | up)
            small = ~between(a, 0, b) | (equal(q, 0) & equal(r, a))
            facts = (equal(a, b * q + r), r < b, -b < r, signs, small, *self._grid_quotient(a, b, q))
            self.symbols.assume(q_name, *facts)
            self.symbols.assume(r_name, *facts)
        return q, r

    def _grid_quotient(self, a: Polynomial, b: Polynomial, q: Polynomial) -> Iterator[Constraint]:
        """Yields the range of the quotient of a program id and a factor of the grid's length."""
        for axis, length in enumerate(self.code.grid):
            if a == self.program_id(axis) and a != ZERO and len(b.terms) == 1:
                count, rest = split_multiple(length, b, lengths_too=True)
                if rest == ZERO:
                    yield between(q, 0, count)

    def load(self, step: Step, coordinates: Coordinates) -> SymbolicValue | None:
        """Returns a new name for a loaded integer, with the constraint that is declared for the array's elements."""
        number = step.results[0]
        pointer, *masks = address_operands(step.name, step.operands, dict(step.fixed).get("operandSegmentSizes"))
        others = step.operands[1 + len(masks) :]
        address = self.pointer(pointer, coordinates)
        mask = self.boolean(masks[0], coordinates) if masks else TRUE
        kind = self.types[number]
        if kind.pointer or kind.dtype == "bool":
            return None
        other = self.value(others[0], coordinates) if others and others[0] >= 0 else None
        name, new = self.symbols.name_for("loaded", (address, mask, other))
        value = symbol(name)
        if not new:
            return value
        self.symbols.loaded[name] = address
        self.symbols.value_numbers[name] = number
        facts = [_fits(value, kind.dtype)]
        if address.buffer in self.declared:
            facts.append(~mask | self.declared[address.buffer](value))
        else:
            array = self.code.arrays[address.buffer].name
            self.symbols.unknown[name] = f"tt.load at {step.place} of {array}, whose values have no declared range,"
        if isinstance(other, Polynomial):
            facts.append(mask | equal(value, other))
        self.symbols.assume(name, *facts)
        return value

    # Control flow

    def iteration(self, step: Step) -> Polynomial:
        return symbol(self.symbols.name_for(f"turn{self.suffix}", id(step))[0])

    def iteration_conditions(self, step: Step, iteration: Polynomial) -> list[Constraint]:
        if step.name != "scf.for":
            return [iteration >= 0]
        lower, upper, by = map(self.integer, step.operands[:3])
        if by.constant is None or by.constant < 1:
            raise Undecided(f"scf.for at {step.place} has a step that is not a positive constant")
        return [iteration >= 0, lower + iteration * by < upper]

    def _block_argument(self, number: int, producer: Producer, coordinates: Coordinates) -> SymbolicValue | None:
        step = producer.step
        if step.name == "scf.for" and producer.index == 0:
            lower, _, by = map(self.integer, step.operands[:3])
            return lower + self.iteration(step) * by
        if step.name == "scf.while" and producer.block == 1:
            return self.value(step.blocks[0].yields[producer.index + 1], coordinates)
        return self._induction_value(number, producer, coordinates, self.iteration(step))

    def _control_flow_result(self, producer: Producer, coordinates: Coordinates) -> SymbolicValue | None:
        step = producer.step
        if step.name == "scf.if":
            then, otherwise = (self.value(block.yields[producer.index], coordinates) for block in step.blocks)
            return self.select(self.boolean(step.operands[0]), then, otherwise)
        if step.name == "scf.while":
            return None
        name, new = self.symbols.name_for(f"turns{self.suffix}", id(step))
        iterations = symbol(name)
        if new:
            lower, upper, by = map(self.integer, step.operands[:3])
            last = self.iteration_conditions(step, iterations - 1)[1]
            ended = upper <= lower + iterations * by
            self.symbols.assume(name, iterations >= 0, ended, equal(iterations, 0) | last)
        argument = step.blocks[0].arguments[producer.index + 1]
        return self._induction_value(argument, Producer(step, 0, producer.index + 1), coordinates, iterations)

    def _induction_value(
        self, number: int, producer: Producer, coordinates: Coordinates, iteration: Polynomial
    ) -> SymbolicValue | None:
        """Returns a carried value after some iterations if each increases it by the same, else None."""
        step = producer.step
        if self.is_boolean(number) and not self.types[number].pointer:
            return None
        if step.name == "scf.for":
            initial, last = step.operands[producer.index + 2], step.blocks[0].yields[producer.index - 1]
        else:
            initial, last = step.operands[producer.index], step.blocks[1].yields[producer.index]
        start = self.value(initial, coordinates)
        offset = start.offset if isinstance(start, SymbolicPointer) else start
        assert isinstance(offset, Polynomial)
        increment = self._increment(step, number, last, coordinates, start)
        if increment is None:
            return None
        total = offset + iteration * increment
        if isinstance(start, SymbolicPointer):
            return SymbolicPointer(start.buffer, total)
        return self.require_fit(step, total, self.types[number].dtype)

    def _increment(
        self, step: Step, number: int, last: int, coordinates: Coordinates, start: SymbolicValue
    ) -> Polynomial | None:
        name, _ = self.symbols.name_for(f"carried{self.suffix}", (number, coordinates))
        self.symbols.value_numbers[name] = number
        before, key = symbol(name), (number, coordinates)
        carried = SymbolicPointer(start.buffer, before) if isinstance(start, SymbolicPointer) else before
        saved = self._memo, self._uses, self._requirements, self._current
        self._memo, self._current = {**saved[0], key: carried}, []
        self._uses, self._requirements = {**saved[1], key: []}, {**saved[2], key: []}
        try:
            after = self.value(last, coordinates)
            requirements = self.requirements_of((last, coordinates))
        except RecursionError:
            return None
        finally:
            self._memo, self._uses, self._requirements, self._current = saved
        if isinstance(after, SymbolicPointer):
            if not isinstance(start, SymbolicPointer) or after.buffer != start.buffer:
                return None
            after = after.offset
        if not isinstance(after, Polynomial):
            return None
        increment = after - before
        local, iteration = self._loop_values[id(step)], self.iteration(step).names
        for each in self.symbols.dependencies(increment.names):
            if self.symbols.value_numbers.get(each, -1) in local or each in iteration:
                return None
        for requirement in requirements:
            if name not in requirement.condition.names:
                self._requirements[self._current[-1]].append(requirement)
            elif requirement.step.name not in ("arith.addi", "arith.subi"):
                return None
        return increment

    def requirements_of(self, *keys: Key) -> tuple[Requirement, ...]:
        """Returns the requirements of some values and of those that they are computed from."""
        reached = reach(keys, lambda key: self._uses.get(key, ()))
        return tuple(dict.fromkeys(each for key in reached for each in self._requirements.get(key, ())))


def _end_of(dtype: str) -> int:
    return int(2 ** (np.dtype(dtype).itemsize * 8 - 1))


def _fits(value: Polynomial, dtype: str) -> Constraint:
    return between(value, -_end_of(dtype), _end_of(dtype))


# The rules of operations: each returns the result at given coordinates from those of the operands, or None for an
# unknown result.

Rule = Callable[[SymbolicExecution, Step, Coordinates], SymbolicValue | None]


def _on_integers(compute: Callable[[SymbolicExecution, Step, Polynomial, Polynomial], SymbolicValue | None]) -> Rule:
    """Returns the rule of an operation on two integers; results of booleans are unknown."""

    def rule(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
        if e.is_boolean(step.operands[0]):
            return None
        a, b = (e.integer(number, at) for number in step.operands)
        return compute(e, step, a, b)

    return rule


def _arithmetic(compute: Callable[[Polynomial, Polynomial], Polynomial]) -> Rule:
    return _on_integers(lambda e, step, a, b: e.require_fit(step, compute(a, b)))


def _division(part: int, *, signed: bool) -> Rule:
    def compute(e: SymbolicExecution, step: Step, a: Polynomial, b: Polynomial) -> SymbolicValue | None:
        if b.constant is not None and b.constant < 1:
            return None
        if b.constant is None:
            e.require(step, b >= 1)
        if not signed:
            e.require(step, a >= 0)
        return e.divide(a, b, truncated=signed)[part]

    return _on_integers(compute)


def _min_max(*, greatest: bool, signed: bool) -> Rule:
    def compute(e: SymbolicExecution, step: Step, a: Polynomial, b: Polynomial) -> SymbolicValue | None:
        if not signed:
            e.require(step, (a >= 0) & (b >= 0))
        return e.select(b <= a if greatest else a <= b, a, b)

    return _on_integers(compute)


def _shift(direction: str) -> Rule:
    def compute(e: SymbolicExecution, step: Step, a: Polynomial, b: Polynomial) -> SymbolicValue | None:
        if b.constant is None or not 0 <= b.constant < 8 * np.dtype(step.types[0].dtype).itemsize:
            return None
        if direction == "left":
            return e.require_fit(step, a * 2**b.constant)
        if direction == "unsigned":
            e.require(step, a >= 0)
        return e.divide(a, poly(2**b.constant), truncated=False)[0]

    return _on_integers(compute)


def _and(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    if e.is_boolean(step.operands[0]):
        return all_of(*(e.boolean(n, at) for n in step.operands))
    a, b = (e.integer(n, at) for n in step.operands)
    for value, mask in ((a, b), (b, a)):
        if mask.constant is not None and mask.constant >= 0 and mask.constant & (mask.constant + 1) == 0:
            return e.divide(value, mask + 1, truncated=False)[1]
    return None


def _or(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    return any_of(*(e.boolean(n, at) for n in step.operands)) if e.is_boolean(step.operands[0]) else None


def _xor(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    if not e.is_boolean(step.operands[0]):
        return None
    a, b = (e.boolean(n, at) for n in step.operands)
    return ~a if b == TRUE else ~b if a == TRUE else _differ(a, b)


def _differ(a: Constraint, b: Constraint) -> Constraint:
    return (a & ~b) | (~a & b)


# By number: eq ne slt sle sgt sge ult ule ugt uge.
_COMPARISONS: tuple[Callable[[Polynomial, Polynomial], Constraint], ...] = (
    equal,
    lambda a, b: ~equal(a, b),
    *(2 * (operator.lt, operator.le, operator.gt, operator.ge)),
)


def _compare(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    predicate: int = _fixed(step, "predicate")
    if e.is_boolean(step.operands[0]):
        a, b = (e.boolean(n, at) for n in step.operands)
        return {0: ~_differ(a, b), 1: _differ(a, b)}.get(predicate)
    x, y = (e.integer(n, at) for n in step.operands)
    if predicate > 5:
        e.require(step, (x >= 0) & (y >= 0))
    return _COMPARISONS[predicate](x, y)


def _fixed(step: Step, name: str) -> Any:
    return dict(step.fixed)[name]


def _select(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    condition, yes, no = step.operands
    where = at if e.types[condition].shape else ()
    return e.select(e.boolean(condition, where), e.value(yes, at), e.value(no, at))


def _extend(*, signed: bool) -> Rule:
    def rule(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
        if e.is_boolean(step.operands[0]):
            return e.select(e.boolean(step.operands[0], at), poly(-1 if signed else 1), ZERO)
        value = e.integer(step.operands[0], at)
        if not signed:
            e.require(step, value >= 0)
        return value

    return rule


def _truncate(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    return None if step.types[0].dtype == "bool" else e.require_fit(step, e.integer(step.operands[0], at))


def _same_bits(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    before, after = e.types[step.operands[0]], step.types[0]
    same = before == after
    if before.pointer and after.pointer:
        sizes = [np.dtype(kind.dtype).itemsize for kind in (before, after) if kind.dtype != "bfloat16"]
        same = len(sizes) == 2 and sizes[0] == sizes[1]
    return e.value(step.operands[0], at) if same else None


def _constant(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    if not step.numbers:
        return None
    (value,) = step.numbers
    if step.types[0].dtype != "bool":
        return value
    return TRUE if value.constant else ~TRUE if value.constant == 0 else ~equal(value, 0)


def _advance(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    pointer = e.pointer(step.operands[0], at)
    return SymbolicPointer(pointer.buffer, pointer.offset + e.integer(step.operands[1], at))


def _broadcast(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    before, after = e.types[step.operands[0]].shape, step.types[0].shape
    if any(one not in (ONE, other) for one, other in zip(before, after, strict=True)):
        return None
    return e.value(step.operands[0], tuple(c if b == a else ZERO for c, b, a in zip(at, before, after, strict=True)))


def _expand(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    axis = _fixed(step, "axis")
    return e.value(step.operands[0], (*at[:axis], *at[axis + 1 :]))


def _transpose(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    before = dict(zip(_fixed(step, "order"), at, strict=True))
    return e.value(step.operands[0], tuple(before[axis] for axis in range(len(at))))


def _reshape(e: SymbolicExecution, step: Step, at: Coordinates) -> SymbolicValue | None:
    before, after = e.types[step.operands[0]].shape, step.types[0].shape
    if [n for n in before if n != ONE] == [n for n in after if n != ONE]:
        kept = (c for c, length in zip(at, after, strict=True) if length != ONE)
        return e.value(step.operands[0], tuple(ZERO if n == ONE else next(kept) for n in before))
    flat = ZERO
    for c, length in zip(at, after, strict=True):
        flat = flat * length + c
    found: list[Polynomial] = []
    for length in reversed(before[1:]):
        flat, rest = e.divide(flat, length, truncated=False)
        found.append(rest)
    return e.value(step.operands[0], (flat, *reversed(found)) if before else ())


_RULES: Mapping[str, Rule] = {
    "arith.addi": _arithmetic(operator.add),
    "arith.subi": _arithmetic(operator.sub),
    "arith.muli": _arithmetic(operator.mul),
    "arith.divsi": _division(0, signed=True),
    "arith.divui": _division(0, signed=False),
    "arith.remsi": _division(1, signed=True),
    "arith.remui": _division(1, signed=False),
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
    "tt.make_range": lambda e, step, at: step.numbers[0] + at[0],
    "tt.get_program_id": lambda e, step, at: e.program_id(_fixed(step, "axis")),
    "tt.get_num_programs": lambda e, step, at: e.code.grid[_fixed(step, "axis")],
    "tt.addptr": _advance,
    "tt.load": SymbolicExecution.load,
    "tt.splat": lambda e, step, at: e.value(step.operands[0], ()),
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand,
    "tt.trans": _transpose,
    "tt.reshape": _reshape,
}
