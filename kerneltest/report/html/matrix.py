"""The matrix of pairings and backends as the page holds it without scripts, and the totals above it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.core.backend_ids import in_order
from kerneltest.report.html.look import LETTERS, MEANINGS, kind, rank
from kerneltest.report.html.merge import Merged, Past, Row
from kerneltest.core.verdicts import NO_FINDING

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

    tiers: tuple[tuple[str, int], ...]
    backends: tuple[str, ...]
    files: tuple[tuple[str, tuple[Line, ...]], ...]


def tier(backend: str) -> str:
    """The tier of a backend's id, as column heads show it."""
    name = backend.partition(":")[0]
    return "interpret" if name.startswith("interpret") else "device" if name in ("cuda", "rocm", "tpu") else name


def matrix(merged: Merged) -> Matrix:
    """The matrix of all that was planned."""
    backends = tuple(in_order(cell[1] for cell in merged.cells))
    backends = tuple(sorted(backends, key=lambda each: list(dict.fromkeys(map(tier, backends))).index(tier(each))))
    tiers = Counter(tier(each) for each in backends)
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for row in merged.rows:
        record = row.record
        for dtype in ("", record.dtype):
            counts.setdefault((record.pairing, record.backend, dtype), Counter())[row.verdict] += 1
    files: dict[str, list[Line]] = {}
    dtypes: dict[str, dict[str, None]] = {}
    for pairing, _, dtype, _ in sorted(merged.cells, key=lambda cell: cell[0]):
        dtypes.setdefault(pairing, {})[dtype] = None
    for pairing, kinds in dtypes.items():
        file, _, name = pairing.rpartition("::")
        for dtype in ("", *kinds):
            cells = tuple(
                _cell(
                    counts.get((pairing, each, dtype)), each, () if dtype else merged.history.get((pairing, each), ())
                )
                for each in backends
            )
            files.setdefault(file, []).append(Line(pairing, name, dtype, cells))
    return Matrix(tuple(tiers.items()), backends, tuple((file, tuple(lines)) for file, lines in files.items()))


def _cell(counts: Mapping[str, int] | None, backend: str, past: Sequence[Past]) -> Cell:
    if not counts:
        return Cell(backend, "", "", "", "not planned")
    worst = max(counts, key=rank)
    found = sum(n for verdict, n in counts.items() if verdict not in NO_FINDING)
    count = f"{found or sum(counts.values()):,}"
    return Cell(backend, kind(worst), LETTERS.get(worst, "✗"), count, counted(counts), _spark(past))


def counted(counts: Mapping[str, int]) -> str:
    """Verdicts with their counts, the most severe first."""
    return ", ".join(f"{n:,} {verdict}" for verdict, n in sorted(counts.items(), key=lambda pair: -rank(pair[0])))


def _spark(past: Sequence[Past]) -> Spark | None:
    if not past:
        return None
    most = max(1, *(each.findings for each in past))
    step = (_SPARK_WIDTH - 4) / (len(past) - 1)
    points = [(2 + i * step, 1 + (_SPARK_HEIGHT - 2) * (1 - p.findings / most)) for i, p in enumerate(past)]
    words = "findings by run: " + ", ".join(f"{each.run} {each.findings:,} of {each.cases:,}" for each in past)
    return Spark(" ".join(f"{x:.1f},{y:.1f}" for x, y in points), points[-1], words)


def totals(rows: Iterable[str]) -> list[tuple[str, int, str]]:
    """Verdict, count and kind, the harmless first."""
    return [(verdict, n, kind(verdict)) for verdict, n in sorted(Counter(rows).items(), key=lambda p: rank(p[0]))]


def legend(rows: Iterable[Row]) -> list[tuple[str, str, str, str]]:
    """Letter, verdict, kind and meaning of the verdicts that occur."""
    present = {row.verdict for row in rows}
    return [(LETTERS[v], v, kind(v), MEANINGS[v]) for v in sorted(present & MEANINGS.keys(), key=rank)]
