"""Runs as they lie on disk, for tests of what is made from them."""

from dataclasses import replace
from pathlib import Path

from kerneltest.records.io import Writer, write_plan
from kerneltest.records.schema import Plan, PlannedItem, Record

PAIRING = "suites/test_t.py::p"
PASS = Record(
    f"{PAIRING}[i]", PAIRING, "interpret", "float32", "numeric", "normal", "n=1", "", "c1", "pass", "", 4, used=0.2
)
ABSENT = replace(PASS, case="", signature="*", verdict="unavailable", message="no device", compared=0, used=None)
HOSTILE = "</script><img src=x onerror=alert(1)>|`[a](b)\x1b[31m"


def case(**more: object) -> Record:
    """A passing case, but for what is given."""
    return replace(PASS, **more)  # type: ignore[arg-type]


def write_run(folder: Path, *records: Record, planned: int | None = None, **plan: object) -> Path:
    """A run's folder: these records, and a plan that is just them, or `planned` cases a cell."""
    cells: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        cells.setdefault(record.cell, []).append(record)
    items = tuple(
        PlannedItem(r[0].item, *cell[:3], r[0].group, {cell[3]: planned or sum(bool(x.case) for x in r) or 1})
        for cell, r in cells.items()
    )
    folder.mkdir(parents=True)
    write_plan(folder, replace(Plan(items, 0, "quick", {"jax": "1"}, {}, {}), **plan))  # type: ignore[arg-type]
    writer = Writer(folder, "main")
    for record in records:
        writer.write(record)
    writer.close()
    return folder
