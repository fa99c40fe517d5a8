"""One self-contained HTML page from the folders of one or more runs. Reads records only."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from kerneltest import lowering_map, lowering_text
from kerneltest.attribution import suspects
from kerneltest.drawn import FUZZ
from kerneltest.lowering_map import LoweringMap
from kerneltest.options import in_order
from kerneltest.reconcile import Reconciled, Status, reconcile
from kerneltest.record import Cell, Plan, Record, read_plan, read_records, repro_command
from kerneltest.verdicts import MEANING, NO_FINDING, SEVERITY, worst

# A glyph beside every colour, so that neither carries the meaning alone.
_GLYPHS = {"pass": "✓", "expected": "≈", "unavailable": "–", "missing": "?", "nothing compared": "∅"}
_MOST_FINDINGS = 200
_FACTS = ("registers", "shared memory", "stack", "spills", "matrix instructions", "float64 instructions")


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run's folder, read and reconciled."""

    folder: Path
    plan: Plan
    records: tuple[Record, ...]
    reconciled: Reconciled


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """One pairing on one backend, over dtypes and families.

    Attributes:
      verdict: the worst of its statuses.
      glyph: a sign for it.
      counts: cases by verdict, as text.
      dtypes: the same for each dtype.
      used: the largest fraction of a bound that was used up, or "".
    """

    verdict: str
    glyph: str
    counts: str
    dtypes: tuple[tuple[str, str, str], ...]
    used: str


def load(folder: Path) -> LoadedRun:
    """Reads a run's folder.

    Raises:
      RecordError: it holds no readable plan, or a corrupt shard.
    """
    plan = read_plan(folder)
    records = tuple(read_records(folder))
    return LoadedRun(folder, plan, records, reconcile(plan, records))


def write_html(path: Path, folders: Sequence[Path]) -> Path:
    """Writes the page for some runs; returns its path."""
    path.write_text(render([load(folder) for folder in folders]), encoding="utf-8")
    return path


