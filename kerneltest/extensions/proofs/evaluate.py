"""Addresses, masks and control flow of one program, as polynomials and conditions over sizes, lanes and loop turns.

A value is computed where it is asked for, at given coordinates: so moving an axis only moves a coordinate, and what no
address depends on is never looked at.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kerneltest.extensions.proofs import arithmetic
from kerneltest.extensions.proofs.code import Code
from kerneltest.extensions.proofs.polynomial import (
    TRUE,
    ZERO,
    Condition,
    Poly,
    at_most,
    between,
    either,
    equal,
    less,
    negated,
    symbol,
)
from kerneltest.extensions.proofs.steps import Block, Step
from kerneltest.extensions.proofs.symbols import Loaded, Symbols
from kerneltest.extensions.proofs.undecided import Undecided
from kerneltest.extensions.proofs.values import Coordinates, Key, Need, Pointer, Result, Values, end_of


@dataclass(frozen=True)
class Place:
    """Where a value is made: by the `index`-th result of a step, or as argument of one of its blocks."""

    step: Step[Poly]
    block: int
    index: int


class Evaluation(Values):
    """One program.

    Args:
      code: its numbers are formulas.
      symbols: takes in what the evaluation names.
      declared: for each array, what is known of an integer in it.
      suffix: tells its names from another program's.
    """

    def __init__(
        self,
        code: Code[Poly],
        symbols: Symbols,
        declared: Mapping[int, Callable[[Poly], Condition]],
        suffix: str = "",
    ) -> None:
        super().__init__(code, symbols, suffix)
        self.declared = declared
        self.places: dict[int, Place] = {}
        self.inside: dict[int, set[int]] = {}  # by loop, the numbers made in it
        self.memo: dict[Key, Result] = {}
        self._index(code.body)

    def _index(self, block: Block[Poly]) -> set[int]:
        made = set(block.arguments)
        self.types.update(zip(block.arguments, block.types, strict=True))
        for step in block.steps:
            self.types.update(zip(step.results, step.types, strict=True))
            self.places.update((number, Place(step, -1, i)) for i, number in enumerate(step.results))
            made.update(step.results)
            inner: set[int] = set()
            for b, nested in enumerate(step.blocks):
                self.places.update((number, Place(step, b, i)) for i, number in enumerate(nested.arguments))
                inner |= self._index(nested)
            if inner:
                self.inside[id(step)] = inner
                made |= inner
        return made - {-1}

    # Values

    def value(self, number: int, coordinates: Coordinates = ()) -> Result:
        if number < 0:
            raise Undecided("an address depends on a value that is not followed")
        key = (number, coordinates)
        if self.current:
            self.uses[self.current[-1]].append(key)
        if key not in self.memo:
            self.current.append(key)
            self.uses[key], self.needs[key] = [], []
            try:
                self.memo[key] = self._computed(number, coordinates)
            finally:
                self.current.pop()
        return self.memo[key]

    def _computed(self, number: int, coordinates: Coordinates) -> Result:
        if number in self.code.body.arguments:
            return Pointer(self.code.body.arguments.index(number), ZERO)
        place = self.places[number]
        step = place.step
        if place.block >= 0:
            return self._entered(number, place, coordinates)
        if step.name in ("scf.for", "scf.if", "scf.while"):
            return self._left(number, place, coordinates)
        if step.name == "tt.load":
            return self._loaded(step, coordinates)
        rule = arithmetic.RULES.get(step.name)
        found = rule(self, step, coordinates) if rule else None
        return self.something(step, number, coordinates) if found is None else found

    def _loaded(self, step: Step[Poly], coordinates: Coordinates) -> Result:
        """A loaded integer, of which is known what is declared of the array's elements."""
        number = step.results[0]
        pointer, *rest = step.operands
        has_mask, has_other = dict(step.fixed).get("operandSegmentSizes", (1, int(len(rest) > 0), int(len(rest) > 1)))[
            1:
        ]
        address = self.value(pointer, coordinates)
        assert isinstance(address, Pointer)
        mask = self.boolean(rest[0], coordinates) if has_mask else TRUE
        kind = self.types[number]
        if kind.pointer or kind.dtype == "bool":
            return self.something(step, number, coordinates)
        other = self.value(rest[-1], coordinates) if has_other and rest[-1] >= 0 else None
        name, new = self.symbols.fresh("loaded", (address, mask, other))
        value = symbol(name)
        if not new:
            return value
        self.symbols.loaded[name] = Loaded(address.buffer, address.offset)
        self.symbols.homes[name] = number
        facts = [between(value, -end_of(kind.dtype), end_of(kind.dtype))]
        if address.buffer in self.declared:
            facts.append(either(negated(mask), self.declared[address.buffer](value)))
        else:
            array = self.code.arrays[address.buffer].name
            self.symbols.unknown[name] = f"tt.load at {step.place} of {array}, of whose values nothing is declared"
        if isinstance(other, Poly):
            facts.append(either(mask, equal(value, other)))
        self.symbols.state(name, *facts)
        return value

    # Control flow

    def turn(self, step: Step[Poly]) -> Poly:
        """The number of the turn that a loop is in, from 0."""
        return symbol(self.symbols.fresh(f"turn{self.suffix}", id(step))[0])

    def turning(self, step: Step[Poly], turn: Poly) -> list[Condition]:
        """What holds in a turn of a loop."""
        if step.name != "scf.for":
            return [at_most(0, turn)]
        lower, upper, by = (self.integer(number) for number in step.operands[:3])
        if by.constant is None or by.constant < 1:
            raise Undecided(f"scf.for at {step.place} has a step that is not a positive constant")
        return [at_most(0, turn), less(lower + turn * by, upper)]

    def _entered(self, number: int, place: Place, coordinates: Coordinates) -> Result:
        """What a block of a loop is entered with."""
        step = place.step
        if step.name == "scf.for" and place.index == 0:
            lower, _, by = (self.integer(n) for n in step.operands[:3])
            return lower + self.turn(step) * by
        if step.name == "scf.while" and place.block == 1:
            return self.value(step.blocks[0].yields[place.index + 1], coordinates)
        carried = self._carried(number, place, coordinates, self.turn(step))
        return self.something(step, number, coordinates) if carried is None else carried

    def _left(self, number: int, place: Place, coordinates: Coordinates) -> Result:
        """What a loop or a branch ends with."""
        step = place.step
        if step.name == "scf.if":
            then, otherwise = (self.value(block.yields[place.index], coordinates) for block in step.blocks)
            return self.chosen(self.boolean(step.operands[0]), then, otherwise)
        if step.name == "scf.for":
            argument = step.blocks[0].arguments[place.index + 1]
            name, new = self.symbols.fresh(f"turns{self.suffix}", id(step))
            turns = symbol(name)
            if new:
                lower, upper, by = (self.integer(n) for n in step.operands[:3])
                last = self.turning(step, turns - 1)[1]
                self.symbols.state(
                    name, at_most(0, turns), at_most(upper, lower + turns * by), either(equal(turns, 0), last)
                )
            carried = self._carried(argument, Place(step, 0, place.index + 1), coordinates, turns)
            if carried is not None:
                return carried
        return self.something(step, number, coordinates)

    def _carried(self, number: int, place: Place, coordinates: Coordinates, turn: Poly) -> Result | None:
        """A carried value after some turns, if each adds the same to it."""
        step = place.step
        if self.types[number].dtype == "bool" and not self.types[number].pointer:
            return None
        if step.name == "scf.for":
            initial, last = step.operands[place.index + 2], step.blocks[0].yields[place.index - 1]
        else:
            initial, last = step.operands[place.index], step.blocks[1].yields[place.index]
        start = self.value(initial, coordinates)
        offset = start.offset if isinstance(start, Pointer) else start
        assert isinstance(offset, Poly)
        grows = self._growth(step, number, last, coordinates, start)
        if grows is None:
            return None
        total = offset + turn * grows
        if isinstance(start, Pointer):
            return Pointer(start.buffer, total)
        return self.fits(step, total, self.types[number].dtype)

    def _growth(self, step: Step[Poly], number: int, last: int, coordinates: Coordinates, start: Result) -> Poly | None:
        """What each turn adds to a carried value; None where that differs from turn to turn."""
        name, _ = self.symbols.fresh(f"carried{self.suffix}", (number, coordinates))
        self.symbols.homes[name] = number
        before = symbol(name)
        saved = self.memo, self.uses, self.needs, self.current
        self.memo, self.uses, self.needs, self.current = dict(saved[0]), dict(saved[1]), dict(saved[2]), []
        self.memo[number, coordinates] = Pointer(start.buffer, before) if isinstance(start, Pointer) else before
        self.uses[number, coordinates], self.needs[number, coordinates] = [], []
        try:
            after = self.value(last, coordinates)
            needs = self.cone([(last, coordinates)])
        except RecursionError:
            return None
        finally:
            self.memo, self.uses, self.needs, self.current = saved
        if isinstance(after, Pointer):
            if not isinstance(start, Pointer) or after.buffer != start.buffer:
                return None
            after = after.offset
        if not isinstance(after, Poly):
            return None
        grows = after - before
        local = self.inside[id(step)]
        turn = self.turn(step).names
        if any(self.symbols.homes.get(each, -1) in local or each in turn for each in self.symbols.closure(grows.names)):
            return None
        for need in needs:
            if name in need.holds.names:
                if need.step.name not in ("arith.addi", "arith.subi"):
                    return None
            else:
                self.needs[self.current[-1]].append(need)
        return grows

    # What a value rests on

    def cone(self, keys: list[Key]) -> list[Need]:
        """All that must hold for some values."""
        found: dict[Need, None] = {}
        seen: set[Key] = set()
        todo = list(keys)
        while todo:
            key = todo.pop()
            if key not in seen:
                seen.add(key)
                found.update(dict.fromkeys(self.needs.get(key, ())))
                todo += self.uses.get(key, ())
        return list(found)
