"""Long signatures: one dim just past a limit of a number format, all other dims as short as possible."""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes

from kerneltest.core.dtypes import float_format, is_float, is_integer, parse_dtype
from kerneltest.declare.dims import Dim, dims_in_axes
from kerneltest.declare.domains import DType
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature, boundary_lengths, dtype_groups
from kerneltest.plan.slots import trace_oracle

# The largest consecutive integers of int8, uint8 and bfloat16, float16, int16, uint16.
_RUNGS = (2**7, 2**8, 2**11, 2**15, 2**16)
_TOTAL = 2**16  # elements of an array at which a flat index overflows 16 bits
_LONGEST_BLOCK = 2**11  # of an axis that no block divides, since one program holds all of it
_MOST_WORK = 2**23  # elements that the oracle computes
_PROBED = (64, 128)  # lengths at which the work is measured
_STEP = 2**10  # the fixed cost of an operation, in elements
_UNKNOWN = (2.0, 1.0)  # assumed growth of elements and operations, as powers of a length, if tracing fails

_PAST_SUMS = ("greatest_integers", "nearly_greatest_integers")  # which sums of narrow integers are the largest for
# Families that fill long signatures: those with exact arithmetic, and those that lead sums out of their format.
FAMILIES = {
    "quick": ("position_coded", "ones", *_PAST_SUMS),
    "standard": ("position_coded", "ones", "small_integers", *_PAST_SUMS),
}
FAMILIES["deep"] = FAMILIES["standard"]


def long_signatures(
    pairing: Pairing, depth: str, affordable: Callable[[Signature], bool] = lambda signature: True
) -> tuple[Signature, ...]:
    """Returns signatures in which one dim is just past a length at which a number format reaches its limit.

    At `quick` there is one for each dtype: first one with an array of more than 2^16 elements, if possible, then the
    longest affordable length of one dim after another. At other depths every dim takes every such length that is not
    covered by a boundary length; dtypes take turns, and each has at least one. A dim without a block is limited to 2^11
    unless it declares a maximum or a production length, since one program would hold all of it.

    A signature is `affordable` if the kernel can be run for it.
    """
    groups = dtype_groups(pairing)
    dtypes = groups[0] if groups else ("static",)
    affordable_dims: set[frozenset[str]] = set()  # the longest come first, and shorter ones cost less

    def fits(lengths: Mapping[str, int]) -> bool:
        candidate, dims = signature_in_turn(pairing, lengths, 0), frozenset(lengths)
        if candidate is None or not (dims in affordable_dims or affordable(candidate)):
            return False
        affordable_dims.add(dims)
        return True

    rows = list(_long_dims(pairing, depth, fits))
    count = len(dtypes) if depth == "quick" else max(len(rows), len(dtypes))
    planned = (signature_in_turn(pairing, rows[number % len(rows)], number) for number in range(count if rows else 0))
    return tuple(dict.fromkeys(each for each in planned if each))


