"""Records on disk: strict JSON, exact arrays, and what happens to damaged files; reconciliation with the plan."""

import json
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kerneltest.core.tiers import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.arrays import load_arguments, save_arguments
from kerneltest.records.io import SCHEMA, RecordError, Writer, read_plan, read_records, write_plan
from kerneltest.records.reconcile import Reconciled, reconcile
from kerneltest.records.schema import Declared, Evidence, NotApplicable, Plan, PlannedItem, Record, Source, Window
from kerneltest.records.strict_json import dumps, loads

RECORD = Record(
    item="t.py::p[b-float32-special]",
    pairing="t.py::p",
    backend="b",
    tier=Tier.DEVICE,
    dtype="float32",
    group="special",
    family="one_inf",
    signature="n=1",
    target="x",
    case="c1",
    verdict=Verdict.PASS,
    dims={"n": 1},
    dtypes={"x": "float32"},
    statics={"mode": "up"},
)
CELL = ("t.py::p", "b", "float32", "one_inf")
ITEM = PlannedItem(RECORD.item, "t.py::p", "b", Tier.DEVICE, "float32", "special", {"one_inf": 2})
SOURCE = Source("t.py", ((3, "def f():\n    pass\n"),))
PLAN = Plan(
    items=(ITEM,),
    seed=0,
    depth="quick",
    environment={"jax": "0"},
    unavailable={},
    xfail={"t.py::p": ("none",)},
    not_applicable=(NotApplicable("t.py::p", "tpu", "this kernel is Triton's", 3),),
    fuzz=0,
    started="2026-01-01T00:00:00+00:00",
    pairings={"t.py::p": Declared({"x": "array [n]"}, SOURCE, Source("", ()))},
)


def test_special_floats_are_encoded_and_come_back() -> None:
    text = dumps({"a": [np.nan, np.inf, -np.inf, -0.0, 1.5], "b": np.float32(2), "c": np.int8(3), "d": None})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(text, parse_constant=refuse)
    back = loads(text)
    assert np.isnan(back["a"][0])
    assert back["a"][1:] == [np.inf, -np.inf, 0.0, 1.5]
    assert np.signbit(back["a"][3])
    assert (back["b"], back["c"], back["d"]) == (2.0, 3, None)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "{"])
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|Expecting"):
        loads(text)


def test_what_has_no_place_in_a_record_is_refused() -> None:
    with pytest.raises(TypeError, match="ndarray has no place"):
        dumps({"a": np.zeros(3)})


def test_records_and_plan_come_back_as_they_were(tmp_path: Path) -> None:
    window = Window("", "int8", (1, 2), (0, 0), (1, 2), (1, 0), (1, 2), (1, np.inf), (0.0, 0.5), "01")
    evidence = Evidence(
        0, (1, 2), "m=0", (1, 4), "p", np.nan, 1.0, 0.5, {"x": "..."}, "cases/c.npz", window=window, inputs=(window,)
    )
    records = [
        replace(RECORD, ulps=(3, 0, 1)),
        replace(RECORD, case="c2", verdict=Verdict.MISMATCH, used=np.inf, evidence=evidence),
    ]
    writer = Writer(tmp_path, "gw0")
    for record in records:
        writer.write(record)
    writer.close()
    write_plan(tmp_path, PLAN)
    assert repr(list(read_records(tmp_path))) == repr(records)
    assert read_plan(tmp_path) == PLAN


@pytest.mark.parametrize(
    "changes", [{"values": (1,)}, {"wrong": "0"}, {"bound": (0.0,)}, {"extent": (2, 2)}, {"origin": (0,)}]
)
def test_a_window_that_does_not_hold_what_it_says_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    window = Window("", "int8", (1, 2), (0, 0), (1, 2), (1, 0), (1, 2), (1, 2), (0.0, 0.5), "01")
    record = replace(RECORD, evidence=Evidence(window=replace(window, **changes)))  # type: ignore[arg-type]
    _shard(tmp_path, _line(record), _line(RECORD))
    with pytest.raises(RecordError, match="line 1: a window of"):
        list(read_records(tmp_path))


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_arguments_come_back_bit_for_bit(tmp_path: Path, kind: type) -> None:
    source = [[0, 1, np.nan, -0.0]] if np.dtype(kind).kind not in "ib" else [[0, 1, 1, 0]]
    values = np.array(source, np.float32).astype(kind)
    path = tmp_path / save_arguments(tmp_path, "c1", {"x": values, "a.b": values[0, 0]})
    back = load_arguments(path)
    assert back["x"].dtype == values.dtype
    assert back["x"].shape == (1, 4)
    assert back["x"].tobytes() == values.tobytes()
    assert back["a.b"].shape == ()


def _shard(folder: Path, *lines: str) -> None:
    (folder / "records-main.jsonl").write_text("\n".join(lines), encoding="utf-8")


def _line(record: Record) -> str:
    from dataclasses import asdict

    return dumps({"schema": SCHEMA, **asdict(record)})


def test_a_truncated_last_line_is_dropped(tmp_path: Path) -> None:
    _shard(tmp_path, _line(RECORD), _line(replace(RECORD, case="c2"))[:50])
    assert list(read_records(tmp_path)) == [RECORD]


@pytest.mark.parametrize(
    "bad", ["{", '{"schema": 3}', '{"schema": 4}', '{"schema": 99}', '{"schema": 4, "verdict": NaN}']
)
def test_a_corrupt_line_in_the_middle_names_file_and_line(tmp_path: Path, bad: str) -> None:
    _shard(tmp_path, _line(RECORD), bad, _line(RECORD))
    with pytest.raises(RecordError, match=r"records-main\.jsonl, line 2"):
        list(read_records(tmp_path))


@pytest.mark.parametrize("text", [None, "{", '{"schema": 99}', '{"schema": 3}', '{"schema": 4}'])
def test_a_missing_or_damaged_plan_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(RecordError, match=r"plan\.json: no readable plan"):
        read_plan(tmp_path)


def _reconciled(*records: Record) -> Reconciled:
    return reconcile(PLAN, records)


ONE = replace(RECORD, compared=5)
TWO = replace(ONE, case="c2")


@pytest.mark.parametrize(
    ("records", "verdict", "complete", "green"),
    [
        ((ONE, TWO), "pass", True, True),
        ((ONE,), "missing", False, False),
        ((), "missing", False, False),
        ((ONE, replace(TWO, verdict=Verdict.MISMATCH)), "mismatch", True, False),
        ((ONE, replace(TWO, verdict=Verdict.CRASH, case="")), "crash", True, False),
        ((ONE, TWO, replace(TWO, verdict=Verdict.XPASS, case="", compared=0)), "xpass", True, False),
        ((ONE, replace(TWO, verdict=Verdict.XFAIL, compared=0)), "xfail", True, True),
        ((replace(ONE, compared=0), replace(TWO, compared=0)), "nothing compared", False, False),
        ((ONE, TWO, TWO), "pass", False, False),
        ((ONE, TWO, replace(ONE, family="another")), "pass", False, False),
    ],
)
def test_every_planned_cell_has_one_status(
    records: tuple[Record, ...], verdict: str, complete: bool, green: bool
) -> None:
    found = _reconciled(*records)
    assert found.cells[CELL].verdict == verdict
    assert (found.complete, found.green) == (complete, green)


def test_a_cell_that_could_not_be_served_is_complete_but_a_run_of_only_these_is_not() -> None:
    found = _reconciled(replace(RECORD, verdict=Verdict.UNAVAILABLE, case=""))
    assert found.cells[CELL].green
    assert not found.complete
    assert found.problems == ("nothing was compared in the whole run",)
