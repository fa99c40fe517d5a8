"""Long signatures: lengths just past those at which number formats run out, all other dims as short as they may be."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.exactness import evaluated
from kerneltest.plan.lengths import boundary_lengths
from kerneltest.plan.signatures import Signature, dtype_groups

# What a format counts to without a gap: int8, uint8 and bfloat16, float16, int16, uint16.
_RUNGS = (2**7, 2**8, 2**11, 2**15, 2**16)
_TOTAL = 2**16  # elements of one array, for an index into all of it
_UNCUT = 2**11  # a program holds all of an axis that no block cuts
_WORK = 2**23  # elements that the oracle computes
_PROBED = (64, 128)  # lengths at which that is measured
_STEP = 2**10  # elements: what an operation costs beside those
_UNKNOWN = (
    2.0,
    1.0,
)  # powers of a length with which elements and operations may grow of an oracle that is not followed

# Families whose arithmetic is exact, for which a long signature is filled.
FAMILIES = {"quick": ("position_coded", "ones"), "standard": ("position_coded", "ones", "small_integers")}
FAMILIES["deep"] = FAMILIES["standard"]


def long_signatures(
    pairing: Pairing, depth: str, affordable: Callable[[Signature], bool] = lambda signature: True
) -> tuple[Signature, ...]:
    """Signatures in which one dim is just past a length at which a number format runs out.

    At `quick` there is one for each dtype: an array of more than 2^16 elements in all if there is one, and of one dim
    after another the longest that can be afforded. At other depths every dim has every such length that no boundary
    length covers; dtypes take turns, and each has one. A dim that no block cuts ends at 2^11 unless it declares a
    maximum or a production length, since one program would hold all of it.

    Args:
      pairing, depth: to plan for.
      affordable: whether a kernel can be run for a signature.
    """
    groups, options = dtype_groups(pairing), pairing.options()
    dtypes = groups[0] if groups else ("static",)

    def signature(lengths: Mapping[str, int], number: int) -> Signature | None:
        statics = {name: each[number % len(each)] for name, each in options.items()}
        admitted = pairing.fitted({**_shortest(pairing), **lengths}, statics, list(lengths))
        chosen = {group: group[number % len(group)] for group in groups}
        return Signature.of(pairing, admitted, statics, chosen) if admitted else None

    afforded: set[frozenset[str]] = set()  # the longest come first, and what is shorter takes no longer

    def fits(lengths: Mapping[str, int]) -> bool:
        made, which = signature(lengths, 0), frozenset(lengths)
        if made is None or not (which in afforded or affordable(made)):
            return False
        afforded.add(which)
        return True

    rows = list(_rows(pairing, depth, fits))
    count = len(dtypes) if depth == "quick" else max(len(rows), len(dtypes))
    planned = (signature(rows[number % len(rows)], number) for number in range(count if rows else 0))
    return tuple(dict.fromkeys(each for each in planned if each))


def too_much(pairing: Pairing, signature: Signature) -> str:
    """Why the oracle is not asked for a long signature, or "": what it computes grows too fast with a length."""
    cost = Cost.of(pairing)
    elements = cost.at(dict(signature.dims))
    if elements <= _WORK:
        return ""
    return f"the oracle computes about {elements:,.0f} elements at these lengths, and {_WORK:,} are the most"


def _rows(pairing: Pairing, depth: str, fits: Callable[[Mapping[str, int]], bool]) -> Iterator[Mapping[str, int]]:
    """Lengths of the dims that are long, signature by signature."""
    total = _past_total(pairing)
    totals = [total] if total and fits(total) else []
    ladders = {name: list(_rungs(dim, depth))[::-1] for name, dim in pairing.dims.items()}
    if depth == "quick":
        # Of equal ones the dim that comes last, along which elements are contiguous in most arrays.
        tried = (next(({name: n} for n in ladder if fits({name: n})), {}) for name, ladder in reversed(ladders.items()))
        longest = sorted(filter(None, tried), key=lambda row: -max(row.values()))
    else:
        longest = [{name: n} for name, ladder in ladders.items() for n in ladder if fits({name: n})]
    if not any(max(row.values()) > _TOTAL for row in longest):
        yield from totals
    yield from longest


def _rungs(dim: Dim, depth: str) -> Iterator[int]:
    """Lengths just past those at which a format runs out, ascending, without what a boundary length covers."""
    boundary = boundary_lengths(dim, depth)
    longer = max(dim.maximum or 0, dim.production or 0)
    most = _UNCUT if dim.block is None and not longer else _RUNGS[-1]
    for rung, following in zip(_RUNGS, (*_RUNGS[1:], math.inf), strict=True):
        length = dim.fit(rung + 1)
        covered = any(rung < other <= following for other in boundary)
        if not dim.values and rung <= most and dim.admits(length) and length > rung and not covered:
            yield length


def _past_total(pairing: Pairing) -> dict[str, int]:
    """Equal lengths of the dims of one array, the one with the most, such that it has over 2^16 elements; or {}."""
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


def _shortest(pairing: Pairing) -> dict[str, int]:
    shortest = {name: dim.least for name, dim in pairing.dims.items()}
    first = {name: each[0] for name, each in pairing.options().items()}
    return pairing.fitted(shortest, first) or shortest


@dataclass(frozen=True, slots=True)
class Growth:
    """How a count grows with the lengths of dims, each by itself.

    Attributes:
      least: for the shortest signature.
      powers: by dim, the power of its length.
    """

    least: float
    powers: Mapping[str, float]

    def at(self, longer: Mapping[str, float]) -> float:
        """With some dims so many times as long as in the shortest signature."""
        grown = (float(times ** self.powers.get(name, 0.0)) for name, times in longer.items())
        return self.least * math.prod(grown)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the oracle computes, as far as two lengths of each dim tell.

    Attributes:
      shortest: lengths by dim.
      elements: of all its operations.
      steps: these operations.
    """

    shortest: Mapping[str, int]
    elements: Growth
    steps: Growth

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, pairing: Pairing) -> "Cost":
        """Measured, which evaluates the oracle twice for each dim that has a choice of lengths."""
        shortest = _shortest(pairing)
        least = _counts(pairing, shortest) or (1.0, 1.0)
        powers: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for name, dim in pairing.dims.items():
            lengths = [dim.fit(length) for length in _PROBED]
            if dim.values or lengths[0] == lengths[1]:
                continue
            few, many = (_counts(pairing, {**shortest, name: length}) for length in lengths)
            for each, power in enumerate(powers):
                known = few and many and math.log(many[each] / few[each]) / math.log(lengths[1] / lengths[0])
                power[name] = _UNKNOWN[each] if known is None else known
        return cls(shortest, *(Growth(one, power) for one, power in zip(least, powers, strict=True)))

    def at(self, lengths: Mapping[str, int]) -> float:
        """For the shortest signature with these lengths of some dims: elements, and what operations cost beside."""
        return self.elements_at(lengths) + _STEP * self.steps.at(self._longer(lengths))

    def elements_at(self, lengths: Mapping[str, int]) -> float:
        """For the shortest signature with these lengths of some dims."""
        return self.elements.at(self._longer(lengths))

    def _longer(self, lengths: Mapping[str, int]) -> dict[str, float]:
        return {name: length / max(self.shortest[name], 1) for name, length in lengths.items()}


def _counts(pairing: Pairing, lengths: Mapping[str, int]) -> tuple[float, float] | None:
    """The elements that the oracle computes for some lengths, and its operations; None where it is not followed."""
    first = {name: each[0] for name, each in pairing.options().items()}
    signature = Signature.of(pairing, pairing.fitted(lengths, first) or lengths, first, {})
    tape = evaluated(pairing, signature)
    if tape is None:
        return None
    return 1.0 + sum(step.output.samples.size for step in tape), 1.0 + len(tape)
