"""Counts the mutants that each family finds, and those that it alone finds.

    python -m benchmarks.mutant_families FILE[::NAME]... [--most 25] [--depth quick] [--jobs N]

A trial of `kerneltest mutate` ends with the first finding. Here it goes on, without the families that have found the
mutant, on `interpret` in the first dtype of each pairing. `--most` mutants of each kernel are tried, evenly spread over
its source; 0 for all.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.side_by_side import run_on_places
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.extensions.mutation.judging import (
    KernelCases,
    MutationSession,
    RunningTrial,
    UnfitPairingError,
    plan_items,
)
from kerneltest.extensions.mutation.mutants import KernelMutant
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.extensions.mutation.run import find_pairings
from kerneltest.plan.explicit import AnyCase
from kerneltest.trace.tracing import without_debugging


@dataclass(slots=True)
class WholeTrial(RunningTrial):
    """A trial that goes on after a finding, without the family that found the mutant.

    Attributes:
      found_by: the `group/family` of findings, in their order.
    """

    found_by: list[str] = field(default_factory=list)

    def run(self, item: Item, case: AnyCase, part: KernelCases, cache: Cache) -> bool:
        name = f"{item.group.name}/{case.family.name}"
        if name in self.found_by:
            return False
        over = RunningTrial.run(self, item, case, part, cache)
        if self.kill is None:
            return over
        self.found_by.append(name)
        self.kill = None
        return False


@dataclass(frozen=True, slots=True)
class Found:
    """A mutant, and the families that found it, in their order."""

    pairing: str
    mutant: KernelMutant
    families: tuple[str, ...]


def try_pairings(place: str, depth: str, most: int) -> list[Found]:
    """Returns the mutants that the pairings of a place find."""
    found = []
    for pairing_id, pairing in find_pairings(place).items():
        try:
            planned = plan_items(pairing, pairing_id, "interpret", depth)
        except UnfitPairingError as error:
            print(f"{pairing_id}: no mutants: {error}", flush=True)
            continue
        session = MutationSession([item for item in planned if item.dtype == planned[0].dtype])
        mutants = session.mutants(OPERATORS.entries())
        step = max(1, len(mutants) // most) if most else 1
        tried = mutants[::step][: most or None]
        own = [each for mutant in tried if (each := _try(session, pairing_id, mutant)).families]
        print(f"{pairing_id}: {len(own)} of {len(tried)} mutants found, of {len(mutants)}", flush=True)
        found += own
    return found


def _try(session: MutationSession, pairing_id: str, mutant: KernelMutant) -> Found:
    trial = WholeTrial(mutant, Counter())
    with without_debugging():
        session.run_cases(trial)
    return Found(pairing_id, mutant, tuple(trial.found_by))


def table(found: Sequence[Found]) -> Iterator[str]:
    """Yields the rows of a Markdown table: how many mutants each family finds, first and alone."""
    every = Counter(name for each in found for name in each.families)
    first = Counter(each.families[0] for each in found)
    alone = Counter(each.families[0] for each in found if len(each.families) == 1)
    yield "| family | finds | first | alone |"
    yield "| --- | ---: | ---: | ---: |"
    for name, count in sorted(every.items(), key=lambda pair: (-alone[pair[0]], -pair[1])):
        yield f"| `{name}` | {count} | {first[name]} | {alone[name]} |"


def main() -> None:
    """Tries the mutants and prints the table, then the mutants that one family alone finds."""
    found = run_on_places(__doc__, 25, try_pairings)
    print("\n".join(table(found)))
    for each in found:
        if len(each.families) == 1:
            print(f"{each.families[0]} alone: {each.mutant.place} {each.mutant.phrase} ({each.pairing})")


if __name__ == "__main__":
    main()