def render(runs: Sequence[LoadedRun], maps: Sequence[LoweringMap] = ()) -> str:
    """The page as text, with a section of what lowers if there are maps."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kerneltest.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    style = environment.get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    pages = [_page(run) for run in runs]
    return environment.get_template("report.html").render(
        runs=pages, meaning=MEANING, style=style, digest=digest, lowering=_lowering(maps) if maps else None
    )


def _page(run: LoadedRun) -> dict[str, Any]:
    cells = run.reconciled.cells
    findings = sorted(
        (record for record in run.records if record.verdict not in NO_FINDING),
        key=lambda r: (-SEVERITY[r.verdict], r.pairing, r.backend, r.dtype, r.family),
    )
    suspected = suspects(run.records)
    statuses = Counter(status.verdict for status in cells.values())
    backends = in_order(item.backend for item in run.plan.items)
    pairings = list(dict.fromkeys(item.pairing for item in run.plan.items))
    return {
        "folder": run.folder.name,
        "plan": run.plan,
        "cells": len(cells),
        "statuses": sorted(statuses.items(), key=lambda pair: SEVERITY.get(pair[0], 99)),
        "verdicts": sorted(
            Counter(record.verdict for record in run.records if record.case).items(), key=lambda p: SEVERITY[p[0]]
        ),
        "cases": sum(1 for record in run.records if record.case),
        "compared": sum(record.compared for record in run.records),
        "complete": run.reconciled.complete,
        "green": run.reconciled.green,
        "problems": run.reconciled.problems,
        "missing": [" / ".join(cell) for cell, status in cells.items() if status.verdict == "missing"],
        "backends": backends,
        "matrix": [(pairing, [_cell(pairing, backend, cells) for backend in backends]) for pairing in pairings],
        "findings": findings[:_MOST_FINDINGS],
        "left_out": max(0, len(findings) - _MOST_FINDINGS),
        "refusals": sorted(
            {(r.pairing, r.backend, r.message) for r in run.records if r.verdict == "unavailable"}
            - {(r.pairing, r.backend, run.plan.unavailable.get(r.backend, "")) for r in run.records}
        ),
        "suspected": {(r.case, r.backend): suspected.get(((r.pairing, r.case), r.backend), "") for r in findings},
        "splits": Counter(text for text in suspected.values() if text.startswith("the lowering for")),
        "families": _families(run),
        "compiled": _compiled(run),
        "advice": sorted({(r.pairing, r.backend, r.signature, line) for r in run.records for line in r.advice}),
        "reproduce": {(r.case, r.backend): _reproduction(r, run) for r in findings[:_MOST_FINDINGS]},
        "facts": _FACTS,
        "artifacts": [
            (r.pairing, r.backend, r.signature, files)
            for r in run.records
            if (files := [file for file in r.files if file.startswith("artifacts/")])  # no other kind of link
        ],
    }


def _lowering(given: Sequence[LoweringMap]) -> dict[str, Any]:
    maps = sorted(given, key=lambda found: found.version)
    return {
        "meaning": lowering_map.MEANING,
        "counts": [(lowering_text.title(found), lowering_text.counted(found)) for found in maps],
        "table": lowering_text.table(maps),
        "steps": [
            (old.jax, new.jax, [(change, lowering_text.change_line(change, new.targets)) for change in changes])
            for old, new, changes in lowering_text.steps(maps)
        ],
    }


def _cell(pairing: str, backend: str, cells: "dict[Cell, Status] | Any") -> MatrixCell:
    mine = {cell: status for cell, status in cells.items() if cell[:2] == (pairing, backend)}
    if not mine:
        return MatrixCell("absent", "", "not planned", (), "")
    verdict = _worst([status.verdict for status in mine.values()])
    dtypes = []
    for dtype in dict.fromkeys(cell[2] for cell in mine):
        own = [status for cell, status in mine.items() if cell[2] == dtype]
        dtypes.append((dtype, _worst([s.verdict for s in own]), _counts(own)))
    used = max((status.used for status in mine.values() if status.used is not None), default=None)
    return MatrixCell(
        verdict,
        _GLYPHS.get(verdict, "✗"),
        _counts(list(mine.values())),
        tuple(dtypes),
        f"{used:.2g} of the bound" if used is not None else "",
    )


def _counts(statuses: Sequence[Status]) -> str:
    if all(status.verdict == "unavailable" for status in statuses):
        return "unavailable"
    total: Counter[str] = Counter()
    for status in statuses:
        total.update(status.verdicts)
        if status.verdict not in status.verdicts:
            total[status.verdict] += 1
    return ", ".join(f"{n} {v}" for v, n in sorted(total.items(), key=lambda p: SEVERITY.get(p[0], 99)))


def _worst(verdicts: Sequence[str]) -> str:
    gaps = [v for v in verdicts if v not in SEVERITY]
    return gaps[0] if gaps else worst(set(verdicts))


def _families(run: LoadedRun) -> list[tuple[str, str, int, int, str]]:
    """Group, family, cases, elements compared, and the largest fraction of a bound used, over the whole run."""
    table: dict[tuple[str, str], list[Record]] = {}
    for record in run.records:
        if record.case:
            table.setdefault((record.group, record.family), []).append(record)
    rows = []
    for (group, family), records in table.items():
        used = max((r.used for r in records if r.used is not None), default=None)
        compared = sum(r.compared for r in records)
        rows.append((group, family, len(records), compared, f"{used:.3g}" if used is not None else "–"))
    return rows


def _compiled(run: LoadedRun) -> list[tuple[str, str, str, int, dict[str, int]]]:
    """Pairing, backend, kernel, signatures, and the largest of each of the compiler's facts over them."""
    table: dict[tuple[str, str, str], list[Mapping[str, int]]] = {}
    for record in run.records:
        for kernel, facts in record.facts.items():
            table.setdefault((record.pairing, record.backend, kernel), []).append(facts)
    return [
        (*key, len(rows), {fact: max(row.get(fact, 0) for row in rows) for fact in _FACTS})
        for key, rows in sorted(table.items())
    ]


def _reproduction(record: Record, run: LoadedRun) -> str:
    """The commands and the few lines that show a finding again."""
    plan = run.plan
    file, _, name = record.pairing.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
    options = f"--kt-depth {plan.depth} --kt-seed {plan.seed}" + f" --kt-fuzz {plan.fuzz}" * bool(plan.fuzz)
    commands = f'pytest -p kerneltest {options} "{record.item}"\n'
    if record.evidence and record.evidence.file:
        commands += repro_command(run.folder.name, record.case, record.backend) + "\n"
    if record.group == FUZZ:
        return commands  # what was drawn is in the saved inputs alone
    return commands + (
        f"\nimport kerneltest as kt\nfrom {module} import {name}\n\n"
        f'result = kt.check({name}, backends=["{record.backend}"], depth="{plan.depth}", seed={plan.seed},\n'
        f'                  case="{record.case}")\n'
        "print(result.findings[0].message, result.findings[0].arguments)\n"
    )
