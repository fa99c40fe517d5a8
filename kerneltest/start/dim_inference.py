"""Infers which axes of a kernel's arguments share a dim, by tracing the kernel with some of them longer.

An axis that can be longer by itself is a dim of its own if the kernel then does more: if its grid, a loop or a value in
it is longer. If not, the kernel assumes that another axis has the same length. Axes that can only be longer together
share a dim.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kerneltest.start.command_progress import TimeLimitError
from kerneltest.start.trace_probe import Lengths, LengthSlot, Probe, TraceLengths


@dataclass(frozen=True, slots=True)
class InferredDims:
    """The axes of a call.

    Attributes:
      dims: the slots of each dim, the one that determines its length first.
      fixed: slots with a fixed length.
      assumptions: assumptions for the author to check, one line each.
    """

    dims: tuple[tuple[LengthSlot, ...], ...]
    fixed: tuple[LengthSlot, ...]
    assumptions: tuple[str, ...]


_MOST = 6  # slots of equal length of which every pair is tried with another


def infer_dims(probe: Probe, others: Sequence[Lengths] = ()) -> InferredDims:
    """Infers the dims of a call.

    Args:
      probe: the call.
      others: lengths in further calls; they separate axes that have equal lengths in the first only by chance.
    """
    groups: list[list[LengthSlot]] = []
    followers: list[LengthSlot] = []
    fixed: list[LengthSlot] = []
    differ = _differ(probe, others)
    unknown: list[LengthSlot] = []
    resized: set[LengthSlot] = set()  # an output follows their length
    # Group the slots whose lengths the kernel checks against each other.
    for slot in probe.lengths:
        if any(slot in group for group in groups):
            continue
        try:
            look = _trace_longer(probe, [slot])
            equal = [s for s in probe.lengths if s != slot and not differ(s, slot)]
            together = [] if look is not None else _smallest_that_grows(probe, slot, equal, groups)
        except TimeLimitError:
            unknown.append(slot)
            continue
        if look is not None:
            if slot.axis is None and look.outputs == _example_lengths(probe).outputs:
                continue  # a number that affects no output shape is an option, such as a block size
            (groups.append([slot]) if _does_more(look, _example_lengths(probe)) else followers.append(slot))
            resized |= {slot} if look.outputs != _example_lengths(probe).outputs else set()
            continue
        if together is None:
            if slot.axis is not None:
                fixed.append(slot)
            continue
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
            fixed.append(slot)
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
    return InferredDims(tuple(dims), (*fixed, *unknown), tuple(guesses))


def _example_lengths(probe: Probe) -> TraceLengths:
    look = probe.trace_lengths({})
    assert look is not None  # a probe has traced its example
    return look


def _does_more(look: TraceLengths, example: TraceLengths) -> bool:
    """Returns whether a kernel does more if an axis is longer. If not, it takes the length from another axis."""
    return (look.skeleton, look.numbers) != (example.skeleton, example.numbers)


def _trace_longer(probe: Probe, slots: Sequence[LengthSlot]) -> TraceLengths | None:
    """Traces with another length of some slots; returns None if none works. Length 1 is not tried, as it broadcasts."""
    length = probe.lengths[slots[0]]
    for other in (2 * length, 3 * length, length + 1, length // 2):
        if other > 1:
            look = probe.trace_lengths(dict.fromkeys(slots, other))
            if look is not None:
                return look
    return None


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
    if (found := next((each for each in tried if _trace_longer(probe, each) is not None), None)) is not None:
        return found
    kept = [slot, *equal]
    if len(equal) < 3 or _trace_longer(probe, kept) is None:
        return None
    for unit in (*groups, *([each] for each in equal)):
        fewer = [each for each in kept if each not in unit]
        if slot in fewer and len(fewer) < len(kept) and _trace_longer(probe, fewer) is not None:
            kept = fewer
    return kept


def _differ(probe: Probe, others: Sequence[Lengths]) -> Callable[[LengthSlot, LengthSlot], bool]:
    """Returns a predicate: whether two slots have different lengths in one of the calls."""
    every = [probe.lengths, *others]
    return lambda one, other: any(each[one] != each[other] for each in every)


def _affinity(slot: LengthSlot, group: Sequence[LengthSlot], mapped: dict[LengthSlot, str]) -> tuple[int, int, int]:
    """Returns a sort key for how likely a slot belongs to a dim: equal blocks, equal axis, few slots in the dim."""
    blocks = slot in mapped and any(mapped[slot] == mapped.get(each) for each in group)
    return int(blocks), int(any(slot.axis == each.axis for each in group)), -len(group)
