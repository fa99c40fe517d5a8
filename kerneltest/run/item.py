"""What one pytest item runs, and what comes out of a case."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.backends import Backend
from kerneltest.plan.drawn import DRAWN, FUZZ, AnyCase
from kerneltest.core.dtypes import Array
from kerneltest.plan.families import NO_VALUES
from kerneltest.run.invariants import INVARIANTS, planned
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case, cases, groups_of, totals
from kerneltest.plan.signatures import dtypes_of
from kerneltest.records.schema import Evidence, Record
from kerneltest.run.refusals import ERRORS
from kerneltest.run.refusals import planned as refusals
from kerneltest.core.verdicts import NO_FINDING


@dataclass(frozen=True, slots=True)
class Item:
    """What one pytest item runs: a pairing, a backend, a dtype and a family group; `fuzz` cases in group fuzz."""

    name: str
    pairing: Pairing
    pairing_id: str
    backend: Backend
    dtype: str
    group: str
    depth: str
    seed: int
    fuzz: int = 0

    def cases(self) -> Iterator[AnyCase]:
        if self.group == FUZZ:
            from kerneltest.run.fuzz import draws# Hypothesis is loaded where it is used, and nowhere else

            return iter(draws(self.pairing, self.dtype, self.depth, self.seed, self.fuzz))
        if self.group == INVARIANTS:
            return planned(self.pairing, self.dtype, self.backend.id, self.depth, self.seed)
        if self.group == ERRORS:
            return refusals(self.pairing, self.dtype, self.depth, self.seed)
        found = cases(self.pairing, self.dtype, self.group, self.depth, self.seed)
        return _each_once(found) if self.backend.costly else found

    def families(self) -> Mapping[str, int]:
        if self.group == FUZZ:
            return {DRAWN.name: self.fuzz}
        return totals(self.cases())


def _each_once(found: Iterable[Case]) -> Iterator[Case]:
    """Cases that bring a family with its target, or among structural ones a signature, that none before has brought."""
    seen: set[object] = set()
    for case in found:
        brought: set[object] = {(case.family.name, case.target)}
        if case.family.group == "structural":
            brought.add(case.signature)
        if not brought <= seen:
            seen |= brought
            yield case


@dataclass(frozen=True, slots=True)
class Outcome:
    """A record, the case's array arguments if it is a finding, and the files of an artifact."""

    record: Record
    arguments: Mapping[str, Array] | None = None
    files: Callable[[], Mapping[str, str]] = dict


def record_of(item: Item, of: AnyCase | str, verdict: str, message: str = "") -> Record:
    whole = isinstance(of, str)
    return Record(
        item=item.name,
        pairing=item.pairing_id,
        backend=item.backend.id,
        dtype=item.dtype,
        group=item.group,
        family=of if isinstance(of, str) else of.family.name,
        signature="*" if isinstance(of, str) else str(of.signature),
        target="" if isinstance(of, str) else of.target,
        case="" if isinstance(of, str) else of.id,
        verdict=verdict,
        message=message,
        evidence=None if whole or verdict in NO_FINDING else Evidence(),
    )


def items_of(
    pairing: Pairing, pairing_id: str, backends: Sequence[Backend], depth: str, seed: int, fuzz: int = 0
) -> Iterator[Item]:
    """A pairing's items, backends innermost, so that they share traces and the oracle's answers."""
    drawn = (FUZZ,) if fuzz and pairing.leaves else ()  # without arrays there are no values to draw
    for dtype in dtypes_of(pairing, depth):
        for group in (NO_VALUES, *groups_of(pairing, dtype, depth), INVARIANTS, ERRORS, *drawn):
            for backend in backends:
                if group != ERRORS and (group == NO_VALUES) != (backend.tier in ("lower", "compile")):
                    continue
                name = f"{pairing_id}[{backend.id}-{dtype}-{group}]"
                item = Item(name, pairing, pairing_id, backend, dtype, group, depth, seed, fuzz)
                if group not in (INVARIANTS, ERRORS) or next(iter(item.cases()), None) is not None:
                    yield item
