"""What is not as the schema says is an error that names the file, the line and the field, on one line."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kerneltest.records.io import RecordError, read_plan, read_records
from kerneltest.records.strict_json import dumps
from tests.records.test_records import FINDING, PLAN, SCHEMA

MISSING = object()
NUMBER = 'Input should be a finite number, {"float": "nan"}, {"float": "inf"} or {"float": "-inf"}'
WINDOW = "record.evidence.window"

# Where something else stands, what, and the message: its field and what is wrong.
RECORDS = [
    ("schema", 5, "schema 5, and this version reads schema 7"),
    ("schema", "6", "schema '6', and this version reads"),
    ("schema", True, "schema True, and this version reads"),
    ("schema", MISSING, "schema none, and this version reads"),
    ("record", MISSING, "record: Field required"),
    ("record", [], "record: Input should be an object"),
    ("more", 1, "more: Unexpected"),
    ("record.more", 1, "record.more: Unexpected"),
    ("record.two\nlines\x1b", 1, r"record['two\nlines\x1b']: Unexpected"),
    ("record.evidence.more", 1, "record.evidence.more: Unexpected"),
    (f"{WINDOW}.more", 1, f"{WINDOW}.more: Unexpected"),
    ("record.evidence.inputs.0.more", 1, "record.evidence.inputs[0].more: Unexpected"),
    ("record.item", MISSING, "record.item: Field required"),
    ("record.verdict", MISSING, "record.verdict: Field required"),
    (f"{WINDOW}.extent", MISSING, f"{WINDOW}.extent: Field required"),
    *((f"record.{name}", 3, f"record.{name}: Input should be a valid string") for name in (
        "item", "pairing", "backend", "dtype", "group", "family", "signature", "target", "case", "message", "tolerance",
        "evidence.block", "evidence.pattern", "evidence.file", "evidence.diagnosis", "evidence.script",
        "evidence.stderr", "evidence.window.name", "evidence.window.dtype", "evidence.window.wrong")),
    ("record.item", None, "record.item: Input should be a valid string"),
    ("record.item", ["x"], "record.item: Input should be a valid string"),
    ("record.verdict", "fine", "record.verdict: Input should be 'pass', 'xfail', "),
    ("record.verdict", 3, "record.verdict: Input should be 'pass', 'xfail', "),
    ("record.tier", "gpu", "record.tier: Input should be 'interpret', 'lower', "),
    *((f"record.{name}", True, f"record.{name}: Input should be a valid integer") for name in (
        "compared", "wrong", "evidence.output")),
    ("record.compared", 1.0, "record.compared: Input should be a valid integer"),
    ("record.compared", "1", "record.compared: Input should be a valid integer"),
    ("record.compared", None, "record.compared: Input should be a valid integer"),
    ("record.compared", -1, "record.compared: Input should be greater than or equal to 0"),
    ("record.wrong", -1, "record.wrong: Input should be greater than or equal to 0"),
    ("record.dims", {"n": -1}, "record.dims.n: Input should be greater than or equal to 0"),
    ("record.dims", {"n": "1"}, "record.dims.n: Input should be a valid integer"),
    ("record.dims", [["n", 1]], "record.dims: Input should be an object"),
    ("record.dtypes", {"x": 32}, "record.dtypes.x: Input should be a valid string"),
    ("record.statics", {"mode": None}, "record.statics.mode: Input should be a valid string"),
    ("record.facts", [1], "record.facts: Input should be an object"),
    ("record.facts", {"row": 3}, "record.facts.row: Input should be an object"),
    ("record.facts", {"row": {"registers": "<b>"}}, "record.facts.row.registers: Input should be a valid integer"),
    ("record.advice", "text", "record.advice: Input should be a valid array"),
    ("record.advice", [1], "record.advice[0]: Input should be a valid string"),
    ("record.files", {"a": "b"}, "record.files: Input should be a valid array"),
    ("record.ulps", [1, -1], "record.ulps[1]: Input should be greater than or equal to 0"),
    *((f"record.{name}", wrong, f"record.{name}: {NUMBER}")
      for name in ("used", "seconds", "evidence.actual", "evidence.bound") for wrong in ("1", [], {})),
    *((f"record.{name}", True, f"record.{name}: {NUMBER}") for name in ("used", "seconds", "evidence.bound")),
    ("record.used", float("nan"), f"record.used: {NUMBER}"),
    ("record.used", float("inf"), f"record.used: {NUMBER}"),
    ("record.used", {"float": "NaN"}, f"record.used: {NUMBER}"),
    ("record.used", {"float": "1.5"}, f"record.used: {NUMBER}"),
    ("record.used", {"float": 1.5}, f"record.used: {NUMBER}"),
    ("record.used", {"float": "nan", "more": 1}, f"record.used: {NUMBER}"),
    ("record.seconds", None, f"record.seconds: {NUMBER}"),
    ("record.evidence", [], "record.evidence: Input should be an object"),
    ("record.evidence.index", [1, "2"], "record.evidence.index[1]: Input should be a valid integer"),
    ("record.evidence.wrong_blocks", [1], "record.evidence.wrong_blocks[1]: Field required"),
    ("record.evidence.arguments", {"x": 1}, "record.evidence.arguments.x: Input should be a valid string"),
    (f"{WINDOW}.shape", [-1, 2], f"{WINDOW}.shape[0]: Input should be greater"),
    (f"{WINDOW}.extent", [1, 2, 3], f"{WINDOW}.extent: Tuple should have at most 2 items"),
    (f"{WINDOW}.blocks", [1], f"{WINDOW}.blocks[1]: Field required"),
    (f"{WINDOW}.values", [1, "2"], f"{WINDOW}.values[1]: {NUMBER}"),
    (f"{WINDOW}.values", [1, None], f"{WINDOW}.values[1]: {NUMBER}"),
    (f"{WINDOW}.values", [1, float("-inf")], f"{WINDOW}.values[1]: {NUMBER}"),
    (f"{WINDOW}.bound", [True, 1], f"{WINDOW}.bound[0]: {NUMBER}"),
    *((f"{WINDOW}.{name}", value, f"{WINDOW}: a window of ") for name, value in (
        ("values", [1]), ("expected", [1, 2, 3]), ("bound", [0.0]), ("wrong", "0"), ("extent", [2, 2]),
        ("origin", [0]))),
]  # fmt: skip

PLANS = [
    ("schema", 5, "schema 5, and this version reads schema 7"),
    ("plan", MISSING, "plan: Field required"),
    ("plan.more", 1, "plan.more: Unexpected"),
    ("plan.items.0.more", 1, "plan.items[0].more: Unexpected"),
    ("plan.items.0.item", 3, "plan.items[0].item: Input should be a valid string"),
    ("plan.items.0.tier", "gpu", "plan.items[0].tier: Input should be 'interpret', "),
    ("plan.items.0.families", {"ones": "2"}, "plan.items[0].families.ones: Input should be a valid integer"),
    ("plan.items.0.families", {"ones": -2}, "plan.items[0].families.ones: Input should be greater"),
    ("plan.items.0.families", ["ones"], "plan.items[0].families: Input should be an object"),
    ("plan.items", {}, "plan.items: Input should be a valid array"),
    ("plan.seed", "0", "plan.seed: Input should be a valid integer"),
    ("plan.seed", True, "plan.seed: Input should be a valid integer"),
    ("plan.fuzz", -1, "plan.fuzz: Input should be greater than or equal to 0"),
    ("plan.depth", 3, "plan.depth: Input should be a valid string"),
    ("plan.environment", MISSING, "plan.environment: Field required"),
    ("plan.environment", {"jax": 1}, "plan.environment.jax: Input should be a valid string"),
    ("plan.environment", {"jax": float("nan")}, "plan.environment.jax: Input should be a valid string"),
    ("plan.unavailable", {"cuda": None}, "plan.unavailable.cuda: Input should be a valid string"),
    ("plan.xfail", {"p": "reason"}, "plan.xfail.p: Input should be a valid array"),
    ("plan.not_applicable.0.cases", -1, "plan.not_applicable[0].cases: Input should be greater"),
    ("plan.not_applicable.0.reason", MISSING, "plan.not_applicable[0].reason: Field required"),
    ("plan.pairings.p", 3, "plan.pairings.p: Input should be an object"),
    ("plan.pairings.p.kernel.more", 1, "plan.pairings.p.kernel.more: Unexpected"),
    ("plan.pairings.p.kernel.parts", [["3", "def f"]], "plan.pairings.p.kernel.parts[0][0]: Input should be a valid"),
    ("plan.pairings.p.kernel.parts", [[3]], "plan.pairings.p.kernel.parts[0][1]: Field required"),
]  # fmt: skip


def _with(line: dict[str, Any], path: str, value: object) -> str:
    """The line with something else in one place; NaN and infinities are bare words in it."""
    line = deepcopy(line)
    *names, last = path.split(".")
    place: Any = line
    for name in names:
        place = place[int(name) if name.isdecimal() else name]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return json.dumps(line)


def _id(case: object) -> str:
    return repr(case)[:40] if case is not MISSING else "missing"


@pytest.mark.parametrize(("path", "value", "words"), RECORDS, ids=_id)
def test_a_record_that_is_not_as_the_schema_says(tmp_path: Path, path: str, value: object, words: str) -> None:
    good = dumps({"schema": SCHEMA, "record": FINDING})
    bad = _with(json.loads(good), path, value)
    (tmp_path / "records-main.jsonl").write_text(f"{good}\n{bad}\n{good}\n")
    with pytest.raises(RecordError) as caught:
        list(read_records(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/records-main.jsonl, line 2: {words}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("path", "value", "words"), PLANS, ids=_id)
def test_a_plan_that_is_not_as_the_schema_says(tmp_path: Path, path: str, value: object, words: str) -> None:
    good = json.loads(dumps({"schema": SCHEMA, "plan": PLAN}))
    (tmp_path / "plan.json").write_text(_with(good, path, value))
    with pytest.raises(RecordError) as caught:
        read_plan(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/plan.json: no readable plan: {words}")
    assert "\n" not in str(caught.value)
