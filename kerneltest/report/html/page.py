"""The report as HTML: the values that its template shows, the pages, and cards for notebooks."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kerneltest.core.failures import escape_surrogates
from kerneltest.core.files import open_inside
from kerneltest.core.grouping import group_pairs
from kerneltest.core.verdicts import Ending, Gap, Verdict
from kerneltest.records.runs import Overlay, RunRecords, overlay_runs
from kerneltest.records.schema import Record
from kerneltest.records.sharpness import measure_sharpness
from kerneltest.report import panels
from kerneltest.report.counts import (
    budget_remarks,
    clock_warning,
    gaps,
    inapplicable_backends,
    record_remarks,
    reuse_remarks,
    skip_remarks,
    slow_remarks,
)
from kerneltest.report.html.finding_data import MOST_SUSPECTS, ShownSuspects
from kerneltest.report.html.page_data import compress_json, page_data
from kerneltest.report.matrix import Matrix, by_backend, count_endings
from kerneltest.report.panels import MatrixColumn, Section, make_sections
from kerneltest.report.text.diff_text import MOST_ROWS, change_rows, conclusion, describe_runs, suspect_rows
from kerneltest.report.text.lines import MAX_TEXT
from kerneltest.report.text.suspect_text import describe_suspect
from kerneltest.triage.run_comparison import MEANING, REGRESSIONS, RunComparison
from kerneltest.triage.suspects import Suspect, suspects_in_overlay

# The facts that tell a reader which code some runs tested, when, and on what.


def project_of(runs: Sequence[RunRecords]) -> str:
    """Returns the names of the tested projects; "" if no run names one."""
    return _distinct(run.plan.project.name for run in runs)


_VERSIONS = ("kerneltest", "triton", "libtpu", "ml_dtypes")  # as a plan's environment names these


def facts_of(runs: Sequence[RunRecords]) -> dict[str, str]:
    """Returns the commit, the date, the versions and the devices of some runs, as far as they are known."""
    plans = [run.plan for run in runs]
    days = sorted({plan.started[:10] for plan in plans} - {""})
    facts = {
        "commit": _distinct(plan.project.commit for plan in plans),
        "date": " to ".join(dict.fromkeys([*days[:1], *days[-1:]])),
        "JAX": _distinct(plan.environment.get("jax", "") for plan in plans),
        "devices": _distinct(plan.environment.get("devices", "") for plan in plans),
        **{name: _distinct(plan.environment.get(name, "") for plan in plans) for name in _VERSIONS},
    }
    return {name: value for name, value in facts.items() if value}


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, values)))


# The column of the matrix that shows how small an error the bounds of each pairing would show.


def _sharpness_column(records: Iterable[Record]) -> Iterator[MatrixColumn]:
    # A dtype shows its backend with the widest bounds, and a pairing its dtype with the narrowest.
    by_dtype: dict[tuple[str, str], float] = {}
    for each in measure_sharpness(records):
        place = each.pairing, each.dtype
        by_dtype[place] = max(each.typical, by_dtype.get(place, 0.0))
    of_pairing: dict[str, float] = {}
    for (pairing, _), error in by_dtype.items():
        of_pairing[pairing] = min(error, of_pairing.get(pairing, math.inf))
    cells = {place: _format(error) for place, error in by_dtype.items()}
    cells |= {(pairing, ""): _format(error) for pairing, error in of_pairing.items()}
    meaning = "the smallest relative error of an output that the bounds of the median numeric case would show"
    if cells:
        yield MatrixColumn("sharpness", meaning, cells)


def _format(error: float) -> str:
    return "any" if math.isinf(error) else f"{error:.1e}".replace("e-0", "e-") if error else "exact"


@dataclass(frozen=True)
class Page:
    """The values that the template shows of some runs, overlaid; `sections` come after the built-in ones."""

    merged: Overlay
    sections: Sequence[Section] = ()

    @cached_property
    def matrix(self) -> Matrix:
        return by_backend(self.merged)

    @property
    def columns(self) -> list[MatrixColumn]:
        """The columns of the matrix after those of the backends."""
        own = _sharpness_column(row.record for row in self.merged.rows)
        return [*own, *(column for section in self.sections for column in section.columns)]

    @cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        return suspects_in_overlay(self.merged)

    @cached_property
    def shown_suspects(self) -> ShownSuspects:
        return ShownSuspects(self.merged, self.suspects[:MOST_SUSPECTS])

    @property
    def totals(self) -> Mapping[Ending, int]:
        return count_endings(status.verdict for status in self.merged.cells.values())

    @property
    def legend(self) -> list[Ending]:
        return list(count_endings(row.ending for row in self.merged.rows))

    @property
    def gaps(self) -> list[str]:
        shown = [run for number, run in enumerate(self.merged.runs) if number in self.merged.contributing]
        return [f"{self._prefix(run)}{text}" for run in shown for text in gaps(run)]

    @property
    def remarks(self) -> list[str]:
        """Disagreements between runs, and wrong clocks."""
        lines = []
        for split in self.merged.splits:
            endings = ", ".join(f"{ending} in {run}" for run, ending in split.endings)
            cells = f"{split.cells:,} cell{'s' * (split.cells > 1)}"
            lines.append(f"{split.pairing} on {split.backend}: {endings} ({cells}; the page shows the first)")
        clocks = ((run, clock_warning(run.plan)) for run in self.merged.runs)
        return [*lines, *(f"{self._prefix(run)}{text}" for run, text in clocks if text)]

    @property
    def unavailable(self) -> list[tuple[str, str, str]]:
        """Backend, reason, and the run whose results the matrix shows for it instead ("" if none), for each run."""
        lacking = {(number, name) for number, run in enumerate(self.merged.runs) for name in run.plan.unavailable}
        served = {
            row.record.backend: self.merged.runs[row.run].name
            for row in self.merged.rows
            if (row.run, row.record.backend) not in lacking
        }
        several = "in " * (len(self.merged.runs) > 1)
        return [
            (backend, f"{several}{self._prefix(run)}{reason}", served.get(backend, ""))
            for run in self.merged.runs
            for backend, reason in run.plan.unavailable.items()
        ]

    @property
    def xfails(self) -> list[tuple[str, str]]:
        return sorted({(name, text) for run in self.merged.runs for name, of in run.plan.xfail.items() for text in of})

    @property
    def notes(self) -> list[str]:
        """Remarks on run times, reused verdicts, undefined elements and suspected lowering bugs."""
        of_runs = (
            (run, (*skip_remarks(run), *budget_remarks(run), *reuse_remarks(run), *slow_remarks(run)))
            for run in self.merged.runs
        )
        return [
            *(f"{self._prefix(run)}{line}" for run, lines in of_runs for line in lines),
            *record_remarks(row.record for row in self.merged.rows),
        ]

    @property
    def kinds(self) -> list[tuple[Ending, str, str, int, str]]:
        """Findings outside of suspects: ending, pairing, backend, count and first message; the most severe first."""
        gathered = {id(record) for suspect in self.suspects for record in suspect.findings}
        others = (row for row in self.merged.rows if row.needs_attention and id(row.record) not in gathered)
        grouped = group_pairs(((row.ending, row.record.pairing, row.record.backend), row.record) for row in others)
        kinds = [(*kind, len(records), records[0].message) for kind, records in grouped.items()]
        return sorted(kinds, key=lambda kind: (-kind[0].severity, kind[1], kind[2]))

    @property
    def runs(self) -> Iterator[tuple[RunRecords, str, bool, Mapping[Ending, int]]]:
        """Each run with its state, whether the page shows any of its cells, and its planned cells by ending."""
        for number, run in enumerate(self.merged.runs):
            done = run.reconciled
            state = "INCOMPLETE" if not done.complete else "no finding" if done.green else "findings"
            sums = count_endings(status.verdict for status in done.cells.values())
            yield run, state, number in self.merged.contributing, sums

    @property
    def families(self) -> Iterator[tuple[str, str, Mapping[Ending, int], int, float | None]]:
        """Group, family, cases by ending, compared elements, and the largest error / bound (None without a bound)."""
        cases = (row for row in self.merged.rows if row.record.case)
        for (group, family), rows in group_pairs(((r.record.group, r.record.family), r) for r in cases).items():
            used = (row.record.bound_fraction for row in rows if row.record.bound_fraction is not None)
            compared = sum(row.record.compared for row in rows)
            yield group, family, count_endings(row.ending for row in rows), compared, max(used, default=None)

    def _prefix(self, run: RunRecords) -> str:
        return f"{run.name}: " if len(self.merged.runs) > 1 else ""


# The pages, each of which is one self-contained file.

# Concatenated in this order; each script uses those before it.
_SCRIPTS = "data filters results list picture error_map coverage pairing finding suspects main".split()


def write_html(path: Path, runs: Sequence[RunRecords]) -> Path:
    """Writes the report of some runs and returns its path."""
    merged = overlay_runs(runs)
    with open_inside(path.parent, path.name, "wb") as file:
        file.write(escape_surrogates(render(merged, make_sections(merged))).encode())
    return path


def render(merged: Overlay, sections: Sequence[Section] = ()) -> str:
    """Returns the HTML of a report of some runs; `sections` come after the built-in ones."""
    page = Page(merged, sections)
    script = "\n".join(panels.static(f"{name}.js") for name in _SCRIPTS)
    return panels.render(
        "report.html",
        page=page,
        project=project_of(merged.runs),
        facts=facts_of(merged.runs),
        not_applicable=inapplicable_backends(merged.runs),
        style=panels.static("page.css"),
        script=f'"use strict";\n(() => {{\n{script}}})();\n',
        data=compress_json(page_data(merged, page.matrix, page.shown_suspects, sections)),
        sections=sections,
    )


def render_diff(comparison: RunComparison, old: Sequence[RunRecords], new: Sequence[RunRecords]) -> str:
    """Renders the comparison of two sets of runs; its content security policy forbids all external content."""
    before, after = ({"runs": describe_runs(runs), **facts_of(runs)} for runs in (old, new))
    return panels.render(
        "diff.html",
        comparison=comparison,
        conclusion=conclusion(comparison),
        rows=change_rows(comparison),
        suspects=suspect_rows(comparison, old, new),
        meaning=MEANING,
        regressions=REGRESSIONS,
        project=project_of(new),
        facts=[(name, before.get(name, "unknown"), after.get(name, "unknown")) for name in {**before, **after}],
        kinds={str(each): each for each in (*Verdict, *Gap)},
        most=MOST_ROWS,
        longest=MAX_TEXT,
        style=panels.static("page.css"),
    )


# Cards for notebooks: a suspect, a finding or a result in HTML that loads and runs nothing.

_MOST_SUSPECTS = 10


def render_card(title: str, lines: Sequence[str], *, counts: str = "", good: bool = False) -> str:
    """Renders one card; `good` says whether it is about a success."""
    return panels.render("card.html", title=title, lines=lines, counts=counts, good=good)


def render_suspect(suspect: Suspect) -> str:
    """Renders a suspect as the page does: its title, its smallest case and its root cause."""
    text = describe_suspect(suspect)
    return render_card(text.title, text.details, counts=text.counts)


Suspect._repr_html_ = render_suspect  # type: ignore[attr-defined]  # notebooks show it; `triage` knows no HTML


def render_result(headline: str, suspects: Sequence[Suspect], remarks: Sequence[str], *, good: bool) -> str:
    """Renders a result: its headline, and a card of each suspect."""
    more = len(suspects) - _MOST_SUSPECTS
    lines = [*remarks, *([f"and {more} more suspects"] if more > 0 else [])]
    cards = [render_card(headline, lines, good=good), *map(render_suspect, suspects[:_MOST_SUSPECTS])]
    return "\n".join(cards)