def sum_signatures(
    pairing: Pairing,
    depth: str,
    formats: Callable[[Signature], Iterable[DType]],
    affordable: Callable[[Signature], bool],
) -> tuple[Signature, ...]:
    """Returns signatures in which one dim has one element more than a sum of narrow integers may have terms.

    These are arguments of at most 16 bits: 259 products of two bytes exceed 2^24, up to which float32 has every
    integer. At `quick` a dim gets the least such length, at other depths all of them.

    Args:
      formats: returns the dtypes in which the kernel adds up.
      affordable: as for `long_signatures`.
    """
    groups, planned = dtype_groups(pairing), []
    for number in range(max(map(len, groups), default=0)):
        first = signature_in_turn(pairing, {}, number)
        sizes = _integer_sizes(pairing, first) if first else {}
        if first is None or not sizes:
            continue
        terms = {*sizes.values(), *(a * b for a, b in itertools.combinations_with_replacement(sizes.values(), 2))}
        limits = sorted({limit // term + 1 for limit in map(_exact_range, formats(first)) for term in terms if term})
        for name in {axis: None for path in sizes for axis in dims_in_axes(pairing.leaves[path].shape)}:
            dim, longest = pairing.dims[name], max(boundary_lengths(pairing.dims[name], depth))
            lengths = [dim.fit(n) for n in limits if longest < dim.fit(n) <= _longest(dim) and dim.admits(dim.fit(n))]
            for length in () if dim.values else lengths[:1] if depth == "quick" else lengths:
                signature = signature_in_turn(pairing, {name: length}, number)
                if signature and affordable(signature) and not excessive_work(pairing, signature):
                    planned.append(signature)
    return tuple(dict.fromkeys(planned))


def _integer_sizes(pairing: Pairing, signature: Signature) -> dict[str, int]:
    """Returns the largest magnitude of each argument of integers of at most 16 bits, by path."""
    dtypes = {path: parse_dtype(name) for path, name in signature.dtypes}
    narrow = [
        path for path, d in dtypes.items() if is_integer(d) and d.itemsize <= 2 and pairing.leaves[path].kind.is_data
    ]
    ends = {path: pairing.leaves[path].interval(dtypes[path].name).finite_range(dtypes[path]) for path in narrow}
    return {path: max(map(abs, map(int, each))) for path, each in ends.items()}


def _exact_range(dtype: DType) -> int:
    """Returns the number up to which a dtype has every integer."""
    return 2 ** float_format(dtype).precision if is_float(dtype) else int(ml_dtypes.iinfo(dtype).max)


def signature_in_turn(
    pairing: Pairing, lengths: Mapping[str, int], number: int, fixed: Sequence[str] | None = None
) -> Signature | None:
    """Returns a signature with some lengths, the others as short as possible; None if `where` excludes these lengths.

    Dtypes and static options take turns with its number. `where` must not change the lengths of the `fixed` dims, which
    are those that are given by default.
    """
    statics = {name: each[number % len(each)] for name, each in pairing.options().items()}
    admitted = pairing.fit_lengths(
        {**_shortest_lengths(pairing), **lengths}, statics, list(lengths) if fixed is None else fixed
    )
    chosen = {group: group[number % len(group)] for group in dtype_groups(pairing)}
    return Signature.from_choices(pairing, admitted, statics, chosen) if admitted else None


def excessive_work(pairing: Pairing, signature: Signature) -> str:
    """Returns why the oracle is too expensive for a long signature; "" if it is not."""
    cost = OracleCost.measure(pairing)
    elements, operations = cost.at(dict(signature.dims))
    elements += _STEP * operations
    if elements <= _MOST_WORK:
        return ""
    if longer := [name for name, length in signature.dims if name in cost.assumed and length > cost.shortest[name]]:
        return (
            "the oracle may take too long at these lengths: its work could not be counted, and may grow with the "
            f"square of {' and '.join(longer)}"
        )
    return f"the oracle computes about {elements:,.0f} elements at these lengths; the limit is {_MOST_WORK:,}"


def _long_dims(pairing: Pairing, depth: str, fits: Callable[[Mapping[str, int]], bool]) -> Iterator[Mapping[str, int]]:
    """Yields the lengths of the long dims of each signature."""
    total = _lengths_past_total(pairing)
    totals = [total] if total and fits(total) else []
    ladders = {name: list(_limit_lengths(dim, depth))[::-1] for name, dim in pairing.dims.items()}
    if depth == "quick":
        # Of equal lengths, prefer the last dim, along which most arrays are contiguous.
        tried = (next(({name: n} for n in ladder if fits({name: n})), {}) for name, ladder in reversed(ladders.items()))
        longest = sorted(filter(None, tried), key=lambda row: -max(row.values()))
    else:
        longest = [{name: n} for name, ladder in ladders.items() for n in ladder if fits({name: n})]
    if not any(max(row.values()) > _TOTAL for row in longest):
        yield from totals
    yield from longest


def _limit_lengths(dim: Dim, depth: str) -> Iterator[int]:
    """Yields, ascending, lengths just past the limits of formats that no boundary length covers."""
    boundary, most = boundary_lengths(dim, depth), _longest(dim)
    for rung, following in zip(_RUNGS, (*_RUNGS[1:], math.inf), strict=True):
        length = dim.fit(rung + 1)
        covered = any(rung < other <= following for other in boundary)
        if not dim.values and rung <= most and dim.admits(length) and length > rung and not covered:
            yield length


def _longest(dim: Dim) -> int:
    is_whole = dim.block is None and not (dim.maximum or dim.production)
    return _LONGEST_BLOCK if is_whole else _RUNGS[-1]


def _lengths_past_total(pairing: Pairing) -> dict[str, int]:
    """Returns equal lengths of the dims of the array with the most dims, more than 2^16 elements; {} if impossible."""
    free = [
        [axis for axis in dict.fromkeys(leaf.shape) if isinstance(axis, str) and not pairing.dims[axis].values]
        for leaf in pairing.leaves.values()
    ]
    axes = max(free, key=len, default=[])
    if len(axes) < 2:
        return {}
    length = math.isqrt(_TOTAL) + 1 if len(axes) == 2 else math.ceil((_TOTAL + 1) ** (1 / len(axes)))
    lengths = {axis: pairing.dims[axis].fit(length) for axis in axes}
    return lengths if all(pairing.dims[axis].admits(n) for axis, n in lengths.items()) else {}


def _first_options(pairing: Pairing) -> dict[str, str]:
    return {name: options[0] for name, options in pairing.options().items()}


def _shortest_lengths(pairing: Pairing) -> dict[str, int]:
    shortest = {name: dim.shortest for name, dim in pairing.dims.items()}
    return pairing.fit_lengths(shortest, _first_options(pairing)) or shortest


@dataclass(frozen=True, slots=True)
class OracleCost:
    """The numbers of elements and of operations that the oracle computes, extrapolated from two lengths of each dim."""

    shortest: Mapping[str, int]  # the lengths of the shortest signature, by dim
    least: tuple[float, float]  # both numbers at these lengths
    powers: Mapping[str, tuple[float, float]]  # by dim, the exponents of its length with which they grow
    assumed: frozenset[str]  # the dims whose growth was assumed, since the oracle could not be traced

    @classmethod
    @functools.lru_cache(maxsize=256)
    def measure(cls, pairing: Pairing) -> "OracleCost":
        """Evaluates the oracle at two lengths of each dim that has a choice of lengths."""
        shortest = _shortest_lengths(pairing)
        powers: dict[str, tuple[float, float]] = {}
        assumed = set()
        for name, dim in pairing.dims.items():
            length, longer = (dim.fit(length) for length in _PROBED)
            if dim.values or length == longer:
                continue
            few, many = (_counts(pairing, {**shortest, name: n}) for n in (length, longer))
            if few is None or many is None:
                assumed.add(name)
                powers[name] = _UNKNOWN
            else:
                elements, operations = (
                    math.log(b / a) / math.log(longer / length) for a, b in zip(few, many, strict=True)
                )
                powers[name] = elements, operations
        return cls(shortest, _counts(pairing, shortest) or (1.0, 1.0), powers, frozenset(assumed))

    def at(self, lengths: Mapping[str, int]) -> tuple[float, float]:
        """Returns the elements and the operations of the shortest signature with these lengths of some dims."""
        known = [
            (n / max(self.shortest[name], 1), self.powers[name]) for name, n in lengths.items() if name in self.powers
        ]
        elements, operations = self.least
        return (
            elements * math.prod(factor**power for factor, (power, _) in known),
            operations * math.prod(factor**power for factor, (_, power) in known),
        )


def _counts(pairing: Pairing, lengths: Mapping[str, int]) -> tuple[float, float] | None:
    """Returns the numbers of elements and of operations of the oracle at some lengths; None if tracing fails."""
    first = _first_options(pairing)
    signature = Signature.from_choices(pairing, pairing.fit_lengths(lengths, first) or lengths, first, {})
    tape = trace_oracle(pairing, signature)
    if tape is None:
        return None
    return 1.0 + sum(step.output.samples.size for step in tape), 1.0 + len(tape)
