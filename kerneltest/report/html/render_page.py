"""Fills in the HTML templates. Each page is one self-contained file."""

from collections.abc import Sequence
from pathlib import Path

from kerneltest.core.failures import escape_surrogates
from kerneltest.core.files import open_inside
from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.runs import Overlay, RunRecords, overlay_runs
from kerneltest.report import panels
from kerneltest.report.counts import inapplicable_backends
from kerneltest.report.html.page import Page, facts_of, project_of
from kerneltest.report.html.page_data import compress_json, page_data
from kerneltest.report.panels import Section, make_sections
from kerneltest.report.text.diff_text import MOST_ROWS, change_rows, conclusion, describe_runs, suspect_rows
from kerneltest.report.text.lines import MAX_TEXT
from kerneltest.report.text.suspect_text import describe_suspect
from kerneltest.triage.run_comparison import MEANING, REGRESSIONS, RunComparison
from kerneltest.triage.suspects import Suspect

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
