"""The part of the page's JSON document that describes findings. If there are too many, the most diverse are kept."""

import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from kerneltest.core.files import open_inside
from kerneltest.core.grouping import group_pairs
from kerneltest.core.verdicts import Gap
from kerneltest.records.evidence import Evidence, Window, instability_note
from kerneltest.records.runs import Overlay, OverlayRow, RunRecords, load_windows
from kerneltest.records.schema import Record, StaticValue
from kerneltest.report.rerun_commands import pytest_command, python_lines, repro_command
from kerneltest.report.text.lines import truncate
from kerneltest.report.text.suspect_text import SuspectText, describe_suspect, name_function
from kerneltest.triage.attribution import attributions
from kerneltest.triage.conditions import join_clauses
from kerneltest.triage.suspects import Suspect
from kerneltest.triage.symptoms import Level

Json = dict[str, object]

# Limits that keep the page small. Details beyond them are only in the records, and the page says so.
MOST_FINDINGS = 2000
_MOST_DRAWN = 40_000  # elements in pictures
_MOST_SCRIPTS = 100
MOST_TEXT = 4000  # characters of a message
_MOST_SCRIPT = 20_000  # bytes
_MOST_PARTS = 8  # of a bound
_SCRIPT = re.compile(r"cases/(reproduce|cut)_\w+-\w+\.py", re.ASCII)


def _pictures(evidence: Evidence | None) -> Json:
    # The output around the worst element, on the block grid; the arguments there; error / bound over the whole output.
    window = evidence.window if evidence is not None else None
    if evidence is None or window is None:
        return {}
    picture = {
        **_window(window),
        "expected": list(map(_json_number, window.expected)),
        "bound": [_json_number(float(f"{value:.3g}")) for value in window.bound],
        "wrong": window.wrong,
        "worst": evidence.index,
        "output": evidence.output,
    }
    errors = evidence.errors and asdict(evidence.errors) | {"blocks": window.blocks, "output": evidence.output}
    return {"picture": picture, "inputs": list(map(_window, evidence.inputs)), "errors": errors}


def _window(window: Window) -> Json:
    of_place = {name: getattr(window, name) for name in ("name", "dtype", "shape", "origin", "extent", "blocks")}
    return of_place | {"values": list(map(_json_number, window.values))}


def _drawable(records: Iterable[Record], most: int) -> list[Record]:
    # The first records with pictures, until these have so many elements together.
    chosen = []
    for record in records:
        if most > 0 and record.shown.window is not None:
            most -= math.prod(record.shown.window.extent)
            chosen.append(record)
    return chosen


def budget_data(record: Record) -> list[list[object]]:
    """Returns the parts of a bound: description, FILE:LINE ("" if not one operation), and fraction."""
    return [
        [part.words[:MOST_TEXT], f"{part.file[:MOST_TEXT]}:{part.line}" if part.file else "", part.part]
        for part in record.error_budget[:_MOST_PARTS]
    ]


def _json_number(value: float | int | bool | None) -> float | int | bool | str | None:
    """Converts a number to strict JSON: strings for NaN and infinities."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def finding_details(merged: Overlay, rows: Sequence[OverlayRow]) -> list[Json]:
    """Returns the details of findings among a page's rows; each refers to its row by number."""
    attributed = attributions([row.record for row in rows])
    scripts = 0
    chosen = []
    numbers = _most_diverse_first(rows)[:MOST_FINDINGS]
    shown = load_windows(merged.runs, _drawable((rows[number].record for number in numbers), _MOST_DRAWN))
    for number in numbers:
        record, run = rows[number].record, merged.runs[rows[number].run]
        blamed = attributed.get((record.pairing, record.case, record.backend))
        detail: Json = {
            "row": number,
            "run": rows[number].run,
            "case": record.case,
            "place": record.detail.place if record.detail is not None else "",
            "tolerance": record.tolerance,
            "suspect": blamed.text() if blamed is not None else "",
            "commands": [pytest_command(run.plan, record.backend, record.item), *_case_command(run, record)],
            "python": python_lines(run.plan, record) or "",
        } | _evidence(record)
        if record.error_budget:
            detail["budget"], detail["unstable"] = budget_data(record), instability_note(record.error_budget)
        detail |= _pictures(shown.get(id(record)))
        if scripts < _MOST_SCRIPTS and (text := read_script(run.folder, record.shown.script)):
            scripts += 1
            detail["code"] = text
        chosen.append(detail)
    return chosen


def _most_diverse_first(rows: Sequence[OverlayRow]) -> list[int]:
    # Numbers of findings, the first of each kind first, so that a limit cuts repetitions.
    seen: Counter[tuple[str, ...]] = Counter()
    ranked = []
    for number, row in enumerate(rows):
        if row.needs_attention and not isinstance(row.ending, Gap):
            record = row.record
            broad = (record.pairing, row.ending)
            narrow = (*broad, record.backend, record.dtype, record.family)
            ranked.append((seen[narrow], record.shown.window is None, seen[broad], number))
            seen.update((narrow, broad))
    return [number for *_, number in sorted(ranked)]


