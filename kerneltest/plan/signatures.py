"""Signatures: choices of lengths, dtypes and static arguments, as a covering array."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from allpairspy import AllPairs

from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.dims import Dim, StaticValue, length_of
from kerneltest.declare.pairing import ABSENT, Pairing
from kerneltest.plan import DEPTHS

# The boundary lengths at which kernels tend to fail.

_DEFAULT_BLOCK = 16  # of a dim without a block
_FEW = 8  # lengths of a dim that are all planned


def boundary_lengths(dim: Dim, depth: str = "standard") -> tuple[int, ...]:
    """Returns lengths (in elements) at which kernels tend to fail, those of shallower plans first.

    They are the least length, lengths around one block and two blocks, an odd one past these or a greatest length that
    is near, and 0 if allowed; among them are an odd and an even multiple of `multiple_of`, which is also the block of a
    dim without one. They are limited to the dim's bounds, of which the least counts from the last whole block before
    it. A dim that admits at most eight lengths has all of them, and `Dim.values` replaces them.
    """
    if dim.values:
        return dim.values
    unit = dim.multiple_of
    block = dim.block or max(_DEFAULT_BLOCK, unit)
    past = 2 * block + max(block // 2, 1) - (1 if block % 4 == 0 else 0)
    far = 4 * block + 3
    start = max(dim.minimum - 1, 0) // block * block  # of the blocks that every length contains
    is_near = dim.maximum is not None and start + past < dim.maximum <= start + far
    offsets = [block + 1, block, 1, far if is_near else past]
    if depth != "quick":
        offsets += [block - 1, 2 * block, past, far]
    if depth == "deep":
        offsets += [2 * block - 1, 2 * block + 1, 2, 3 * block]
    fitting = (dim.fit(start + offset) for offset in offsets)
    lengths = [length for length in fitting if dim.admits(length)]
    least, end = dim.fit(dim.minimum), max(lengths[:4])
    if dim.maximum is not None and dim.maximum - least < _FEW * unit:
        lengths += range(least, dim.maximum + 1, unit)
    if len({length // unit % 2 for length in lengths[:4] if length > unit}) < 2:
        lengths += [n for n in (end - unit, end + unit) if n > least and dim.admits(n)][:1]
    return tuple(dict.fromkeys([*lengths, *[0] * dim.admits(0)]))


Option = Any  # of a factor: a length, a dtype or the name of a static option
Scalar = bool | int | float | str | None


def covering_array(
    factors: list[tuple[Option, ...]], strength: int, known: Sequence[list[Option]] = ()
) -> list[list[Option]]:
    """Returns rows of one option for each factor that contain every combination of options of `strength` factors.

    Combinations in `known` rows are left out.
    """
    if len(factors) < 2:
        rows = [[value] for value in factors[0]] if factors else [[]]
        return [row for row in rows if row not in known]
    strength = min(strength, len(factors))
    tested = [row for row in known if all(option in f for option, f in zip(row, factors, strict=True))]
    rows = [list(row) for row in AllPairs([list(f) for f in factors], n=strength, previously_tested=tested)]
    return _balance([*rows, *_complete([*tested, *rows], factors, strength)], factors, strength, tested)


def _complete(rows: list[list[Option]], factors: list[tuple[Option, ...]], strength: int) -> Iterator[list[Option]]:
    """Yields rows for the combinations that are in none: AllPairs may stop early, above all at a strength of 3."""
    wanted = {
        combination: None
        for columns in itertools.combinations(enumerate(factors), strength)
        for combination in itertools.product(*([(column, option) for option in options] for column, options in columns))
    }
    for row in rows:
        for combination in itertools.combinations(enumerate(row), strength):
            wanted.pop(combination, None)
    while wanted:
        chosen: dict[int, Option] = {}
        for combination in wanted:
            if all(chosen.get(column, option) == option for column, option in combination):
                chosen.update(combination)
        row = [chosen.get(column, options[0]) for column, options in enumerate(factors)]
        for combination in itertools.combinations(enumerate(row), strength):
            wanted.pop(combination, None)
        yield row


def _balance(
    rows: list[list[Option]], factors: list[tuple[Option, ...]], strength: int, known: Sequence[list[Option]]
) -> list[list[Option]]:
    """Spreads entries that coverage does not need evenly over the options of their factor."""

    def tuples(row: list[Option], column: int, value: Option) -> list[tuple[tuple[int, Option], ...]]:
        others = [entry for entry in enumerate(row) if entry[0] != column]
        rest = itertools.combinations(others, strength - 1)
        return [tuple(sorted((*entries, (column, value)), key=lambda entry: entry[0])) for entries in rest]

    covered = Counter(t for row in [*known, *rows] for t in itertools.combinations(enumerate(row), strength))
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
    """One choice of all lengths, dtypes and static arguments: the unit of compilation."""

    dims: tuple[tuple[str, int], ...]  # pairs of a dim and its length
    dtypes: tuple[tuple[str, str], ...]  # pairs of the path and the dtype of a leaf that is not absent
    # pairs of a static argument and the name of its option, or of the path of an argument that may be absent and
    # `given` or `absent`
    statics: tuple[tuple[str, str], ...]
    dtype: str  # the dtype that represents the signature in ids
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mixed = {name for _, name in self.dtypes if name != self.dtype} - {"bool", "int32"}
        dtypes = [f"{path}:{name}" for path, name in self.dtypes] if mixed else [self.dtype]
        parts = [*(f"{k}={v}" for k, v in self.dims), *dtypes, *(f"{k}={v}" for k, v in self.statics)]
        object.__setattr__(self, "_text", ",".join(parts))  # used many times for each case

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        """Returns dims, dtype (one for each leaf if they differ) and static arguments: `m=64,float32,mode=one`."""
        return self._text

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

    @property
    def total_length(self) -> int:
        return sum(length for _, length in self.dims)

    @property
    def volume(self) -> int:
        """The product of the lengths of all dims: the steps of a kernel that multiplies all of them."""
        return math.prod(length for _, length in self.dims)

    def resized(self, pairing: Pairing, lengths: Mapping[str, int]) -> "Signature | None":
        """Returns it with other lengths of some dims, and of those that the pairing relates to them; None if it cannot.

        The pairing must admit them.
        """
        statics = dict(self.statics)
        fitted = pairing.fit_lengths({**dict(self.dims), **lengths}, statics, list(lengths))
        if fitted is None or not pairing.admits(fitted, statics):
            return None
        return replace(self, dims=tuple(fitted.items()))

    def with_length(self, name: str, length: int) -> "Signature":
        return replace(self, dims=tuple({**dict(self.dims), name: length}.items()))

    def with_option(self, name: str, option: str) -> "Signature":
        return replace(self, statics=tuple({**dict(self.statics), name: option}.items()))

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
        lengths = dict(self.dims)
        return tuple(length_of(axis, lengths) for axis in leaf.shape)


def _scalar(value: StaticValue, option: str) -> Scalar:
    """Returns a value if it is a scalar that reads like its option, or else the option."""
    finite = value is None or (type(value) in (bool, int, float) and math.isfinite(value))
    return value if finite and str(value) == option else option


@functools.lru_cache(maxsize=256)
def signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """Returns a covering array over dims, dtypes and static arguments, with those of shallower plans first.

    Every pair of values occurs, and at depth `deep` every triple of those of `quick`, unless `where` excludes it for
    all lengths of the other dims that were tried.
    """
    groups, planned = dtype_groups(pairing), []
    for chosen in _rows(pairing, depth):
        lengths = {name: chosen[f"dim {name}"] for name in pairing.dims}
        dtypes = {group: chosen[f"dtype {i}"] for i, group in enumerate(groups)}
        planned.append(Signature.from_choices(pairing, lengths, _statics(chosen), dtypes))
    return tuple(dict.fromkeys(planned))  # balancing may produce equal rows


def first_alike(pairing: Pairing, signature: Signature) -> Signature:
    """Returns the first planned signature with the dtypes and static arguments of a given one, or else that one."""
    alike = (s for s in signatures(pairing, "quick") if (s.dtypes, s.statics) == (signature.dtypes, signature.statics))
    return next(alike, signature)


@functools.lru_cache(maxsize=256)
def _rows(pairing: Pairing, depth: str) -> tuple["_Row", ...]:
    """Returns the option of each factor in each signature of a plan."""
    shallower = DEPTHS[: DEPTHS.index(depth)]
    known = _rows(pairing, shallower[-1]) if shallower else ()
    for lengths_of, strength in ((depth, 2), *([("quick", 3)] if depth == "deep" else [])):
        factors: dict[str, tuple[Option, ...]] = {f"dtype {i}": group for i, group in enumerate(dtype_groups(pairing))}
        factors |= {f"dim {name}": boundary_lengths(axis, lengths_of) for name, axis in pairing.dims.items()}
        factors |= {f"static {name}": options for name, options in pairing.options().items()}
        rows = covering_array(list(factors.values()), strength, [list(row.values()) for row in known])
        known += tuple(_admit_rows(pairing, [dict(zip(factors, row, strict=True)) for row in rows], known, strength))
    return known


def order_by_variety(pairing: Pairing, planned: Sequence[Signature]) -> tuple[list[Signature], list[Signature]]:
    """Returns a few signatures that differ in all that matters, the most telling one first, and then the others.

    Of any two dims, each is once the longer one; each dim once has several blocks, whole blocks and a partial one; each
    static option occurs; as far as `planned` allows.
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
    blocks = {name: pairing.dims[name].block for name in lengths}
    several = {(name, "blocks") for name, block in blocks.items() if block and lengths[name] > block}
    filled = {(name, "whole" if lengths[name] % block == 0 else "part") for name, block in blocks.items() if block}
    return {*longer, *several, *filled, *signature.statics}


_Row = dict[str, Option]  # an option for each factor, by its name


def _statics(row: _Row) -> dict[str, str]:
    return {factor[7:]: option for factor, option in row.items() if factor.startswith("static ")}


def _admit_rows(pairing: Pairing, rows: list[_Row], known: Sequence[_Row], strength: int) -> list[_Row]:
    """Returns the rows with lengths that the pairing admits, and more if a combination of options would be lost.

    Combinations in `known` rows are not.
    """
    if pairing.where is None:
        return rows

    def fit(row: _Row, fixed: list[str]) -> _Row | None:
        lengths = {name: row[f"dim {name}"] for name in pairing.dims}
        admitted = pairing.fit_lengths(lengths, _statics(row), fixed)
        return {**row, **{f"dim {name}": n for name, n in admitted.items()}} if admitted else None

    found = [each for row in rows if (each := fit(row, []))]
    covered = {t for row in [*known, *found] for t in itertools.combinations(row.items(), strength)}
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
