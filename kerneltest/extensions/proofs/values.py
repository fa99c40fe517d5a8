"""What an address or a mask is computed from, as polynomials and conditions at given coordinates of a tensor."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from kerneltest.extensions.proofs.code import Code
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    ZERO,
    Condition,
    Poly,
    between,
    either,
    equal,
    every,
    negated,
    symbol,
)
from kerneltest.extensions.proofs.steps import Step, Value
from kerneltest.extensions.proofs.symbols import Symbols
from kerneltest.extensions.proofs.undecided import Undecided

Coordinates = tuple[Poly, ...]
Key = tuple[int, Coordinates]


@dataclass(frozen=True)
class Pointer:
    """An element of an array.

    Attributes:
      buffer: the array's number.
      offset: in elements.
    """

    buffer: int
    offset: Poly


Result = Poly | Condition | Pointer


@dataclass(frozen=True)
class Need:
    """What must hold for polynomials to be what the machine computes.

    Attributes:
      step: the operation.
      holds: such as that a result fits its type.
      value: the result, where it must fit its type.
      end: one past the greatest integer of that type.
    """

    step: Step[Poly]
    holds: Condition
    value: Poly | None = None
    end: int = 0


class Values(ABC):
    """The values of one program, as the rules of operations use them.

    Attributes:
      code: its numbers are formulas.
      symbols: takes in what gets a name.
      suffix: tells its names from another program's.
      types: of values, by number.
      uses: by value, the values that it was computed from.
      needs: by value, what must hold for it to be what the machine computes.
      current: the value that is being computed, the innermost last.
    """

    def __init__(self, code: Code[Poly], symbols: Symbols, suffix: str) -> None:
        self.code, self.symbols, self.suffix = code, symbols, suffix
        self.types: dict[int, Value[Poly]] = {}
        self.uses: dict[Key, list[Key]] = {}
        self.needs: dict[Key, list[Need]] = {}
        self.current: list[Key] = []

    @abstractmethod
    def value(self, number: int, coordinates: Coordinates = ()) -> Result:
        """A value, at a place of a tensor.

        Raises:
          Undecided: a pointer that cannot be followed.
        """

    def integer(self, number: int, coordinates: Coordinates = ()) -> Poly:
        value = self.value(number, coordinates)
        assert isinstance(value, Poly)
        return value

    def boolean(self, number: int, coordinates: Coordinates = ()) -> Condition:
        value = self.value(number, coordinates)
        assert isinstance(value, Condition)
        return value

    def need(self, step: Step[Poly], holds: Condition) -> None:
        """Notes what must hold for the value that is being computed."""
        self.needs[self.current[-1]].append(Need(step, holds))

    def fits(self, step: Step[Poly], value: Poly, dtype: str = "") -> Poly:
        """The value of an operation that must not wrap."""
        end = end_of(dtype or step.types[0].dtype)
        if value.constant is None or not -end <= value.constant < end:
            self.needs[self.current[-1]].append(Need(step, between(value, -end, end), value, end))
        return value

    def something(self, step: Step[Poly], number: int, coordinates: Coordinates) -> Result:
        """A value of which only its type is known.

        Raises:
          Undecided: it is a pointer.
        """
        kind = self.types[number]
        where = f" at {step.place}" if step.place else ""
        if kind.pointer:
            raise Undecided(f"{step.name}{where} makes a pointer that is not followed")
        name, _ = self.symbols.fresh("unknown", (number, coordinates, self.suffix))
        self.symbols.unknown[name] = f"{step.name}{where}"
        self.symbols.homes[name] = number
        if kind.dtype == "bool":
            return Condition("free", name=name)
        self.symbols.state(name, between(symbol(name), -end_of(kind.dtype), end_of(kind.dtype)))
        return symbol(name)

    def chosen(self, condition: Condition, yes: Result, no: Result) -> Result:
        """One of two values.

        Raises:
          Undecided: they are pointers into two arrays.
        """
        if yes == no:
            return yes
        if isinstance(yes, Pointer) and isinstance(no, Pointer):
            if yes.buffer != no.buffer:
                raise Undecided("a pointer into one of two arrays is not followed")
            offset = self.chosen(condition, yes.offset, no.offset)
            assert isinstance(offset, Poly)
            return Pointer(yes.buffer, offset)
        if isinstance(yes, Condition) and isinstance(no, Condition):
            return either(every(condition, yes), every(negated(condition), no))
        assert isinstance(yes, Poly)
        assert isinstance(no, Poly)
        name, new = self.symbols.fresh("chosen", (condition, yes, no))
        if new:
            value = symbol(name)
            one, other = every(condition, equal(value, yes)), every(negated(condition), equal(value, no))
            self.symbols.state(name, either(one, other))
        return symbol(name)

    def program(self, axis: int) -> Poly:
        """A program's id along an axis of the grid."""
        name = f"program {axis}{self.suffix}"
        self.symbols.state(name, between(symbol(name), 0, self.code.grid[axis]))
        return ZERO if self.code.grid[axis] == ONE else symbol(name)


def end_of(dtype: str) -> int:
    """One past the greatest integer of a type."""
    return int(2 ** (np.dtype(dtype).itemsize * 8 - 1))
