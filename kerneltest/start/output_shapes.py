"""The shapes of a kernel's outputs as formulas of dims, from how they change with the length of each dim."""

from kerneltest.start.command_progress import TimeLimitError
from kerneltest.start.trace_probe import LengthSlot, Probe


def output_shapes(probe: Probe, dims: dict[str, tuple[LengthSlot, ...]]) -> tuple[str, ...]:
    """Returns the shape of each output as formulas of dims, from how it changes with the length of each dim."""
    here = probe.trace_lengths({})
    assert here is not None
    grown = {}
    for name, slots in dims.items():
        length = probe.lengths[slots[0]]
        for other in (2 * length, 3 * length, length + 1, length // 2):
            try:
                look = probe.trace_lengths(dict.fromkeys(slots, other)) if other else None
            except TimeLimitError:
                break
            if look is not None:
                grown[name] = (length, other, look.outputs)
                break
    shapes = []
    for number, shape in enumerate(here.outputs):
        axes = []
        for axis, length in enumerate(shape):
            parts = [
                (name, (there[number][axis] - length) / (new - old), old)
                for name, (old, new, there) in grown.items()
                if len(there) == len(here.outputs)
                and len(there[number]) == len(shape)
                and there[number][axis] != length
            ]
            axes.append(_formula(length, parts))
        shapes.append(f"({', '.join(axes)})")
    return tuple(shapes)


def _formula(length: int, parts: list[tuple[str, float, int]]) -> str:
    """Returns a length as a formula of dims.

    Args:
      length: the length in the example.
      parts: the dims that it depends on: name, slope, and the dim's length in the example.
    """
    match parts:
        case []:
            return str(length)
        case [(name, slope, own)] if slope == int(slope):
            rest = length - int(slope) * own
            times = "" if slope == 1 else f"{int(slope)} * "
            return f"{times}{name}{f' + {rest}' if rest > 0 else f' - {-rest}' if rest else ''}"
    return f"{length} where {' and '.join(f'{name} is {own}' for name, _, own in parts)}"
