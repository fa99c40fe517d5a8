"""Runs as they lie on disk, for tests of what is made from them."""

from dataclasses import replace
from pathlib import Path

from kerneltest.core.tiers import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.io import Writer, write_plan
from kerneltest.records.schema import Plan, PlannedItem, Record
from tests.made_runs import tier_of

PAIRING = "suites/test_t.py::p"
PASS = Record(
    f"{PAIRING}[i]", PAIRING, "interpret", Tier.INTERPRET, "float32", "numeric", "normal", "n=1", "", "c1",
    Verdict.PASS, "", 4, used=0.2,
)  # fmt: skip
ABSENT = replace(PASS, case="", signature="*", verdict=Verdict.UNAVAILABLE, message="no device", compared=0, used=None)
HOSTILE = "</script><img src=x onerror=alert(1)>|`[a](b)\x1b[31m"


def case(**more: object) -> Record:
    """A passing case, but for what is given."""
    return replace(PASS, **{"tier": tier_of(str(more.get("backend", "interpret"))), **more})  # type: ignore[arg-type]


def write_run(folder: Path, *records: Record, planned: int | None = None, **plan: object) -> Path:
    """A run's folder: these records, and a plan that is just them, or `planned` cases a cell."""
    cells: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        cells.setdefault(record.cell, []).append(record)
    items = []
    for (pairing, backend, dtype, family), own in cells.items():
        first, count = own[0], planned or sum(bool(record.case) for record in own) or 1
        items.append(PlannedItem(first.item, pairing, backend, first.tier, dtype, first.group, {family: count}))
    folder.mkdir(parents=True)
    write_plan(folder, replace(Plan(tuple(items), 0, "quick", {"jax": "1"}, {}, {}), **plan))  # type: ignore[arg-type]
    writer = Writer(folder, "main")
    for record in records:
        writer.write(record)
    writer.close()
    return folder
