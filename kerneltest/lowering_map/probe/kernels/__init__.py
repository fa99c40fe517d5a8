"""The probes by group. A new primitive is one line in its group's module."""

from . import casts, control, dots, elementwise, indexing, memory, pallas, random, reductions, shapes
from .base import Probe

_GROUPS = (elementwise, reductions, dots, indexing, casts, shapes, control, memory, pallas, random)


def probes() -> tuple[Probe, ...]:
    """All probes, in the order of the map."""
    return tuple(probe for group in _GROUPS for probe in group.probes())
