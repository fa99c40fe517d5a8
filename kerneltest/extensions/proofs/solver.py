"""Questions to z3: whether conditions can hold together, with products of names taken for names of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from kerneltest.extensions.proofs.polynomial import Condition, Monomial, Poly

_LEMMAS = 200
MISSING = "proofs need z3: pip install 'kerneltest[prove]'"


def available() -> bool:
    """Whether z3 is installed."""
    return find_spec("z3") is not None


@dataclass(frozen=True)
class Answer:
    """What z3 says of some conditions.

    Attributes:
      kind: `never` if they cannot hold together, `model` if they can, or `unknown`.
      values: of names with which they hold.
    """

    kind: str
    values: Mapping[str, int]


NEVER = Answer("never", {})


class Solver:
    """Asks z3.

    Args:
      milliseconds: that a question may take.
    """

    def __init__(self, milliseconds: int = 2000) -> None:
        import z3

        self._z3 = z3
        self.milliseconds = milliseconds
        self.asked = 0

    def ask(self, conditions: Sequence[Condition], *, exact: bool = False, least: Iterable[str] = ()) -> Answer:
        """Whether conditions can hold together.

        Where products of names occur, a product is a number of its own unless `exact`: then what cannot hold together
        still cannot, but a model may be none.

        Args:
          conditions: to hold.
          exact: products are products.
          least: names that are to be small in a model.
        """
        self.asked += 1
        z3 = self._z3
        solver = z3.Solver() if exact else z3.SolverFor("QF_LIA")
        solver.set("timeout", self.milliseconds)
        monomials: set[Monomial] = set()
        names: set[str] = set()
        for condition in conditions:
            solver.add(self._formula(condition, exact, monomials, names))
        solver.add(*(z3.Int("*".join(monomial)) >= 0 for monomial in monomials if all(map(_is_natural, monomial))))
        found = solver.check()
        if found == z3.sat and not exact and len(monomials) > 1:
            solver.add(*self._lemmas(monomials))
            found = solver.check()
        if found == z3.unsat:
            return NEVER
        if found != z3.sat:
            return Answer("unknown", {})
        model = solver.model()
        return Answer("model", {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names})

    def _lemmas(self, monomials: set[Monomial]) -> Iterator[Any]:
        """Of two products with a common factor, which is not negative, that with the greater rest is greater."""
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

    def _formula(self, condition: Condition, exact: bool, monomials: set[Monomial], names: set[str]) -> Any:
        z3 = self._z3
        match condition.kind:
            case "true":
                return z3.BoolVal(True)
            case "free":
                return z3.Bool(condition.name)
            case "not":
                return z3.Not(self._formula(condition.parts[0], exact, monomials, names))
            case "all" | "any":
                parts = [self._formula(part, exact, monomials, names) for part in condition.parts]
                return (z3.And if condition.kind == "all" else z3.Or)(*parts)
        value = self._polynomial(condition.value, exact, monomials, names)
        return value <= 0 if condition.kind == "le" else value == 0

    def _polynomial(self, value: Poly, exact: bool, monomials: set[Monomial], names: set[str]) -> Any:
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
    """Whether a name stands for a number that is never negative: a length, a program, a lane or a turn."""
    return "#" not in name or name.startswith("turn")
