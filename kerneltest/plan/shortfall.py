"""Pairings that are asked far less than their declaration seems to allow, and why."""

from collections.abc import Iterator

from kerneltest.declare.pairing import Pairing
from kerneltest.plan.boundaries import boundary_lengths
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.families import is_filled
from kerneltest.plan.signatures import signatures

_FEW = 3  # a dim that takes at most one in so many of its boundary lengths


def find_shortfalls(pairing: Pairing, depth: str) -> Iterator[str]:
    """Yields each reason why a pairing gets few signatures or few values, with the number of those it gets.

    Args:
      pairing: that is planned.
      depth: of the plan.
    """
    planned = signatures(pairing, depth)
    for name, dim in pairing.dims.items() if pairing.where else ():
        wanted, found = boundary_lengths(dim, depth), sorted({dict(each.dims)[name] for each in planned})
        if len(found) * _FEW <= len(wanted):
            yield (
                f"{name} has {len(found)} of its {len(wanted)} boundary lengths ({', '.join(map(str, found))}), since "
                f"where= excludes the others; declare lengths that it admits, as in {name}=kt.dim(values=...)"
            )
    slots = signature_slots(pairing, planned[0]) if planned else {}
    if slots and not any(map(is_filled, slots.values())):
        yield (
            "no family of values fills its arrays, which are keys or follow from others: each signature is asked once "
            "in each group; declare an array that they follow from, if there is one"
        )
