"""Which pairings a session runs: each once, where a test module or class holds it under a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing
    from kerneltest.run.planning import PairingPlan


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A test module or class that holds a pairing under a name.

    Attributes:
      pairing: that it holds.
      module: the name of the test module.
      plan: of the pairing under this name.
    """

    pairing: Pairing
    module: str
    plan: PairingPlan


def is_pairing(value: object) -> bool:
    """Told by the name of its class, so that a run without pairings loads nothing of the core."""
    return type(value).__name__ == "Pairing" and type(value).__module__ == "kerneltest.declare.pairing"


def chosen(holders: Sequence[Holder]) -> list[Holder]:
    """One holder for each pairing: the module that declares it, or else the first that was collected."""
    by_pairing: dict[int, list[Holder]] = {}
    for holder in holders:
        by_pairing.setdefault(id(holder.pairing), []).append(holder)
    return [next((h for h in held if h.module == h.pairing.module), held[0]) for held in by_pairing.values()]


def uncollected(holders: Sequence[Holder], made: Sequence[Pairing], whole: bool) -> Iterator[str]:
    """What is wrong with pairings that were made and that nothing holds, each in a line.

    Args:
      holders: all of the session.
      made: the pairings that were made while it collected.
      whole: whether whole folders were collected; else only modules that were collected are asked about.
    """
    held = {id(holder.pairing) for holder in holders}
    modules = {holder.module for holder in holders}
    for pairing in made:
        if id(pairing) not in held and (whole or pairing.module in modules):
            code = getattr(pairing.oracle, "__code__", None)
            place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
            yield (
                f"pairing {pairing.name!r}{place} was made and is run nowhere: let a test module hold it under a name "
                "of its own"
            )
