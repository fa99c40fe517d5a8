"""Which signatures and cases a pairing is tried on: boundary lengths, covering arrays, applicable families."""

import functools
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from allpairspy import AllPairs

import kerneltest.plan.standard_families  # noqa: F401 - they register themselves
from kerneltest.core.dtypes import TF32, Array, dtype, float_format, is_float
from kerneltest.plan.families import FAMILIES, GROUPS, NO_VALUES, SIGNATURE, Family, Slot
from kerneltest.declare.arguments import Array as ArrayArgument
from kerneltest.declare.arguments import Choice
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing


@dataclass(frozen=True, slots=True)
class Signature:
    """One choice of all lengths, dtypes and static arguments: the unit of compilation.

    Attributes:
      dims: length of each dim.
      dtypes: dtype of each leaf, by path.
      statics: the chosen option of each static argument, by name.
      dtype: the dtype that stands for the signature in ids.
    """

    dims: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    statics: tuple[tuple[str, str], ...]
    dtype: str

    def __str__(self) -> str:
        mixed = {name for _, name in self.dtypes if name != self.dtype} - {"bool", "int32"}
        kinds = [f"{path}:{name}" for path, name in self.dtypes] if mixed else [self.dtype]
        return ",".join([*(f"{k}={v}" for k, v in self.dims), *kinds, *(f"{k}={v}" for k, v in self.statics)])

    def shape(self, leaf: ArrayArgument) -> tuple[int, ...]:
        lengths = dict(self.dims)
        return tuple(axis if isinstance(axis, int) else lengths[axis] for axis in leaf.shape)


@dataclass(frozen=True, slots=True)
class Case:
    """A signature and the recipe of its values: the unit of judgement.

    Attributes:
      pairing: the pairing's name, which is part of the random seed.
      family: how the values are made.
      target: the argument the family is about, "" where it is about all.
      seed: of the run.
    """

    pairing: str
    signature: Signature
    family: Family
    target: str
    seed: int

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that depend on nothing but the case."""
        text = f"{self.seed}|{self.pairing}|{self.signature}|{self.family.name}|{self.target}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def fill(self, pairing: Pairing) -> dict[str, Array]:
        """The case's array arguments by path."""
        values: dict[str, Array] = {}
        for order, (path, leaf) in enumerate(pairing.leaves.items()):
            digest = hashlib.sha256(f"{self.id}|{path}".encode()).digest()
            rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
            hit = self.target in ("", path)
            values[path] = self.family.fill(slot_of(pairing, self.signature, path, leaf, order), rng, hit)
        return values


