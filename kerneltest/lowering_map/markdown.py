"""Maps as a Markdown page."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from kerneltest.lowering_map.compare import Change, successive_changes
from kerneltest.lowering_map.map import LoweringMap, LoweringOutcome
from kerneltest.lowering_map.table import short_dtypes, tabulate_maps


def page(maps: Sequence[LoweringMap]) -> str:
    """A page for one or more maps."""
    parts = (_introduction(maps), _changes(maps), _table(maps), _errors(maps[-1]))
    return "\n".join(line for part in parts for line in part) + "\n"


def _introduction(maps: Sequence[LoweringMap]) -> Iterator[str]:
    yield from ("# What Pallas lowers to Triton", "")
    yield "Made by `kerneltest lowering`. A cell is a primitive with a dtype on a target; what lax itself refuses,"
    yield "outside of Pallas, is no cell. Nothing here was run on a GPU, and a mark says nothing of values. The marks:"
    yield ""
    outcomes = [outcome for outcome in LoweringOutcome if any(outcome in each.counts for each in maps)]
    yield from (f"- `{outcome}`: {outcome.meaning}" for outcome in outcomes)
    yield ""
    yield from _lines(
        ["JAX", "jaxlib", "Python", "Triton", *outcomes, "targets that agree"],
        [
            [
                each.jax,
                each.jaxlib,
                each.python,
                each.triton or "not used",
                *(str(each.counts.get(outcome, 0)) for outcome in outcomes),
                "; ".join(" ".join(agreeing) for agreeing in each.agreeing_targets),
            ]
            for each in maps
        ],
    )


def _changes(maps: Sequence[LoweringMap]) -> Iterator[str]:
    for old, new, changes in successive_changes(maps):
        for stopped, verb in ((False, "started"), (True, "stopped")):
            yield from ("", f"## What {verb} lowering from {_escaped(old.title)} to {_escaped(new.title)}", "")
            rows = [_change(change, new) for change in changes if change.stopped == stopped]
            if rows:
                yield from _lines(["primitive", "dtypes", "targets", "before", "after", "message"], rows)
            else:
                yield "Nothing."


def _change(change: Change, new: LoweringMap) -> list[str]:
    targets = "all" if set(change.targets) == set(new.targets) else " ".join(change.targets)
    dtypes = short_dtypes(change.dtypes)
    return [f"`{change.primitive}`", dtypes, targets, change.before, change.after, change.message]


def _table(maps: Sequence[LoweringMap]) -> Iterator[str]:
    table = tabulate_maps(maps)
    for group, rows in groupby(table.rows, key=lambda row: row[0]):
        yield from ("", f"## {_escaped(group.capitalize())}", "")
        yield from _lines(
            ["primitive", *table.columns],
            [
                [f"`{primitive}`", *(f"{entry.letter} {entry.text}" for entry in entries)]
                for _, primitive, entries in rows
            ],
        )


def _errors(lowering_map: LoweringMap) -> Iterator[str]:
    yield from ("", f"## Errors of {_escaped(lowering_map.title)}", "")
    yield from _lines(
        ["primitive", "dtypes", "targets", "message"],
        [
            [f"`{each.primitive}`", short_dtypes(each.dtypes), " ".join(each.targets), each.message]
            for each in lowering_map.results
            if each.outcome == LoweringOutcome.ERROR
        ],
    )


def _lines(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table. Its columns are not padded: one long message would widen all rows."""
    for row in (heading, ["---"] * len(heading), *rows):
        yield f"| {' | '.join(map(_escaped, row))} |"


def _escaped(text: str) -> str:
    """Text that stays one cell, whatever a message holds."""
    plain = text if re.fullmatch(r"`[^`|<]*`", text) else re.sub(r"([\\`*<\[\]])", r"\\\1", text)
    return " ".join(plain.replace("|", "\\|").split())
