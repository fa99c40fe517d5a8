"""Polynomials with integer coefficients over named integers, and conditions on them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Poly:
    """A sum of products.

    Attributes:
      terms: names multiplied with each other (in order, () for 1) and their coefficient, never 0; in order.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: "Poly | int") -> "Poly":
        total = dict(self.terms)
        for monomial, coefficient in poly(other).terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _made(total)

    def __neg__(self) -> "Poly":
        return Poly(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: "Poly | int") -> "Poly":
        return self + -poly(other)

    def __mul__(self, other: "Poly | int") -> "Poly":
        product: dict[Monomial, int] = {}
        for one, a in self.terms:
            for two, b in poly(other).terms:
                both = tuple(sorted(one + two))
                product[both] = product.get(both, 0) + a * b
        return _made(product)

    @property
    def constant(self) -> int | None:
        """Its value, if that depends on nothing."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def substitute(self, values: Mapping[str, "Poly | int"]) -> "Poly":
        """With some names replaced."""
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


def _made(terms: Mapping[Monomial, int]) -> Poly:
    return Poly(tuple(sorted((monomial, coefficient) for monomial, coefficient in terms.items() if coefficient)))


def poly(value: Poly | int) -> Poly:
    """A number as a polynomial."""
    return value if isinstance(value, Poly) else _made({(): value})


def symbol(name: str) -> Poly:
    """A named integer."""
    return Poly((((name,), 1),))


def product(factors: Iterable[Poly | int]) -> Poly:
    """Of some polynomials, 1 for none."""
    total = ONE
    for factor in factors:
        total = total * factor
    return total


ZERO, ONE = poly(0), poly(1)


@dataclass(frozen=True)
class Condition:
    """Something that holds or not: of no parts unless `kind` says so.

    Attributes:
      kind: `true`; `le` and `eq`, of `value` and 0; `free`, which may hold or not, called `name`; `not`, `all` or
        `any` of its parts.
    """

    kind: str
    value: Poly = ZERO
    parts: "tuple[Condition, ...]" = ()
    name: str = ""

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.value, self.parts, self.name))

    def __hash__(self) -> int:
        return self._hash

    def polynomials(self) -> Iterator[Poly]:
        """All that it compares."""
        if self.kind in ("le", "eq"):
            yield self.value
        for part in self.parts:
            yield from part.polynomials()

    @cached_property
    def names(self) -> frozenset[str]:
        inner = [part.names for part in self.parts]
        return self.value.names.union(*inner, {self.name} - {""})

    def over(self, change: Callable[[Poly], Poly]) -> "Condition":
        """The same of other polynomials."""
        if self.kind in ("le", "eq"):
            return Condition(self.kind, change(self.value))
        return Condition(self.kind, ZERO, tuple(part.over(change) for part in self.parts), self.name)


TRUE = Condition("true")


def at_most(a: Poly | int, b: Poly | int) -> Condition:
    return Condition("le", poly(a) - b)


def less(a: Poly | int, b: Poly | int) -> Condition:
    return Condition("le", poly(a) - b + 1)


def equal(a: Poly | int, b: Poly | int) -> Condition:
    return Condition("eq", poly(a) - b)


def negated(condition: Condition) -> Condition:
    return condition.parts[0] if condition.kind == "not" else Condition("not", parts=(condition,))


def every(*parts: Condition) -> Condition:
    kept = tuple(part for part in dict.fromkeys(parts) if part is not TRUE and part != TRUE)
    return TRUE if not kept else kept[0] if len(kept) == 1 else Condition("all", parts=kept)


def either(*parts: Condition) -> Condition:
    return parts[0] if len(parts) == 1 else Condition("any", parts=parts)


def between(value: Poly | int, low: Poly | int, end: Poly | int) -> Condition:
    """From `low` up to, not including, `end`."""
    return every(at_most(low, value), less(value, end))
