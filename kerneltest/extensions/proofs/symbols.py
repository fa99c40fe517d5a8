"""Names of integers whose values are not known, and the facts that are known about them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kerneltest.extensions.proofs.polynomial import Constraint, Polynomial, symbol
from kerneltest.extensions.proofs.solver import SolverAnswer


@dataclass(frozen=True)
class LoadedElement:
    """The element of an array that a name stands for.

    Attributes:
      buffer: the number of the array.
      offset: in elements.
    """

    buffer: int
    offset: Polynomial


class Symbols:
    """Names with the constraints that hold of them.

    Attributes:
      unknown: by name of an integer about which too little is known: the operation that computes it.
      loaded: by name of a loaded integer: its element.
      value_numbers: by name: the number of the value in the code.
    """

    def __init__(self) -> None:
        self._facts: dict[str, tuple[Constraint, ...]] = {}
        self._names: dict[object, str] = {}
        self.unknown: dict[str, str] = {}
        self.loaded: dict[str, LoadedElement] = {}
        self.value_numbers: dict[str, int] = {}

    def assume(self, name: str, *facts: Constraint) -> None:
        """Replaces the constraints that hold of a name."""
        self._facts[name] = facts

    def name_for(self, prefix: str, key: object) -> tuple[str, bool]:
        """Returns the name for a key, and whether it is new."""
        if (prefix, key) in self._names:
            return self._names[prefix, key], False
        name = f"{prefix}#{len(self._names)}"
        self._names[prefix, key] = name
        return name, True

    def symbol_for(self, prefix: str, key: object) -> tuple[Polynomial, bool]:
        """Returns the polynomial of the name for a key, and whether the name is new."""
        name, new = self.name_for(prefix, key)
        return symbol(name), new

    def dependencies(self, names: Iterable[str]) -> set[str]:
        """Returns some names and all names that the facts about them mention, directly or through others."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                for fact in self._facts.get(name, ()):
                    todo += fact.names
                if name in self.loaded:
                    todo += self.loaded[name].offset.names
        return found

    def facts(self, names: Iterable[str]) -> list[Constraint]:
        """Returns the facts about some names and about their dependencies."""
        return [fact for name in sorted(self.dependencies(names)) for fact in self._facts.get(name, ())]


@dataclass(frozen=True)
class Model:
    """A model of the solver in terms of the kernel.

    Attributes:
      answer: of the solver, with values.
      known: the values of atoms at the sizes of the query.
      symbols: the names in the query.
    """

    answer: SolverAnswer
    known: Mapping[str, int]
    symbols: Symbols

    def program_id(self, suffix: str) -> tuple[int, ...]:
        """Returns a program's ids along x, y and z."""
        return tuple(self.answer.values.get(f"program {axis}{suffix}", 0) for axis in range(3))

    def lane(self) -> tuple[int, ...]:
        """Returns the lane of the first access, by axis."""
        lanes = {n: v for n, v in self.answer.values.items() if n.startswith("lane ") and not n.endswith("'")}
        return tuple(lanes[name] for name in sorted(lanes))

    def loaded_elements(self) -> dict[int, dict[int, int]]:
        """Returns the values that elements must have, by array and offset."""
        found: dict[int, dict[int, int]] = {}
        for name, element in self.symbols.loaded.items():
            offset = element.offset.substitute(self.known).substitute(self.answer.values).constant
            if name in self.answer.values and offset is not None:
                found.setdefault(element.buffer, {})[offset] = self.answer.values[name]
        return found
