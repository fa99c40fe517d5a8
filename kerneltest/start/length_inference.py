"""Infers the lengths that a dim admits and its block size, by tracing the kernel at many lengths."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.declare.dims import Dim
from kerneltest.plan.boundaries import boundary_lengths
from kerneltest.start.command_progress import TimeLimitError
from kerneltest.start.trace_probe import LengthSlot, Probe, TraceLengths

# Lengths around powers of two, where blocks end, and some with few divisors.
_TRIED = (
    1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 255, 256, 257,
    384, 511, 512, 513,
)  # fmt: skip
_FIRST = (1, 17, 64, 128, 129, 256)  # the most informative ones, in case time is short
_ODD = (1, 17, 48, 129)
_LONG = 2**16 + 1  # the longest length in plans
_LARGEST_BLOCK = 256
_LISTED = 5  # the most lengths of a dim that has no rule


@dataclass(frozen=True, slots=True)
class InferredLengths:
    """The lengths that a dim admits.

    Attributes:
      dim: the dim as a pairing declares it.
      rejected: the tried lengths at which the kernel raises.
      unlowered: the tried lengths at which it does not lower.
      whole_block: the block size if only whole blocks are counted, so that a tail may be skipped; else 0.
      counted_by_grid: whether the grid counts the whole blocks.
      program_per_index: whether the grid has a program for each index, so that a few lengths suffice.
      is_complete: False if the time was over before all lengths were tried; then only those tried are admitted.
    """

    dim: Dim
    rejected: tuple[int, ...]
    unlowered: tuple[int, ...]
    whole_block: int
    counted_by_grid: bool
    program_per_index: bool
    is_complete: bool = True


def infer_lengths(probe: Probe, slots: Sequence[LengthSlot], target: str = "") -> InferredLengths:
    """Traces a dim, all of its slots together, at many lengths; other dims keep the lengths of the example.

    Args:
      probe: the call.
      slots: the slots of the dim.
      target: the id of the backend for which a kernel that names no language must lower; "" for none.
    """
    length = probe.lengths[slots[0]]
    looks: dict[int, TraceLengths | None] = {}
    try:
        for each in dict.fromkeys((length, 2 * length, *_FIRST, *_TRIED, 3 * length)):
            looks[each] = probe.trace_lengths(dict.fromkeys(slots, each))
        return _infer_from(probe, slots, dict(sorted(looks.items())), target)
    except TimeLimitError:
        works = sorted({length, *(each for each, look in looks.items() if look is not None)})
        dim = _listed_lengths(Dim(), works, length)
        raised = tuple(sorted(each for each, look in looks.items() if look is None))
        return InferredLengths(dim, raised, (), 0, False, False, is_complete=False)


def _infer_from(
    probe: Probe, slots: Sequence[LengthSlot], looks: Mapping[int, TraceLengths | None], target: str
) -> InferredLengths:
    length, tried = probe.lengths[slots[0]], list(looks)
    traced = {each: look for each, look in looks.items() if look is not None}
    unlowered = _unlowered(probe, slots, list(traced), target)
    admitted = {each: look for each, look in traced.items() if each not in unlowered}
    rejected = tuple(each for each in tried if each not in admitted)
    multiple = math.gcd(*admitted)
    while (
        not unlowered and multiple % 2 == 0 and probe.trace_lengths(dict.fromkeys(slots, min(admitted) + multiple // 2))
    ):
        multiple //= 2
    blocks = _infer_blocks(admitted)
    block = blocks.all or (blocks.whole if blocks.programs else 0)
    cut = Dim(block=max(block, multiple) if block else None)
    if unlowered:
        dim = _listed_lengths(cut, list(admitted), length)
    else:
        dim = _bounded_dim(cut, list(admitted), rejected, multiple, length)
    if dim.maximum is None and not dim.values and probe.trace_lengths(dict.fromkeys(slots, dim.fit(_LONG))) is None:
        dim = replace(dim, maximum=max(admitted))
    grids = {n: look.numbers[: look.grid_count] for n, look in admitted.items()}
    raised = tuple(each for each in tried if each not in traced)
    return InferredLengths(
        dim,
        raised,
        unlowered,
        0 if blocks.all else blocks.whole,
        blocks.programs,
        all(n in g for n, g in grids.items()),
    )


def _unlowered(probe: Probe, slots: Sequence[LengthSlot], lengths: Sequence[int], target: str) -> tuple[int, ...]:
    """Returns the lengths at which the kernel does not lower. If it lowers at all odd ones, no others are tried."""

    def lowers(length: int) -> bool:
        return probe.lowers(dict.fromkeys(slots, length), target)

    odd = [each for each in _ODD if each in lengths] or lengths
    if not probe.lowers({}, target) or all(map(lowers, odd)):
        return ()
    return tuple(each for each in lengths if not lowers(each))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The block sizes of which a trace holds counts.

    Attributes:
      all: the block size if partial blocks are counted as well, or 0.
      whole: the block size if only whole blocks are counted, or 0.
      programs: whether the grid counts the whole blocks.
    """

    all: int
    whole: int
    programs: bool


