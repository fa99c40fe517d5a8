"""Tables of maps, for the terminal, as Markdown and for the report."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, groupby

from tabulate import tabulate

from kerneltest.core.targets import TPUS
from kerneltest.extensions.lowering_map.model import (
    LoweringChange,
    LoweringMap,
    LoweringOutcome,
    LoweringResult,
    successive_changes,
)

PARTLY, NOT_ASKED = "partly", "not asked"

_LETTERS = {"lowers": "✓", "compiles": "✓", "absent": "–", PARTLY: "±", NOT_ASKED: ""}
_SHORT_DTYPES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The entry of a primitive in one column.

    Attributes:
      state: the outcome of its cells, `PARTLY` if only some of them lower, or `NOT_ASKED` if there are none.
      text: dtypes by outcome, and by target if targets differ.
      reasons: the messages of the cells that do not lower.
    """

    state: str
    text: str
    reasons: tuple[str, ...]

    @property
    def letter(self) -> str:
        """A sign for the state, so that it can be seen without colour."""
        return _LETTERS.get(self.state, "✗")


@dataclass(frozen=True, slots=True)
class LoweringTable:
    """A table with a row for each primitive.

    Attributes:
      columns: the headings: versions of JAX, separately for GPUs and TPUs, or targets if there is only one map.
      rows: group, primitive, and an entry for each column; sorted by group.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[TableEntry, ...]], ...]


def tabulate_maps(maps: Sequence[LoweringMap]) -> LoweringTable:
    """Returns the table of one or more maps."""
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
    rows = [
        (group, primitive, tuple(_entry(primitive, each, targets) for _, each, targets in columns))
        for primitive, group in groups.items()
    ]
    order = list(dict.fromkeys(groups.values()))
    return LoweringTable(
        tuple(heading for heading, _, _ in columns), tuple(sorted(rows, key=lambda row: order.index(row[0])))
    )


def short_dtypes(dtypes: Sequence[str]) -> str:
    """Abbreviates dtypes: `f32 bf16 u8`."""
    return " ".join(_SHORT_DTYPES.get(dtype) or re.sub(r"^([fiu])[a-z]+", r"\1", dtype) for dtype in dtypes)


def format_counts(lowering_map: LoweringMap) -> str:
    """Formats the number of cells of each outcome: `6 cells = 4 lowers + 2 error`."""
    counts = " + ".join(f"{count} {outcome}" for outcome, count in lowering_map.counts.items())
    return f"{len(lowering_map.cells)} cells = {counts}"


def format_change(change: LoweringChange, targets: Sequence[str]) -> str:
    """Formats a change on one line.

    Args:
      change: to format.
      targets: of the map; the change's are named unless they are all of these.
    """
    places = "" if set(change.targets) == set(targets) else f" on {_places(change.targets, targets)}"
    line = f"{change.primitive} ({short_dtypes(change.dtypes)}){places}: {change.before} -> {change.after}"
    return f"{line}: {change.message}" if change.stopped and change.message else line


def _places(some: Sequence[str], targets: Sequence[str]) -> str:
    """Formats some of the targets: by name, or as `all`, `GPUs` or `TPUs`."""
    tpus = {target for target in targets if target in TPUS}
    names = {"all": set(targets), "TPUs": tpus, "GPUs": set(targets) - tpus}
    return next((name for name, members in names.items() if members == set(some)), " ".join(some))


def _entry(primitive: str, lowering_map: LoweringMap, targets: Sequence[str]) -> TableEntry:
    by_dtype = {target: lowering_map.by_dtype.get((primitive, target), {}) for target in targets}
    results = [result for of_target in by_dtype.values() for result in of_target.values()]
    if not results:
        return TableEntry(NOT_ASKED, "", ())
    outcomes = {result.outcome for result in results}
    if len(outcomes) == 1:
        state = str(outcomes.pop())
    else:
        state = PARTLY if any(outcome.is_lowered for outcome in outcomes) else str(LoweringOutcome.ERROR)
    targets_by_text: dict[str, list[str]] = {}
    for target, of_target in by_dtype.items():
        targets_by_text.setdefault(_dtypes_by_outcome(of_target), []).append(target)
    apart = len(targets_by_text) > 1
    text = "; ".join(f"{' '.join(alike)}: {text}" if apart else text for text, alike in targets_by_text.items())
    reasons = dict.fromkeys(f"{short_dtypes(result.dtypes)}: {result.message}" for result in results if result.message)
    return TableEntry(state, text, tuple(reasons))


def _dtypes_by_outcome(results: Mapping[str, LoweringResult]) -> str:
    by_outcome = {o: [dtype for dtype, result in results.items() if result.outcome == o] for o in LoweringOutcome}
    present = {outcome: dtypes for outcome, dtypes in by_outcome.items() if dtypes}
    if len(present) == 1:
        return str(next(iter(present)))
    return ", ".join(f"{outcome} {short_dtypes(dtypes)}" for outcome, dtypes in present.items())


def print_table(maps: Sequence[LoweringMap]) -> None:
    """Prints the table of one or more maps, primitives by group."""
    shown = tabulate_maps(maps)
    rows: list[list[str]] = []
    for group, members in groupby(shown.rows, key=lambda row: row[0]):
        rows += [[], [group]] if rows else [[group]]
        rows += [[f"  {name}", *(f"{e.letter} {e.text}".strip() for e in entries)] for _, name, entries in members]
    print(tabulate(rows, ("primitive", *shown.columns), tablefmt="simple", disable_numparse=True))


def format_markdown(maps: Sequence[LoweringMap]) -> str:
    """Returns a Markdown page about one or more maps."""
    parts = (_introduction(maps), _changes(maps), _table(maps), _errors(maps[-1]))
    return "\n".join(line for part in parts for line in part) + "\n"


def _introduction(maps: Sequence[LoweringMap]) -> Iterator[str]:
    yield from ("# What Pallas lowers", "")
    yield "Made by `kerneltest lowering`. A cell is a primitive with a dtype on a target. If lax refuses the dtype,"
    yield "there is no cell. Nothing here ran on a GPU or TPU, so an outcome says nothing about values. The outcomes:"
    yield ""
    outcomes = [outcome for outcome in LoweringOutcome if any(outcome in each.counts for each in maps)]
    yield from (f"- `{outcome}`: {outcome.meaning}" for outcome in outcomes)
    yield ""
    yield from _lines(
        ["JAX", "jaxlib", "Python", "compiled by", *outcomes, "targets that agree"],
        [
            [
                each.jax,
                each.jaxlib,
                each.python,
                ", ".join(each.compilers) or "nothing",
                *(str(each.counts_on(targets).get(outcome, 0)) for outcome in outcomes),
                "; ".join(" ".join(agreeing) for agreeing in each.agreeing_targets if agreeing[0] in targets),
            ]
            for each in maps
            for targets in each.kinds.values()
        ],
    )


def _changes(maps: Sequence[LoweringMap]) -> Iterator[str]:
    for old, new, changes in successive_changes(maps):
        for stopped, verb in ((False, "started"), (True, "stopped")):
            yield from ("", f"## What {verb} lowering from {_escape(old.title)} to {_escape(new.title)}", "")
            rows = [_change(change, new) for change in changes if change.stopped == stopped]
            if rows:
                yield from _lines(["primitive", "dtypes", "targets", "before", "after", "message"], rows)
            else:
                yield "Nothing."


def _change(change: LoweringChange, new: LoweringMap) -> list[str]:
    dtypes, targets = short_dtypes(change.dtypes), _places(change.targets, new.targets)
    return [f"`{change.primitive}`", dtypes, targets, change.before, change.after, change.message]


def _table(maps: Sequence[LoweringMap]) -> Iterator[str]:
    table = tabulate_maps(maps)
    for group, members in groupby(table.rows, key=lambda row: row[0]):
        rows = [(primitive, entries) for _, primitive, entries in members]
        asked = [any(entries[column].state != NOT_ASKED for _, entries in rows) for column in range(len(table.columns))]
        yield from ("", f"## {_escape(group.capitalize())}", "")
        yield from _lines(
            ["primitive", *compress(table.columns, asked)],
            [
                [f"`{primitive}`", *(f"{entry.letter} {entry.text}".strip() for entry in compress(entries, asked))]
                for primitive, entries in rows
            ],
        )


def _errors(lowering_map: LoweringMap) -> Iterator[str]:
    yield from ("", f"## Errors of {_escape(lowering_map.title)}", "")
    yield from _lines(
        ["primitive", "dtypes", "targets", "message"],
        [
            [
                f"`{result.primitive}`",
                short_dtypes(result.dtypes),
                _places(result.targets, lowering_map.targets),
                result.message,
            ]
            for result in lowering_map.results
            if result.outcome == LoweringOutcome.ERROR
        ],
    )


def _lines(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table. Columns are not padded: one long message would widen all rows."""
    for row in (heading, ["---"] * len(heading), *rows):
        yield f"| {' | '.join(map(_escape, row))} |"


def _escape(text: str) -> str:
    """Escapes text, such as a message, so that it is one cell."""
    plain = text if re.fullmatch(r"`[^`|<]*`", text) else re.sub(r"([\\`*<\[\]])", r"\\\1", text)
    return " ".join(plain.replace("|", "\\|").split())
