"""Queries to z3: whether constraints can hold together, with each product of names abstracted to a new name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from kerneltest.extensions.proofs.polynomial import Constraint, Monomial, Polynomial, symbol

_LEMMAS = 200
MISSING = "proofs need z3: pip install 'kerneltest[prove]'"


def available() -> bool:
    """Returns whether z3 is installed."""
    return find_spec("z3") is not None


@dataclass(frozen=True)
class SolverAnswer:
    """The answer of z3 to a query.

    Attributes:
      kind: `sat` if the constraints can hold together, `unsat` if they cannot, or `unknown`.
      values: of the names, with which the constraints hold.
    """

    kind: Literal["sat", "unsat", "unknown"]
    values: Mapping[str, int]


UNSAT = SolverAnswer("unsat", {})


class Solver:
    """z3, which must be installed.

    Args:
      milliseconds: the time limit of a query.
    """

    def __init__(self, milliseconds: int = 2000) -> None:
        import z3

        self._z3 = z3
        self.milliseconds = milliseconds

    def check(self, constraints: Sequence[Constraint], *, exact: bool = False) -> SolverAnswer:
        """Checks whether constraints can hold together.

        Args:
          constraints: to hold.
          exact: whether to use integer multiplication. Otherwise each product of names is an independent integer: the
            query is linear and fast, `unsat` is still right, but the model of `sat` may not exist.
        """
        z3 = self._z3
        solver = z3.Solver() if exact else z3.SolverFor("QF_LIA")
        solver.set("timeout", self.milliseconds)
        monomials: set[Monomial] = set()
        names: set[str] = set()
        for constraint in constraints:
            solver.add(self._formula(constraint, exact, monomials, names))
        solver.add(*(z3.Int("*".join(monomial)) >= 0 for monomial in monomials if all(map(_is_natural, monomial))))
        found = solver.check()
        if found == z3.sat and not exact and len(monomials) > 1:
            solver.add(*self._lemmas(monomials))
            found = solver.check()
        if found == z3.unsat:
            return UNSAT
        if found != z3.sat:
            return SolverAnswer("unknown", {})
        model = solver.model()
        return SolverAnswer("sat", {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names})

    def _lemmas(self, monomials: set[Monomial]) -> Iterator[Any]:
        """Yields, for pairs of products with a common factor that is not negative, that multiplication is monotonic."""
        z3 = self._z3
        by_factor: dict[Monomial, set[str]] = {}
        for monomial in monomials:
            for i, name in enumerate(monomial):
                factor = (*monomial[:i], *monomial[i + 1 :])
                if all(map(_is_natural, factor)):
                    by_factor.setdefault(factor, set()).add(name)
        pairs = [
            (f, pair) for f, rests in sorted(by_factor.items()) for pair in itertools.permutations(sorted(rests), 2)
        ]
        for factor, (small, great) in pairs[:_LEMMAS]:
            a, b = (z3.Int("*".join(sorted((*factor, name)))) for name in (small, great))
            yield z3.Implies(z3.Int(small) <= z3.Int(great), a <= b)
            yield z3.Implies(z3.Int(small) + 1 <= z3.Int(great), a + z3.Int("*".join(factor)) <= b)

    def _formula(self, constraint: Constraint, exact: bool, monomials: set[Monomial], names: set[str]) -> Any:
        z3 = self._z3
        match constraint.kind:
            case "true":
                return z3.BoolVal(True)
            case "free":
                return z3.Bool(constraint.name)
            case "not":
                return z3.Not(self._formula(constraint.parts[0], exact, monomials, names))
            case "all" | "any":
                parts = [self._formula(part, exact, monomials, names) for part in constraint.parts]
                return (z3.And if constraint.kind == "all" else z3.Or)(*parts)
        value = self._polynomial(constraint.value, exact, monomials, names)
        return value <= 0 if constraint.kind == "le" else value == 0

    def _polynomial(self, value: Polynomial, exact: bool, monomials: set[Monomial], names: set[str]) -> Any:
        z3 = self._z3
        terms = []
        for monomial, coefficient in value.terms:
            names.update(monomial)
            if len(monomial) < 2 or exact:
                factors = [z3.Int(name) for name in monomial]
            else:
                monomials.add(monomial)
                factors = [z3.Int("*".join(monomial))]
            product = z3.IntVal(coefficient)
            for factor in factors:
                product = product * factor
            terms.append(product)
        return z3.Sum(terms) if terms else z3.IntVal(0)


def _is_natural(name: str) -> bool:
    """Returns whether a name is that of a non-negative integer: a length, a program, a lane or an iteration."""
    return "#" not in name or name.startswith("turn")


# Names of integers whose values are not known, and the facts that are known about them.


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
