"""The matrix of a report: pairings and their dtypes against backends, or pairings against the tiers of some runs."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kerneltest.backends.registry import sort_ids
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Ending, worst
from kerneltest.records.overlay import Overlay, overlay_runs, superseded_backends
from kerneltest.records.run_plan import ANY
from kerneltest.records.runs import RunRecords

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Column:
    """One backend, or all backends of a tier in one run.

    Attributes:
      title: the backend's id, or what the tier's backends are called.
      tier: of the backends.
    """

    title: str
    tier: Tier


@dataclass(frozen=True, slots=True)
class Field:
    """A pairing, or one dtype of it, in one column.

    Attributes:
      counts: cases by how they ended, harmless first; empty where nothing was planned.
      targets: of the backends behind them, by how the cases ended; "" for a backend without a target.
      applicable: whether the column's backends are for the kernel.
    """

    counts: Mapping[Ending, int]
    targets: Mapping[Ending, Sequence[str]]
    applicable: bool = True

    @property
    def worst(self) -> Ending:
        """The most severe ending; there must be one."""
        return worst(self.counts)

    @property
    def findings(self) -> int:
        return sum(count for ending, count in self.counts.items() if ending.is_finding)

    @property
    def cases(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Line:
    """A pairing, or one dtype of it; `dtype` is "" for all. It has a field for each column."""

    pairing: str
    dtype: str
    fields: tuple[Field, ...]

    @property
    def file(self) -> str:
        return self.pairing.rpartition("::")[0]

    @property
    def name(self) -> str:
        return self.pairing.rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The table: lines of one file stand together, the dtypes of a pairing below it."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def tiers(self) -> list[tuple[Tier, int]]:
        """Each with how many columns it has; they stand side by side."""
        return list(Counter(column.tier for column in self.columns).items())


@dataclass(frozen=True, slots=True)
class _Entry(Generic[_Key]):
    """One case, and where in the table it counts."""

    pairing: str
    dtype: str
    column: _Key
    ending: Ending
    target: str = ""


def by_backend(merged: Overlay) -> Matrix:
    """A column for each backend, a line for each pairing and for each of its dtypes."""
    tier_of = {item.backend: item.tier for run in merged.runs for item in run.plan.items}
    order = list(Tier)
    backends = sorted(sort_ids(backend for _, backend, _, _ in merged.cells), key=lambda b: order.index(tier_of[b]))
    dtypes: dict[str, dict[str, None]] = {}
    for pairing, _, dtype, _ in merged.cells:
        dtypes.setdefault(pairing, {"": None})[dtype] = None
    return _matrix(
        {backend: Column(backend, tier_of[backend]) for backend in backends},
        [(pairing, dtype) for pairing in _by_file(dtypes) for dtype in dtypes[pairing] if dtype != ANY],
        (
            _Entry(row.record.pairing, dtype, row.record.backend, row.ending)
            for row in merged.rows
            for dtype in ("", row.record.dtype)
        ),
        {(each.pairing, each.backend) for run in merged.runs for each in run.plan.not_applicable},
    )


def by_tier(runs: Sequence[RunRecords]) -> Matrix:
    """A column for each tier of each run, a line for each pairing.

    A backend that one run lacked and another served is shown for the latter alone.
    """
    dropped = superseded_backends(runs)
    tiers: dict[tuple[int, str], Tier] = {}
    for number, run in enumerate(runs):
        items = [item for item in run.plan.items if (number, item.pairing, item.backend) not in dropped]
        tier_of = {item.backend: item.tier for item in items}
        tiers |= {(number, _untargeted(backend)): tier_of[backend] for backend in sort_ids(tier_of)}
    runs_of = Counter(title for _, title in tiers)
    return _matrix(
        {
            (number, title): Column(f"{title} ({runs[number].name})" if runs_of[title] > 1 else title, tier)
            for (number, title), tier in tiers.items()
        },
        [(pairing, "") for pairing in _by_file(item.pairing for run in runs for item in run.plan.items)],
        _entries_by_tier(runs, dropped),
    )


def _entries_by_tier(
    runs: Sequence[RunRecords], dropped: Container[tuple[int, str, str]]
) -> Iterator[_Entry[tuple[int, str]]]:
    for number, run in enumerate(runs):
        for row in overlay_runs([run]).rows:
            pairing, backend = row.record.pairing, row.record.backend
            if (number, pairing, backend) not in dropped:
                column = number, _untargeted(backend)
                yield _Entry(pairing, "", column, row.ending, backend.partition(":")[2])


def _untargeted(backend: str) -> str:
    return backend.partition(":")[0]


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
        return Field(_harmless_first(endings.get(place, Counter())), shown, (pairing, column) not in excluded)

    return Matrix(
        tuple(columns.values()),
        tuple(Line(pairing, dtype, tuple(field(pairing, dtype, each) for each in columns)) for pairing, dtype in lines),
    )


def tallied(endings: Iterable[Ending]) -> dict[Ending, int]:
    """How many of each there are, the harmless first."""
    return _harmless_first(Counter(endings))


def _harmless_first(counts: Counter[Ending]) -> dict[Ending, int]:
    return dict(sorted(counts.items(), key=lambda pair: pair[0].severity))


def _by_file(pairings: Iterable[str]) -> list[str]:
    """Pairings, each once, in their order, but those of one file together."""
    files: dict[str, dict[str, None]] = {}
    for pairing in pairings:
        files.setdefault(pairing.rpartition("::")[0], {})[pairing] = None
    return [pairing for own in files.values() for pairing in own]
