"""All probes. A new primitive is one line in its group."""

from . import reference_probes, tpu_probes, value_probes
from .base import LoweringProbe

_GROUPS = (
    value_probes.elementwise_probes,
    value_probes.reductions_probes,
    value_probes.dots_probes,
    reference_probes.indexing_probes,
    value_probes.casts_probes,
    value_probes.shapes_probes,
    value_probes.control_probes,
    reference_probes.memory_probes,
    reference_probes.pallas_probes,
    value_probes.random_probes,
    tpu_probes.tpus_probes,
    tpu_probes.blocks_probes,
)


def probes() -> tuple[LoweringProbe, ...]:
    """Returns all probes, in the order of the map."""
    return tuple(probe for group in _GROUPS for probe in group())
