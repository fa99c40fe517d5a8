"""Signatures: choices of lengths, dtypes and static arguments, as a covering array."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allpairspy import AllPairs

from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import Dim, StaticValue, length_of
from kerneltest.declare.pairing import ABSENT, Pairing

# The boundary lengths at which kernels tend to fail.


def boundary_lengths(dim: Dim, depth: str = "standard") -> tuple[int, ...]:
    """Returns lengths (in elements) at which kernels tend to fail.

    They are 1, lengths around one block and two blocks, odd lengths past these, and 0 if allowed. They are rounded up
    to the dim's multiple and limited to its bounds. `Dim.values` replaces them.
    """
    if dim.values:
        return dim.values
    block = dim.block or 16
    past = 2 * block + max(block // 2, 1) - (1 if block % 4 == 0 else 0)
    wanted = {
        "quick": [block + 1, block, 1, past],
        "standard": [block + 1, 1, block - 1, block, 2 * block, past, 4 * block + 3],
        "deep": [
            block + 1, 1, block - 1, block, 2 * block - 1, 2 * block, 2 * block + 1, past, 2, 3 * block, 4 * block + 3
        ],
    }[depth]  # fmt: skip
    if dim.minimum == 0:
        wanted.append(0)
    lengths: list[int] = []
    for length in wanted:
        fitting = dim.fit(length)
        if dim.admits(fitting) and fitting not in lengths:
            lengths.append(fitting)
    return tuple(lengths)


Option = Any  # of a factor: a length, a dtype or the name of a static option
Scalar = bool | int | float | str | None


def covering_array(factors: list[tuple[Option, ...]], strength: int) -> list[list[Option]]:
    """Returns rows of one option for each factor that contain every combination of options of `strength` factors."""
    if len(factors) < 2:
        return [[value] for value in factors[0]] if factors else [[]]
    strength = min(strength, len(factors))
    rows = [list(row) for row in AllPairs([list(f) for f in factors], n=strength)]
    return _balance(rows, factors, strength)


def _balance(rows: list[list[Option]], factors: list[tuple[Option, ...]], strength: int) -> list[list[Option]]:
    """Spreads entries that coverage does not need evenly over the options of their factor."""

    def tuples(row: list[Option], column: int, value: Option) -> list[tuple[tuple[int, Option], ...]]:
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
      dims: pairs of a dim and its length.
      dtypes: pairs of the path and the dtype of a leaf that is not absent.
      statics: pairs of a static argument and the name of its option, or of the path of an argument that may be absent
        and `given` or `absent`.
      dtype: the dtype that represents the signature in ids.
    """

    dims: tuple[tuple[str, int], ...]
    dtypes: tuple[tuple[str, str], ...]
    statics: tuple[tuple[str, str], ...]
    dtype: str
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", self._format())  # used many times for each case

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        """Returns dims, dtype (one for each leaf if they differ) and static arguments: `m=64,float32,mode=one`."""
        return self._text

    def _format(self) -> str:
        mixed = {name for _, name in self.dtypes if name != self.dtype} - {"bool", "int32"}
        dtypes = [f"{path}:{name}" for path, name in self.dtypes] if mixed else [self.dtype]
        return ",".join([*(f"{k}={v}" for k, v in self.dims), *dtypes, *(f"{k}={v}" for k, v in self.statics)])

    @classmethod
    def from_choices(
        cls,
        pairing: Pairing,
        lengths: Mapping[str, int],
        statics: Mapping[str, str],
        dtypes: Mapping[tuple[str, ...], str],
    ) -> "Signature":
        """Returns the signature for the lengths of all dims, an option for each of the pairing's `options`, and dtypes.

        These are by tuple of alternatives, of which the first one is chosen by default.
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

    def static_values(self, pairing: Pairing) -> dict[str, Scalar]:
        """Returns the static arguments by name: finite numbers, booleans and None as such, others by their option.

        `str` of each value is the option, so options that have names of their own are returned as these names.
        """
        options = pairing.options()
        declared = {name: option for name, option in self.statics if option in options.get(name, ())}
        chosen = pairing.option_values(declared)  # a call that must be rejected has an option that is not declared
        return {name: _scalar(chosen[name], option) if name in declared else option for name, option in self.statics}

    def leaves(self, pairing: Pairing) -> dict[str, ArrayArgument]:
        """Returns the array arguments that are not absent, by path."""
        return {path: pairing.leaves[path] for path, _ in self.dtypes}

    def shape(self, leaf: ArrayArgument) -> tuple[int, ...]:
        """Returns the lengths of an array argument."""
        lengths = dict(self.dims)
        return tuple(length_of(axis, lengths) for axis in leaf.shape)


def _scalar(value: StaticValue, option: str) -> Scalar:
    """Returns a value if it is a scalar that reads like its option, or else the option."""
    finite = value is None or (type(value) in (bool, int, float) and math.isfinite(value))
    return value if finite and str(value) == option else option


@functools.lru_cache(maxsize=256)
def signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """Returns a covering array over dims, dtypes and static arguments.

    Every pair of values occurs, and every triple at depth `deep`, unless `where` excludes it for all lengths of the
    other dims that were tried.
    """
    groups = dtype_groups(pairing)
    factors: dict[str, tuple[Option, ...]] = {f"dtype {i}": group for i, group in enumerate(groups)}
    factors |= {f"dim {name}": boundary_lengths(axis, depth) for name, axis in pairing.dims.items()}
    factors |= {f"static {name}": options for name, options in pairing.options().items()}
    strength = 3 if depth == "deep" else 2
    rows = covering_array(list(factors.values()), strength)
    planned = []
    for chosen in _admit_rows(pairing, [dict(zip(factors, row, strict=True)) for row in rows], strength):
        lengths = {name: chosen[f"dim {name}"] for name in pairing.dims}
        dtypes = {group: chosen[f"dtype {i}"] for i, group in enumerate(groups)}
        planned.append(Signature.from_choices(pairing, lengths, _statics(chosen), dtypes))
    return tuple(dict.fromkeys(planned))  # balancing may produce equal rows


def order_by_variety(pairing: Pairing, planned: Sequence[Signature]) -> tuple[list[Signature], list[Signature]]:
    """Returns a few signatures that differ in all that matters, the most telling one first, and then the others.

    Of any two dims, each is once the longer one; each dim once has several blocks; each static option occurs; as far as
    `planned` allows.
    """
    left = {signature: _traits(pairing, signature) for signature in planned}
    chosen: list[Signature] = []
    while left and (best := max(left, key=lambda signature: len(left[signature]))) and left[best]:
        chosen.append(best)
        seen = left.pop(best)
        left = {signature: traits - seen for signature, traits in left.items()}
    return chosen, list(left)


def _traits(pairing: Pairing, signature: Signature) -> set[tuple[str, str]]:
    lengths = dict(signature.dims)
    longer = {(one, other) for one, other in itertools.permutations(lengths, 2) if lengths[one] > lengths[other]}
    several = {(name, "blocks") for name, length in lengths.items() if length > (pairing.dims[name].block or length)}
    return {*longer, *several, *signature.statics}


_Row = dict[str, Option]  # an option for each factor, by its name


def _statics(row: _Row) -> dict[str, str]:
    return {factor[7:]: option for factor, option in row.items() if factor.startswith("static ")}


def _admit_rows(pairing: Pairing, rows: list[_Row], strength: int) -> list[_Row]:
    """Returns the rows with lengths that the pairing admits, and more if a combination of options would be lost."""
    if pairing.where is None:
        return rows

    def fit(row: _Row, fixed: list[str]) -> _Row | None:
        lengths = {name: row[f"dim {name}"] for name in pairing.dims}
        admitted = pairing.fit_lengths(lengths, _statics(row), fixed)
        return {**row, **{f"dim {name}": n for name, n in admitted.items()}} if admitted else None

    found = [each for row in rows if (each := fit(row, []))]
    covered = {t for row in found for t in itertools.combinations(row.items(), strength)}
    for row in rows:
        for options in itertools.combinations(row.items(), strength):
            if options not in covered:
                completed = fit(row, [factor[4:] for factor, _ in options if factor.startswith("dim ")])
                if completed:
                    found.append(completed)
                    covered.update(itertools.combinations(completed.items(), strength))
    return found


def dtype_groups(pairing: Pairing) -> list[tuple[str, ...]]:
    """Returns the alternative dtypes of leaves, the longest tuple first, which provides the dtype of ids."""
    varied = (leaf.dtypes for leaf in pairing.leaves.values() if leaf.kind.is_data or len(leaf.dtypes) > 1)
    return sorted(dict.fromkeys(varied), key=len, reverse=True)  # stable for equal lengths


def signature_dtypes(pairing: Pairing, depth: str) -> tuple[str, ...]:
    """Returns the dtypes of a pairing's ids in the order of their declaration."""
    groups = dtype_groups(pairing)
    present = {signature.dtype for signature in signatures(pairing, depth)}
    return tuple(name for name in (groups[0] if groups else ("static",)) if name in present)
