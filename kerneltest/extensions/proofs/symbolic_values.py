"""What an address or a mask is computed from, as polynomials and conditions at given coordinates of a tensor."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from kerneltest.extensions.proofs.lowered_code import LoweredCode
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    between,
    equal,
    negate,
    symbol,
)
from kerneltest.extensions.proofs.program_slice import SliceStep, Undecided, ValueType
from kerneltest.extensions.proofs.symbols import Symbols

Coordinates = tuple[Polynomial, ...]
Key = tuple[int, Coordinates]


@dataclass(frozen=True)
class SymbolicPointer:
    """An element of an array.

    Attributes:
      buffer: the array's number.
      offset: in elements.
    """

    buffer: int
    offset: Polynomial


SymbolicValue = Polynomial | Constraint | SymbolicPointer


@dataclass(frozen=True)
class Requirement:
    """What must hold for polynomials to be what the machine computes.

    Attributes:
      step: the operation.
      holds: such as that a result fits its type.
      value: the result, where it must fit its type.
      end: one past the greatest integer of that type.
    """

    step: SliceStep[Polynomial]
    condition: Constraint
    value: Polynomial | None = None
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

    def __init__(self, code: LoweredCode[Polynomial], symbols: Symbols, suffix: str) -> None:
        self.code, self.symbols, self.suffix = code, symbols, suffix
        self.types: dict[int, ValueType[Polynomial]] = {}
        self.uses: dict[Key, list[Key]] = {}
        self.requirements: dict[Key, list[Requirement]] = {}
        self.current: list[Key] = []

    @abstractmethod
    def value(self, number: int, coordinates: Coordinates = ()) -> SymbolicValue:
        """A value, at a place of a tensor.

        Raises:
          Undecided: a pointer that cannot be followed.
        """

    def integer(self, number: int, coordinates: Coordinates = ()) -> Polynomial:
        value = self.value(number, coordinates)
        assert isinstance(value, Polynomial)
        return value

    def boolean(self, number: int, coordinates: Coordinates = ()) -> Constraint:
        value = self.value(number, coordinates)
        assert isinstance(value, Constraint)
        return value

    def require(self, step: SliceStep[Polynomial], holds: Constraint) -> None:
        """Notes what must hold for the value that is being computed."""
        self.requirements[self.current[-1]].append(Requirement(step, holds))

    def require_fit(self, step: SliceStep[Polynomial], value: Polynomial, dtype: str = "") -> Polynomial:
        """The value of an operation that must not wrap."""
        end = end_of(dtype or step.types[0].dtype)
        if value.constant is None or not -end <= value.constant < end:
            self.requirements[self.current[-1]].append(Requirement(step, between(value, -end, end), value, end))
        return value

    def unknown_value(self, step: SliceStep[Polynomial], number: int, coordinates: Coordinates) -> SymbolicValue:
        """A value of which only its type is known.

        Raises:
          Undecided: it is a pointer.
        """
        kind = self.types[number]
        where = f" at {step.place}" if step.place else ""
        if kind.pointer:
            raise Undecided(f"{step.name}{where} makes a pointer that is not followed")
        name, _ = self.symbols.name_for("unknown", (number, coordinates, self.suffix))
        self.symbols.unknown[name] = f"{step.name}{where}"
        self.symbols.value_numbers[name] = number
        if kind.dtype == "bool":
            return Constraint("free", name=name)
        self.symbols.assume(name, between(symbol(name), -end_of(kind.dtype), end_of(kind.dtype)))
        return symbol(name)

    def select(self, condition: Constraint, yes: SymbolicValue, no: SymbolicValue) -> SymbolicValue:
        """One of two values.

        Raises:
          Undecided: they are pointers into two arrays.
        """
        if yes == no:
            return yes
        if isinstance(yes, SymbolicPointer) and isinstance(no, SymbolicPointer):
            if yes.buffer != no.buffer:
                raise Undecided("a pointer into one of two arrays is not followed")
            offset = self.select(condition, yes.offset, no.offset)
            assert isinstance(offset, Polynomial)
            return SymbolicPointer(yes.buffer, offset)
        if isinstance(yes, Constraint) and isinstance(no, Constraint):
            return any_of(all_of(condition, yes), all_of(negate(condition), no))
        assert isinstance(yes, Polynomial)
        assert isinstance(no, Polynomial)
        name, new = self.symbols.name_for("chosen", (condition, yes, no))
        if new:
            value = symbol(name)
            one, other = all_of(condition, equal(value, yes)), all_of(negate(condition), equal(value, no))
            self.symbols.assume(name, any_of(one, other))
        return symbol(name)

    def program_id(self, axis: int) -> Polynomial:
        """A program's id along an axis of the grid."""
        name = f"program {axis}{self.suffix}"
        self.symbols.assume(name, between(symbol(name), 0, self.code.grid[axis]))
        return ZERO if self.code.grid[axis] == ONE else symbol(name)


def end_of(dtype: str) -> int:
    """One past the greatest integer of a type."""
    return int(2 ** (np.dtype(dtype).itemsize * 8 - 1))
