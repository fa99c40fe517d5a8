"""Which lengths a dim takes, and the blocks it is cut into: told by tracing the kernel at many lengths."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kerneltest.declare.dims import Dim
from kerneltest.plan.boundaries import boundary_lengths
from kerneltest.start.probe import Look, Probe, Slot

# Around powers of two, where blocks end, and some that are multiples of nothing much.
_TRIED = (
    1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 255, 256, 257,
    384, 511, 512, 513,
)  # fmt: skip
_ODD = (1, 17, 48, 129)
_LONG = 2**16 + 1  # to which plans go
_LARGEST_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Taken:
    """The lengths of a dim.

    Attributes:
      dim: as a pairing declares it.
      refused: the lengths at which the kernel raises, as far as that is known.
      unlowered: the lengths at which it does not lower.
      whole: the block of which whole ones alone are counted, so that a tail may be left out; else 0.
      programs: whether the grid counts them.
      each: the grid has a program for each index, so that a few lengths say all.
    """

    dim: Dim
    refused: tuple[int, ...]
    unlowered: tuple[int, ...]
    whole: int
    programs: bool
    each: bool


def lengths_of(probe: Probe, slots: Sequence[Slot]) -> Taken:
    """Tries a dim, all of its slots at once, at many lengths; all other dims are as long as in the example."""
    length = probe.lengths[slots[0]]
    tried = sorted({*_TRIED, length, 2 * length, 3 * length})
    looks = {each: probe.look(dict.fromkeys(slots, each)) for each in tried}
    traced = {each: look for each, look in looks.items() if look is not None}
    unlowered = _unlowered(probe, slots, list(traced))
    taken = {each: look for each, look in traced.items() if each not in unlowered}
    refused = tuple(each for each in tried if each not in taken)
    multiple = math.gcd(*taken)
    while not unlowered and multiple % 2 == 0 and probe.look(dict.fromkeys(slots, min(taken) + multiple // 2)):
        multiple //= 2
    blocks = _blocks(taken)
    block = blocks.all or (blocks.whole if blocks.programs else 0)
    cut = Dim(block=max(block, multiple) if block else None)
    dim = _seen(cut, list(taken), length) if unlowered else _bounds(cut, list(taken), refused, multiple, length)
    if dim.maximum is None and not dim.values and probe.look(dict.fromkeys(slots, dim.fit(_LONG))) is None:
        dim = replace(dim, maximum=max(taken))
    grids = {n: look.numbers[: look.grids] for n, look in taken.items()}
    raised = tuple(each for each in tried if each not in traced)
    return Taken(
        dim,
        raised,
        unlowered,
        0 if blocks.all else blocks.whole,
        blocks.programs,
        all(n in g for n, g in grids.items()),
    )


def _unlowered(probe: Probe, slots: Sequence[Slot], lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths at which the kernel does not lower. Odd ones are asked first, and no more where these do."""

    def lowers(length: int) -> bool:
        return probe.lowers(dict.fromkeys(slots, length))

    asked = [each for each in _ODD if each in lengths] or lengths
    if not probe.lowers({}) or all(map(lowers, asked)):
        return ()
    return tuple(each for each in lengths if not lowers(each))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What is counted for ever more length.

    Attributes:
      all: the block of which a begun one counts too, or 0.
      whole: the block of which whole ones alone count, or 0.
      programs: whether the grid counts those.
    """

    all: int
    whole: int
    programs: bool


def _blocks(looks: Mapping[int, Look]) -> _Blocks:
    begun: list[int] = []
    whole: list[tuple[bool, int]] = []
    by_skeleton: dict[tuple[str, ...], dict[int, Look]] = {}
    for length, look in looks.items():
        by_skeleton.setdefault(look.skeleton, {})[length] = look
    for seen in by_skeleton.values():
        for place, _ in enumerate(next(iter(seen.values())).numbers):
            counts = {length: look.numbers[place] for length, look in seen.items()}
            different = len(set(counts.values()))
            if different > 1 and (block := _fitting(counts, up=True)):
                begun.append(block)
            elif different > 2 and (block := _fitting(counts, up=False)):
                whole.append((place < next(iter(seen.values())).grids, block))
    programs, block = max(whole, default=(False, 0))
    return _Blocks(max(begun, default=0), block, programs)


def _fitting(counts: Mapping[int, int], *, up: bool) -> int:
    """The block of which every length has so many, a power of two if one is; 0 if there is none."""
    longest = max(counts)
    about = max(longest // max(counts[longest], 1), 1)
    near = range(max(2, about // 2), min(2 * about + 2, _LARGEST_BLOCK) + 1)
    fitting = [b for b in near if all(n == (-(-length // b) if up else length // b) for length, n in counts.items())]
    return next((b for b in fitting if b & (b - 1) == 0), fitting[0] if fitting else 0)


def _bounds(cut: Dim, taken: Sequence[int], refused: Sequence[int], multiple: int, example: int) -> Dim:
    """The dim that takes what was taken and nothing that was refused."""
    if not refused:
        return cut
    least, most = min(taken), max(taken)
    beyond = any(each > most and each % multiple == 0 for each in refused)
    minimum = least if least > multiple else 1
    block = max(cut.block, minimum) if cut.block else None  # or else all lengths around it would be the least one
    bounded = replace(cut, block=block, multiple_of=multiple, minimum=minimum, maximum=most if beyond else None)
    return _seen(cut, taken, example) if any(map(bounded.admits, refused)) else bounded


def _seen(cut: Dim, taken: Sequence[int], example: int) -> Dim:
    """The dim of some lengths that were taken, where no rule tells the others."""
    wanted = [length for length in boundary_lengths(cut) if length in taken]
    evenly = taken[:: max(len(taken) // 4, 1)]
    return Dim(values=tuple(sorted(list(dict.fromkeys([example, *wanted, *evenly]))[:7])))


def to_blame(probe: Probe, dims: Mapping[str, Sequence[Slot]], refused: Sequence[Mapping[str, int]]) -> list[str]:
    """The dims that must keep the example's length for all of some combinations of lengths to be taken, few of them."""
    blamed: list[str] = []

    def taken(lengths: Mapping[str, int], names: Sequence[str]) -> bool:
        kept = {slot: length for name, length in lengths.items() if name not in names for slot in dims[name]}
        return probe.look(kept) is not None

    left = list(refused)
    while left and len(blamed) < len(dims):
        mended = {n: sum(taken(each, [*blamed, n]) for each in left) for n in dims if n not in blamed}
        blamed.append(max(mended, key=lambda name: mended[name]))
        left = [each for each in left if not taken(each, blamed)]
    return blamed
