"""Runs as they lie on disk, for tests of what is made from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneltest.core.details import Stated, Unavailable
from kerneltest.core.ids import ANY
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.record_files import RecordWriter, write_end, write_plan
from kerneltest.records.run_plan import End, Plan, PlannedItem
from kerneltest.records.schema import Record

PAIRING = "suites/test_t.py::p"
PASS = Record(
    item=f"{PAIRING}[i]",
    pairing=PAIRING,
    backend="interpret",
    tier=Tier.INTERPRET,
    dtype="float32",
    group="numeric",
    family="normal",
    signature="n=1",
    dims={"n": 1},
    dtypes={"x": "float32"},
    target="",
    case="c1",
    verdict=Verdict.PASS,
    compared=4,
    bound_fraction=0.2,
)
HOSTILE = "</script><img src=x onerror=alert(1)>|`[a](b)\x1b[31m"


def tier_of(backend: str) -> Tier:
    """The tier that a backend of this id has."""
    name = backend.partition(":")[0].partition("-")[0]
    return Tier(name) if name in [*Tier] else Tier.DEVICE


def case(**more: Any) -> Record:
    """A passing case, but for what is given; a verdict may be given by name, and a failure by its message."""
    given = {"tier": tier_of(more.get("backend", PASS.backend)), **more}
    verdict = Verdict(more.get("verdict", PASS.verdict))
    if "detail" not in more and (message := more.get("message")) and verdict is not Verdict.PASS:
        given["detail"] = Unavailable(message) if verdict is Verdict.UNAVAILABLE else Stated(message)
    return replace(PASS, **{**given, "verdict": verdict})


def absent(**more: Any) -> Record:
    """The one record of a pairing on a backend that the machine lacks, but for what is given."""
    whole = dict(
        dtype=ANY, group=ANY, family=ANY, signature="*", case="", dims={}, dtypes={}, compared=0, bound_fraction=None
    )
    return case(**{**whole, "verdict": Verdict.UNAVAILABLE, "message": "no device", **more})


ABSENT = absent()


def write_run(folder: Path, *records: Record, planned: int | None = None, **plan: object) -> Path:
    """A run's folder: these records, and a plan that is just them, or `planned` cases a cell."""
    cells: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        cells.setdefault(record.cell, []).append(record)
    items = tuple(
        PlannedItem(
            item=r[0].item,
            pairing=r[0].pairing,
            backend=r[0].backend,
            tier=r[0].tier,
            dtype=r[0].dtype,
            group=r[0].group,
            families={r[0].family: planned or sum(bool(x.case) for x in r) or 1},
        )
        for r in cells.values()
    )
    unavailable = {r.backend: r.message for r in records if r.verdict is Verdict.UNAVAILABLE}
    base = Plan(items=items, seed=0, depth="quick", environment={"jax": "1"}, unavailable=unavailable, xfail={})
    folder.mkdir(parents=True)
    write_plan(folder, replace(base, **plan))  # type: ignore[arg-type]
    writer = RecordWriter(folder, "main")
    for record in records:
        writer.write(record)
    writer.close()
    write_end(folder, End(str(plan.get("run", "")), len(records)))
    return folder
