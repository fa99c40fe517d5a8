"""Maps of what lowers as tables, for a terminal, for a Markdown page and for the HTML report."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kerneltest.lowering_map.map import GOOD, MEANING, Change, LoweringMap, Row, compare

_GLYPHS = {"lowers": "✓", "compiles": "✓", "partly": "±", "absent": "–", "not asked": ""}
_SHORT = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16", "bool": "bool"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A primitive in one column of a table.

    Attributes:
      state: its mark, or `partly` where some of it lowers, or `not asked`.
      text: dtypes by mark, and by target where these differ.
      reasons: the messages of what does not lower.
    """

    state: str
    text: str
    reasons: tuple[str, ...]

    @property
    def glyph(self) -> str:
        return _GLYPHS.get(self.state, "✗")


@dataclass(frozen=True, slots=True)
class Table:
    """Primitives against versions of JAX, or against targets if there is only one version.

    Attributes:
      columns: their headings.
      rows: group, primitive and cells.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]


def table(maps: Sequence[LoweringMap]) -> Table:
    """The table of one or more maps."""
    if len(maps) == 1:
        columns = [(" ".join(alike), maps[0], alike[:1]) for alike in maps[0].alike]
    else:
        columns = [(title(found), found, found.targets) for found in maps]
    primitives = {name: group for found in maps for name, group in found.primitives.items()}
    rows = [
        (group, name, tuple(_cell(name, found, targets) for _, found, targets in columns))
        for name, group in primitives.items()
    ]
    order = list(dict.fromkeys(primitives.values()))
    return Table(tuple(heading for heading, _, _ in columns), tuple(sorted(rows, key=lambda row: order.index(row[0]))))


def title(found: LoweringMap) -> str:
    return f"JAX {found.jax}" + (f", Triton {found.triton}" if found.triton else "")


def short(dtypes: Sequence[str]) -> str:
    """Dtypes as `f32 bf16 u8`."""
    return " ".join(_SHORT.get(d) or re.sub(r"^([fiu])[a-z]+", r"\1", d) for d in dtypes)


def _cell(primitive: str, found: LoweringMap, targets: Sequence[str]) -> Cell:
    by_text: dict[str, list[str]] = {}
    rows: list[Row] = []
    for target in targets:
        mine = {dtype: row for (name, dtype, place), row in found.of(primitive) if place == target}
        rows += mine.values()
        by_text.setdefault(_by_mark(mine), []).append(target)
    if not rows:
        return Cell("not asked", "", ())
    marks = {row.mark for row in rows}
    state = marks.pop() if len(marks) == 1 else "partly" if marks & GOOD else "error"
    text = "; ".join(f"{' '.join(places)}: {text}" if len(by_text) > 1 else text for text, places in by_text.items())
    reasons = dict.fromkeys(f"{short(row.dtypes)}: {row.message}" for row in rows if row.message)
    return Cell(state, text, tuple(reasons))


def _by_mark(rows: Mapping[str, Row]) -> str:
    dtypes = {mark: [d for d, row in rows.items() if row.mark == mark] for mark in MEANING}
    present = {mark: kinds for mark, kinds in dtypes.items() if kinds}
    if len(present) == 1:
        return next(iter(present))
    return ", ".join(f"{mark} {short(kinds)}" for mark, kinds in present.items())


def steps(maps: Sequence[LoweringMap]) -> list[tuple[LoweringMap, LoweringMap, tuple[Change, ...]]]:
    """What changed from each map to the next."""
    return [(old, new, compare(old, new)) for old, new in pairwise(maps)]


def change_line(change: Change, targets: Sequence[str]) -> str:
    """One change, for a terminal."""
    places = "" if set(change.targets) == set(targets) else f" on {' '.join(change.targets)}"
    line = f"{change.primitive} ({short(change.dtypes)}){places}: {change.before} -> {change.after}"
    return f"{line}: {change.message}" if change.stopped and change.message else line


def terminal(maps: Sequence[LoweringMap]) -> str:
    """The table, for a terminal."""
    shown = table(maps)
    names = max(len(name) for _, name, _ in shown.rows)
    widths = [max(len(h), *(len(c[i].text) + 2 for _, _, c in shown.rows)) for i, h in enumerate(shown.columns)]
    widths = [min(width, 60) for width in widths]
    head = "  ".join(column.ljust(width) for column, width in zip(shown.columns, widths, strict=True))
    lines = [f"{' ' * names}  {head}".rstrip()]
    heading = ""
    for group, name, cells in shown.rows:
        if group != heading:
            lines += [f"-- {group}"]
            heading = group
        texts = [f"{cell.glyph} {cell.text}".ljust(width) for cell, width in zip(cells, widths, strict=True)]
        lines.append((name.ljust(names) + "  " + "  ".join(texts)).rstrip())
    return "\n".join(lines)


def counted(found: LoweringMap) -> str:
    """How many cells have each mark."""
    total = len(found.cells)
    return f"{total} cells = " + " + ".join(f"{count} {mark}" for mark, count in found.counts.items())


def markdown(maps: Sequence[LoweringMap]) -> str:
    """A page for one or more maps."""
    return "\n".join(_markdown(maps)) + "\n"


def _markdown(maps: Sequence[LoweringMap]) -> Iterator[str]:
    yield from ("# What Pallas lowers to Triton", "")
    yield "Made by `kerneltest lowering`. A cell is a primitive with a dtype on a target; what lax itself refuses,"
    yield "outside of Pallas, is no cell. Nothing here was run on a GPU, and a mark says nothing of values. The marks:"
    yield ""
    used = {mark for found in maps for mark in found.counts}
    yield from (f"- `{mark}`: {meaning}" for mark, meaning in MEANING.items() if mark in used)
    yield ""
    yield from _rows(
        ["JAX", "jaxlib", "Python", "Triton", *(m for m in MEANING if m in used), "targets that agree"],
        [
            [
                found.jax,
                found.jaxlib,
                found.python,
                found.triton or "not used",
                *(str(found.counts.get(m, 0)) for m in MEANING if m in used),
                "; ".join(" ".join(alike) for alike in found.alike),
            ]
            for found in maps
        ],
    )
    for old, new, changes in steps(maps):
        for stopped, verb in ((False, "started"), (True, "stopped")):
            mine = [change for change in changes if change.stopped == stopped]
            yield from ("", f"## What {verb} lowering from {_escaped(title(old))} to {_escaped(title(new))}", "")
            if not mine:
                yield "Nothing."
                continue
            yield from _rows(
                ["primitive", "dtypes", "targets", "before", "after", "message"],
                [[f"`{c.primitive}`", short(c.dtypes), _places(c, new), c.before, c.after, c.message] for c in mine],
            )
    shown = table(maps)
    for group in dict.fromkeys(group for group, _, _ in shown.rows):
        yield from ("", f"## {_escaped(group.capitalize())}", "")
        yield from _rows(
            ["primitive", *shown.columns],
            [
                [f"`{name}`", *(f"{cell.glyph} {cell.text}" for cell in cells)]
                for own, name, cells in shown.rows
                if own == group
            ],
        )
    yield from ("", f"## Errors of {_escaped(title(maps[-1]))}", "")
    yield from _rows(
        ["primitive", "dtypes", "targets", "message"],
        [
            [f"`{row.primitive}`", short(row.dtypes), " ".join(row.targets), row.message]
            for row in maps[-1].rows
            if row.mark == "error"
        ],
    )


def _places(change: Change, found: LoweringMap) -> str:
    return "all" if set(change.targets) == set(found.targets) else " ".join(change.targets)


def _rows(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(map(_escaped, heading)) + " |"
    yield "|" + " --- |" * len(heading)
    for row in rows:
        yield "| " + " | ".join(map(_escaped, row)) + " |"


def _escaped(text: str) -> str:
    """Text that stays one cell, whatever a message holds."""
    plain = text if re.fullmatch(r"`[^`|<]*`", text) else re.sub(r"([\\`*<\[\]])", r"\\\1", text)
    return " ".join(plain.replace("|", "\\|").split())
