"""Signatures: which lengths, dtypes and static arguments a pairing is tried with."""

import functools
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allpairspy import AllPairs

from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.axes import length_of
from kerneltest.declare.pairing import ABSENT, Pairing
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
      dtypes: dtype of each leaf that is not absent, by path.
      statics: the chosen option of each static argument by name, and of each that may be absent by path.
      dtype: the dtype that stands for the signature in ids.
    """

    dims: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    statics: tuple[tuple[str, str], ...]
    dtype: str
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", self._spelled())  # it is asked for many times a case

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        """The dims, the dtype (each leaf's, where they differ) and the static arguments: `m=64,float32,mode=one`."""
        return self._text

    def _spelled(self) -> str:
        mixed = {name for _, name in self.dtypes if name != self.dtype} - {"bool", "int32"}
        dtypes = [f"{path}:{name}" for path, name in self.dtypes] if mixed else [self.dtype]
        return ",".join([*(f"{k}={v}" for k, v in self.dims), *dtypes, *(f"{k}={v}" for k, v in self.statics)])

    @classmethod
    def of(
        cls,
        pairing: Pairing,
        lengths: Mapping[str, int],
        statics: Mapping[str, str],
        dtypes: Mapping[tuple[str, ...], str],
    ) -> "Signature":
        """The signature that some choices make.

        Args:
          pairing: which is called.
          lengths: of all dims.
          statics: an option for each of the pairing's `options`.
          dtypes: of the leaves that have several, by these; the first of them where nothing is chosen.
        """
        absent = {
            path for name, option in statics.items() if option == ABSENT for path in pairing.optionals.get(name, ())
        }
        leaves = {path: leaf for path, leaf in pairing.leaves.items() if path not in absent}
        groups = dtype_groups(pairing)
        return cls(
            dims=tuple((name, lengths[name]) for name in pairing.dims),
            dtypes=tuple((path, dtypes.get(leaf.dtypes, leaf.dtypes[0])) for path, leaf in leaves.items()),
            statics=tuple(statics.items()),
            dtype=dtypes.get(groups[0], groups[0][0]) if groups else "static",
        )

    def leaves(self, pairing: Pairing) -> dict[str, ArrayArgument]:
        """The array arguments that are not absent, by path."""
        return {path: pairing.leaves[path] for path, _ in self.dtypes}

    def shape(self, leaf: ArrayArgument) -> tuple[int, ...]:
        """The lengths of an array argument."""
        lengths = dict(self.dims)
        return tuple(length_of(axis, lengths) for axis in leaf.shape)


@functools.lru_cache(maxsize=256)
def signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """A covering array over dims, dtypes and static arguments: every pair of values occurs (every triple if deep).

    Where the pairing relates dims to each other, every pair does that some admitted lengths of other dims allow.
    """
    groups = dtype_groups(pairing)
    factors: dict[str, tuple[Any, ...]] = {f"dtype {i}": group for i, group in enumerate(groups)}
    factors |= {f"dim {name}": boundary_lengths(axis, depth) for name, axis in pairing.dims.items()}
    factors |= {f"static {name}": options for name, options in pairing.options().items()}
    strength = 3 if depth == "deep" else 2
    rows = covering(list(factors.values()), strength)
    planned = []
    for chosen in _admitted(pairing, [dict(zip(factors, row, strict=True)) for row in rows], strength):
        lengths = {name: chosen[f"dim {name}"] for name in pairing.dims}
        dtypes = {group: chosen[f"dtype {i}"] for i, group in enumerate(groups)}
        planned.append(Signature.of(pairing, lengths, _statics(chosen), dtypes))
    return tuple(dict.fromkeys(planned))  # balancing may make two rows alike


_Row = dict[str, Any]  # an option for each factor, by its name


def _statics(row: _Row) -> dict[str, str]:
    return {factor[7:]: option for factor, option in row.items() if factor.startswith("static ")}


def _admitted(pairing: Pairing, rows: list[_Row], strength: int) -> list[_Row]:
    """The rows with lengths that the pairing admits, and more where a combination of options would be lost."""
    if pairing.where is None:
        return rows

    def fitted(row: _Row, fixed: list[str]) -> _Row | None:
        lengths = {name: row[f"dim {name}"] for name in pairing.dims}
        admitted = pairing.fitted(lengths, _statics(row), fixed)
        return {**row, **{f"dim {name}": n for name, n in admitted.items()}} if admitted else None

    found = [each for row in rows if (each := fitted(row, []))]
    covered = {t for row in found for t in itertools.combinations(row.items(), strength)}
    for row in rows:
        for options in itertools.combinations(row.items(), strength):
            if options not in covered:
                completed = fitted(row, [factor[4:] for factor, _ in options if factor.startswith("dim ")])
                if completed:
                    found.append(completed)
                    covered.update(itertools.combinations(completed.items(), strength))
    return found


def dtype_groups(pairing: Pairing) -> list[tuple[str, ...]]:
    """The choices of dtypes that leaves have, the widest first: it is the dtype of ids."""
    varied = (leaf.dtypes for leaf in pairing.leaves.values() if leaf.kind.is_data or len(leaf.dtypes) > 1)
    return sorted(dict.fromkeys(varied), key=len, reverse=True)  # which keeps the rest in order


def dtypes_of(pairing: Pairing, depth: str) -> tuple[str, ...]:
    """The dtypes of a pairing's ids, in the order of their declaration."""
    groups = dtype_groups(pairing)
    present = {signature.dtype for signature in signatures(pairing, depth)}
    return tuple(name for name in (groups[0] if groups else ("static",)) if name in present)
