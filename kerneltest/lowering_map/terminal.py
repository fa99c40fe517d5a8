"""Maps in a terminal."""

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kerneltest.lowering_map.map import LoweringMap
from kerneltest.lowering_map.table import tabulate_maps

_UNLIMITED = 10_000  # columns of a file or a pipe, where a wrapped line is no use to grep


def print_table(maps: Sequence[LoweringMap]) -> None:
    """Prints the table of one or more maps, as wide as the terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = _UNLIMITED
    shown = tabulate_maps(maps)
    # Texts come from files: as `Text`, no bracket in them is markup.
    table = Table(box=SIMPLE_HEAD)
    for heading in ("primitive", *shown.columns):
        table.add_column(Text(heading))
    for group, rows in groupby(shown.rows, key=lambda row: row[0]):
        table.add_row(Text(group, style="bold"))
        for _, primitive, entries in rows:
            table.add_row(Text(primitive), *(Text(f"{entry.letter} {entry.text}") for entry in entries))
        table.add_section()
    console.print(table)
