"""The matrix of a report: pairings and their dtypes by backend, or pairings by tier and run."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kerneltest.backends.registry import sort_ids
from kerneltest.core.ids import BackendId, PairingId
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Ending, worst
from kerneltest.records.run_plan import ANY
from kerneltest.records.runs import Overlay, RunRecords, overlay_runs, superseded_backends

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Column:
    """One backend, or all backends of a tier in one run.

    Attributes:
      title: the backend's id, or the tier's prefix of backend ids.
      tier: the tier of the backends.
    """

    title: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Field:
    """A pairing, or one dtype of it, in one column.

    Attributes:
      counts: the number of cases by ending, harmless first; empty if nothing was planned.
      targets: the targets of the backends by ending; "" for a backend without a target.
      applicable: whether the column's backends apply to the kernel.
    """

    counts: Mapping[Ending, int]
    targets: Mapping[Ending, Sequence[str]]
    applicable: bool = True

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


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_Key]):
    pairing: str
    dtype: str
    column: _Key
    ending: Ending
    target: str = ""


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
            _Entry(row.record.pairing, dtype, row.record.backend, row.ending)
            for row in merged.rows
            for dtype in ("", row.record.dtype)
        ),
        {(each.pairing, each.backend) for run in merged.runs for each in run.plan.not_applicable},
    )


def by_tier(runs: Sequence[RunRecords]) -> Matrix:
    """Returns the matrix with a column for each tier of each run, and a row for each pairing.

    If a backend was unavailable in one run and available in another, only the latter shows it.
    """
    dropped = superseded_backends(runs)
    tiers: dict[tuple[int, str], Tier] = {}
    for number, run in enumerate(runs):
        items = [item for item in run.plan.items if (number, item.pairing, item.backend) not in dropped]
        tier_of = {item.backend: item.tier for item in items}
        tiers |= {(number, BackendId.parse(backend).tier): tier_of[backend] for backend in sort_ids(tier_of)}
    runs_of = Counter(title for _, title in tiers)
    return _matrix(
        {
            (number, title): Column(f"{title} ({runs[number].name})" if runs_of[title] > 1 else title, tier)
            for (number, title), tier in tiers.items()
        },
        [(pairing, "") for pairing in _group_by_file(item.pairing for run in runs for item in run.plan.items)],
        _entries_by_tier(runs, dropped),
    )


def _entries_by_tier(
    runs: Sequence[RunRecords], dropped: Container[tuple[int, str, str]]
) -> Iterator[_Entry[tuple[int, str]]]:
    for number, run in enumerate(runs):
        for row in overlay_runs([run]).rows:
            pairing, backend = row.record.pairing, row.record.backend
            if (number, pairing, backend) not in dropped:
                column = number, BackendId.parse(backend).tier
                yield _Entry(pairing, "", column, row.ending, BackendId.parse(backend).target)


def _matrix(
    columns: Mapping[_Key, Column],
    lines: Iterable[tuple[str, str]],
    entries: Iterable[_Entry[_Key]],
    not_applicable: Iterable[tuple[str, _Key]] = (),
) -> Matrix:
    endings: dict[tuple[str, str, _Key], Counter[Ending]] = {}
    targets: dict[tuple[str, str, _Key], dict[Ending, set[str]]] = {}
    for entry in entries:
        place = entry.pairing, entry.dtype, entry.column
        endings.setdefault(place, Counter())[entry.ending] += 1
        targets.setdefault(place, {}).setdefault(entry.ending, set()).add(entry.target)
    excluded = frozenset(not_applicable)

    def field(pairing: str, dtype: str, column: _Key) -> Field:
        place = pairing, dtype, column
        shown = {ending: sorted(each) for ending, each in targets.get(place, {}).items()}
        return Field(_sort_by_severity(endings.get(place, Counter())), shown, (pairing, column) not in excluded)

    return Matrix(
        tuple(columns.values()),
        tuple(Row(pairing, dtype, tuple(field(pairing, dtype, each) for each in columns)) for pairing, dtype in lines),
    )


def count_endings(endings: Iterable[Ending]) -> dict[Ending, int]:
    """Counts endings, the harmless first."""
    return _sort_by_severity(Counter(endings))


def _sort_by_severity(counts: Counter[Ending]) -> dict[Ending, int]:
    return dict(sorted(counts.items(), key=lambda pair: pair[0].severity))


def _group_by_file(pairings: Iterable[str]) -> list[str]:
    files: dict[str, dict[str, None]] = {}
    for pairing in pairings:
        files.setdefault(PairingId.parse(pairing).scope, {})[pairing] = None
    return [pairing for own in files.values() for pairing in own]
