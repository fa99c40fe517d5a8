"""A comparison of runs as an HTML page."""

from collections.abc import Sequence

from kerneltest.records.changes import MEANING, REGRESSIONS
from kerneltest.records.diff import Comparison
from kerneltest.records.runs import Run
from kerneltest.report.templating import render, static
from kerneltest.report.text.diff import MOST_ROWS, conclusion, rows, title


def html(comparison: Comparison, old: Sequence[Run], new: Sequence[Run]) -> str:
    """A page that stands alone and forbids what would come from elsewhere."""
    return render(
        "diff.html",
        comparison=comparison,
        conclusion=conclusion(comparison),
        rows=rows(comparison),
        meaning=MEANING,
        regressions=REGRESSIONS,
        old=title(old),
        new=title(new),
        most=MOST_ROWS,
        style=static("diff.css"),
    )
