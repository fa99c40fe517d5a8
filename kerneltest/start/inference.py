"""Infers which axes of a kernel's arguments share a dim, by tracing the kernel with some of them longer.

An axis that can be longer by itself is a dim of its own if the kernel then does more: if its grid, a loop or a value in
it is longer. If not, the kernel assumes that another axis has the same length. Axes that can only be longer together
share a dim.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.core.failures import Failure
from kerneltest.declare.dims import Dim
from kerneltest.plan.signatures import boundary_lengths
from kerneltest.start.command_progress import TimeLimitError
from kerneltest.start.example_calls import Example
from kerneltest.start.trace_probe import Lengths, LengthSlot, Probe, TraceLengths

_MOST = 6  # slots of equal length of which every pair is tried with another


def infer_dims(probe: Probe, others: Sequence[Lengths] = ()) -> tuple[list[tuple[LengthSlot, ...]], list[str]]:
    """Infers the slots of each dim of a call, the one that determines its length first, and notes for the author.

    Lengths in other calls separate axes that have equal lengths only by chance.
    """
    groups: list[list[LengthSlot]] = []
    followers: list[LengthSlot] = []
    unknown: list[LengthSlot] = []
    resized: set[LengthSlot] = set()  # an output follows their length

    def differ(one: LengthSlot, other: LengthSlot) -> bool:
        return any(lengths[one] != lengths[other] for lengths in (probe.lengths, *others))

    # Group the slots whose lengths the kernel checks against each other.
    for slot in probe.lengths:
        if any(slot in group for group in groups):
            continue
        try:
            longer = probe.trace_longer([slot])
            equal = [s for s in probe.lengths if s != slot and not differ(s, slot)]
            together = [] if longer is not None else _smallest_that_grows(probe, slot, equal, groups)
        except TimeLimitError:
            unknown.append(slot)
            continue
        if longer is not None:
            _, look = longer
            if look.outputs != probe.own.outputs:
                resized.add(slot)
            elif slot.axis is None:
                continue  # a number that affects no output shape is an option, such as a block size
            if (look.skeleton, look.numbers) != (probe.own.skeleton, probe.own.numbers):
                groups.append([slot])
            else:
                followers.append(slot)  # the kernel takes the length from another axis
            continue
        if together is None:
            continue  # its length is fixed
        overlapping = [group for group in groups if set(group) & set(together)]
        merged = list(dict.fromkeys([*itertools.chain(*overlapping), *together]))
        groups = [*(group for group in groups if group not in overlapping), merged]
    # No check constrains the remaining slots: assume that each shares the most similar dim.
    guesses = []
    blocks = probe.block_formulas() if followers else {}
    for slot in followers:
        if any(slot in group for group in groups):
            continue
        candidates = [group for group in groups if not any(differ(slot, each) for each in group)]
        if not candidates and slot in resized:
            groups.append([slot])
            continue
        if not candidates:
            guesses.append(f"{slot}: fixed, since nothing in the kernel depends on its length")
            continue
        chosen = max(candidates, key=lambda group: _affinity(slot, group, blocks))
        if _affinity(slot, chosen, blocks)[0] == 0:
            leader = chosen[0]
            guesses.append(
                f"{slot} has the length of {leader}: they are equal in the example, and the kernel uses only the "
                f"length of {leader}"
            )
        chosen.append(slot)
    order = {slot: number for number, slot in enumerate(probe.lengths)}
    dims = sorted((tuple(group) for group in groups), key=lambda group: min(order[slot] for slot in group))
    if unknown:
        guesses.append(f"{', '.join(map(str, unknown))}: fixed, since the time was over; give a larger --limit")
    return dims, guesses


def _smallest_that_grows(
    probe: Probe, slot: LengthSlot, equal: Sequence[LengthSlot], groups: Sequence[Sequence[LengthSlot]]
) -> list[LengthSlot] | None:
    """Returns slots that can be longer together with a slot; None if none are found.

    Every set of equal slots would be too many to try: pairs and triples come first, then the slots of the same axis. If
    all of them together can grow, those that need not grow are removed, one known dim after another.
    """
    same_axis = [each for each in equal if each.axis == slot.axis]
    few = equal if len(equal) <= _MOST else same_axis[:_MOST]
    tried = [[slot, each] for each in equal]
    tried += [[slot, *pair] for pair in itertools.combinations(few, 2)]
    tried += [[slot, *same_axis]] if len(same_axis) > 2 else []
    if (found := next((each for each in tried if probe.trace_longer(each) is not None), None)) is not None:
        return found
    kept = [slot, *equal]
    if len(equal) < 3 or probe.trace_longer(kept) is None:
        return None
    for unit in (*groups, *([each] for each in equal)):
        fewer = [each for each in kept if each not in unit]
        if slot in fewer and len(fewer) < len(kept) and probe.trace_longer(fewer) is not None:
            kept = fewer
    return kept


def _affinity(slot: LengthSlot, group: Sequence[LengthSlot], mapped: dict[LengthSlot, str]) -> tuple[int, int, int]:
    # How likely a slot belongs to a dim: equal blocks, equal axis, few slots in the dim.
    blocks = slot in mapped and any(mapped[slot] == mapped.get(each) for each in group)
    return int(blocks), int(any(slot.axis == each.axis for each in group)), -len(group)


# Infers the lengths that a dim admits and its block size, by tracing the kernel at many lengths.

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
    """The lengths that a dim admits."""

    dim: Dim  # the dim as a pairing declares it
    rejected: tuple[int, ...]  # the tried lengths at which the kernel raises
    unlowered: tuple[int, ...]  # the tried lengths at which it does not lower
    whole_block: int  # the block size if only whole blocks are counted, so that a tail may be skipped; else 0
    counted_by_grid: bool  # whether the grid counts the whole blocks
    program_per_index: bool  # whether the grid has a program for each index, so that a few lengths suffice
    # False if the time was over before all lengths were tried; then only those tried are admitted
    is_complete: bool = True


def infer_lengths(probe: Probe, slots: Sequence[LengthSlot], target: str = "") -> InferredLengths:
    """Traces a dim at many lengths, all of its slots together; a kernel without language must lower for `target`."""
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
    partial, whole, by_grid = _infer_blocks(admitted)
    block = partial or (whole if by_grid else 0)
    cut = Dim(block=max(block, multiple) if block else None)
    if unlowered:
        dim = _listed_lengths(cut, list(admitted), length)
    else:
        dim = _bounded_dim(cut, list(admitted), rejected, multiple, length)
    if dim.maximum is None and not dim.values and probe.trace_lengths(dict.fromkeys(slots, dim.fit(_LONG))) is None:
        dim = replace(dim, maximum=max(admitted))
    grids = {n: look.numbers[: look.grid_count] for n, look in admitted.items()}
    raised = tuple(each for each in tried if each not in traced)
    program_per_index = all(n in grid for n, grid in grids.items())
    return InferredLengths(dim, raised, unlowered, 0 if partial else whole, by_grid, program_per_index)


def _unlowered(probe: Probe, slots: Sequence[LengthSlot], lengths: Sequence[int], target: str) -> tuple[int, ...]:
    # If the kernel lowers at all odd lengths, no others are tried.

    def lowers(length: int) -> bool:
        return probe.lowers(dict.fromkeys(slots, length), target)

    odd = [each for each in _ODD if each in lengths] or lengths
    if not probe.lowers({}, target) or all(map(lowers, odd)):
        return ()
    return tuple(each for each in lengths if not lowers(each))


def _infer_blocks(looks: Mapping[int, TraceLengths]) -> tuple[int, int, bool]:
    # Block sizes, or 0: where partial blocks are counted too, and where only whole ones are; whether by the grid.
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
    return max(begun, default=0), block, programs


def _fit_block(counts: Mapping[int, int], *, up: bool) -> int:
    # Preferably a power of two.
    longest = max(counts)
    about = max(longest // max(counts[longest], 1), 1)
    near = range(max(2, about // 2), min(2 * about + 2, _LARGEST_BLOCK) + 1)
    fitting = [b for b in near if all(n == (-(-length // b) if up else length // b) for length, n in counts.items())]
    return next((b for b in fitting if b & (b - 1) == 0), fitting[0] if fitting else 0)


def _bounded_dim(cut: Dim, admitted: Sequence[int], rejected: Sequence[int], multiple: int, example: int) -> Dim:
    if not rejected:
        return cut
    least, most = min(admitted), max(admitted)
    beyond = any(each > most and each % multiple == 0 for each in rejected)
    minimum = least if least > multiple else 1
    block = max(cut.block, minimum) if cut.block else None  # lengths around a smaller one would be below the minimum
    bounded = replace(cut, block=block, multiple_of=multiple, minimum=minimum, maximum=most if beyond else None)
    return _listed_lengths(cut, admitted, example) if any(map(bounded.admits, rejected)) else bounded


def _listed_lengths(cut: Dim, admitted: Sequence[int], example: int) -> Dim:
    # None far longer than the example's: each is run with each of another dim, which would make a first run slow.
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


# Declarations of integer arrays next to floats, by their names: positions, counts of elements, sizes of groups.
#
# Tracing cannot determine these. A declaration by the name is only a proposal, which the file asks its author to check.

_POSITIONS = {
    "at", "gather", "id", "ids", "idx", "index", "indices", "inds", "label", "labels", "perm", "permutation", "pos",
    "position", "positions", "start", "starts", "target", "targets", "token", "tokens",
}  # fmt: skip
_COUNTS = {"count", "counts", "len", "length", "lengths", "lens", "num", "seqlen", "seqlens", "valid"}
_SIZES = {"group", "groups", "size", "sizes"}
_OFFSETS = {"cu", "cum", "cumulative", "indptr", "offset", "offsets"}
_PAGES = {"block", "blocks", "page", "pages", "table", "tables"}  # several axes fit; only the author knows
_DATA = {"seg", "segment", "segments"}  # compared with each other only
_POINTERS = (np.dtype(np.int32), np.dtype(np.int64))


def may_point(example: Example, path: str) -> bool:
    """Returns whether an array may hold positions or counts: wide signed integers next to floats."""
    return example.leaves[path].dtype in _POINTERS and any(is_float(leaf.dtype) for leaf in example.leaves.values())


def role_source(example: Example, path: str, shapes: Mapping[str, list[str]], dims: Mapping[str, int]) -> str:
    """Returns the declaration that an array's name suggests, or ""; `shapes` are as declared, `dims` have lengths."""
    words = set(re.split(r"[^a-z]+", path.lower()))
    shape = shapes[path]
    text, dtype = " ".join(shape), example.leaves[path].dtype
    more = "" if dtype == np.int32 else f', dtype="{dtype}"'
    most = example.ranges.get(path, (0, -1))[1]

    floats = [shapes[leaf] for leaf, each in example.leaves.items() if is_float(each.dtype)]
    size = len(shape)

    def bounded(kind: str, option: str, room: int, *, may_follow: bool = True) -> str:
        # By the axis that follows, as in labels `b` of logits `b n`, or else the first one of another array, as in ids
        # `n` of a table `v d`.
        following = [axes[size] for axes in reversed(floats) if axes[:size] == shape and len(axes) > size]
        first = [axes[0] for axes in floats if axes and not set(axes) & set(shape)]
        for dim in (*following * may_follow, *first):
            if dim.isidentifier() and dim not in shape and most < dims[dim] + room:
                return f'kt.{kind}("{text}", {option}="{dim}"{more})'
        return ""

    if words & _PAGES:
        return ""
    if words & _DATA:
        return f'kt.array("{text}", "{dtype}", domain=(0, 3))'
    if size == 1 and words & _OFFSETS:
        return ""  # one longer than there are groups, which is a length that needs its author
    if size == 1 and words & _SIZES:
        return bounded("partition", "of", 1, may_follow=False)
    if words & _COUNTS:
        return bounded("lengths", "up_to", 1)
    return bounded("indices", "into", 0) if words & _POSITIONS else ""


# Infers whether a kernel that names no language is for GPUs or for TPUs only: by where it lowers.

BACKENDS = {"gpu": "lower:sm_90", "tpu": "lower:tpu-v5e"}
_OTHERS = (17, 129)  # lengths that no language favours


def infer_target(probe: Probe, dims: Mapping[str, Sequence[LengthSlot]]) -> str:
    """Returns `gpu` or `tpu` if a kernel without language lowers only there, or at all lengths only there; else ""."""
    try:
        if probe.traced.dialects != {"any"}:
            return ""
        here = [name for name, backend in BACKENDS.items() if probe.lowers_on(backend, {})]
        if len(here) < 2:
            return "".join(here)
        fitting = dict.fromkeys(BACKENDS, True)
        for slots in dims.values():
            for length in _OTHERS:
                changed = dict.fromkeys(slots, length)
                if probe.trace_lengths(changed) is None:
                    continue
                for name, backend in BACKENDS.items():
                    fitting[name] = fitting[name] and probe.lowers_on(backend, changed)
            if not all(fitting.values()):
                break
        return next(name for name in fitting if fitting[name]) if sum(fitting.values()) == 1 else ""
    except (Failure, TimeLimitError):
        return ""
