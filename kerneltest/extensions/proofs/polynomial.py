"""Polynomials with integer coefficients over named integers, and constraints on them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of monomials in canonical form, so that equal polynomials compare equal.

    Attributes:
      terms: sorted monomials, each a sorted tuple of names (() for 1), with coefficients other than 0.
    """

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

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial; None for others."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that occur."""
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def substitute(self, values: Mapping[str, "Polynomial | int"]) -> "Polynomial":
        """Replaces some names."""
        if self.names.isdisjoint(values):
            return self
        total = ZERO
        for monomial, coefficient in self.terms:
            product = poly(coefficient)
            for name in monomial:
                product = product * (values[name] if name in values else symbol(name))
            total = total + product
        return total

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
    total = ONE
    for factor in factors:
        total = total * factor
    return total


ZERO, ONE = poly(0), poly(1)


@dataclass(frozen=True)
class Constraint:
    """A constraint on named integers.

    Attributes:
      kind: `true`; `le` or `eq`: `value` is at most 0, or 0; `free`: an unknown boolean; `not`, `all` or `any`: of
        the parts.
      value: for `le` and `eq`.
      parts: for `not`, `all` and `any`.
      name: for `free`.
    """

    kind: str
    value: Polynomial = ZERO
    parts: "tuple[Constraint, ...]" = ()
    name: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.value, self.parts, self.name))

    def __hash__(self) -> int:
        return self._hash

    def polynomials(self) -> Iterator[Polynomial]:
        """Yields all polynomials in it."""
        if self.kind in ("le", "eq"):
            yield self.value
        for part in self.parts:
            yield from part.polynomials()

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that occur."""
        inner = [part.names for part in self.parts]
        return self.value.names.union(*inner, {self.name} - {""})

    def map_polynomials(self, change: Callable[[Polynomial], Polynomial]) -> "Constraint":
        """Replaces each polynomial by its image under `change`."""
        if self.kind in ("le", "eq"):
            return Constraint(self.kind, change(self.value))
        return Constraint(self.kind, ZERO, tuple(part.map_polynomials(change) for part in self.parts), self.name)


TRUE = Constraint("true")


def at_most(a: Polynomial | int, b: Polynomial | int) -> Constraint:
    """Returns a <= b."""
    return Constraint("le", poly(a) - b)


def less(a: Polynomial | int, b: Polynomial | int) -> Constraint:
    """Returns a < b."""
    return Constraint("le", poly(a) - b + 1)


def equal(a: Polynomial | int, b: Polynomial | int) -> Constraint:
    """Returns a == b."""
    return Constraint("eq", poly(a) - b)


def negate(constraint: Constraint) -> Constraint:
    """Returns the negation of a constraint."""
    return constraint.parts[0] if constraint.kind == "not" else Constraint("not", parts=(constraint,))


def all_of(*parts: Constraint) -> Constraint:
    """Returns the conjunction of some constraints."""
    remaining = tuple(part for part in dict.fromkeys(parts) if part is not TRUE and part != TRUE)
    return TRUE if not remaining else remaining[0] if len(remaining) == 1 else Constraint("all", parts=remaining)


def any_of(*parts: Constraint) -> Constraint:
    """Returns the disjunction of some constraints, at least one."""
    return parts[0] if len(parts) == 1 else Constraint("any", parts=parts)


def between(value: Polynomial | int, low: Polynomial | int, end: Polynomial | int) -> Constraint:
    """Returns low <= value < end."""
    return all_of(at_most(low, value), less(value, end))
