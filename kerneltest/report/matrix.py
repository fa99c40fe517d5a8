"""The matrix of a report: pairings and their dtypes by backend, or pairings by tier and run."""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kerneltest.backends.registry import sort_ids
from kerneltest.core.grouping import group_pairs
from kerneltest.core.ids import ANY, BackendId, PairingId
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Ending, worst
from kerneltest.records.runs import Overlay, RunRecords, overlay_runs, superseded_backends


@dataclass(frozen=True, slots=True)
class Column:
    """One backend, or all backends of a tier in one run."""

    title: str  # the backend's id, or the tier's prefix of backend ids
    tier: Tier  # the tier of the backends


@dataclass(frozen=True, slots=True)
class Field:
    """A pairing, or one dtype of it, in one column."""

    counts: Mapping[Ending, int]  # the number of cases by ending, harmless first; empty if nothing was planned
    targets: Mapping[Ending, Sequence[str]]  # the targets of the backends by ending; "" for a backend without a target
    applicable: bool = True  # whether the column's backends apply to the kernel

    @property
    def worst(self) -> Ending:
        """The most severe ending. The field must not be empty."""
        return worst(self.counts)

    @property
    def findings(self) -> int:
        return sum(count for ending, count in self.counts.items() if ending.is_finding)

    @property
    def cases(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Row:
    """A row: a pairing (`dtype` is ""), or one dtype of it, with a field for each column."""

    pairing: str
    dtype: str
    fields: tuple[Field, ...]

    @property
    def file(self) -> str:
        return PairingId.parse(self.pairing).scope

    @property
    def name(self) -> str:
        return PairingId.parse(self.pairing).own_name


@dataclass(frozen=True, slots=True)
class Matrix:
    """The table. Rows of one file are adjacent, and the dtypes of a pairing follow it."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def tiers(self) -> list[tuple[Tier, int]]:
        """The tiers with their numbers of columns, which are adjacent."""
        return list(Counter(column.tier for column in self.columns).items())


_Place = tuple[str, str, Hashable]  # pairing, dtype ("" for all), and the key of a column


def by_backend(merged: Overlay) -> Matrix:
    """Returns the matrix with a column for each backend, and a row for each pairing and each of its dtypes."""
    tier_of = {item.backend: item.tier for run in merged.runs for item in run.plan.items}
    order = list(Tier)
    backends = sorted(sort_ids(backend for _, backend, _, _ in merged.cells), key=lambda b: order.index(tier_of[b]))
    dtypes: dict[str, dict[str, None]] = {}
    for pairing, _, dtype, _ in merged.cells:
        dtypes.setdefault(pairing, {"": None})[dtype] = None
    return _matrix(
        {backend: Column(backend, tier_of[backend]) for backend in backends},
        [(pairing, dtype) for pairing in _group_by_file(dtypes) for dtype in dtypes[pairing] if dtype != ANY],
        (
            ((row.record.pairing, dtype, row.record.backend), row.ending, "")
            for row in merged.rows
            for dtype in ("", row.record.dtype)
        ),
        {(each.pairing, each.backend) for run in merged.runs for each in run.plan.not_applicable},
    )


def by_tier(runs: Sequence[RunRecords]) -> Matrix:
    """Returns the matrix with a column for each tier of each run, without backends that only another run has."""
    dropped = superseded_backends(runs)
    tiers: dict[tuple[int, str], Tier] = {}
    cases: list[tuple[_Place, Ending, str]] = []
    for number, run in enumerate(runs):
        items = [item for item in run.plan.items if (number, item.pairing, item.backend) not in dropped]
        tier_of = {item.backend: item.tier for item in items}
        tiers |= {(number, BackendId.parse(backend).tier): tier_of[backend] for backend in sort_ids(tier_of)}
        for row in overlay_runs([run]).rows:
            pairing, backend = row.record.pairing, BackendId.parse(row.record.backend)
            if (number, pairing, row.record.backend) not in dropped:
                cases.append(((pairing, "", (number, backend.tier)), row.ending, backend.target))
    runs_of = Counter(title for _, title in tiers)
    return _matrix(
        {
            (number, title): Column(f"{title} ({runs[number].name})" if runs_of[title] > 1 else title, tier)
            for (number, title), tier in tiers.items()
        },
        [(pairing, "") for pairing in _group_by_file(item.pairing for run in runs for item in run.plan.items)],
        cases,
    )


def _matrix(
    columns: Mapping[Hashable, Column],
    rows: Iterable[tuple[str, str]],
    cases: Iterable[tuple[_Place, Ending, str]],
    not_applicable: Collection[tuple[str, Hashable]] = (),
) -> Matrix:
    found: defaultdict[_Place, defaultdict[Ending, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for place, ending, target in cases:
        found[place][ending][target] += 1

    def field(pairing: str, dtype: str, column: Hashable) -> Field:
        endings = sorted(found.get((pairing, dtype, column), {}).items(), key=lambda pair: pair[0].severity)
        counts = {ending: targets.total() for ending, targets in endings}
        targets = {ending: sorted(targets) for ending, targets in endings}
        return Field(counts, targets, (pairing, column) not in not_applicable)

    return Matrix(
        tuple(columns.values()),
        tuple(Row(pairing, dtype, tuple(field(pairing, dtype, key) for key in columns)) for pairing, dtype in rows),
    )


def count_endings(endings: Iterable[Ending]) -> dict[Ending, int]:
    """Counts endings, the harmless first."""
    return dict(sorted(Counter(endings).items(), key=lambda pair: pair[0].severity))


def _group_by_file(pairings: Iterable[str]) -> list[str]:
    files = group_pairs((PairingId.parse(pairing).scope, pairing) for pairing in dict.fromkeys(pairings))
    return [pairing for own in files.values() for pairing in own]
