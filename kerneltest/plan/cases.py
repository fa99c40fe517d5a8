"""Cases: signatures filled with families of values."""

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import kerneltest.plan.standard_families  # noqa: F401 - they register themselves
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import GroupName
from kerneltest.declare.arguments import tables_in
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.families import FAMILIES, Family, is_filled
from kerneltest.plan.format_limits import FAMILIES as LONG_FAMILIES
from kerneltest.plan.signatures import Signature, boundary_lengths, signatures
from kerneltest.plan.slots import Slot, build_slots, exact_limit, fill_derived


@dataclass(frozen=True)
class Case:
    """A signature and the recipe of its values: the unit of judgement.

    Attributes:
      pairing_id: the id of its pairing in pytest, which makes the case's id unique in a run.
      pairing_name: the oracle's name, which seeds the random values.
      signature: all lengths, dtypes and static arguments.
      family: the family of its values.
      target: the argument that the family perturbs; "" for all.
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
        """Sixteen hexadecimal digits that depend only on the case."""
        return self._digest(self.pairing_id)

    @property
    def entropy(self) -> str:
        """The seed of its random values, which does not depend on the location of the pairing's file."""
        return self._digest(self.pairing_name)

    def _digest(self, pairing: str) -> str:
        text = f"{self.seed}|{pairing}|{self.signature}|{self.family.name}|{self.target}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def fill(self, pairing: Pairing) -> dict[str, Array]:
        values: dict[str, Array] = {}
        entropy = self.entropy
        for path, slot in signature_slots(pairing, self.signature).items():
            digest = hashlib.sha256(f"{entropy}|{path}".encode()).digest()
            rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
            values[path] = self.family.fill(slot, rng, targeted=self.target in ("", path))
        return fill_derived(pairing, self.signature, values, entropy)


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
    """Yields every case of a pairing, dtype and group of families, signature by signature.

    A few structural families fill `long` signatures as well.
    """
    chosen = [signature for signature in signatures(pairing, depth) if signature.dtype == dtype_name]
    families = [family for family in FAMILIES.values() if family.group == group]
    left_out = _left_out(pairing, tuple(families)) if depth == "quick" else ()
    for number, signature in enumerate(chosen):
        filled = signature_slots(pairing, signature)
        for place, family in enumerate(families):
            if (signature, family.name) in left_out:
                continue
            targets = applicable = _applicable(family, filled)
            if not family.each:
                targets = [""] if _is_planned(family, filled, applicable) else []
                if depth != "quick" and group == GroupName.NUMERIC and family.name != "normal" and len(applicable) > 1:
                    targets.append(applicable[(number + place) % len(applicable)])  # all at once can mask one's effect
            for target in targets:
                yield Case(pairing_id, pairing.name, signature, family, target, seed)
    of_long = [family for family in families if family.name in LONG_FAMILIES[depth]]
    for signature in long:
        if signature.dtype == dtype_name and signature not in chosen:  # a maximum may make them one
            filled = signature_slots(pairing, signature)
            fitting = [family for family in of_long if _is_planned(family, filled, _applicable(family, filled))]
            for family in fitting or of_long[:1]:  # whose arrays hold no data: positions, lengths
                yield Case(pairing_id, pairing.name, signature, family, "", seed)


def _applicable(family: Family, filled: Mapping[str, Slot]) -> list[str]:
    return [path for path, slot in filled.items() if family.applies(slot)]


def _is_planned(family: Family, filled: Mapping[str, Slot], applicable: Sequence[str]) -> bool:
    """Returns whether a family fills some argument, or no family fills any and this one allows that."""
    if family.without_arrays and not any(map(is_filled, filled.values())):
        return bool(filled) or family.structural  # without any values, one family says it all
    return bool(applicable)


@functools.lru_cache(maxsize=8)  # for the dtypes of a pairing in turn
def _left_out(pairing: Pairing, families: tuple[Family, ...]) -> frozenset[tuple[Signature, str]]:
    """Returns the larger signatures, each with the name of a family that does not fill it: these take turns.

    Each family gets each length, dtype and option that it can fill, in the smallest signatures that have them.
    """
    # In elements: sums lose digits only if they are long.
    small = 2**13 if any(family.group == GroupName.NUMERIC for family in families) else 2**9
    filled = {signature: signature_slots(pairing, signature) for signature in signatures(pairing, "quick")}
    sizes = {signature: sum(slot.size for slot in slots.values()) for signature, slots in filled.items()}
    ordered, found = sorted(sizes, key=sizes.__getitem__), set[tuple[Signature, str]]()
    for place, family in enumerate(family for family in families if family.name not in LONG_FAMILIES["quick"]):
        seen: set[tuple[str, object]] = set()
        for number, signature in enumerate(ordered):
            options, turns = {*signature.dims, *signature.dtypes, *signature.statics}, -(-sizes[signature] // small)
            if turns > 1 and (number + place) % turns and options <= seen:
                found.add((signature, family.name))
            elif _is_planned(family, filled[signature], _applicable(family, filled[signature])):
                seen |= options
    return frozenset(found)


@functools.lru_cache(maxsize=256)  # all cases of a signature use them
def signature_slots(pairing: Pairing, signature: Signature) -> Mapping[str, Slot]:
    """Returns the slot of each array argument in a signature, by path."""
    return build_slots(pairing, signature, functools.partial(exact_limit, pairing, signature))


# Pairings that are asked far less than their declaration seems to allow, and why.

_FEW = 3  # a dim that takes at most one in so many of its boundary lengths


def find_shortfalls(pairing: Pairing, depth: str) -> Iterator[str]:
    """Yields each reason why a pairing gets few signatures or few values, with the number of those it gets."""
    planned, tables = signatures(pairing, depth), tables_in(pairing.arguments)
    for name, dim in pairing.dims.items() if pairing.where else ():
        wanted, found = boundary_lengths(dim, depth), sorted({dict(each.dims)[name] for each in planned})
        if len(found) * _FEW <= len(wanted):
            excluding = "where= or key=" if tables else "where="
            yield (
                f"{name} has {len(found)} of its {len(wanted)} boundary lengths ({', '.join(map(str, found))}), since "
                f"{excluding} excludes the others; declare lengths that it admits, as in {name}=kt.dim(values=...)"
            )
    for name, table in tables.items():
        used = {dict(each.statics)[name] for each in planned}
        if unused := [option for option, _ in table.options if option not in used]:
            rows = "1 row" if len(unused) == 1 else f"{len(unused)} rows"
            yield f"no planned lengths select {rows} of the table {name}: {', '.join(unused)}"
    slots = signature_slots(pairing, planned[0]) if planned else {}
    if slots and not any(map(is_filled, slots.values())):
        yield (
            "no family of values fills its arrays, which are keys or follow from others: each signature is asked once "
            "in each group; declare an array that they follow from, if there is one"
        )
