"""Formulas of sizes: polynomials of lengths and of lengths rounded to blocks or powers of two."""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kerneltest.extensions.proofs.polynomial import (
    ONE,
    ZERO,
    Constraint,
    Polynomial,
    between,
    equal,
    poly,
    product,
    symbol,
)

Sizes = Mapping[str, int]


# By kind: the name in formulas, and the value for a length of the dim and a block.
_KINDS: Mapping[str, tuple[str, Callable[[int, int], int]]] = {
    "length": ("{d}", lambda length, block: length),
    "blocks": ("cdiv({d}, {b})", lambda length, block: -(-length // block)),
    "whole": ("({d} // {b})", operator.floordiv),
    "rest": ("({d} % {b})", operator.mod),
    "power": ("next_power_of_2({longer})", lambda length, block: 1 << max(length - 1, block - 1, 0).bit_length()),
    "tiles": (
        "next_power_of_2(cdiv({d}, {b}))",
        lambda length, block: 1 << max(-(-length // block) - 1, 0).bit_length(),
    ),
}


@dataclass(frozen=True)
class Atom:
    """A quantity that kernels compute from the length of a dim."""

    dim: str  # the name of the dim
    # `length`; `blocks`, the number of blocks that cover it; `whole`, the number of blocks that fit in; `rest`, the
    # remainder; `power`, the next power of two of the greater of length and block; or `tiles`, the next power of two of
    # `blocks`
    kind: str
    block: int = 1  # in elements; 1 for `length`

    @property
    def name(self) -> str:
        text, _ = _KINDS[self.kind]
        longer = self.dim if self.block == 1 else f"max({self.dim}, {self.block})"
        return text.format(d=self.dim, b=self.block, longer=longer)

    @property
    def symbol(self) -> Polynomial:
        return symbol(self.name)

    def value(self, length: int) -> int:
        _, value = _KINDS[self.kind]
        return value(length, self.block)

    def facts(self) -> Iterator[Constraint]:
        d, b, x = symbol(self.dim), self.block, self.symbol
        match self.kind:
            case "blocks":
                yield between(d, x * b - (b - 1), x * b + 1)
            case "whole":
                yield between(d, x * b, x * b + b)
            case "rest":
                whole = Atom(self.dim, "whole", b)
                yield from whole.facts()
                yield equal(x, d - whole.symbol * b)
            case "tiles":
                blocks = Atom(self.dim, "blocks", b)
                yield from blocks.facts()
                yield blocks.symbol <= x
                yield x >= 1
                yield equal(x, 1) | (x < blocks.symbol * 2)
            case "power":
                yield d <= x
                yield x >= max(b, 1)
                yield equal(x, 1 << (b - 1).bit_length()) | (x < d * 2)


@dataclass(frozen=True)
class SizeTest:
    """A test on sizes that may distinguish forms: the product of atoms is at most a bound, or equal to it."""

    atoms: tuple[Atom, ...]  # the factors
    bound: int  # of the product
    exact: bool = False  # whether the product must be equal to the bound

    def __call__(self, sizes: Sizes) -> bool:
        value = _product_at(self.atoms, sizes)
        return value == self.bound if self.exact else value <= self.bound

    def condition(self, holds: bool) -> Constraint:
        """Returns the constraint that the test has a result."""
        value = product(atom.symbol for atom in self.atoms)
        constraint = equal(value, self.bound) if self.exact else value <= self.bound
        return constraint if holds else ~constraint

    def describe(self, holds: bool) -> str:
        """Returns the constraint in words: `n <= 64`."""
        name = " * ".join(atom.name for atom in self.atoms)
        if self.exact:
            return f"{name.strip('()')} {'==' if holds else '!='} {self.bound}"
        return f"{name} {'<=' if holds else '>'} {self.bound}"


class FormulaLanguage:
    """The atoms, monomials and tests of formulas; JAX may address over `most` elements by wider integers (0: none)."""

    def __init__(self, dims: Sequence[str], blocks: Sequence[int], most: int = 0) -> None:
        self.most = most
        self.dims = tuple(dims)
        self.blocks = tuple(b for b in dict.fromkeys(blocks) if b > 1)

    @cached_property
    def atoms(self) -> dict[str, Atom]:
        kinds = [("power", 1)]
        kinds += [(kind, b) for b in self.blocks for kind in ("blocks", "whole", "power", "tiles", "rest")]
        atoms = [Atom(dim, "length") for dim in self.dims] + [Atom(dim, k, b) for k, b in kinds for dim in self.dims]
        return {atom.name: atom for atom in atoms}

    @cached_property
    def monomials(self) -> list[tuple[Atom, ...]]:
        """Products of atoms to try, the simplest first."""
        plain = [self.atoms[dim] for dim in self.dims]
        other = [atom for atom in self.atoms.values() if atom.kind != "length"]
        products = [p for n in range(2, 6) for p in itertools.combinations(plain, n)]
        squares = [(atom, atom) for atom in plain]
        mixed = [(atom, *p) for atom in other for n in (1, 2, 3) for p in itertools.combinations(plain, n)]
        rounded = [(a, b) for a, b in itertools.combinations(other, 2) if a.dim != b.dim]
        return [*((atom,) for atom in self.atoms.values()), *products, *squares, *mixed, *rounded]

    def tests(self, constants: Sequence[int]) -> list[SizeTest]:
        """Returns tests to try, the simplest first, with these bounds besides 0, 1 and the blocks."""
        bounds = sorted({0, 1, *self.blocks, *constants})
        plain = [self.atoms[dim] for dim in self.dims]
        lengths = [((atom,), bound) for bound in bounds for atom in plain]
        rests = [SizeTest((Atom(dim, "rest", b),), 0, exact=True) for b in self.blocks for dim in self.dims]
        products = [p for n in range(1, len(plain) + 1) for p in itertools.combinations(plain, n)] if self.most else []
        return [
            *(SizeTest(p, self.most) for p in products),
            *(SizeTest(*length) for length in lengths),
            *rests,
            *(SizeTest(*length, exact=True) for length in lengths),
        ]


def formula_fitter(language: FormulaLanguage, sizes: Sequence[Sizes]) -> Callable[[tuple[int, ...]], Polynomial | None]:
    """Returns a function that maps the values of a number at some sizes to its formula, or to None if it finds none."""
    columns: dict[tuple[Atom, ...], tuple[int, ...]] = {}

    def fit(values: tuple[int, ...]) -> Polynomial | None:
        if len(set(values)) == 1:
            return poly(values[0])
        for atoms in language.monomials:
            if atoms not in columns:
                columns[atoms] = tuple(_product_at(atoms, size) for size in sizes)
            found = _fit_line(columns[atoms], values)
            if found is not None:
                slope, start = found
                return product(atom.symbol for atom in atoms) * slope + start
        return None

    return fit


def _product_at(atoms: Sequence[Atom], sizes: Sizes) -> int:
    return math.prod(atom.value(sizes[atom.dim]) for atom in atoms)


def _fit_line(xs: Sequence[int], ys: Sequence[int]) -> tuple[int, int] | None:
    first = next((i for i in range(1, len(xs)) if xs[i] != xs[0]), None)
    if first is None:
        return None
    slope, rest = divmod(ys[first] - ys[0], xs[first] - xs[0])
    start = ys[0] - slope * xs[0]
    if rest or not slope or any(y != slope * x + start for x, y in zip(xs, ys, strict=True)):
        return None
    return slope, start


def evaluate_formula(formula: Polynomial, language: FormulaLanguage, sizes: Sizes) -> int:
    """Returns the value of a formula at some sizes."""
    known = {name: language.atoms[name].value(sizes[language.atoms[name].dim]) for name in formula.names}
    value = formula.substitute(known).constant
    assert value is not None
    return value


# Delinearisation: rewrites an offset into an array as an index along each axis, by the products in it.


def index_forms(offset: Polynomial, shape: Sequence[Polynomial]) -> Iterator[tuple[Polynomial, ...]]:
    """Yields ways to write an offset as indices times strides, the likeliest first; their bounds are unproved."""
    strides = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    if any(len(stride.terms) != 1 for stride in strides):
        return
    seen = set()
    for lengths_too in (False, True):
        rest, found = offset, []
        for stride in strides[:-1]:
            index, rest = split_multiple(rest, stride, lengths_too)
            found.append(index)
        form = (*found, rest)
        if form not in seen:
            seen.add(form)
            yield form


def split_multiple(offset: Polynomial, stride: Polynomial, lengths_too: bool) -> tuple[Polynomial, Polynomial]:
    """Returns quotient and remainder by a one-term stride; `lengths_too`: multiples of it, as `-n`, in the quotient."""
    if stride == ONE:
        return offset, ZERO
    ((names, factor),) = stride.terms
    multiple = ZERO
    for monomial, coefficient in offset.terms:
        left = Counter(monomial)
        left.subtract(names)
        rest = tuple(sorted(left.elements()))
        if min(left.values(), default=0) >= 0 and coefficient % factor == 0 and (rest or lengths_too):
            multiple = multiple + Polynomial(((rest, coefficient // factor),))
    return multiple, offset - multiple * stride
