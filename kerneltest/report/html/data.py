"""What the page's scripts draw: one JSON document, compressed, of columns over dictionaries."""

import base64
import functools
import json
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.overlay import Overlay, OverlayRow
from kerneltest.records.run_plan import ANY
from kerneltest.records.schema import Record
from kerneltest.report.html import code
from kerneltest.report.html.findings import MOST_TEXT, budget, details
from kerneltest.report.html.suspects import Lineup
from kerneltest.report.matrix import Matrix

MOST_MESSAGES = 4000  # small pages open: what is over this limit stays in the records, and the page says so
COMPILER_FACTS = ("registers", "shared memory", "stack", "spills", "matrix instructions", "float64 instructions")
_COLUMNS = ("pairing", "backend", "dtype", "family", "signature", "target", "verdict", "used", "text", "suspect")


class _Words:
    """A dictionary of the words of a column, numbered as they come."""

    def __init__(self, *first: str) -> None:
        self.number = {word: i for i, word in enumerate(dict.fromkeys(first))}

    def __call__(self, word: str) -> int:
        return self.number.setdefault(word, len(self.number))

    @property
    def words(self) -> list[str]:
        return list(self.number)


def compressed(value: Any) -> str:
    """JSON as base64 of zlib's deflate; the page's script undoes it."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(piece.encode()) for piece in _pieces(value))
    return base64.b64encode(packed + packer.flush()).decode()


def _pieces(value: Any) -> Iterator[str]:
    """JSON piece by piece, so that of all columns one at a time is text."""
    if isinstance(value, dict):
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{json.dumps(name)}:"
            yield from _pieces(each)
        yield "}" if value else "{}"
    else:
        yield json.dumps(value, separators=(",", ":"), allow_nan=False, default=list)  # a column is an array


def data(merged: Overlay, matrix: Matrix, lineup: Lineup) -> dict[str, Any]:
    """All that the scripts draw."""
    pairings = _Words(*(line.pairing for line in matrix.lines))
    backends = _Words(*(column.title for column in matrix.columns))
    dtypes, families, signatures, targets, messages = _Words(), _Words(), _Words(ANY), _Words(""), _Words("")
    endings = (*Verdict, *Gap)
    verdicts = _Words(*endings)
    groups: dict[str, str] = {}
    by_place: dict[tuple[int, int], list[OverlayRow]] = {}
    for row in merged.rows:
        by_place.setdefault((pairings(row.record.pairing), backends(row.record.backend)), []).append(row)
    rows = [row for place in sorted(by_place) for row in by_place.pop(place)]
    columns: dict[str, Any] = {name: array("i") for name in _COLUMNS} | {"used": []}
    by_pairing: dict[str, list[Record]] = {name: [] for name in pairings.words}
    for row in rows:
        record = row.record
        by_pairing[record.pairing].append(record)
        groups.setdefault(record.family, record.group)
        message = record.message[:MOST_TEXT]
        kept = message in messages.number or len(messages.number) < MOST_MESSAGES
        values = (
            pairings(record.pairing),
            backends(record.backend),
            dtypes(record.dtype),
            families(record.family),
            signatures(record.signature),
            targets(record.target),
            verdicts(row.ending),
            _used(record.bound_fraction),
            messages(message) if kept else -1,
            lineup.number_of.get(id(record), -1),
        )
        for name, value in zip(_COLUMNS, values, strict=True):
            columns[name].append(value)
    names = {"pairing": pairings.number, "backend": backends.number, "family": families.number}
    return {
        "verdicts": [
            {"name": e, "letter": e.letter, "kind": e.kind, "meaning": e.meaning, "finding": e.is_finding}
            for e in endings
        ],
        "pairings": [{"id": _parsed(name), **_pairing(name, merged, by_pairing[name])} for name in pairings.words],
        "backends": [{"id": _parsed(column.title), "tier": column.tier} for column in matrix.columns],
        "dtypes": [_parsed(name) for name in dtypes.words],
        "families": [{"id": name, "group": groups[name]} for name in families.words],
        "signatures": signatures.words,
        "targets": targets.words,
        "texts": messages.words,
        "rows": columns,
        "suspects": list(lineup.drawn([row.record for row in rows], names)),
        "findings": details(merged, rows),
        "runs": [
            {
                "name": run.name,
                "started": run.plan.started,
                "environment": {key: str(value) for key, value in run.plan.environment.items()},
            }
            for run in merged.runs
        ],
        "ulps": _ulps(rows),
        "budgets": _budgets(rows, pairings.number, backends.number, families.number),
        "facts": list(COMPILER_FACTS),
    }


def _parsed(name: str) -> str:
    """A name as a browser has it once it parsed the page's table, by which the scripts know it."""
    return re.sub("\r\n?", "\n", name).replace("\0", "\ufffd")


