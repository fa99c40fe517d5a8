"""The sizes that a declaration admits, as conditions and as examples to look for counterexamples among."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping

from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.extensions.proofs.forms import Form
from kerneltest.extensions.proofs.formulas import Atom, Language, Sizes
from kerneltest.extensions.proofs.polynomial import Condition, Poly, at_most, either, equal, less, product, symbol
from kerneltest.extensions.proofs.sizes import LIMIT, largest, near, top

_COMBINATIONS = 64


def admitted(pairing: Pairing, shapes: Iterator[tuple[Poly, ...]]) -> list[Condition]:
    """What holds of every admitted size.

    Args:
      pairing: declares the dims.
      shapes: of the arrays.
    """
    conditions = []
    open_ended = {name for name, dim in pairing.dims.items() if top(dim) is None}
    for name, dim in pairing.dims.items():
        length = symbol(name)
        if dim.values:
            conditions.append(either(*(equal(length, value) for value in sorted(set(dim.values)))))
            continue
        conditions += [at_most(dim.minimum, length), less(length, LIMIT) if name in open_ended else _below(name, dim)]
        if dim.multiple_of > 1:
            rest = Atom(name, "rest", dim.multiple_of)
            conditions.append(equal(rest.symbol, 0))
    for shape in dict.fromkeys(shapes):
        count = product(shape)
        if any(open_ended & _dims_of(name, pairing) for name in count.names):
            conditions.append(less(count, LIMIT))
    return conditions


def _below(name: str, dim: Dim) -> Condition:
    greatest = top(dim)
    assert greatest is not None
    return at_most(symbol(name), greatest)


def _dims_of(name: str, pairing: Pairing) -> set[str]:
    return {dim for dim in pairing.dims if name == dim or f"({dim}" in name}


def assumption(pairing: Pairing) -> str:
    """What is assumed of lengths that nothing bounds, in words, or ""."""
    free = [name for name, dim in pairing.dims.items() if top(dim) is None]
    return f"every array has fewer than 2^31 elements ({', '.join(free)} may be of any length)" if free else ""


def listed(pairing: Pairing) -> Iterator[Mapping[str, int]]:
    """Every combination of the lengths of dims that list theirs; nothing if there are too many, or just one."""
    lists = {name: sorted(set(dim.values)) for name, dim in pairing.dims.items() if dim.values}
    if lists and math.prod(map(len, lists.values())) <= _COMBINATIONS:
        for row in itertools.product(*lists.values()):
            yield dict(zip(lists, row, strict=True))


def examples(pairing: Pairing, form: Form, language: Language) -> Iterator[Sizes]:
    """Admitted sizes of a form, small ones first, then the largest."""
    rng = random.Random(1)
    small = sorted(dict.fromkeys(form.seen), key=lambda row: math.prod(n + 1 for _, n in row))
    few = {
        name: sorted(set(dim.values)) or sorted({dim.fit(n) for n in near(dim)}) for name, dim in pairing.dims.items()
    }
    found = [dict(row) for row in small]
    corners = list(itertools.islice(itertools.product(*few.values()), 4096))
    corners = rng.sample(corners, min(len(corners), 24))
    found += [dict(zip(few, row, strict=True)) for row in corners]
    found.sort(key=lambda sizes: math.prod(n + 1 for n in sizes.values()))
    found += largest(pairing)
    seen = set()
    for sizes in found:
        key = tuple(sizes.items())
        if (
            key not in seen
            and form.has(sizes)
            and all(pairing.dims[n].admits(x) or x in pairing.dims[n].values for n, x in key)
        ):
            seen.add(key)
            yield sizes


def facts(pairing: Pairing, language: Language, names: Iterator[str]) -> list[Condition]:
    """What holds of the atoms among some names."""
    found: list[Condition] = []
    for name in names:
        atom = language.atoms.get(name)
        if atom is not None:
            greatest = top(pairing.dims[atom.dim])
            found += atom.facts()
            if atom.kind != "rest":  # the others grow with the length
                found.append(at_most(atom.symbol, atom.value(LIMIT - 1 if greatest is None else greatest)))
    return found
