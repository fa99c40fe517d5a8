"""Suspects as the page shows them: in words, and with what its scripts draw of each."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from kerneltest.core.verdicts import VerdictKind
from kerneltest.records.error_budget_text import instability_note
from kerneltest.records.evidence import Evidence
from kerneltest.records.overlay import Overlay
from kerneltest.records.runs import RunRecords, load_windows
from kerneltest.records.schema import Record, StaticValue
from kerneltest.report.commands import pytest_command, python_lines, repro_command
from kerneltest.report.html.findings import MOST_SCRIPTS, budget, inputs, number, picture, script
from kerneltest.report.text.suspects import counts, kernel_of, told
from kerneltest.triage.predicates import Condition
from kerneltest.triage.suspects import Suspect
from kerneltest.triage.symptoms import Level

# Small pages open: what is over these limits is counted.
MOST_SUSPECTS = 200
_MOST_DRAWN = 20_000  # elements in pictures
_MOST_TEXT = 2000  # characters of a message
_MOST_WORDS = 300  # of a line
_MOST_ARGUMENTS = 16
_MOST_FEATURES = 16
_MOST_VALUES = 40
_MOST_CASES = 60  # lines of a table of cases


@dataclass(frozen=True, slots=True)
class Told:
    """A suspect in words.

    Attributes:
      number: among all suspects of the page.
      id: the suspect's.
      title: what is wrong, and where.
      counts: how often.
      lines: the smallest case, where it is born, and how to see it again.
    """

    number: int
    id: str
    title: str
    counts: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The suspects of one kernel, in words; `name` says where it stands."""

    pairing: str
    name: str
    suspects: tuple[Told, ...]


@dataclass(frozen=True)
class Lineup:
    """The suspects of some runs.

    Attributes:
      merged: the runs.
      suspects: of them, the first ones if there are very many.
    """

    merged: Overlay
    suspects: tuple[Suspect, ...]

    @property
    def kernels(self) -> list[Kernel]:
        """In words, kernel by kernel."""
        declared = self.merged.pairings
        by_pairing: dict[str, list[Told]] = {}
        for i, suspect in enumerate(self.suspects):
            _, *lines = told(suspect, self._run_of(suspect.example).name)
            words = tuple(map(_cut, lines))
            mine = Told(i, suspect.id, _cut(suspect.title), _cut(counts(suspect)), words)
            by_pairing.setdefault(suspect.pairing, []).append(mine)
        return [
            Kernel(name, _cut(kernel_of(name, declared.get(name))), tuple(each)) for name, each in by_pairing.items()
        ]

    @cached_property
    def number_of(self) -> Mapping[int, int]:
        """The number of its suspect by the identity of a finding's record."""
        return {id(record): i for i, suspect in enumerate(self.suspects) for record in suspect.findings}

    def drawn(self, rows: Sequence[Record], names: Mapping[str, Mapping[str, int]]) -> Iterator[dict[str, Any]]:
        """What the scripts draw of each suspect.

        Args:
          rows: the records of the page, in its order.
          names: the numbers by which the page knows a pairing, a backend and a family.
        """
        tried, scripts = _Tried(rows), 0
        shown = load_windows(self.merged.runs, self._drawable())
        first: dict[tuple[int, str, str], int] = {}
        for row, record in enumerate(rows):
            if (suspect_number := self.number_of.get(id(record))) is not None:
                first.setdefault((suspect_number, record.backend, record.family), row)
        for i, suspect in enumerate(self.suspects):
            example = suspect.example
            evidence = example.evidence or Evidence()
            drawn: dict[str, Any] = {
                "id": suspect.id,
                "pairing": names["pairing"][suspect.pairing],
                "title": _cut(suspect.title),
                "findings": len(suspect.findings),
                "backend": _cut(example.backend),
                "signature": _cut(example.signature),
                "family": _cut(example.family),
                "message": example.message[:_MOST_TEXT],
                "diagnosis": evidence.diagnosis[:_MOST_TEXT],
                "arguments": [
                    [_cut(name), text[:_MOST_TEXT]]
                    for name, text in list((evidence.arguments or {}).items())[:_MOST_ARGUMENTS]
                ],
                "budget": budget(example),
                "unstable": instability_note(example.error_budget),
                "lines": [_cut(line) for line in suspect.lines[:4]],
                "conditions": [*_conditions(suspect)],
                "strips": _strips(suspect, tried),
                "commands": self._commands(suspect),
                "python": python_lines(self._run_of(_plain(suspect)).plan, _plain(suspect)) or "",
                "cases": _cases(suspect, i, first, names),
            }
            if evidence.actual is not None:
                drawn["at"] = [
                    list(evidence.index),
                    number(evidence.actual),
                    number(evidence.expected),
                    number(float(evidence.bound)),
                ]
            if (smallest := suspect.reproducer) is not None:
                drawn["smallest"] = [smallest.nontrivial, smallest.attempts, smallest.complete]
                if scripts < MOST_SCRIPTS and (text := script(self._run_of(example).folder, smallest.reduced_script)):
                    scripts += 1
                    drawn["cut"] = [smallest.reduced_script, text]
                if (born := smallest.fault) is not None:
                    places = [_cut(each) for each in born.alternatives[:4]]
                    drawn["birth"] = [_cut(born.place), _cut(born.operation), _cut(born.words), born.confirmed, places]
            if (pictured := shown.get(id(example))) is not None and (image := picture(pictured)) is not None:
                drawn["picture"], drawn["inputs"] = image, inputs(pictured)[:_MOST_ARGUMENTS]
            yield drawn

    def _drawable(self) -> list[Record]:
        """The examples whose pictures a page has room for."""
        chosen, left = [], _MOST_DRAWN
        for suspect in self.suspects:
            example = suspect.example
            if example.evidence is None or example.evidence.window is None:
                continue
            left -= math.prod(example.evidence.window.extent)
            if left >= 0:
                chosen.append(example)
        return chosen

    def _run_of(self, record: Record) -> RunRecords:
        """The run that a finding, or a smallest case, is from."""
        return self.merged.runs[self._runs.get(id(record), 0)]

    @cached_property
    def _runs(self) -> Mapping[int, int]:
        found = {id(row.record): row.run for row in self.merged.rows if id(row.record) in self.number_of}
        return found | {id(each.record): i for i, run in enumerate(self.merged.runs) for each in run.reproducers}

    def _commands(self, suspect: Suspect) -> list[str]:
        """For a shell: the smallest case where it is saved, and an item that shows the suspect."""
        example, plain = suspect.example, _plain(suspect)
        saved = example.evidence is not None and example.evidence.file
        again = [repro_command(self._run_of(example).name, example.case, example.backend)] if saved else []
        return [*again, pytest_command(self._run_of(plain).plan, plain.backend, plain.item)]


