"""Constraints that a declaration implies for sizes and values, and sizes at which to look for counterexamples."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping

from kerneltest.declare.dims import Axis, AxisExpression
from kerneltest.declare.domains import Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.form_learning import LIMIT, Form, largest_sizes, lengths_near_blocks, max_length
from kerneltest.extensions.proofs.formulas import Atom, FormulaLanguage, Sizes
from kerneltest.extensions.proofs.polynomial import (
    ONE,
    Constraint,
    Polynomial,
    any_of,
    between,
    equal,
    product,
    symbol,
)

_COMBINATIONS = 64


def size_constraints(pairing: Pairing, shapes: Iterator[tuple[Polynomial, ...]]) -> list[Constraint]:
    """Returns the constraints that hold of every admitted size, and of arrays of these shapes."""
    conditions = []
    open_ended = {name for name, dim in pairing.dims.items() if max_length(dim) is None}
    for name, dim in pairing.dims.items():
        length = symbol(name)
        if dim.values:
            conditions.append(any_of(*(equal(length, value) for value in sorted(set(dim.values)))))
            continue
        greatest = max_length(dim)
        conditions += [length >= dim.minimum, length < LIMIT if greatest is None else length <= greatest]
        if dim.multiple_of > 1:
            conditions.append(equal(Atom(name, "rest", dim.multiple_of).symbol, 0))
    for shape in dict.fromkeys(shapes):
        count = product(shape)
        if any(name == dim or f"({dim}" in name for name in count.names for dim in open_ended):
            conditions.append(count < LIMIT)
    return conditions


def unbounded_assumption(pairing: Pairing) -> str:
    """Returns the assumption about lengths without a declared bound, in words, or ""."""
    free = [name for name, dim in pairing.dims.items() if max_length(dim) is None]
    return f"every array has fewer than 2^31 elements ({', '.join(free)} can be of any length)" if free else ""


def listed_sizes(pairing: Pairing) -> Iterator[Mapping[str, int]]:
    """Yields every combination of the lengths of dims that list theirs; nothing if no dim does, or for too many."""
    lists = {name: sorted(set(dim.values)) for name, dim in pairing.dims.items() if dim.values}
    if lists and math.prod(map(len, lists.values())) <= _COMBINATIONS:
        for row in itertools.product(*lists.values()):
            yield dict(zip(lists, row, strict=True))


def candidate_sizes(pairing: Pairing, form: Form) -> Iterator[Sizes]:
    """Yields admitted sizes of a form: small ones first, then the largest."""
    rng = random.Random(1)
    small = sorted(dict.fromkeys(form.seen), key=lambda row: math.prod(n + 1 for _, n in row))
    few = {
        name: sorted(set(dim.values)) or sorted({dim.fit(n) for n in lengths_near_blocks(dim)})
        for name, dim in pairing.dims.items()
    }
    corners = list(itertools.islice(itertools.product(*few.values()), 4096))
    corners = rng.sample(corners, min(len(corners), 24))
    found = [*map(dict, small), *(dict(zip(few, row, strict=True)) for row in corners)]
    found.sort(key=lambda sizes: math.prod(n + 1 for n in sizes.values()))
    for row in dict.fromkeys(tuple(sizes.items()) for sizes in (*found, *largest_sizes(pairing))):
        if form.covers(dict(row)) and all(pairing.dims[n].admits(x) or x in pairing.dims[n].values for n, x in row):
            yield dict(row)


def atom_facts(pairing: Pairing, language: FormulaLanguage, names: Iterator[str]) -> list[Constraint]:
    """Returns the constraints that hold of the atoms among some names."""
    found: list[Constraint] = []
    for name in names:
        atom = language.atoms.get(name)
        if atom is not None:
            greatest = max_length(pairing.dims[atom.dim])
            found += atom.facts()
            if atom.kind != "rest":  # the others grow with the length
                found.append(atom.symbol <= atom.value(LIMIT - 1 if greatest is None else greatest))
    return found


def length_polynomial(axis: Axis) -> Polynomial:
    """Returns the length of an axis of an argument."""
    match axis:
        case int():
            return ONE * axis
        case str():
            return symbol(axis)
        case AxisExpression():
            terms = (product([length_polynomial(factor) for factor in term]) for term in axis.terms)
            return sum(terms, ONE * axis.extra)


def element_constraint(pairing: Pairing, path: str) -> Callable[[Polynomial], Constraint] | None:
    """Returns the constraint that is declared for each integer in the argument of a path, or None."""
    leaf = pairing.leaves.get(path)
    if leaf is None:
        return None
    if leaf.kind.counts:
        end = length_polynomial(leaf.bound) + (1 if leaf.kind.includes_end else 0)
        least = leaf.least if leaf.sentinel is None else min(leaf.sentinel, leaf.least)
        return (lambda value: between(value, least, end)) if leaf.sentinel is None or leaf.sentinel < 0 else None
    if leaf.kind.is_mask and leaf.mask_values == (0, 1):
        return lambda value: between(value, 0, 2)
    domain = leaf.interval(leaf.dtypes[0])
    if leaf.kind.is_data and isinstance(leaf.domain, Interval) and max(abs(domain.low), abs(domain.high)) < 2**62:
        return lambda value: between(value, -int(-domain.low // 1), int(domain.high // 1) + 1)
    return None
