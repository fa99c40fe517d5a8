"""Cases with explicit values: those that Hypothesis draws as recipes over a small pool of signatures."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.dims import Dim
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case, signature_slots
from kerneltest.plan.families import FAMILIES, Family, marker_family
from kerneltest.plan.signatures import Signature, signature_dtypes, signatures
from kerneltest.plan.slots import Slot, fill_derived

DRAWN_FAMILY = marker_family("drawn", GroupName.DRAWN)

PLANNED_SIGNATURES, NEW_SIGNATURES = 12, 4  # few, since each signature costs a compilation


@dataclass(frozen=True, slots=True, eq=False)
class ExplicitCase:
    """A case that consists of a signature and the values themselves, rather than a recipe.

    Attributes:
      pairing_id: the id of its pairing.
      signature: all lengths, dtypes and static arguments.
      arguments: the array arguments by leaf path (`x`, `tree.w`).
      number: distinguishes draws that have the same values.
      family, target: under which it is recorded.
      draw: the entropy of the random numbers from which derived arguments follow.
    """

    pairing_id: str
    signature: Signature
    arguments: Mapping[str, Array]
    number: int = 0
    family: Family = DRAWN_FAMILY
    target: str = ""
    draw: str = ""

    @property
    def entropy(self) -> str:
        """The seed of an invariant's random choices."""
        return self.id

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits that depend only on the pairing, the signature, the values and the number."""
        digest = hashlib.sha256(f"{self.pairing_id}|{self.signature}|{self.number}".encode())
        for path, value in self.arguments.items():
            digest.update(f"|{path}|".encode() + np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def fill(self, pairing: Pairing) -> dict[str, Array]:
        """Returns the array arguments by path."""
        return dict(self.arguments)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # by which Hypothesis prints a failing example

    def __repr__(self) -> str:
        with np.printoptions(threshold=40, edgeitems=3, linewidth=100):
            values = [f"{path}={value!s}" for path, value in self.arguments.items()]
        return f"{type(self).__name__}({', '.join([str(self.signature), *values])})"


AnyCase = Case | ExplicitCase


@dataclass(frozen=True, slots=True)
class Recipe:
    """Values of one array argument for any shape."""

    family: str  # the family of the values before the changes; "" for zeros
    seed: int  # the seed of that family's random numbers
    zero_finite: bool  # replace the family's finite numbers by zeros
    # pairs (position, value) of changed elements; they wrap around the shape and the range
    changes: Sequence[tuple[int, float | int | bool]]

    def fill(self, slot: Slot) -> Array:
        if self.family:
            values = FAMILIES[self.family].fill(slot, np.random.Generator(np.random.PCG64(self.seed)), True)
        else:
            values = slot.cast(np.zeros(slot.shape))
        if self.zero_finite and slot.is_float_data:
            values = np.where(np.isfinite(values), slot.cast(np.zeros(slot.shape)), values)
        flat = np.array(values).reshape(-1)
        for position, value in self.changes if flat.size else ():
            flat[position % flat.size] = slot.kind.element(slot, value)
        return slot.repair(slot.coerce(flat.reshape(slot.shape)))


def explicit_case(
    pairing: Pairing, pairing_id: str, signature: Signature, recipes: Mapping[str, Recipe]
) -> ExplicitCase:
    """Returns the case that recipes, by leaf path, make of a signature."""
    filled = {
        path: recipes[path].fill(slot) for path, slot in signature_slots(pairing, signature).items() if path in recipes
    }
    draw = str(sorted((path, recipe.seed) for path, recipe in recipes.items()))
    return ExplicitCase(pairing_id, signature, fill_derived(pairing, signature, filled, draw), draw=draw)


def signature_pool(pairing: Pairing, depth: str, dtype: str = "") -> tuple[Signature, ...]:
    """Returns the signatures to draw from, shortest first, then by the order in which options are declared.

    They are some of the plan's signatures, dtypes taking turns, and a few with other lengths around and past the
    blocks; with a dtype, only its signatures.
    """
    names = [dtype] if dtype else list(signature_dtypes(pairing, depth))
    columns = [[s for s in signatures(pairing, depth) if s.dtype == name] for name in names]
    alternating = [s for i in range(max(map(len, columns), default=0)) for c in columns for s in c[i : i + 1]]
    planned = alternating[:PLANNED_SIGNATURES]
    varied = (_with_random_lengths(pairing, signature, i) for i, signature in enumerate(planned[:NEW_SIGNATURES]))
    options = pairing.options()

    def rank(signature: Signature) -> tuple[int, list[int]]:
        return signature.total_length, [options[name].index(o) for name, o in signature.statics]

    return tuple(sorted(dict.fromkeys([*planned, *filter(None, varied)]), key=rank))


def _with_random_lengths(pairing: Pairing, signature: Signature, number: int) -> Signature | None:
    """Returns the signature with random lengths up to `number` + 1 blocks; None if `where` admits none like these."""
    rng = np.random.default_rng(list(hashlib.sha256(f"{pairing.name}|{number}".encode()).digest()[:8]))
    lengths = {name: _random_length(pairing.dims[name], number, rng) for name, _ in signature.dims}
    admitted = pairing.fit_lengths(lengths, dict(signature.statics))
    return replace(signature, dims=tuple(admitted.items())) if admitted else None


def _random_length(dim: Dim, number: int, rng: np.random.Generator) -> int:
    if dim.values:
        return int(rng.choice(dim.values))
    block = dim.block or 16
    return dim.fit(max(block * int(rng.integers(1, number + 2)) + int(rng.integers(-3, 4)), 1))
