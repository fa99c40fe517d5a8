"""What the page's scripts draw: one JSON document, compressed, of columns over dictionaries."""

import base64
import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.attribution import attributions
from kerneltest.records.schema import Evidence, Record
from kerneltest.report.html import code, picture
from kerneltest.report.html.commands import commands
from kerneltest.report.html.matrix import Matrix
from kerneltest.report.html.merge import Merged, Row

# Small pages open: what is over these limits stays in the records, and the page says so.
MOST_FINDINGS = 2000
MOST_TEXTS = 4000
MOST_DRAWN = 40_000  # elements in pictures
MOST_SCRIPTS = 100
_MOST_TEXT = 4000  # characters of one message
_SCRIPT = re.compile(r"cases/reproduce_\w+-\w+\.py", re.ASCII)
_MOST_SCRIPT = 20_000  # bytes

FACTS = ("registers", "shared memory", "stack", "spills", "matrix instructions", "float64 instructions")


class _Words:
    """A dictionary of the words of a column, numbered as they come."""

    def __init__(self, *first: str) -> None:
        self.number = {word: i for i, word in enumerate(first)}

    def __call__(self, word: str) -> int:
        return self.number.setdefault(word, len(self.number))

    @property
    def words(self) -> list[str]:
        return list(self.number)


def compressed(value: Any) -> str:
    """JSON as base64 of zlib's deflate; the page's script undoes it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def data(merged: Merged, table: Matrix) -> dict[str, Any]:
    """All that the scripts draw."""
    pairings = _Words(*(line.pairing for _, lines in table.files for line in lines if not line.dtype))
    backends = _Words(*table.backends)
    tiers = [tier for tier, count in table.tiers for _ in range(count)]
    dtypes, families, signatures, targets, texts = _Words(), _Words(), _Words("*"), _Words(""), _Words("")
    verdicts = _Words(*Verdict, *Gap)
    groups: dict[str, str] = {}
    rows = sorted(merged.rows, key=lambda row: (pairings(row.record.pairing), backends(row.record.backend)))
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    by_pairing: dict[str, list[Record]] = {name: [] for name in pairings.words}
    for row in rows:
        record = row.record
        by_pairing[record.pairing].append(record)
        groups.setdefault(record.family, record.group)
        message = record.message[:_MOST_TEXT]
        known = message in texts.number or len(texts.number) < MOST_TEXTS
        values = (
            pairings(record.pairing),
            backends(record.backend),
            dtypes(record.dtype),
            families(record.family),
            signatures(record.signature),
            targets(record.target),
            verdicts(row.ending),
            _used(record.used),
            texts(message) if known else -1,
        )
        for name, value in zip(_COLUMNS, values, strict=True):
            columns[name].append(value)
    return {
        "verdicts": [
            {"name": e, "letter": e.letter, "kind": e.kind, "meaning": e.meaning, "finding": e.is_finding}
            for e in (*Verdict, *Gap)
        ],
        "pairings": [{"id": name, **_pairing(name, merged, by_pairing[name])} for name in pairings.words],
        "backends": [{"id": name, "tier": tier} for name, tier in zip(backends.words, tiers, strict=True)],
        "dtypes": dtypes.words,
        "families": [{"id": name, "group": groups[name]} for name in families.words],
        "signatures": signatures.words,
        "targets": targets.words,
        "texts": texts.words,
        "rows": columns,
        "findings": _findings(merged, rows),
        "runs": [
            {"name": run.name, "started": run.plan.started, "environment": _environment(run.plan.environment)}
            for run in merged.runs
        ],
        "ulps": _ulps(rows),
        "facts": list(FACTS),
    }


_COLUMNS = ("pairing", "backend", "dtype", "family", "signature", "target", "verdict", "used", "text")


def _used(used: float | None) -> float | int:
    """A fraction of a bound to two digits; -1 for none, 1e99 for an infinite one."""
    if used is None:
        return -1
    return float(f"{min(used, 1e99):.2g}")


def _environment(environment: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in environment.items()}


def _findings(merged: Merged, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Details of findings: the first of each kind come first, pairings in turn, so that a limit cuts repetitions."""
    suspected = attributions(row.record for row in merged.rows)
    seen: Counter[tuple[str, ...]] = Counter()
    order = []
    for number, row in enumerate(rows):
        if row.finding and not isinstance(row.ending, Gap):
            record = row.record
            broad = (record.pairing, row.ending)
            alike = (*broad, record.backend, record.dtype, record.family)
            drawable = record.evidence is not None and record.evidence.window is not None
            order.append((seen[alike], not drawable, seen[broad], number))
            seen.update((alike, broad))
    drawn = scripts = 0
    found = []
    for *_, number in sorted(order)[:MOST_FINDINGS]:
        row = rows[number]
        record, run = row.record, merged.runs[row.run]
        evidence = record.evidence or Evidence()
        detail: dict[str, Any] = {
            "row": number,
            "run": row.run,
            "case": record.case,
            "tolerance": record.tolerance,
            "suspect": suspected.get((record.pairing, record.case, record.backend), ""),
            "commands": commands(record, run),
        } | _evidence(record, evidence)
        if drawn < MOST_DRAWN and (image := picture.picture(evidence)) is not None:
            drawn += len(image["values"])
            detail["picture"], detail["inputs"] = image, picture.inputs(evidence)
        if scripts < MOST_SCRIPTS and (text := _script(run.folder, evidence)):
            scripts += 1
            detail["code"] = text
        found.append(detail)
    return found