def _case_command(run: RunRecords, record: Record) -> list[str]:
    return [repro_command(run.name, record.case, record.backend)] if record.shown.file else []


def _evidence(record: Record) -> Json:
    evidence = record.shown
    detail: Json = {name: getattr(evidence, name) for name in ("diagnosis", "block", "file", "script")}
    detail["pattern"] = evidence.pattern.text() if evidence.pattern is not None else ""
    detail["stderr"] = evidence.stderr[-MOST_TEXT:]
    detail["arguments"] = dict(evidence.arguments or {})
    if evidence.index or evidence.actual is not None:
        detail["at"] = {
            "output": evidence.output,
            "index": evidence.index,
            "actual": _json_number(evidence.actual),
            "expected": _json_number(evidence.expected),
            "bound": _json_number(float(evidence.bound)),
            "wrong": record.wrong,
            "compared": record.compared,
            "blocks": evidence.wrong_blocks,
        }
    return {name: value for name, value in detail.items() if value not in ("", {}, None)}


def read_script(folder: Path, name: str) -> str:
    """Reads a script that a run wrote; "" if it is missing or too long. Its name, from a record, is not trusted."""
    if not _SCRIPT.fullmatch(name):
        return ""
    try:
        with open_inside(folder, name) as file:
            text = file.read(_MOST_SCRIPT + 1)
        return text.decode("utf-8") if len(text) <= _MOST_SCRIPT else ""
    except (OSError, ValueError):
        return ""


# Suspects on the page: the text that the template shows, and the JSON data that the scripts draw.

# Limits that keep the page small. It shows how many entries were dropped.
MOST_SUSPECTS = 200
_MOST_DRAWN_OF_SUSPECTS = 20_000  # elements in pictures
_MOST_TEXT = 2000  # characters of a message
_truncate = functools.partial(truncate, most=300)  # characters of a line
_MOST_ARGUMENTS = 16
_MOST_FEATURES = 16
_MOST_VALUES = 40
_MOST_CASES = 60  # lines of a table of cases


@dataclass(frozen=True)
class ShownSuspects:
    """The suspects that a page shows: the first `MOST_SUSPECTS` of its runs."""

    merged: Overlay
    suspects: tuple[Suspect, ...]

    @property
    def kernels(self) -> list[tuple[str, str, list[tuple[int, SuspectText]]]]:
        """The pairing and the name of each kernel, and its suspects in words with their numbers on the page."""
        by_pairing: dict[str, list[tuple[int, SuspectText]]] = {}
        for i, suspect in enumerate(self.suspects):
            text = describe_suspect(suspect, self._run_of(suspect.example).name)
            lines = tuple(replace(line, text=_truncate(line.text)) for line in text.lines)
            short = SuspectText(_truncate(text.title), _truncate(text.counts), lines)
            by_pairing.setdefault(suspect.pairing, []).append((i, short))
        declared = self.merged.pairings
        return [(name, _truncate(name_function(name, declared.get(name))), own) for name, own in by_pairing.items()]

    @functools.cached_property
    def number_of(self) -> Mapping[int, int]:
        """The number of a finding's suspect, by `id()` of the finding's record."""
        return {id(record): i for i, suspect in enumerate(self.suspects) for record in suspect.findings}

    def data(self, rows: Sequence[Record], names: Mapping[str, Mapping[str, int]]) -> Iterator[Json]:
        """Yields the JSON data of each suspect; `names` numbers the pairings, backends and families of the page."""
        judged = (record for record in rows if record.case and record.verdict.is_judgement)
        ran = group_pairs(((record.pairing, record.backend), record) for record in judged)
        count, scripts = functools.cache(lambda *place: _count_features(ran.get(place, ()))), 0
        shown = load_windows(self.merged.runs, _drawable((s.example for s in self.suspects), _MOST_DRAWN_OF_SUSPECTS))
        first: dict[tuple[int, str, str], int] = {}
        for row, record in enumerate(rows):
            if (suspect_number := self.number_of.get(id(record))) is not None:
                first.setdefault((suspect_number, record.backend, record.family), row)
        for i, suspect in enumerate(self.suspects):
            example = plain = suspect.example
            if (smallest := suspect.reproducer) is not None:  # pytest runs the case it was shrunk from
                place = smallest.origin, smallest.record.backend
                plain = next(record for record in suspect.findings if (record.case, record.backend) == place)
            run, evidence = self._run_of(plain), example.shown
            entry: Json = {
                "id": suspect.id,
                "pairing": names["pairing"][suspect.pairing],
                "title": _truncate(suspect.title),
                "findings": len(suspect.findings),
                "backend": _truncate(example.backend),
                "signature": _truncate(example.signature),
                "family": _truncate(example.family),
                "message": example.message[:_MOST_TEXT],
                "diagnosis": "\n".join(filter(None, (suspect.known_bug, suspect.diagnosis)))[:_MOST_TEXT],
                "arguments": [
                    [_truncate(name), text[:_MOST_TEXT]]
                    for name, text in list((evidence.arguments or {}).items())[:_MOST_ARGUMENTS]
                ],
                "budget": budget_data(example),
                "unstable": instability_note(example.error_budget),
                "lines": [*map(_truncate, suspect.lines[:4])],
                "conditions": [*_conditions(suspect)],
                "strips": _strips(suspect, ran, count),
                "commands": [
                    *_case_command(self._run_of(example), example),
                    pytest_command(run.plan, plain.backend, plain.item),
                ],
                "python": python_lines(run.plan, plain) or "",
                "cases": _cases(suspect, i, first, names),
            }
            if evidence.actual is not None:
                numbers = (evidence.actual, evidence.expected, float(evidence.bound))
                entry["at"] = [evidence.index, *map(_json_number, numbers)]
            if smallest is not None:
                entry["smallest"] = [smallest.nontrivial, smallest.attempts, smallest.complete]
                folder = self._run_of(example).folder
                if scripts < _MOST_SCRIPTS and (text := read_script(folder, smallest.reduced_script)):
                    scripts += 1
                    entry["reduced"] = [smallest.reduced_script, text]
            if (fault := suspect.fault) is not None:
                words = map(_truncate, (fault.place, fault.operation, fault.words))
                entry["fault"] = [*words, fault.confirmed, [*map(_truncate, fault.alternatives[:4])]]
            yield entry | _pictures(shown.get(id(example)))

    def _run_of(self, record: Record) -> RunRecords:
        return self.merged.runs[self._runs.get(id(record), 0)]

    @functools.cached_property
    def _runs(self) -> Mapping[int, int]:
        found = {id(row.record): row.run for row in self.merged.rows if id(row.record) in self.number_of}
        return found | {id(each.record): i for i, run in enumerate(self.merged.runs) for each in run.reproducers}


