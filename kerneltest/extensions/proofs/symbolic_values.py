"""Values of a program as polynomials and constraints, at given coordinates of a tensor."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kerneltest.extensions.proofs.formulas import split_multiple
from kerneltest.extensions.proofs.lowered_code import LoweredCode, SliceStep, Undecided, ValueType
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    ZERO,
    Constraint,
    Polynomial,
    all_of,
    any_of,
    at_most,
    between,
    equal,
    less,
    negate,
    poly,
    symbol,
)
from kerneltest.extensions.proofs.solver import Symbols

Coordinates = tuple[Polynomial, ...]
Key = tuple[int, Coordinates]


@dataclass(frozen=True)
class SymbolicPointer:
    """A pointer to an element of an array.

    Attributes:
      buffer: the array's number.
      offset: in elements.
    """

    buffer: int
    offset: Polynomial


SymbolicValue = Polynomial | Constraint | SymbolicPointer


@dataclass(frozen=True)
class Requirement:
    """A condition under which the machine computes what a polynomial says.

    Attributes:
      step: the operation.
      condition: for example that the result fits its type.
      value: the result if it must fit its type, else None.
      end: one past the greatest integer of that type.
    """

    step: SliceStep[Polynomial]
    condition: Constraint
    value: Polynomial | None = None
    end: int = 0


class SymbolicValues(ABC):
    """The values of one program, as the rules of operations see them.

    Attributes:
      code: with formulas as numbers.
      symbols: takes in new names.
      suffix: distinguishes the program's names from another program's.
      types: of values, by number.
      uses: the values from which each value was computed.
      requirements: of each value.
      current: the values that are being computed, the innermost last.
    """

    def __init__(self, code: LoweredCode[Polynomial], symbols: Symbols, suffix: str) -> None:
        self.code, self.symbols, self.suffix = code, symbols, suffix
        self.types: dict[int, ValueType[Polynomial]] = {}
        self.uses: dict[Key, list[Key]] = {}
        self.requirements: dict[Key, list[Requirement]] = {}
        self.current: list[Key] = []

    @abstractmethod
    def value(self, number: int, coordinates: Coordinates = ()) -> SymbolicValue:
        """Returns a value at given coordinates of a tensor.

        Raises:
          Undecided: it is a pointer that cannot be followed.
        """

    def integer(self, number: int, coordinates: Coordinates = ()) -> Polynomial:
        """Returns a value that is an integer."""
        value = self.value(number, coordinates)
        assert isinstance(value, Polynomial)
        return value

    def boolean(self, number: int, coordinates: Coordinates = ()) -> Constraint:
        """Returns a value that is a boolean."""
        value = self.value(number, coordinates)
        assert isinstance(value, Constraint)
        return value

    def require(self, step: SliceStep[Polynomial], holds: Constraint) -> None:
        """Adds a requirement to the value that is being computed."""
        self.requirements[self.current[-1]].append(Requirement(step, holds))

    def require_fit(self, step: SliceStep[Polynomial], value: Polynomial, dtype: str = "") -> Polynomial:
        """Requires that a value fits its type, and returns it."""
        end = end_of(dtype or step.types[0].dtype)
        if value.constant is None or not -end <= value.constant < end:
            self.requirements[self.current[-1]].append(Requirement(step, between(value, -end, end), value, end))
        return value

    def unknown_value(self, step: SliceStep[Polynomial], number: int, coordinates: Coordinates) -> SymbolicValue:
        """Returns a new name for a value of which only the type is known.

        Raises:
          Undecided: it is a pointer.
        """
        kind = self.types[number]
        where = f" at {step.place}" if step.place else ""
        if kind.pointer:
            raise Undecided(f"{step.name}{where} computes a pointer that cannot be followed")
        name, _ = self.symbols.name_for("unknown", (number, coordinates, self.suffix))
        self.symbols.unknown[name] = f"{step.name}{where}"
        self.symbols.value_numbers[name] = number
        if kind.dtype == "bool":
            return Constraint("free", name=name)
        self.symbols.assume(name, between(symbol(name), -end_of(kind.dtype), end_of(kind.dtype)))
        return symbol(name)

    def select(self, condition: Constraint, yes: SymbolicValue, no: SymbolicValue) -> SymbolicValue:
        """Returns `yes` where a condition holds, else `no`.

        Raises:
          Undecided: they are pointers into different arrays.
        """
        if yes == no:
            return yes
        if isinstance(yes, SymbolicPointer) and isinstance(no, SymbolicPointer):
            if yes.buffer != no.buffer:
                raise Undecided("a pointer into one of two arrays cannot be followed")
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
        """Returns the program's id along an axis of the grid."""
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
        kind = "truncated" if truncated else "floored"
        (q, new), (r, _) = (self.symbols.symbol_for(part, (kind, a, b)) for part in ("quotient", "rest"))
        if new:
            whole = equal(a, b * q + r)
            up = all_of(at_most(0, r), at_most(0, q), at_most(q, a))
            if truncated:
                down = all_of(at_most(r, 0), at_most(q, 0), at_most(a, q))
                signs = any_of(all_of(at_most(0, a), up), all_of(less(a, 0), down))
            else:
                signs = all_of(at_most(0, r), any_of(less(a, 0), up))
            small = any_of(negate(between(a, 0, b)), all_of(equal(q, 0), equal(r, a)))
            facts = (whole, less(r, b), less(-b, r), signs, small, *self._grid_quotient(a, b, q))
            for part in (q, r):
                self.symbols.assume(next(iter(part.names)), *facts)
        return q, r

    def _grid_quotient(self, a: Polynomial, b: Polynomial, q: Polynomial) -> Iterator[Constraint]:
        """Yields the range of the quotient of a program id and a factor of the grid's length."""
        for axis, length in enumerate(self.code.grid):
            if a == self.program_id(axis) and a != ZERO:
                count, rest = split_multiple(length, b, lengths_too=True) if len(b.terms) == 1 else (ZERO, ONE)
                if rest == ZERO:
                    yield between(q, 0, count)


def end_of(dtype: str) -> int:
    """Returns one past the greatest integer of a signed type."""
    return int(2 ** (np.dtype(dtype).itemsize * 8 - 1))