def _used(used: float | None) -> float | int:
    """A fraction of a bound to two digits; -1 for none, 1e99 for an infinite one."""
    return -1 if used is None else _number(f"{min(used, 1e99):.2g}")


@functools.lru_cache(4096)
def _number(text: str) -> float:
    """The same object for all cases that show the same number."""
    return float(text)


def _pairing(name: str, merged: Overlay, records: Sequence[Record]) -> dict[str, Any]:
    """Declaration and sources as the last run has them, and what compilers say of the kernels."""
    pairing: dict[str, Any] = {}
    for run in reversed(merged.runs):
        declared = run.plan.pairings.get(name)
        if declared is not None:
            pairing["declaration"] = dict(declared.declaration)
            for part, source in (("kernel", declared.kernel), ("oracle", declared.oracle)):
                pairing[part] = {"file": source.file, "parts": code.tokens(source)}
            break
    pairing["compiled"] = _compiled(records)
    advice: dict[tuple[str, str], list[str]] = {}
    for record in records:
        for line in record.advice:
            advice.setdefault((record.backend, line), []).append(record.signature)
    pairing["advice"] = [[backend, line, signatures] for (backend, line), signatures in sorted(advice.items())]
    pairing["artifacts"] = [
        [record.backend, record.signature, files]
        for record in records
        if (files := [file for file in record.files if file.startswith("artifacts/")])  # no other kind of link
    ]
    pairing["xfails"] = sorted({text for run in merged.runs for text in run.plan.xfail.get(name, ())})
    return pairing


def _compiled(records: Sequence[Record]) -> list[list[Any]]:
    """Backend, kernel, how many signatures were compiled, and the largest of each fact over these."""
    facts: dict[tuple[str, str], list[Mapping[str, int]]] = {}
    for record in records:
        for kernel, of_signature in record.compiler_metrics.items():
            facts.setdefault((record.backend, kernel), []).append(of_signature)
    return [
        [*place, len(each), [max(of_signature.get(fact, 0) for of_signature in each) for fact in COMPILER_FACTS]]
        for place, each in sorted(facts.items())
    ]


def _budgets(
    rows: Sequence[OverlayRow], pairings: Mapping[str, int], backends: Mapping[str, int], families: Mapping[str, int]
) -> list[list[Any]]:
    """Pairing, backend, family, error / bound and budget of the case that uses up most of its bound, of those that are
    no finding where there are any.
    """
    most: dict[tuple[str, str], tuple[bool, float, Record]] = {}
    for row in rows:
        record = row.record
        if record.error_budget and record.bound_fraction is not None:
            place = record.pairing, record.backend
            rank = not row.is_finding, record.bound_fraction
            if place not in most or rank > most[place][:2]:
                most[place] = *rank, record
    return [
        [pairings[pairing], backends[backend], families[record.family], _used(record.bound_fraction), budget(record)]
        for (pairing, backend), (_, _, record) in most.items()
    ]


def _ulps(rows: Sequence[OverlayRow]) -> list[list[Any]]:
    """Pairing, backend, dtype and the sum of its cases' histograms."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        record = row.record
        if record.ulps:
            counts = sums.setdefault((record.pairing, record.backend, record.dtype), [])
            counts.extend([0] * (len(record.ulps) - len(counts)))
            for bucket, count in enumerate(record.ulps):
                counts[bucket] += count
    return [[*place, counts] for place, counts in sums.items()]
