"""What reports say in words beside the matrix, the same in a terminal, on a Markdown page and on an HTML page."""

from collections.abc import Iterable, Sequence

from kerneltest.records.attribution import lowering_bugs
from kerneltest.records.runs import Run
from kerneltest.records.schema import Record


def gaps(run: Run) -> list[str]:
    """What is wrong with the bookkeeping of a run: its problems, then the cells that lack a verdict."""
    return [*run.reconciled.problems, *(f"no verdict: {' / '.join(cell)}" for cell in run.reconciled.missing)]


def not_applicable(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Each reason once why backends are not for kernels: the backends, and the reason with how much it leaves out."""
    cases: dict[str, dict[tuple[str, str], int]] = {}
    for run in runs:
        for each in run.plan.not_applicable:
            cases.setdefault(each.reason, {})[each.pairing, each.backend] = each.cases
    lines = []
    for reason, by_place in sorted(cases.items(), key=lambda pair: -sum(pair[1].values())):
        backends = ", ".join(dict.fromkeys(backend for _, backend in by_place))
        pairings = len({pairing for pairing, _ in by_place})
        count = f"{pairings} pairing{'s' * (pairings > 1)}, {sum(by_place.values()):,} cases"
        lines.append((backends, f"{reason} ({count})"))
    return lines


def suspected_lowerings(records: Iterable[Record]) -> list[str]:
    """Where backends disagree such that a lowering is suspected, what most cases show first."""
    return [
        f"suspected lowering bug in {count} case{'s' * (count > 1)}: {text}"
        for text, count in lowering_bugs(records).most_common()
    ]
