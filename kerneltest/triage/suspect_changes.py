"""Changes of suspects between two sets of runs: new, gone, still there."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kerneltest.core.verdicts import Verdict
from kerneltest.records.overlay import Overlay
from kerneltest.triage.changes import case_identity
from kerneltest.triage.suspect import Suspect
from kerneltest.triage.suspects import suspects_in_overlay


class SuspectFate(StrEnum):
    """The fate of a suspect, in the order of reports."""

    NEW = "new"
    GONE = "gone"
    NOT_RUN = "not run again"
    STILL_THERE = "still there"


@dataclass(frozen=True, slots=True)
class SuspectChange:
    """A suspect of two sets of runs.

    Attributes:
      fate: its fate.
      suspect: as the newer runs show it, or as the older ones do if the newer ones do not.
      since: the start of the older run, for a suspect that is still there; else "".
    """

    fate: SuspectFate
    suspect: Suspect
    since: str = ""

    @property
    def regression(self) -> bool:
        return self.fate is SuspectFate.NEW


def suspect_changes(old: Overlay, new: Overlay) -> tuple[SuspectChange, ...]:
    """Compares suspects. If most of its cases failed before, a suspect was there before, whatever its title.

    Ids decide only if cases do not: an id counts suspects with the same symptom, so it can shift.
    """
    before, after = suspects_in_overlay(old), suspects_in_overlay(new)
    asked, asks = ([frozenset(map(case_identity, each.findings)) for each in side] for side in (before, after))
    common = _common(asked, asks)
    earlier: dict[int, int] = {}
    failed = frozenset().union(*asked)
    for (i, j), _ in common.most_common():
        if len(asks[j] & failed) > _SAME * len(asks[j]):
            earlier.setdefault(j, i)
    taken = set(earlier.values())
    named = {(each.pairing, each.id): i for i, each in enumerate(before) if i not in taken}
    for j, suspect in enumerate(after):
        place = suspect.pairing, suspect.id
        if j not in earlier and place in named:
            earlier[j] = named[place]
    known = {*earlier.values(), *(i for (i, _), count in common.items() if count > _SAME * len(asked[i]))}
    changes = [
        SuspectChange(SuspectFate.STILL_THERE, suspect, _first_start(old, before[earlier[j]]))
        if j in earlier
        else SuspectChange(SuspectFate.NEW, suspect)
        for j, suspect in enumerate(after)
    ]
    gone = [i for i in range(len(before)) if i not in known]
    ran = (row.record for row in new.rows if row.record.case and row.record.verdict is not Verdict.UNAVAILABLE)
    tried = frozenset().union(*(asked[i] for i in gone)).intersection(map(case_identity, ran))
    for i in gone:
        changes.append(
            SuspectChange(SuspectFate.NOT_RUN if tried.isdisjoint(asked[i]) else SuspectFate.GONE, before[i])
        )
    return tuple(sorted(changes, key=lambda change: [*SuspectFate].index(change.fate)))


_SAME = 0.5  # share of a suspect's cases that must fail in the other runs for it to be there too


def _common(asked: Sequence[frozenset[Hashable]], asks: Sequence[frozenset[Hashable]]) -> Counter[tuple[int, int]]:
    """Counts the cases that an older and a newer suspect have in common, by their numbers."""
    holders: dict[Hashable, list[int]] = {}
    for i, questions in enumerate(asked):
        for each in questions:
            holders.setdefault(each, []).append(i)
    return Counter((i, j) for j, questions in enumerate(asks) for each in questions for i in holders.get(each, ()))


def _first_start(merged: Overlay, suspect: Suspect) -> str:
    """Returns the start of the first run that shows a suspect; "" if unknown."""
    mine = set(map(id, suspect.findings))
    starts = {merged.runs[row.run].plan.started for row in merged.rows if id(row.record) in mine}
    return min(filter(None, starts), default="")