def boundary_lengths(axis: Dim, depth: str = "standard") -> tuple[int, ...]:
    """Lengths at which kernels break: 1, around one tile, two tiles, odd lengths past them, and 0 where allowed.

    All are rounded up to the dim's multiple and kept within its bounds; `values` replaces them.

    Raises:
      ValueError: the dim admits none of them.
    """
    if axis.values:
        return axis.values
    tile = axis.tile or 16
    past = 2 * tile + max(tile // 2, 1) - (1 if tile % 4 == 0 else 0)
    wanted = {
        "quick": [tile + 1, tile, 1, past],
        "standard": [tile + 1, 1, tile - 1, tile, 2 * tile, past, 4 * tile + 3],
        "deep": [tile + 1, 1, tile - 1, tile, 2 * tile - 1, 2 * tile, 2 * tile + 1, past, 2, 3 * tile, 4 * tile + 3],
    }[depth]
    if axis.minimum == 0:
        wanted.append(0)
    lengths: list[int] = []
    for length in wanted:
        rounded = -(-max(length, axis.minimum) // axis.multiple_of) * axis.multiple_of
        if axis.maximum is not None and rounded > axis.maximum:
            rounded = axis.maximum // axis.multiple_of * axis.multiple_of
        if axis.admits(rounded) and rounded not in lengths:
            lengths.append(rounded)
    if not lengths:
        raise ValueError(f"no multiple of {axis.multiple_of} lies from {axis.minimum} to {axis.maximum}")
    return tuple(lengths)


@functools.lru_cache(maxsize=256)
def signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """A covering array over dims, dtypes and static arguments: every pair of values occurs (every triple if deep)."""
    groups = list(dict.fromkeys(leaf.dtypes for leaf in pairing.leaves.values() if leaf.role == "data"))
    groups.sort(key=len, reverse=True)  # the widest choice is the dtype of ids; the sort keeps the rest in order
    factors: dict[str, tuple[Any, ...]] = {f"dtype {i}": group for i, group in enumerate(groups)}
    factors |= {f"dim {name}": boundary_lengths(axis, depth) for name, axis in pairing.dims.items()}
    factors |= {
        f"static {name}": tuple(option for option, _ in argument.options)
        for name, argument in pairing.arguments.items()
        if isinstance(argument, Choice)
    }
    found = []
    for row in _covering(list(factors.values()), 3 if depth == "deep" else 2):
        chosen = dict(zip(factors, row, strict=True))
        kinds = {group: chosen[f"dtype {i}"] for i, group in enumerate(groups)}
        found.append(
            Signature(
                dims=tuple((name, chosen[f"dim {name}"]) for name in pairing.dims),
                dtypes=tuple((path, kinds.get(leaf.dtypes, leaf.dtypes[0])) for path, leaf in pairing.leaves.items()),
                statics=tuple((key[7:], value) for key, value in chosen.items() if key.startswith("static ")),
                dtype=chosen["dtype 0"] if groups else "static",
            )
        )
    return tuple(dict.fromkeys(found))  # balancing may make two rows alike


def dtypes_of(pairing: Pairing, depth: str) -> tuple[str, ...]:
    """The dtypes of a pairing's ids, in the order of their declaration."""
    declared = max((a.dtypes for a in pairing.leaves.values() if a.role == "data"), key=len, default=("static",))
    present = {signature.dtype for signature in signatures(pairing, depth)}
    return tuple(name for name in declared if name in present)


def groups_of(pairing: Pairing, dtype_name: str, depth: str) -> tuple[str, ...]:
    """The family groups with at least one case."""
    return tuple(g for g in GROUPS if next(cases(pairing, dtype_name, g, depth, 0), None) is not None)


def cases(pairing: Pairing, dtype_name: str, group: str, depth: str, seed: int) -> Iterator[Case]:
    """Every case of a pairing, dtype and family group, signature by signature; one each in group `NO_VALUES`."""
    for signature in signatures(pairing, depth):
        if signature.dtype != dtype_name:
            continue
        if group == NO_VALUES:
            yield Case(pairing.name, signature, SIGNATURE, "", seed)
            continue
        slots = {
            path: slot_of(pairing, signature, path, leaf, i) for i, (path, leaf) in enumerate(pairing.leaves.items())
        }
        for family in FAMILIES.values():
            if family.group != group:
                continue
            if family.each:
                targets = [path for path, slot in slots.items() if family.applies(slot)]
            else:
                any_data = any(family.applies(slot) for slot in slots.values())
                targets = [""] if any_data or (not slots and family.without_arrays) else []
            for target in targets:
                yield Case(pairing.name, signature, family, target, seed)


def _covering(factors: list[tuple[Any, ...]], strength: int) -> list[list[Any]]:
    if len(factors) < 2:
        return [[value] for value in factors[0]] if factors else [[]]
    strength = min(strength, len(factors))
    rows = [list(row) for row in AllPairs([list(f) for f in factors], n=strength)]
    return _balanced(rows, factors, strength)


def _balanced(rows: list[list[Any]], factors: list[tuple[Any, ...]], strength: int) -> list[list[Any]]:
    """The same coverage, but cells that no tuple needs are spread evenly rather than left at one option."""

    def tuples(row: list[Any], column: int, value: Any) -> list[tuple[tuple[int, Any], ...]]:
        others = [cell for cell in enumerate(row) if cell[0] != column]
        rest = itertools.combinations(others, strength - 1)
        return [tuple(sorted((*cells, (column, value)), key=lambda cell: cell[0])) for cells in rest]

    covered = Counter(t for row in rows for t in itertools.combinations(enumerate(row), strength))
    for row in rows:
        for column, options in enumerate(factors):
            old = tuples(row, column, row[column])
            if any(covered[t] < 2 for t in old):
                continue
            covered.subtract(old)
            row[column] = min(options, key=lambda value: sum(covered[t] for t in tuples(row, column, value)))
            covered.update(tuples(row, column, row[column]))
    return rows


def slot_of(pairing: Pairing, signature: Signature, path: str, leaf: ArrayArgument, order: int) -> Slot:
    """What a family is told of one array argument, the `order`-th, in a signature."""
    shape = signature.shape(leaf)
    kind = dtype(dict(signature.dtypes)[path])
    tiles = tuple(pairing.dims[axis].tile if isinstance(axis, str) else None for axis in leaf.shape)
    floats = [dtype(name) for name in dict(signature.dtypes).values() if is_float(dtype(name))]
    return Slot(
        role=leaf.role,
        shape=shape,
        dtype=kind,
        tiles=tiles,
        domain=leaf.domain,
        order=order,
        end=dict(signature.dims).get(leaf.of, 0),
        exact_limit=_exact_limit(pairing, signature, floats),
    )


def _exact_limit(pairing: Pairing, signature: Signature, floats: list[np.dtype[Any]]) -> int:
    """The largest integer such that products of two, summed over a case, are exact in every precision in play.

    Operands fit the narrowest input format and TF32; the sum of |a b| fits float32's 24 bits and float16's range.
    """
    contract = getattr(pairing.tolerance, "contract", None)
    if contract:
        terms = dict(signature.dims)[contract]
    else:
        terms = max((int(np.prod(signature.shape(leaf))) for leaf in pairing.leaves.values()), default=1)
    total = min([2**24, *(int(2**f.max_exponent) for f in map(float_format, floats))])
    limit = 2 ** min([TF32.precision, *(f.precision for f in map(float_format, floats))])
    return max(1, min(int(limit) // 2, math.isqrt(int(total) // max(terms, 1))))


def totals(planned: Iterable[Any]) -> Mapping[str, int]:
    """How many cases each family has."""
    counts: dict[str, int] = {}
    for case in planned:
        counts[case.family.name] = counts.get(case.family.name, 0) + 1
    return counts
