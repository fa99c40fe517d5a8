"""Cases: which families a signature is filled with, and the values themselves."""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import kerneltest.plan.standard_families  # noqa: F401 - they register themselves
from kerneltest.core.dtypes import Array, dtype_named
from kerneltest.declare.arguments import ArrayArgument
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.exactness import exact_limit
from kerneltest.plan.families import FAMILIES, Family, Slot
from kerneltest.plan.signatures import Signature, signatures


@dataclass(frozen=True, slots=True)
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

    @property
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
        for order, (path, leaf) in enumerate(pairing.leaves.items()):
            digest = hashlib.sha256(f"{entropy}|{path}".encode()).digest()
            rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
            hit = self.target in ("", path)
            values[path] = self.family.fill(slot_of(pairing, self.signature, path, leaf, order), rng, hit)
        return values


def value_cases(
    pairing: Pairing, pairing_id: str, dtype_name: str, group: str, seed: int, depth: str
) -> Iterator[Case]:
    """Every case of a pairing, dtype and group of families, signature by signature."""
    chosen = [signature for signature in signatures(pairing, depth) if signature.dtype == dtype_name]
    for number, signature in enumerate(chosen):
        slots = {
            path: slot_of(pairing, signature, path, leaf, i) for i, (path, leaf) in enumerate(pairing.leaves.items())
        }
        for place, family in enumerate(each for each in FAMILIES.values() if each.group == group):
            fitting = [path for path, slot in slots.items() if family.applies(slot)]
            if family.each:
                targets = fitting
            else:
                targets = [""] if fitting or (not slots and family.without_arrays) else []
                targets += _alone(family, fitting, number + place, depth)
            for target in targets:
                yield Case(pairing_id, pairing.name, signature, family, target, seed)


def _alone(family: Family, fitting: Sequence[str], turn: int, depth: str) -> list[str]:
    """The argument that a numeric family also disturbs alone, as all at once may hide what one does: on each signature
    another one, and at `quick` on every third.
    """
    every = 3 if depth == "quick" else 1
    if family.group != "numeric" or family.name == "normal" or len(fitting) < 2 or turn % every:
        return []
    return [fitting[turn // every % len(fitting)]]


def slot_of(pairing: Pairing, signature: Signature, path: str, leaf: ArrayArgument, order: int) -> Slot:
    """What a family gets of one array argument, the `order`-th, in a signature."""
    shape = signature.shape(leaf)
    blocks = tuple(pairing.dims[axis].block if isinstance(axis, str) else None for axis in leaf.shape)
    return Slot(
        role=leaf.role,
        shape=shape,
        dtype=dtype_named(dict(signature.dtypes)[path]),
        blocks=blocks,
        domain=leaf.domain,
        order=order,
        end=dict(signature.dims).get(leaf.bounded_by, 0),
        limit=functools.partial(exact_limit, pairing, signature),
    )
