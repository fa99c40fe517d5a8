"""`LoweringMap`: the outcome of lowering each primitive with each dtype on each target, for one version of JAX."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import compress, groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import jinja2
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, with_config
from tabulate import tabulate

from kerneltest.core.failures import UnusableInputError
from kerneltest.core.files import read_regular_file
from kerneltest.core.grouping import group_pairs
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.core.targets import TPUS

_STRICT = ConfigDict(strict=True, extra="forbid")


class MapError(UnusableInputError):
    """A map cannot be measured, read or compared; the message says why."""


class LoweringOutcome(StrEnum):
    """The outcome of a cell, from best to worst."""

    meaning: str  # an explanation, as reports show it

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    COMPILES = "compiles", "it lowers, and the compiler accepts the result: `triton` for GPUs, libtpu for TPUs"
    LOWERS = "lowers", "JAX lowers it to Triton IR for a GPU, to a Mosaic module for a TPU"
    ERROR = "error", "JAX has a lowering rule that refuses this use, or the compiler refuses the lowered code"
    UNIMPLEMENTED = "unimplemented", "JAX has no lowering rule for it, or for a primitive it consists of"
    ABSENT = "absent", "this JAX has no such function"

    @property
    def is_lowered(self) -> bool:
        return self in (LoweringOutcome.COMPILES, LoweringOutcome.LOWERS)


class MapCell(NamedTuple):
    """A primitive with one dtype on one target."""

    primitive: str
    dtype: str
    target: str


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class LoweringResult:
    """The cells of one primitive, every dtype with every target, that have the same outcome and message."""

    primitive: str  # its name in JAX, with a variant in brackets
    group: str  # the heading in reports
    outcome: LoweringOutcome  # of each cell
    message: str  # of JAX or the compiler, truncated; "" if the cells lower
    # dtypes, targets: of the cells
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]


@with_config(_STRICT)
@dataclass(frozen=True)
class LoweringMap:
    """The outcomes of one version of JAX."""

    schema: Literal[2]  # the version of the file format
    # jax, jaxlib, python: versions
    jax: str
    jaxlib: str
    python: str
    # triton, libtpu: versions of the compilers for GPUs and TPUs; "" if nothing was compiled for them
    triton: str
    libtpu: str
    targets: tuple[str, ...]  # that were probed
    results: tuple[LoweringResult, ...]  # in the order of the probes

    @property
    def title(self) -> str:
        return ", ".join([f"JAX {self.jax}", *self.compilers])

    @property
    def compilers(self) -> tuple[str, ...]:
        versions = {"Triton": self.triton, "libtpu": self.libtpu}
        return tuple(f"{name} {version}" for name, version in versions.items() if version)

    @property
    def kinds(self) -> Mapping[str, Sequence[str]]:
        """The targets by kind, `GPUs` and `TPUs`, without kinds that have no target."""
        return group_pairs(("TPUs" if target in TPUS else "GPUs", target) for target in self.targets)

    @property
    def version(self) -> tuple[int, ...]:
        """The version of JAX, for sorting."""
        return tuple(int(number) for number in re.findall(r"\d+", self.jax))

    @cached_property
    def cells(self) -> Mapping[MapCell, LoweringResult]:
        return {
            MapCell(result.primitive, dtype, target): result
            for result in self.results
            for dtype in result.dtypes
            for target in result.targets
        }

    @cached_property
    def by_dtype(self) -> Mapping[tuple[str, str], Mapping[str, LoweringResult]]:
        """The result of each dtype, by primitive and target."""
        results: dict[tuple[str, str], dict[str, LoweringResult]] = {}
        for (primitive, dtype, target), result in self.cells.items():
            results.setdefault((primitive, target), {})[dtype] = result
        return results

    @cached_property
    def groups(self) -> Mapping[str, str]:
        return {result.primitive: result.group for result in self.results}

    def counts_on(self, targets: Sequence[str]) -> Mapping[LoweringOutcome, int]:
        """Returns the number of cells of some targets by outcome, without outcomes that no cell has."""
        counter = Counter(result.outcome for cell, result in self.cells.items() if cell.target in targets)
        return {outcome: counter[outcome] for outcome in LoweringOutcome if counter[outcome]}

    @property
    def agreeing_targets(self) -> tuple[tuple[str, ...], ...]:
        """The targets, grouped so that those of a group have the same outcome in every cell."""
        outcomes: dict[str, set[tuple[str, str, str]]] = {target: set() for target in self.targets}
        for (primitive, dtype, target), result in self.cells.items():
            outcomes[target].add((primitive, dtype, result.outcome))
        together = group_pairs((frozenset(own), target) for target, own in outcomes.items())
        return tuple(map(tuple, together.values()))


def read_map(path: Path) -> LoweringMap:
    """Reads a map; raises a MapError if the file is missing, corrupt or of another schema."""
    try:
        return parse_map(read_regular_file(path).decode(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise MapError(f"{path} is not a readable map: {error}") from error


def parse_map(text: str, source: str) -> LoweringMap:
    """Parses the JSON of a map; raises a MapError with its `source` if it is corrupt or of another schema."""
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise MapError(for_terminal(f"{source} is not a readable map: {place}{first['msg']}")) from error


def format_map(lowering_map: LoweringMap) -> str:
    """Returns the JSON of a map, with one result on each line so that diff can compare maps."""
    header = asdict(lowering_map)
    results = ",\n".join(json.dumps(result, separators=(",", ":")) for result in header.pop("results"))
    return json.dumps(header)[:-1] + ', "results": [\n' + results + "\n]}\n"


def save_maps(path: Path, maps: Sequence[LoweringMap]) -> None:
    """Writes one map to a file, or several to a folder, as `jax-VERSION.json` or `compiled-VERSION.json`."""
    if len(maps) == 1 and not path.is_dir():
        path.write_text(format_map(maps[0]), encoding="utf-8")
        return
    path.mkdir(parents=True, exist_ok=True)
    for each in maps:
        name = f"{'compiled' if each.compilers else 'jax'}-{each.jax}.json"
        (path / name).write_text(format_map(each), encoding="utf-8")


def _check_consistency(lowering_map: LoweringMap) -> LoweringMap:
    results = lowering_map.results
    if unknown := {target for result in results for target in result.targets} - set(lowering_map.targets):
        raise ValueError(f"results have targets that the map does not list: {', '.join(sorted(unknown))}")
    if not results or sum(len(each.dtypes) * len(each.targets) for each in results) != len(lowering_map.cells):
        raise ValueError("there are no cells, or one of them twice")
    return lowering_map


_ADAPTER = TypeAdapter(Annotated[LoweringMap, AfterValidator(_check_consistency)])


# The differences between two maps: cells that started or stopped lowering.

REFUSED = "refused when traced"  # JAX itself refuses the dtype
_LOWERED = frozenset(outcome.value for outcome in LoweringOutcome if outcome.is_lowered)


@dataclass(frozen=True, slots=True)
class LoweringChange:
    """Cells of one primitive that started or stopped lowering."""

    primitive: str  # its name in JAX
    # before, after: outcomes, or `REFUSED`
    before: str
    after: str
    # dtypes, targets: of the cells
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    message: str  # of the first cell, from the map in which it does not lower

    @property
    def stopped(self) -> bool:
        """True if the cells lowered in the old map."""
        return self.before in _LOWERED


def compare_maps(old: LoweringMap, new: LoweringMap) -> tuple[LoweringChange, ...]:
    """Returns the changes, over what both maps have; a MapError if that is nothing, or only one was compiled."""
    if bool(old.compilers) != bool(new.compilers):
        raise MapError("only one of the maps was compiled: measure both with --compile, or both without")
    targets = set(old.targets) & set(new.targets)
    primitives = old.groups.keys() & new.groups.keys()
    if not targets or not primitives:
        raise MapError("the maps have no target or no primitive in common")
    changes = []
    for cell in {**new.cells, **old.cells}:
        results = [lowering_map.cells.get(cell) for lowering_map in (old, new)]
        before, after = (str(result.outcome) if result else REFUSED for result in results)
        if cell.primitive in primitives and cell.target in targets and (before in _LOWERED) != (after in _LOWERED):
            message = next((result.message for result in results if result and not result.outcome.is_lowered), "")
            changes.append(LoweringChange(cell.primitive, before, after, (cell.dtype,), (cell.target,), message))
    return tuple(merge(merge(changes, "dtypes", message=""), "targets", message=""))


def successive_changes(
    maps: Sequence[LoweringMap],
) -> list[tuple[LoweringMap, LoweringMap, tuple[LoweringChange, ...]]]:
    """Returns each map, the next one and the changes between them."""
    return [(old, new, compare_maps(old, new)) for old, new in pairwise(maps)]


_M = TypeVar("_M", LoweringResult, LoweringChange)


def merge(cells: Iterable[_M], field: Literal["dtypes", "targets"], **ignored: str) -> Iterator[_M]:
    """Merges cells that differ in one field, or in ignored ones, of which it keeps the first."""
    without: dict[str, Any] = {field: (), **ignored}
    for first, *others in group_pairs((replace(cell, **without), cell) for cell in cells).values():
        merged: dict[str, Any] = {field: tuple(value for each in (first, *others) for value in getattr(each, field))}
        yield replace(first, **merged)


# Tables of maps, for the terminal and as Markdown.

_SHORT_DTYPES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16"}


def tabulate_maps(maps: Sequence[LoweringMap]) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """Returns the table of one or more maps: its headings, and rows of a group, a primitive and its entries, by group.

    A column is one version of JAX, separately for GPUs and TPUs, or a target if there is only one map. An entry has the
    dtypes by outcome, and by target if targets differ, after a sign; it is "" where nothing was probed.
    """
    columns: list[tuple[str, LoweringMap, Sequence[str]]]
    if len(maps) == 1:
        columns = [(" ".join(agreeing), maps[0], agreeing[:1]) for agreeing in maps[0].agreeing_targets]
    else:
        apart = any(len(each.kinds) > 1 for each in maps)
        columns = [
            (f"{each.title}, {kind}" if apart else each.title, each, each.kinds[kind])
            for kind in dict.fromkeys(kind for each in maps for kind in each.kinds)
            for each in maps
            if kind in each.kinds
        ]
    groups = {primitive: group for each in maps for primitive, group in each.groups.items()}
    order = list(dict.fromkeys(groups.values()))
    rows = [
        (group, primitive, [_entry(primitive, each, targets) for _, each, targets in columns])
        for primitive, group in sorted(groups.items(), key=lambda pair: order.index(pair[1]))
    ]
    return [heading for heading, _, _ in columns], rows


def short_dtypes(dtypes: Sequence[str]) -> str:
    """Abbreviates dtypes: `f32 bf16 u8`."""
    return " ".join(_SHORT_DTYPES.get(dtype) or re.sub(r"^([fiu])[a-z]+", r"\1", dtype) for dtype in dtypes)


def format_counts(lowering_map: LoweringMap) -> str:
    """Formats the number of cells of each outcome: `6 cells = 4 lowers + 2 error`."""
    counts = " + ".join(f"{count} {outcome}" for outcome, count in lowering_map.counts_on(lowering_map.targets).items())
    return f"{len(lowering_map.cells)} cells = {counts}"


def format_change(change: LoweringChange, targets: Sequence[str]) -> str:
    """Formats a change on one line; its targets are named unless they are all `targets` of the map."""
    places = "" if set(change.targets) == set(targets) else f" on {_places(change.targets, targets)}"
    line = f"{change.primitive} ({short_dtypes(change.dtypes)}){places}: {change.before} -> {change.after}"
    return f"{line}: {change.message}" if change.stopped and change.message else line


def _places(some: Sequence[str], targets: Sequence[str]) -> str:
    tpus = {target for target in targets if target in TPUS}
    names = {"all": set(targets), "TPUs": tpus, "GPUs": set(targets) - tpus}
    return next((name for name, members in names.items() if members == set(some)), " ".join(some))


def _entry(primitive: str, lowering_map: LoweringMap, targets: Sequence[str]) -> str:
    by_dtype = {target: lowering_map.by_dtype.get((primitive, target), {}) for target in targets}
    outcomes = {result.outcome for of_target in by_dtype.values() for result in of_target.values()}
    if not outcomes:
        return ""
    lowered = {outcome.is_lowered for outcome in outcomes}
    sign = "±" if len(lowered) > 1 else "✓" if True in lowered else "–" if outcomes == {LoweringOutcome.ABSENT} else "✗"
    targets_by_text = group_pairs((_dtypes_by_outcome(of_target), target) for target, of_target in by_dtype.items())
    apart = len(targets_by_text) > 1
    text = "; ".join(f"{' '.join(alike)}: {text}" if apart else text for text, alike in targets_by_text.items())
    return f"{sign} {text}"


def _dtypes_by_outcome(results: Mapping[str, LoweringResult]) -> str:
    by_outcome = {o: [dtype for dtype, result in results.items() if result.outcome == o] for o in LoweringOutcome}
    present = [(str(outcome), short_dtypes(dtypes)) for outcome, dtypes in by_outcome.items() if dtypes]
    return present[0][0] if len(present) == 1 else ", ".join(map(" ".join, present))


def print_table(maps: Sequence[LoweringMap]) -> None:
    """Prints the table of one or more maps, primitives by group."""
    columns, found = tabulate_maps(maps)
    rows: list[list[str]] = []
    for group, members in groupby(found, key=lambda row: row[0]):
        rows += [[], [group]] if rows else [[group]]
        rows += [[f"  {name}", *entries] for _, name, entries in members]
    print(lines_for_terminal(tabulate(rows, ("primitive", *columns), tablefmt="simple", disable_numparse=True)))


def format_markdown(maps: Sequence[LoweringMap]) -> str:
    """Returns a Markdown page about one or more maps."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"cell": _escape, "dtypes": short_dtypes, "places": _places}
    columns, found = tabulate_maps(maps)
    groups = []
    for group, members in groupby(found, key=lambda row: row[0]):
        rows = [(primitive, entries) for _, primitive, entries in members]
        asked = [any(entries[i] for _, entries in rows) for i in range(len(columns))]
        kept = [(primitive, list(compress(entries, asked))) for primitive, entries in rows]
        groups.append((group.capitalize(), list(compress(columns, asked)), kept))
    counted = [(each, targets, each.counts_on(targets)) for each in maps for targets in each.kinds.values()]
    return environment.from_string(Path(__file__).with_name("page.md").read_text(encoding="utf-8")).render(
        counted=counted,
        outcomes=[outcome for outcome in LoweringOutcome if any(outcome in counts for *_, counts in counted)],
        steps=successive_changes(maps),
        groups=groups,
        newest=maps[-1],
        errors=[result for result in maps[-1].results if result.outcome == LoweringOutcome.ERROR],
    )


def _escape(text: str) -> str:
    plain = text if re.fullmatch(r"`[^`|<]*`", text) else re.sub(r"([\\`*<\[\]])", r"\\\1", text)
    return " ".join(plain.replace("|", "\\|").split())
