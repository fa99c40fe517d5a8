"""The matrix of pairings and backends as the page holds it without scripts, and the totals above it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.backends.registry import in_order
from kerneltest.core.tiers import Tier
from kerneltest.core.verdicts import Ending, worst
from kerneltest.records.schema import ANY
from kerneltest.report.html.merge import Merged, Past, Row

_SPARK_WIDTH, _SPARK_HEIGHT = 36, 10


@dataclass(frozen=True, slots=True)
class Spark:
    """A cell's history as a small line: points of an SVG polyline, and the same in words."""

    points: str
    last: tuple[float, float]
    words: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One pairing on one backend, over dtypes or in one of them.

    Attributes:
      backend: its column.
      kind, letter: of the worst verdict; "" where nothing was planned.
      count: its findings, or its cases where there are none.
      words: all its verdicts with their counts.
      spark: its history, if there is one.
    """

    backend: str
    kind: str
    letter: str
    count: str
    words: str
    spark: Spark | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the matrix: a pairing, or one dtype of it."""

    pairing: str
    name: str
    dtype: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The table.

    Attributes:
      tiers: with how many columns each.
      backends: the columns.
      files: each with its rows.
    """

    tiers: tuple[tuple[Tier, int], ...]
    backends: tuple[str, ...]
    files: tuple[tuple[str, tuple[Line, ...]], ...]


def matrix(merged: Merged) -> Matrix:
    """The matrix of all that was planned."""
    backends = tuple(in_order(cell[1] for cell in merged.cells))
    tier_of = {item.backend: item.tier for run in merged.runs for item in run.plan.items}
    order = list(Tier)
    backends = tuple(sorted(backends, key=lambda each: order.index(tier_of[each])))
    tiers = Counter(tier_of[each] for each in backends)
    counts: dict[tuple[str, str, str], Counter[Ending]] = {}
    for row in merged.rows:
        record = row.record
        for dtype in ("", record.dtype):
            counts.setdefault((record.pairing, record.backend, dtype), Counter())[row.ending] += 1
    files: dict[str, list[Line]] = {}
    dtypes: dict[str, dict[str, None]] = {}
    for pairing, _, dtype, _ in sorted(merged.cells, key=lambda cell: cell[0]):
        dtypes.setdefault(pairing, {})[dtype] = None
    for pairing, names in dtypes.items():
        file, _, name = pairing.rpartition("::")
        for dtype in ("", *(name for name in names if name != ANY)):
            cells = tuple(
                _cell(
                    counts.get((pairing, each, dtype)), each, () if dtype else merged.history.get((pairing, each), ())
                )
                for each in backends
            )
            files.setdefault(file, []).append(Line(pairing, name, dtype, cells))
    return Matrix(tuple(tiers.items()), backends, tuple((file, tuple(lines)) for file, lines in files.items()))


def _cell(counts: Mapping[Ending, int] | None, backend: str, past: Sequence[Past]) -> Cell:
    if not counts:
        return Cell(backend, "", "", "", "not planned")
    severest = worst(counts)
    findings = sum(n for ending, n in counts.items() if ending.is_finding)
    count = f"{findings or sum(counts.values()):,}"
    return Cell(backend, severest.kind, severest.letter, count, counted(counts), _spark(past))


def counted(counts: Mapping[Ending, int]) -> str:
    """Verdicts with their counts, the most severe first."""
    return ", ".join(f"{n:,} {ending}" for ending, n in sorted(counts.items(), key=lambda pair: -pair[0].severity))


def _spark(past: Sequence[Past]) -> Spark | None:
    if not past:
        return None
    most = max(1, *(each.findings for each in past))
    step = (_SPARK_WIDTH - 4) / (len(past) - 1)
    points = [(2 + i * step, 1 + (_SPARK_HEIGHT - 2) * (1 - p.findings / most)) for i, p in enumerate(past)]
    words = "findings by run: " + ", ".join(f"{each.run} {each.findings:,} of {each.cases:,}" for each in past)
    return Spark(" ".join(f"{x:.1f},{y:.1f}" for x, y in points), points[-1], words)


def totals(endings: Iterable[Ending]) -> list[tuple[Ending, int]]:
    """Endings with their counts, the harmless first."""
    return sorted(Counter(endings).items(), key=lambda pair: pair[0].severity)


def legend(rows: Iterable[Row]) -> list[Ending]:
    """The endings that occur, the harmless first."""
    return sorted({row.ending for row in rows}, key=lambda ending: ending.severity)