def _infer_blocks(looks: Mapping[int, TraceLengths]) -> _Blocks:
    begun: list[int] = []
    whole: list[tuple[bool, int]] = []
    by_skeleton: dict[tuple[str, ...], dict[int, TraceLengths]] = {}
    for length, look in looks.items():
        by_skeleton.setdefault(look.skeleton, {})[length] = look
    for seen in by_skeleton.values():
        for place, _ in enumerate(next(iter(seen.values())).numbers):
            counts = {length: look.numbers[place] for length, look in seen.items()}
            different = len(set(counts.values()))
            if different > 1 and (block := _fit_block(counts, up=True)):
                begun.append(block)
            elif different > 2 and (block := _fit_block(counts, up=False)):
                whole.append((place < next(iter(seen.values())).grid_count, block))
    programs, block = max(whole, default=(False, 0))
    return _Blocks(max(begun, default=0), block, programs)


def _fit_block(counts: Mapping[int, int], *, up: bool) -> int:
    """Returns the block size that explains the counts by length, preferably a power of two; 0 if none does."""
    longest = max(counts)
    about = max(longest // max(counts[longest], 1), 1)
    near = range(max(2, about // 2), min(2 * about + 2, _LARGEST_BLOCK) + 1)
    fitting = [b for b in near if all(n == (-(-length // b) if up else length // b) for length, n in counts.items())]
    return next((b for b in fitting if b & (b - 1) == 0), fitting[0] if fitting else 0)


def _bounded_dim(cut: Dim, admitted: Sequence[int], rejected: Sequence[int], multiple: int, example: int) -> Dim:
    """Returns a dim that admits all lengths that work and none of those that do not."""
    if not rejected:
        return cut
    least, most = min(admitted), max(admitted)
    beyond = any(each > most and each % multiple == 0 for each in rejected)
    minimum = least if least > multiple else 1
    block = max(cut.block, minimum) if cut.block else None  # lengths around a smaller one would be below the minimum
    bounded = replace(cut, block=block, multiple_of=multiple, minimum=minimum, maximum=most if beyond else None)
    return _listed_lengths(cut, admitted, example) if any(map(bounded.admits, rejected)) else bounded


def _listed_lengths(cut: Dim, admitted: Sequence[int], example: int) -> Dim:
    """Returns a dim with some of the lengths that work, for lack of a rule: none far longer than the example's.

    Each listed length is run with each of another dim, so long ones would make a first run slow.
    """
    near = [each for each in admitted if each <= 2 * example]
    boundaries = [length for length in boundary_lengths(cut) if length in near]
    evenly = near[:: max(len(near) // (_LISTED - 1), 1)]
    return Dim(values=tuple(sorted(list(dict.fromkeys([example, min(near), *boundaries, *evenly]))[:_LISTED])))


def dims_to_pin(
    probe: Probe, dims: Mapping[str, Sequence[LengthSlot]], rejected: Sequence[Mapping[str, int]]
) -> list[str]:
    """Returns a small set of dims that must keep the example's length for all rejected combinations to work."""
    pinned: list[str] = []

    def works(lengths: Mapping[str, int], names: Sequence[str]) -> bool:
        changed = {slot: length for name, length in lengths.items() if name not in names for slot in dims[name]}
        return probe.trace_lengths(changed) is not None

    left = list(rejected)
    while left and len(pinned) < len(dims):
        fixed = {n: sum(works(each, [*pinned, n]) for each in left) for n in dims if n not in pinned}
        pinned.append(max(fixed, key=lambda name: fixed[name]))
        left = [each for each in left if not works(each, pinned)]
    return pinned
