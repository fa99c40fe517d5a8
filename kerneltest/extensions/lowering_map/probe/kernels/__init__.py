"""The probes by group. A new primitive is one line in its group."""

from . import references, tpus, values
from .base import Probe

_GROUPS = (
    values.elementwise_probes,
    values.reductions_probes,
    values.dots_probes,
    references.indexing_probes,
    values.casts_probes,
    values.shapes_probes,
    values.control_probes,
    references.memory_probes,
    references.pallas_probes,
    values.random_probes,
    tpus.tpus_probes,
    tpus.blocks_probes,
)


def probes() -> tuple[Probe, ...]:
    """All probes, in the order of the map."""
    return tuple(probe for group in _GROUPS for probe in group())
