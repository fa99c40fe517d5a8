"""Runs made of a few records, for tests of what reads them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneltest.core.details import Stated
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import BudgetPart, Evidence, Pattern, PatternKind, Window
from kerneltest.records.record_files import RecordWriter, write_end, write_plan
from kerneltest.records.run_plan import End, FunctionSource, NotApplicable, PairingSummary, Plan, PlannedItem
from kerneltest.records.schema import Record
from tests.written import PAIRING, case

# Were any of it parsed as markup, `pwned` would be set, or an element too many be there.
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\"'&{{7*7}}`${7}`"

SOURCE = FunctionSource("kernels/k.py", ((3, "def k(x):\n    return x  # three\n"), (9, "def helper():\n    pass\n")))
WINDOW = Window(
    "", "float32", (4,), (0,), (1, 4), (0, 2), (2.0, 2.0, 2.0, 1.0), (2.0, 2.0, 2.0, 2.0), (0.5,) * 4, "0001"
)
INPUT = Window("x", "float32", (4,), (0,), (1, 4), (0, 2), (1.0, 1.0, float("nan"), 0.5))


def made_run(folder: Path, *records: Record, planned: int = 1, **plan: object) -> Path:
    """A run's folder whose plan holds `planned` cases for each record's cell."""
    items = tuple(
        PlannedItem(f"{r.pairing}[{r.backend}]", r.pairing, r.backend, r.tier, r.dtype, r.group, {r.family: planned})
        for r in records
    )
    base = Plan(
        items=items,
        seed=0,
        depth="quick",
        environment={"jax": "1"},
        unavailable={r.backend: r.message for r in records if r.verdict is Verdict.UNAVAILABLE},
        xfail={},
        pairings={PAIRING: PairingSummary({"x": "array"}, SOURCE, SOURCE)},
    )
    folder.mkdir(parents=True)
    write_plan(folder, replace(base, **plan))  # type: ignore[arg-type]
    writer = RecordWriter(folder, "main")
    for record in records:
        writer.write(record)
    writer.close()
    write_end(folder, End(str(plan.get("run", "")), len(records)))
    return folder


def made_record(**more: Any) -> Record:
    """A pass that used up nothing of a bound, but for what is said; a verdict may be given by name."""
    return case(**{"bound_fraction": None, **more})


WRONG = made_record(
    verdict="mismatch",
    message="1 of 4 elements wrong (kernels/k.py:4)",
    detail=Stated("1 of 4 elements wrong", source="kernels/k.py:4"),
    wrong=1,
    bound_fraction=2.0,
    evidence=Evidence(
        0, (3,), "n=1", (1, 2), None, 1.0, 2.0, 0.5, {"x": "float32[4] [...]"}, "cases/c1-interpret.npz",
        "the last one", "cases/reproduce_c1-interpret.py", WINDOW, (INPUT,),
    ),
    error_budget=(
        BudgetPart("rounding of `x - y`", "kernels/k.py", 4, 0.7, 90.0),
        BudgetPart("flushed subnormal inputs", "", 0, 0.2),
    ),
)  # fmt: skip


def hostile() -> tuple[Record, dict[str, object]]:
    """A record and what goes into its plan, every string of which is markup."""
    source = FunctionSource(HOSTILE, ((1, HOSTILE),))
    assert WRONG.evidence is not None
    evidence = replace(
        WRONG.evidence,
        block=HOSTILE,
        pattern=Pattern(PatternKind.ONE_INDEX, HOSTILE, 3),
        diagnosis=HOSTILE,
        arguments={HOSTILE: HOSTILE},
        file=HOSTILE,
        script=HOSTILE,
        stderr=HOSTILE,
        window=replace(WINDOW, name=HOSTILE, dtype=HOSTILE),
        inputs=(replace(INPUT, name=HOSTILE, dtype=HOSTILE),),
    )
    words = "item pairing backend dtype group family signature target case message tolerance".split()
    record = replace(
        WRONG,
        **dict.fromkeys(words, HOSTILE),
        evidence=evidence,
        compiler_metrics={HOSTILE: {"registers": 1}},
        error_budget=(BudgetPart(HOSTILE, HOSTILE, 1, 1.0, 99.0),),
        dims={HOSTILE: 1},
        dtypes={HOSTILE: HOSTILE},
        statics={HOSTILE: HOSTILE},
        advice=(HOSTILE,),
        files=(f"artifacts/{HOSTILE}", f"javascript:{HOSTILE}"),
    )
    plan = {
        "environment": {HOSTILE: HOSTILE},
        "unavailable": {HOSTILE: HOSTILE},
        "xfail": {HOSTILE: (HOSTILE,)},
        "not_applicable": (NotApplicable(HOSTILE, HOSTILE, HOSTILE, 1),),
        "pairings": {HOSTILE: PairingSummary({HOSTILE: HOSTILE}, source, source)},
        "started": HOSTILE,
    }
    return record, plan
