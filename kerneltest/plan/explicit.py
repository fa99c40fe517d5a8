"""Cases that are drawn rather than planned: a recipe of values, laid over a signature out of a small pool."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case, slots_of
from kerneltest.plan.families import FAMILIES, Family, without_values
from kerneltest.plan.signatures import Signature, dtypes_of, signatures
from kerneltest.plan.slots import Slot, derived

FUZZ = "fuzz"  # the group of drawn cases
DRAWN = without_values("drawn", FUZZ)

PLANNED_SIGNATURES, NEW_SIGNATURES = 12, 4  # a signature costs a compilation, values cost next to nothing


@dataclass(frozen=True, slots=True, eq=False)
class DrawnCase:
    """A signature and the values themselves: what the runner takes in place of a planned case.

    Attributes:
      pairing_id: of its pairing.
      signature: all lengths, dtypes and static arguments.
      arguments: the array arguments by leaf path (`x`, `tree.w`).
      number: tells draws apart that happen to hold the same values.
      family, target: under which it is recorded.
    """

    pairing_id: str
    signature: Signature
    arguments: Mapping[str, Array]
    number: int = 0
    family: Family = DRAWN
    target: str = ""

    @property
    def entropy(self) -> str:
        """What an invariant's random choices follow from."""
        return self.id

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that depend on nothing but the signature, the bits and the number."""
        digest = hashlib.sha256(f"{self.pairing_id}|{self.signature}|{self.number}".encode())
        for path, value in self.arguments.items():
            digest.update(f"|{path}|".encode() + np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def fill(self, pairing: Pairing) -> dict[str, Array]:
        """The array arguments by path."""
        return dict(self.arguments)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # how Hypothesis shows a failing example

    def __repr__(self) -> str:
        with np.printoptions(threshold=40, edgeitems=3, linewidth=100):
            values = [f"{path}={value!s}" for path, value in self.arguments.items()]
        return f"DrawnCase({', '.join([str(self.signature), *values])})"


AnyCase = Case | DrawnCase


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one array argument is filled, whatever its shape turns out to be.

    Attributes:
      family: of the values underneath; "" for zeros.
      seed: of that family's random numbers.
      bare: zeros in place of the family's finite numbers.
      changes: (position, value) of elements that differ; both wrap around the shape and the range.
    """

    family: str
    seed: int
    bare: bool
    changes: Sequence[tuple[int, float | int | bool]]

    def fill(self, slot: Slot) -> Array:
        """Values for a slot: shape and dtype as it says."""
        if self.family:
            values = FAMILIES[self.family].fill(slot, np.random.Generator(np.random.PCG64(self.seed)), True)
        else:
            values = slot.cast(np.zeros(slot.shape))
        if self.bare and slot.is_float_data:
            values = np.where(np.isfinite(values), slot.cast(np.zeros(slot.shape)), values)
        flat = np.array(values).reshape(-1)
        for position, value in self.changes if flat.size else ():
            flat[position % flat.size] = slot.kind.element(slot, value)
        return slot.repair(slot.coerce(flat.reshape(slot.shape)))


def drawn_case(pairing: Pairing, pairing_id: str, signature: Signature, recipes: Mapping[str, Recipe]) -> DrawnCase:
    """Lays recipes, by leaf path, over a signature."""
    filled = {path: recipes[path].fill(slot) for path, slot in slots_of(pairing, signature).items() if path in recipes}
    return DrawnCase(pairing_id, signature, derived(pairing, signature, filled))


def pool(pairing: Pairing, depth: str, dtype: str = "") -> tuple[Signature, ...]:
    """The signatures to draw from, shortest first, statics in the order of their declaration.

    They are some of the plan's, each dtype in turn, and a few with other lengths around and past the blocks. They
    depend on nothing but the pairing.

    Args:
      pairing: what is to be called.
      depth: `quick`, `standard` or `deep`, as of the plan.
      dtype: only signatures that it stands for; "" for all.
    """
    names = [dtype] if dtype else list(dtypes_of(pairing, depth))
    columns = [[s for s in signatures(pairing, depth) if s.dtype == name] for name in names]
    turns = [s for i in range(max(map(len, columns), default=0)) for c in columns for s in c[i : i + 1]]
    planned = turns[:PLANNED_SIGNATURES]
    elsewhere = (_elsewhere(pairing, signature, i) for i, signature in enumerate(planned[:NEW_SIGNATURES]))
    new = [each for each in elsewhere if each]
    options = pairing.options()

    def rank(signature: Signature) -> tuple[int, list[int]]:
        return sum(n for _, n in signature.dims), [options[name].index(o) for name, o in signature.statics]

    return tuple(sorted(dict.fromkeys([*planned, *new]), key=rank))


def _elsewhere(pairing: Pairing, signature: Signature, number: int) -> Signature | None:
    """The signature with other lengths, up to a block longer with each number; None where these are not admitted."""
    rng = np.random.default_rng(list(hashlib.sha256(f"{pairing.name}|{number}".encode()).digest()[:8]))
    lengths = {name: _length(pairing.dims[name], number, rng) for name, _ in signature.dims}
    admitted = pairing.fitted(lengths, dict(signature.statics))
    return replace(signature, dims=tuple(admitted.items())) if admitted else None


def _length(dim: Dim, number: int, rng: np.random.Generator) -> int:
    if dim.values:
        return int(rng.choice(dim.values))
    block = dim.block or 16
    return dim.fit(max(block * int(rng.integers(1, number + 2)) + int(rng.integers(-3, 4)), 1))
