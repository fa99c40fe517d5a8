"""Which axes of a kernel's arguments are one dim: told by tracing the kernel with one or several of them longer.

An axis that can be longer alone is a dim of its own, if anything that the kernel computes depends on it. If nothing
does, the kernel takes for granted that another axis is as long. Axes that can only be longer together are one dim.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kerneltest.start.probe import Lengths, Look, Probe, Slot


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a call.

    Attributes:
      dims: the slots of each dim, the one that decides first.
      fixed: slots that have one length alone.
      guesses: what was taken for granted and is to be checked, each in a line.
    """

    dims: tuple[tuple[Slot, ...], ...]
    fixed: tuple[Slot, ...]
    guesses: tuple[str, ...]


_MOST = 10  # slots of one length, before not every subset of them is tried


def axes_of(probe: Probe, others: Sequence[Lengths] = ()) -> Axes:
    """Tells the dims of a call.

    Args:
      probe: of the call.
      others: lengths in more calls, which tell axes apart that only happened to be as long in the first.
    """
    joined: list[list[Slot]] = []
    followers: list[Slot] = []
    fixed: list[Slot] = []
    unlike = _unlike(probe, others)
    for slot in probe.lengths:
        if any(slot in group for group in joined):
            continue
        alone = _longer(probe, [slot])
        if alone is not None:
            if slot.axis is None and alone.outputs == _first(probe).outputs:
                continue  # a number that sets no length of an output is an option, such as a block's length
            (joined.append([slot]) if alone != _first(probe) else followers.append(slot))
            continue
        equal = [s for s in probe.lengths if s != slot and not unlike(s, slot)]
        together = next((t for t in _subsets(slot, equal) if _longer(probe, t) is not None), None)
        if together is None:
            if slot.axis is not None:
                fixed.append(slot)
            continue
        meeting = [group for group in joined if set(group) & set(together)]
        merged = list(dict.fromkeys([*itertools.chain(*meeting), *together]))
        joined = [*(group for group in joined if group not in meeting), merged]
    guesses = []
    mapped = probe.mapped() if followers else {}
    for slot in followers:
        if any(slot in group for group in joined):
            continue
        rivals = [group for group in joined if not any(unlike(slot, each) for each in group)]
        if not rivals:
            joined.append([slot])
            continue
        chosen = max(rivals, key=lambda group: _kinship(slot, group, mapped))
        if _kinship(slot, chosen, mapped)[0] == 0:
            leader = next(each for each in chosen)
            guesses.append(
                f"{slot} is as long as {leader}: they were in the example, and the kernel asks for the length of the "
                "latter alone"
            )
        chosen.append(slot)
    order = {slot: number for number, slot in enumerate(probe.lengths)}
    dims = sorted((tuple(group) for group in joined), key=lambda group: min(order[slot] for slot in group))
    return Axes(tuple(dims), tuple(fixed), tuple(guesses))


def _first(probe: Probe) -> Look:
    look = probe.look({})
    assert look is not None  # a probe is made of a call that can be traced
    return look


def _longer(probe: Probe, slots: Sequence[Slot]) -> Look | None:
    """What is seen where some slots of one length have another one, or None if they cannot. 1 would be broadcast."""
    length = probe.lengths[slots[0]]
    for other in (2 * length, 3 * length, length + 1, length // 2):
        if other > 1:
            look = probe.look(dict.fromkeys(slots, other))
            if look is not None:
                return look
    return None


def _subsets(slot: Slot, equal: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Sets of slots with this one: those at the same axis, then all from the smallest on."""
    same_axis = [each for each in equal if each.axis == slot.axis]
    for size in range(1, min(len(equal), _MOST) + 1):
        for chosen in itertools.combinations(equal[:_MOST], size):
            yield [slot, *chosen]
        if size == len(same_axis) and len(equal) > _MOST:
            yield [slot, *same_axis]
    if len(equal) > _MOST:
        yield [slot, *equal]


def _unlike(probe: Probe, others: Sequence[Lengths]) -> Callable[[Slot, Slot], bool]:
    """Whether two slots differ in one of the calls."""
    every = [probe.lengths, *others]
    return lambda one, other: any(each[one] != each[other] for each in every)


def _kinship(slot: Slot, group: Sequence[Slot], mapped: dict[Slot, str]) -> tuple[int, int, int]:
    """How much speaks for a slot being of a dim: cut into the same blocks; at the same axis; fewest slots before it."""
    blocks = slot in mapped and any(mapped[slot] == mapped.get(each) for each in group)
    return int(blocks), int(any(slot.axis == each.axis for each in group)), -len(group)
