"""Signatures: which lengths, dtypes and static arguments a pairing is tried with."""

import functools
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

from allpairspy import AllPairs

from kerneltest.declare.arguments import ArrayArgument, Static
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.lengths import boundary_lengths


def covering(factors: list[tuple[Any, ...]], strength: int) -> list[list[Any]]:
    """Rows of one option a factor, such that every combination of options of `strength` factors occurs in one."""
    if len(factors) < 2:
        return [[value] for value in factors[0]] if factors else [[]]
    strength = min(strength, len(factors))
    rows = [list(row) for row in AllPairs([list(f) for f in factors], n=strength)]
    return _balanced(rows, factors, strength)


def _balanced(rows: list[list[Any]], factors: list[tuple[Any, ...]], strength: int) -> list[list[Any]]:
    """The same coverage, but entries that no tuple needs are spread evenly rather than left at one option."""

    def tuples(row: list[Any], column: int, value: Any) -> list[tuple[tuple[int, Any], ...]]:
        others = [entry for entry in enumerate(row) if entry[0] != column]
        rest = itertools.combinations(others, strength - 1)
        return [tuple(sorted((*entries, (column, value)), key=lambda entry: entry[0])) for entries in rest]

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
        """The dims, the dtype (each leaf's, where they differ) and the static arguments: `m=64,float32,mode=one`."""
        mixed = {name for _, name in self.dtypes if name != self.dtype} - {"bool", "int32"}
        dtypes = [f"{path}:{name}" for path, name in self.dtypes] if mixed else [self.dtype]
        return ",".join([*(f"{k}={v}" for k, v in self.dims), *dtypes, *(f"{k}={v}" for k, v in self.statics)])

    def shape(self, leaf: ArrayArgument) -> tuple[int, ...]:
        """The lengths of an array argument."""
        lengths = dict(self.dims)
        return tuple(axis if isinstance(axis, int) else lengths[axis] for axis in leaf.shape)


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
        if isinstance(argument, Static)
    }
    planned = []
    for row in covering(list(factors.values()), 3 if depth == "deep" else 2):
        chosen = dict(zip(factors, row, strict=True))
        dtypes = {group: chosen[f"dtype {i}"] for i, group in enumerate(groups)}
        planned.append(
            Signature(
                dims=tuple((name, chosen[f"dim {name}"]) for name in pairing.dims),
                dtypes=tuple((path, dtypes.get(leaf.dtypes, leaf.dtypes[0])) for path, leaf in pairing.leaves.items()),
                statics=tuple((key[7:], value) for key, value in chosen.items() if key.startswith("static ")),
                dtype=chosen["dtype 0"] if groups else "static",
            )
        )
    return tuple(dict.fromkeys(planned))  # balancing may make two rows alike


def dtypes_of(pairing: Pairing, depth: str) -> tuple[str, ...]:
    """The dtypes of a pairing's ids, in the order of their declaration."""
    declared = max((a.dtypes for a in pairing.leaves.values() if a.role == "data"), key=len, default=("static",))
    present = {signature.dtype for signature in signatures(pairing, depth)}
    return tuple(name for name in declared if name in present)
