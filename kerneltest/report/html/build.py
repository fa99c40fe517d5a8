"""One self-contained HTML page from the folders of one or more runs. Reads records only."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from kerneltest.lowering_map.compare import successive_changes
from kerneltest.lowering_map.map import LoweringMap, LoweringOutcome
from kerneltest.lowering_map.table import change_line, count_line, tabulate_maps
from kerneltest.records.runs import Run
from kerneltest.report.html.data import compressed, data
from kerneltest.report.html.matrix import legend, matrix, totals
from kerneltest.report.html.merge import Merged, merge
from kerneltest.report.html.summary import (
    families,
    kinds_of_findings,
    not_applicable,
    problems,
    run_lines,
    splits,
    unavailable,
)

# In this order: each uses what is above it.
_SCRIPTS = ("dom", "data", "filters", "table", "results", "plots", "picture", "code", "pairing", "finding", "main")


def write_html(path: Path, runs: Sequence[Run]) -> Path:
    """Writes the page for some runs; returns its path."""
    path.write_text(render(merge(runs)), encoding="utf-8")
    return path


def render(merged: Merged, maps: Sequence[LoweringMap] = ()) -> str:
    """The page as text, with a section of what lowers if there are maps."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kerneltest.report.html"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    static = files("kerneltest.report.html") / "static"
    style = (static / "page.css").read_text(encoding="utf-8")
    parts = [(static / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    table = matrix(merged)
    return environment.get_template("report.html").render(
        style=style,
        script=script,
        style_digest=_digest(style),
        script_digest=_digest(script),
        data=compressed(data(merged, table)),
        merged=merged,
        matrix=table,
        legend=legend(merged.rows),
        totals=totals(status.verdict for status in merged.cells.values()),
        cases=sum(1 for row in merged.rows if row.record.case),
        findings=sum(row.finding for row in merged.rows),
        compared=sum(row.record.compared for row in merged.rows),
        problems=problems(merged),
        unavailable=unavailable(merged),
        not_applicable=not_applicable(merged),
        xfails=sorted({(p, t) for run in merged.runs for p, texts in run.plan.xfail.items() for t in texts}),
        splits=splits(merged),
        kinds=kinds_of_findings(merged),
        families=families(merged),
        runs=run_lines(merged),
        lowering=_lowering(maps) if maps else None,
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _lowering(given: Sequence[LoweringMap]) -> dict[str, Any]:
    maps = sorted(given, key=lambda each: each.version)
    return {
        "outcomes": list(LoweringOutcome),
        "counts": [(each.title, count_line(each)) for each in maps],
        "table": tabulate_maps(maps),
        "steps": [
            (old.jax, new.jax, [(change, change_line(change, new.targets)) for change in changes])
            for old, new, changes in successive_changes(maps)
        ],
    }