def lineup(merged: Overlay, suspects: Sequence[Suspect]) -> Lineup:
    """The suspects of some runs, as many as a page shows."""
    return Lineup(merged, tuple(suspects[:MOST_SUSPECTS]))


def _plain(suspect: Suspect) -> Record:
    """The recorded case that the smallest one was made from, or the example: what a run of pytest has."""
    if suspect.reproducer is None:
        return suspect.example
    origin, backend = suspect.reproducer.origin, suspect.reproducer.record.backend
    return next(r for r in suspect.findings if r.case == origin and r.backend == backend)


def _conditions(suspect: Suspect) -> Iterator[str]:
    for each, what in ((suspect.inputs, "case"), (suspect.signatures, "signature")):
        if each.words:
            yield _cut(f"{each.words}: {_share(each, what)}")


def _share(each: Condition, what: str) -> str:
    rest = each.tried - each.fulfilled
    others = f"; none of the other {rest:,} {'does' if rest == 1 else 'do'}" if rest else ""
    verb = "fails" if each.failing == 1 else "fail"
    return f"{each.failing:,} of {each.fulfilled:,} such {what}{'s' * (each.fulfilled != 1)} {verb}{others}"


class _Tried:
    """Cases by pairing, backend and feature: how many have each value, without those that could not be run."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._of: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            if record.case and record.verdict.kind is not VerdictKind.UNAVAILABLE:
                self._of.setdefault((record.pairing, record.backend), []).append(record)
        self._counted: dict[tuple[str, str], _Counted] = {}

    def __call__(self, pairing: str, backend: str) -> "_Counted":
        place = pairing, backend
        if place not in self._counted:
            self._counted[place] = _counted(self._of.get(place, ()))
        return self._counted[place]

    def gives_values(self, pairing: str, backend: str) -> bool:
        """Whether the cases of a backend that ran some have values."""
        return self._of[pairing, backend][0].tier.gives_values


_Feature = tuple[str, str]  # a kind and a name
_Counted = Mapping[_Feature, Counter[StaticValue]]


def _counted(records: Iterable[Record]) -> _Counted:
    """By feature, how many cases have each value."""
    counted: dict[_Feature, Counter[StaticValue]] = {}
    for record in records:
        for feature, value in _features(record):
            counted.setdefault(feature, Counter())[value] += 1
    return counted


def _features(record: Record) -> Iterator[tuple[_Feature, StaticValue]]:
    """What cases differ in."""
    yield from ((("dim", name), length) for name, length in islice(record.dims.items(), _MOST_FEATURES))
    yield ("", "dtype"), record.dtype
    yield from ((("option", name), option) for name, option in islice(record.statics.items(), _MOST_FEATURES))
    yield ("", "family"), record.family


def _strips(suspect: Suspect, tried: _Tried) -> list[list[Any]]:
    """By feature, the values with how many of how many cases fail, and how many values more there are.

    Features are counted on the backend on which the suspect shows most. One with a single value tells nothing.
    """
    backend = next(iter(suspect.backends))
    failing = _counted(record for record in suspect.findings if record.backend == backend)
    strips = [
        _strip(feature[1], failing.get(feature, Counter()), counts)
        for feature, counts in tried(suspect.pairing, backend).items()
        if len(counts) > 1
    ]
    backends = {
        name: count
        for name, count in suspect.tried.items()
        if suspect.level is Level.BUILD or name in suspect.backends or tried.gives_values(suspect.pairing, name)
    }
    if len(backends) > 1:
        strips.append(_strip("backend", Counter(suspect.backends), Counter(backends)))
    return strips[:_MOST_FEATURES]


def _strip(name: str, failing: Counter[Any], tried: Counter[Any]) -> list[Any]:
    worst = sorted(tried, key=lambda value: -failing[value] / tried[value])[:_MOST_VALUES]
    shown = sorted(worst) if all(isinstance(value, int) for value in worst) else worst
    values = [[_cut(value) if isinstance(value, str) else value, failing[value], tried[value]] for value in shown]
    return [_cut(name), values, len(tried) - len(shown)]


def _cases(
    suspect: Suspect, i: int, first: Mapping[tuple[int, str, str], int], names: Mapping[str, Mapping[str, int]]
) -> list[list[int]]:
    """Backend, family, how many cases, and the row of the first; most first."""
    kinds = Counter((record.backend, record.family) for record in suspect.findings)
    return [
        [names["backend"][backend], names["family"][family], count, first[i, backend, family]]
        for (backend, family), count in kinds.most_common(_MOST_CASES)
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_WORDS else text[: _MOST_WORDS - 1] + "…"
