"""Queries to z3: whether constraints can hold together, with each product of names abstracted to a new name."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from kerneltest.extensions.proofs.polynomial import Constraint, Monomial, Polynomial

_LEMMAS = 200
_MILLISECONDS = 2000  # for a query
MISSING = "proofs need z3: pip install 'kerneltest[prove]'"


def available() -> bool:
    """Returns whether z3 is installed."""
    return find_spec("z3") is not None


@dataclass(frozen=True)
class SolverAnswer:
    """The answer of z3 to a query."""

    # `sat` if the constraints can hold together, `unsat` if they cannot, or `unknown`
    kind: Literal["sat", "unsat", "unknown"]
    values: Mapping[str, int] = field(default_factory=dict)  # of the names, with which the constraints hold


def check(constraints: Sequence[Constraint], *, exact: bool = False) -> SolverAnswer:
    """Checks whether constraints can hold together; z3 must be installed.

    Unless it is `exact`, each product of names is an independent integer: the query is linear and fast, `unsat` is
    still right, but the model of `sat` may not exist.
    """
    import z3

    monomials: set[Monomial] = set()
    names: set[str] = set()

    def formula(constraint: Constraint) -> Any:
        parts = list(map(formula, constraint.parts))
        match constraint.kind:
            case "true":
                return z3.BoolVal(True)
            case "free":
                return z3.Bool(constraint.name)
            case "not":
                return z3.Not(*parts)
            case "all":
                return z3.And(*parts)
            case "any":
                return z3.Or(*parts)
        value = polynomial(constraint.value)
        return value <= 0 if constraint.kind == "le" else value == 0

    def polynomial(value: Polynomial) -> Any:
        terms = []
        for monomial, coefficient in value.terms:
            names.update(monomial)
            factors = monomial
            if len(monomial) > 1 and not exact:
                monomials.add(monomial)
                factors = ("*".join(monomial),)
            variables = list(map(z3.Int, factors))
            terms.append(functools.reduce(operator.mul, variables, z3.IntVal(coefficient)))
        return z3.Sum(terms) if terms else z3.IntVal(0)

    solver = z3.Solver() if exact else z3.SolverFor("QF_LIA")
    solver.set("timeout", _MILLISECONDS)
    for constraint in constraints:
        solver.add(formula(constraint))
    solver.add(*(z3.Int("*".join(monomial)) >= 0 for monomial in monomials if all(map(_is_natural, monomial))))
    found = solver.check()
    if found == z3.sat and not exact and len(monomials) > 1:
        solver.add(*_lemmas(monomials))
        found = solver.check()
    if found != z3.sat:
        return SolverAnswer("unsat" if found == z3.unsat else "unknown")
    model = solver.model()
    return SolverAnswer("sat", {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names})


def _lemmas(monomials: set[Monomial]) -> Iterator[Any]:
    """Yields, for pairs of products with a common factor that is not negative, that multiplication is monotonic."""
    from z3 import Implies, Int

    by_factor: dict[Monomial, set[str]] = {}
    for monomial in monomials:
        for i, name in enumerate(monomial):
            factor = (*monomial[:i], *monomial[i + 1 :])
            if all(map(_is_natural, factor)):
                by_factor.setdefault(factor, set()).add(name)
    pairs = [(f, pair) for f, rests in sorted(by_factor.items()) for pair in itertools.permutations(sorted(rests), 2)]
    for factor, (small, great) in pairs[:_LEMMAS]:
        a, b = (Int("*".join(sorted((*factor, name)))) for name in (small, great))
        yield Implies(Int(small) <= Int(great), a <= b)
        yield Implies(Int(small) + 1 <= Int(great), a + Int("*".join(factor)) <= b)


def _is_natural(name: str) -> bool:
    """Returns whether a name is that of a non-negative integer: a length, a program, a lane or an iteration."""
    return "#" not in name or name.startswith("turn")
