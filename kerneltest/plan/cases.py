"""Cases: which families a signature is filled with, and the values themselves."""

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import kerneltest.plan.standard_families  # noqa: F401 - they register themselves
from kerneltest.core.dtypes import Array
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.exactness import exact_limit
from kerneltest.plan.families import FAMILIES, Family
from kerneltest.plan.format_limits import FAMILIES as LONG_FAMILIES
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.plan.slots import Slot, derived, slots


@dataclass(frozen=True)
class Case:
    """A signature and the recipe of its values: the unit of judgement.

    Attributes:
      pairing_id: of its pairing, as pytest names it; with it, no two cases of a run share an id.
      pairing_name: the oracle's name, from which the random values follow.
      family: how the values are made.
      target: the argument the family is about, "" where it is about all.
      seed: of the run.
    """

    pairing_id: str
    pairing_name: str
    signature: Signature
    family: Family
    target: str
    seed: int

    @functools.cached_property
    def id(self) -> str:
        """Sixteen hexadecimal digits that depend on nothing but the case."""
        return self._digest(self.pairing_id)

    @property
    def entropy(self) -> str:
        """What its random values follow from: the same wherever the pairing's file lies."""
        return self._digest(self.pairing_name)

    def _digest(self, pairing: str) -> str:
        text = f"{self.seed}|{pairing}|{self.signature}|{self.family.name}|{self.target}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def fill(self, pairing: Pairing) -> dict[str, Array]:
        """The case's array arguments by path."""
        values: dict[str, Array] = {}
        entropy = self.entropy
        for path, slot in slots_of(pairing, self.signature).items():
            digest = hashlib.sha256(f"{entropy}|{path}".encode()).digest()
            rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
            hit = self.target in ("", path)
            values[path] = self.family.fill(slot, rng, hit)
        return derived(pairing, self.signature, values)


def value_cases(
    pairing: Pairing,
    pairing_id: str,
    dtype_name: str,
    group: str,
    seed: int,
    depth: str,
    *,
    long: Sequence[Signature] = (),
) -> Iterator[Case]:
    """Every case of a pairing, dtype and group of families, signature by signature.

    Args:
      pairing, pairing_id: with the node id by which pytest knows it.
      dtype_name, group: of the cases.
      seed, depth: of the run.
      long: long signatures, of which some structural families are asked too.
    """
    chosen = [signature for signature in signatures(pairing, depth) if signature.dtype == dtype_name]
    families = [family for family in FAMILIES.values() if family.group == group]
    for number, signature in enumerate(chosen):
        filled = slots_of(pairing, signature)
        for place, family in enumerate(families):
            fitting = _fitting(family, filled)
            if family.each:
                targets = fitting
            else:
                targets = [""] if _is_asked(family, filled) else []
                targets += _alone(family, fitting, number + place, depth)
            for target in targets:
                yield Case(pairing_id, pairing.name, signature, family, target, seed)
    for signature in long:
        filled = slots_of(pairing, signature)
        for family in families:
            if signature.dtype == dtype_name and family.name in LONG_FAMILIES[depth] and _is_asked(family, filled):
                yield Case(pairing_id, pairing.name, signature, family, "", seed)


def _fitting(family: Family, filled: Mapping[str, Slot]) -> list[str]:
    return [path for path, slot in filled.items() if family.applies(slot)]


def _is_asked(family: Family, filled: Mapping[str, Slot]) -> bool:
    """Whether a family fills some argument, or there is none to fill."""
    return bool(_fitting(family, filled)) or (not filled and family.without_arrays)


def _alone(family: Family, fitting: Sequence[str], turn: int, depth: str) -> list[str]:
    """The argument that a numeric family also disturbs alone, as all at once may hide what one does: on each signature
    another one, and at `quick` on every third.
    """
    every = 3 if depth == "quick" else 1
    if family.group != "numeric" or family.name == "normal" or len(fitting) < 2 or turn % every:
        return []
    return [fitting[turn // every % len(fitting)]]


@functools.lru_cache(maxsize=256)  # each case of a signature fills them
def slots_of(pairing: Pairing, signature: Signature) -> Mapping[str, Slot]:
    """What a family gets of each array argument in a signature, by path."""
    return slots(pairing, signature, functools.partial(exact_limit, pairing, signature))