def _conditions(suspect: Suspect) -> Iterator[str]:
    planned = ((suspect.inputs, "case"), (suspect.signatures, "signature"))
    for words, (condition, what) in zip(suspect.clauses, planned, strict=True):
        if words and words == condition.words:
            rest = condition.tried - condition.fulfilled
            others = f"; {rest:,} other{'s' * (rest != 1)} {'does' if rest == 1 else 'do'} not" if rest else ""
            such = f"such {what}{'s' * (condition.fulfilled != 1)} {'fails' if condition.failing == 1 else 'fail'}"
            count = f"{condition.failing:,} of {condition.fulfilled:,} {such}{others}"
            yield _truncate(f"{condition.words}: {count}")
    if (tested := suspect.tested) is not None and (words := join_clauses((tested.inputs, tested.words))):
        yield _truncate(f"{words}: confirmed with {tested.cases:,} cases made to test it")


_Feature = tuple[str, str]  # a kind and a name
_FeatureCounts = Mapping[_Feature, Counter[StaticValue]]


def _count_features(records: Iterable[Record]) -> _FeatureCounts:
    counted: dict[_Feature, Counter[StaticValue]] = {}
    for record in records:
        features: dict[_Feature, StaticValue] = {}
        features |= {("dim", name): length for name, length in islice(record.dims.items(), _MOST_FEATURES)}
        features["", "dtype"] = record.dtype
        features |= {("option", name): option for name, option in islice(record.statics.items(), _MOST_FEATURES)}
        features["", "family"] = record.family
        for feature, value in features.items():
            counted.setdefault(feature, Counter())[value] += 1
    return counted


def _strips(
    suspect: Suspect, ran: Mapping[tuple[str, str], Sequence[Record]], count: Callable[[str, str], _FeatureCounts]
) -> list[list[object]]:
    # Features are counted on the backend with the most findings; those with a single value are left out.
    backend = next(iter(suspect.backends))
    failing = _count_features(record for record in suspect.findings if record.backend == backend)
    strips = [
        _strip(feature[1], failing.get(feature, Counter()), counts)
        for feature, counts in count(suspect.pairing, backend).items()
        if len(counts) > 1
    ]
    backends = {
        name: cases
        for name, cases in suspect.tried.items()
        if suspect.level is Level.BUILD or name in suspect.backends or ran[suspect.pairing, name][0].tier.gives_values
    }
    if len(backends) > 1:
        strips.append(_strip("backend", Counter(suspect.backends), Counter(backends)))
    return strips[:_MOST_FEATURES]


def _strip(name: str, failing: Counter[StaticValue], tried: Counter[StaticValue]) -> list[object]:
    worst = sorted(tried, key=lambda value: -failing[value] / tried[value])[:_MOST_VALUES]
    lengths = [value for value in worst if isinstance(value, int)]
    shown = sorted(lengths) if len(lengths) == len(worst) else worst
    values = [[_truncate(value) if isinstance(value, str) else value, failing[value], tried[value]] for value in shown]
    return [_truncate(name), values, len(tried) - len(shown)]


def _cases(
    suspect: Suspect, i: int, first: Mapping[tuple[int, str, str], int], names: Mapping[str, Mapping[str, int]]
) -> list[list[int]]:
    # Backend, family, number of cases, and row of the first.
    kinds = Counter((record.backend, record.family) for record in suspect.findings)
    return [
        [names["backend"][backend], names["family"][family], count, first[i, backend, family]]
        for (backend, family), count in kinds.most_common(_MOST_CASES)
    ]
