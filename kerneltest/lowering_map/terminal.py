"""Maps in a terminal."""

from collections.abc import Sequence
from itertools import groupby

from tabulate import tabulate

from kerneltest.lowering_map.map import LoweringMap
from kerneltest.lowering_map.table import tabulate_maps


def print_table(maps: Sequence[LoweringMap]) -> None:
    """Prints the table of one or more maps, primitives by group."""
    shown = tabulate_maps(maps)
    rows: list[list[str]] = []
    for group, members in groupby(shown.rows, key=lambda row: row[0]):
        rows += [[], [group]] if rows else [[group]]
        rows += [[f"  {name}", *(f"{e.letter} {e.text}".strip() for e in entries)] for _, name, entries in members]
    print(tabulate(rows, ("primitive", *shown.columns), tablefmt="simple", disable_numparse=True))