def _evidence(record: Record, evidence: Evidence) -> dict[str, Any]:
    detail: dict[str, Any] = {
        name: getattr(evidence, name) for name in ("pattern", "diagnosis", "block", "file", "script")
    }
    detail["stderr"] = evidence.stderr[-_MOST_TEXT:]
    detail["arguments"] = dict(evidence.arguments or {})
    if evidence.index or evidence.actual is not None:
        detail["at"] = {
            "output": evidence.output,
            "index": list(evidence.index),
            "actual": picture.number(evidence.actual),
            "expected": picture.number(evidence.expected),
            "bound": picture.number(float(evidence.bound)),
            "wrong": record.wrong,
            "compared": record.compared,
            "blocks": list(evidence.wrong_blocks),
        }
    return {name: value for name, value in detail.items() if value not in ("", {}, None)}


def _script(folder: Path, evidence: Evidence) -> str:
    """The reproduction script of a finding, or "". Names in records come from outside: no other file is read."""
    if not _SCRIPT.fullmatch(evidence.script):
        return ""
    try:
        path = folder / evidence.script
        inside = path.resolve().is_relative_to(folder.resolve())
        return path.read_text(encoding="utf-8") if inside and path.stat().st_size <= _MOST_SCRIPT else ""
    except (OSError, ValueError):
        return ""


def _pairing(name: str, merged: Merged, mine: Sequence[Record]) -> dict[str, Any]:
    """Declaration and sources as the newest run has them, and what compilers told."""
    found: dict[str, Any] = {}
    for run in reversed(merged.runs):
        declared = run.plan.pairings.get(name)
        if declared is not None:
            found["declaration"] = dict(declared.declaration)
            for part in ("kernel", "oracle"):
                source = getattr(declared, part)
                found[part] = {"file": source.file, "parts": code.tokens(source)}
            break
    facts: dict[tuple[str, str], list[Mapping[str, int]]] = {}
    for record in mine:
        for kernel, told in record.facts.items():
            facts.setdefault((record.backend, kernel), []).append(told)
    found["compiled"] = [
        [*key, len(told), [max(each.get(fact, 0) for each in told) for fact in FACTS]]
        for key, told in sorted(facts.items())
    ]
    advice: dict[tuple[str, str], list[str]] = {}
    for record in mine:
        for line in record.advice:
            advice.setdefault((record.backend, line), []).append(record.signature)
    found["advice"] = [[backend, line, signatures] for (backend, line), signatures in sorted(advice.items())]
    found["artifacts"] = [
        [record.backend, record.signature, files]
        for record in mine
        if (files := [file for file in record.files if file.startswith("artifacts/")])  # no other kind of link
    ]
    found["limitations"] = sorted({text for run in merged.runs for text in run.plan.xfail.get(name, ())})
    return found


def _ulps(rows: Sequence[Row]) -> list[list[Any]]:
    """Pairing, backend, dtype and the sum of its cases' histograms."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        record = row.record
        if record.ulps:
            total = found.setdefault((record.pairing, record.backend, record.dtype), [])
            total.extend([0] * (len(record.ulps) - len(total)))
            for bucket, count in enumerate(record.ulps):
                total[bucket] += count
    return [[*key, counts] for key, counts in found.items()]
