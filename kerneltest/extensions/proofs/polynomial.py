"""Polynomials with integer coefficients over named integers, and constraints on them."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of monomials in canonical form, so that equal polynomials compare equal."""

    # sorted monomials, each a sorted tuple of names (() for 1), with coefficients other than 0
    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: "Polynomial | int") -> "Polynomial":
        total = dict(self.terms)
        for monomial, coefficient in poly(other).terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _canonical(total)

    def __neg__(self) -> "Polynomial":
        return Polynomial(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: "Polynomial | int") -> "Polynomial":
        return self + -poly(other)

    def __mul__(self, other: "Polynomial | int") -> "Polynomial":
        product: dict[Monomial, int] = {}
        for one, a in self.terms:
            for two, b in poly(other).terms:
                both = tuple(sorted(one + two))
                product[both] = product.get(both, 0) + a * b
        return _canonical(product)

    def __le__(self, other: "Polynomial | int") -> "Constraint":
        return Constraint("le", self - other)

    def __lt__(self, other: "Polynomial | int") -> "Constraint":
        return self + 1 <= other

    def __ge__(self, other: "Polynomial | int") -> "Constraint":
        return poly(other) <= self

    def __gt__(self, other: "Polynomial | int") -> "Constraint":
        return poly(other) < self

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial; None for others."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def substitute(self, values: Mapping[str, "Polynomial | int"]) -> "Polynomial":
        if self.names.isdisjoint(values):
            return self
        terms = (
            product([coefficient, *(values.get(n, symbol(n)) for n in names)]) for names, coefficient in self.terms
        )
        return sum(terms, ZERO)

    def __str__(self) -> str:
        def term(monomial: Monomial, coefficient: int) -> str:
            if not monomial:
                return str(coefficient)
            return "*".join(monomial if coefficient == 1 else (str(coefficient), *monomial))

        return " + ".join(term(*each) for each in self.terms) or "0"


def _canonical(terms: Mapping[Monomial, int]) -> Polynomial:
    return Polynomial(tuple(sorted((monomial, coefficient) for monomial, coefficient in terms.items() if coefficient)))


def poly(value: Polynomial | int) -> Polynomial:
    """Returns a number as a polynomial."""
    return value if isinstance(value, Polynomial) else _canonical({(): value})


def symbol(name: str) -> Polynomial:
    """Returns the polynomial of a name."""
    return Polynomial((((name,), 1),))


def product(factors: Iterable[Polynomial | int]) -> Polynomial:
    """Returns the product of some polynomials, 1 for none."""
    return reduce(operator.mul, factors, ONE)


ZERO, ONE = poly(0), poly(1)


@dataclass(frozen=True)
class Constraint:
    """A constraint on named integers."""

    # `true`; `le` or `eq`: `value` is at most 0, or 0; `free`: an unknown boolean; `not`, `all` or `any`: of the parts
    kind: str
    value: Polynomial = ZERO  # for `le` and `eq`
    parts: "tuple[Constraint, ...]" = ()  # for `not`, `all` and `any`
    name: str = ""  # for `free`

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.value, self.parts, self.name))

    def __hash__(self) -> int:  # once: constraints are deep, and keys of many dicts
        return self._hash

    def __invert__(self) -> "Constraint":
        return self.parts[0] if self.kind == "not" else Constraint("not", parts=(self,))

    def __and__(self, other: "Constraint") -> "Constraint":
        return all_of(self, other)

    def __or__(self, other: "Constraint") -> "Constraint":
        return any_of(self, other)

    @cached_property
    def names(self) -> frozenset[str]:
        inner = [part.names for part in self.parts]
        return self.value.names.union(*inner, {self.name} - {""})

    def map_polynomials(self, change: Callable[[Polynomial], Polynomial]) -> "Constraint":
        if self.kind in ("le", "eq"):
            return Constraint(self.kind, change(self.value))
        return Constraint(self.kind, ZERO, tuple(part.map_polynomials(change) for part in self.parts), self.name)


TRUE = Constraint("true")


def equal(a: Polynomial | int, b: Polynomial | int) -> Constraint:
    """Returns a == b."""
    return Constraint("eq", poly(a) - b)


def all_of(*parts: Constraint) -> Constraint:
    """Returns the conjunction of some constraints."""
    remaining = tuple(part for part in dict.fromkeys(parts) if part != TRUE)
    return TRUE if not remaining else remaining[0] if len(remaining) == 1 else Constraint("all", parts=remaining)


def any_of(*parts: Constraint) -> Constraint:
    """Returns the disjunction of some constraints, at least one."""
    return parts[0] if len(parts) == 1 else Constraint("any", parts=parts)


def between(value: Polynomial, low: Polynomial | int, end: Polynomial | int) -> Constraint:
    """Returns low <= value < end."""
    return (value >= low) & (value < end)
