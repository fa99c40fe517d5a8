"""What is not as a run writes it is an error on one line, with file, line and field; nothing hangs on it."""

import gzip
import json
import os
import socket
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kerneltest.cli import main
from kerneltest.core.failures import RecordError
from kerneltest.core.files import open_inside
from kerneltest.records.evidence import Evidence
from kerneltest.records.files import dumps
from kerneltest.records.record_files import (
    RecordWriter,
    load_arguments,
    read_plan,
    read_records,
    save_arguments,
    save_artifacts,
    write_plan,
)
from kerneltest.records.runs import read_runs
from kerneltest.report.html.finding_data import read_script
from kerneltest.report.html.page import write_html
from tests.records.test_records import FINDING, PLAN, RECORD, SCHEMA, _line
from tests.written import PASS, write_run

MISSING = object()
NUMBER = 'Input should be a finite number, {"float": "nan"}, {"float": "inf"} or {"float": "-inf"}'
WINDOW = "record.evidence.window"

# Where something else stands, what, and the message: its field and what is wrong.
RECORDS = [
    ("schema", 5, f"schema 5, and this kerneltest reads schema {SCHEMA}: run the suites again"),
    ("schema", "6", "schema '6', and this kerneltest reads"),
    ("schema", True, "schema True, and this kerneltest reads"),
    ("schema", MISSING, "schema none, and this kerneltest reads"),
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
        "evidence.block", "evidence.file", "evidence.diagnosis", "evidence.script",
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
    ("record.error_budget.0.part", 1.5, "record.error_budget[0].part: Input should be less than or equal to 1"),
    ("record.error_budget.0.line", -1, "record.error_budget[0].line: Input should be greater than or equal to 0"),
    ("record.error_budget.0.words", None, "record.error_budget[0].words: Input should be a valid string"),
    ("record.error_budget.0.more", 1, "record.error_budget[0].more: Unexpected"),
    ("record.dims", {"n": -1}, "record.dims.n: Input should be greater than or equal to 0"),
    ("record.dims", {"n": "1"}, "record.dims.n: Input should be a valid integer"),
    ("record.dims", [["n", 1]], "record.dims: Input should be an object"),
    ("record.dtypes", {"x": 32}, "record.dtypes.x: Input should be a valid string"),
    ("record.statics", {"mode": []}, "record.statics.mode"),
    ("record.compiler_metrics", [1], "record.compiler_metrics: Input should be an object"),
    ("record.compiler_metrics", {"row": 3}, "record.compiler_metrics.row: Input should be an object"),
    ("record.compiler_metrics", {"row": {"registers": "<b>"}},
     "record.compiler_metrics.row.registers: Input should be a valid integer"),
    ("record.advice", [1], "record.advice[0]: Input should be a valid string"),
    ("record.files", {"a": "b"}, "record.files: Input should be a valid array"),
    ("record.ulps", [1, -1], "record.ulps[1]: Input should be greater than or equal to 0"),
    *((f"record.{name}", wrong, f"record.{name}: {NUMBER}")
      for name in ("bound_fraction", "seconds", "evidence.actual", "evidence.bound") for wrong in ("1", [], {})),
    *((f"record.{name}", True, f"record.{name}: {NUMBER}") for name in ("bound_fraction", "seconds", "evidence.bound")),
    ("record.bound_fraction", float("nan"), f"record.bound_fraction: {NUMBER}"),
    ("record.bound_fraction", float("inf"), f"record.bound_fraction: {NUMBER}"),
    ("record.bound_fraction", {"float": "NaN"}, f"record.bound_fraction: {NUMBER}"),
    ("record.bound_fraction", {"float": "1.5"}, f"record.bound_fraction: {NUMBER}"),
    ("record.bound_fraction", {"float": 1.5}, f"record.bound_fraction: {NUMBER}"),
    ("record.bound_fraction", {"float": "nan", "more": 1}, f"record.bound_fraction: {NUMBER}"),
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
    ("schema", 5, f"schema 5, and this kerneltest reads schema {SCHEMA}: run the suites again"),
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
    assert str(caught.value).startswith(f"{tmp_path}/plan.json: the plan cannot be read: {words}")
    assert "\n" not in str(caught.value)


COMMANDS = ["summary RUN", "report RUN -o PAGE", "diff RUN RUN", "diff GOOD RUN", "repro RUN c2"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("plan.json", "plan.seed", "the plan cannot be read: plan.seed: Input should be a valid integer"),
        ("records-main.jsonl", "record.evidence.index", "line 1: record.evidence.index: Input should be a valid array"),
    ],
)
def test_every_command_says_which_field_it_is(
    tmp_path: Path, command: str, name: str, path: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, good = write_run(tmp_path / "run", FINDING), write_run(tmp_path / "good", FINDING)
    (run / name).write_text(_with(json.loads((run / name).read_text()), path, "odd") + "\n")
    places = {"RUN": str(run), "GOOD": str(good), "PAGE": str(tmp_path / "page.html")}
    assert main([places.get(word, word) for word in command.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"kerneltest {command.split()[0]}: {run / name}")
    assert words in shown.err
    assert shown.err.count("\n") == 1


MIB = 2**20
LINE = _line(RECORD).encode() + b"\n"
SHARD = "records-main.jsonl"
PADDED = LINE.replace(b'"message":""', b'"message":"' + b"m" * (MIB // 2) + b'"')


def _peak(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("packed", "words"),
    [
        ([b"\n" * MIB] * 64, "line 1: Invalid JSON"),
        ([b" " * MIB] * 64, "line 1: exceeds 2 MiB"),
        ([LINE, *[b"x" * MIB] * 64], "line 2: exceeds 2 MiB"),
        ([LINE[:-2], b" " * MIB, LINE[-2:]] * 160, "exceeds 128 MiB"),
        ([b'{"a":' * 100_000 + b"\n"], "line 1: Invalid JSON: recursion limit exceeded"),
        ([b"{" + b",".join(b'"%x":1' % n for n in range(10**5)) + b"}"], "line 1: 100,002 fields violate schema"),
        ([LINE[:-3] + b',"ulps":[' + b"-1," * 10**5 + b"1]}}"], "line 1: 100,000 fields violate schema"),
    ],
    ids=["newlines", "one_line", "one_line_after_a_record", "records", "depth", "unknown_fields", "wrong_numbers"],
)
def test_a_small_shard_that_unpacks_to_very_much(
    tmp_path: Path, packed: list[bytes], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneltest.records.record_files._MOST_RECORDS", 128 * MIB)  # what it is would take a minute
    run = write_run(tmp_path / "run", PASS)
    (run / SHARD).unlink()
    with gzip.open(run / f"{SHARD}.gz", "wb", compresslevel=1) as file:
        file.writelines(packed)
    assert _peak(lambda: main(["summary", str(run)])) < 100
    error = capsys.readouterr().err
    assert f"{SHARD}.gz" in error
    assert words in error
    assert error.count("\n") == 1


def test_a_hundred_thousand_records_of_a_shard_are_read(tmp_path: Path) -> None:
    text = b"".join(LINE.replace(b'"c1"', b'"%d %s"' % (n, b"." * 100)) for n in range(100_000))
    assert len(text) > 50e6
    (tmp_path / SHARD).write_bytes(text)
    assert sum(1 for _ in read_records(tmp_path)) == 100_000


@pytest.mark.parametrize(("put", "times"), [(b"", 0), (b"\0", 10**9), (b"1,", 2**21)], ids=["good", "zeros", "values"])
def test_a_plan_that_is_too_large(tmp_path: Path, put: bytes, times: int, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", PASS)
    plan = (run / "plan.json").read_bytes()
    with (run / "plan.json").open("wb") as file:
        file.write(plan.replace(b'"problems":[', b'"problems":[' + put * min(times, 2**21)))
        file.truncate(max(file.tell(), times))  # of zeros, which take no room on the disk
    assert _peak(lambda: main(["summary", str(run)])) < 40
    assert ("exceeds 16 MiB, or than 1,048,576 values" in capsys.readouterr().err) == bool(times)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # such a path may have a hundred characters


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    kept = path.with_name(f"{path.name}.elsewhere")
    path.parent.mkdir(exist_ok=True)
    kept.touch()
    path.symlink_to(kept)


NO_FILES = pytest.mark.parametrize(
    ("make", "words"),
    [
        (_pipe, "not a regular file"),
        (_socket, "not a regular file"),
        (_device, "is a symlink"),
        (_link, "is a symlink"),
    ],
)


@NO_FILES
@pytest.mark.parametrize("name", [SHARD, "plan.json", f"{SHARD}.gz"])
def test_no_regular_file_in_place_of_records_or_plan(
    tmp_path: Path, make: Callable[[Path], None], words: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", PASS)
    (run / name).unlink(missing_ok=True)
    make(run / name)
    for command in (["summary", str(run)], ["diff", str(run), str(run)], ["repro", str(run), "c1"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"{run / name}: " in error
        assert words in error
        assert error.count("\n") == 1


@NO_FILES
@pytest.mark.parametrize("name", ["cases/c1-x.npz", "cases/reproduce_c1-x.py"])
def test_no_regular_file_in_place_of_inputs_or_script(
    tmp_path: Path, make: Callable[[Path], None], words: str, name: str
) -> None:
    (tmp_path / "cases").mkdir()
    make(tmp_path / name)
    with pytest.raises(RecordError, match=words):
        load_arguments(tmp_path, name)
    assert read_script(tmp_path, name) == ""


@pytest.mark.parametrize("field", ["file", "script", "files"])
@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "cases/../../x", "C:/x", r"\\host\x", r"cases\..\..\x", "cases/\0"], ids=ascii
)
def test_a_path_that_leads_out_of_the_folder(
    tmp_path: Path, field: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = replace(PASS, files=(name,)) if field == "files" else replace(PASS, evidence=Evidence(**{field: name}))
    run = write_run(tmp_path / "run", PASS, record)
    for command in (["summary", str(run)], ["report", str(run), "-o", str(tmp_path / "x.html")]):
        assert main(command) == 2
        place = "files[0]" if field == "files" else f"evidence.{field}"
        assert f"{SHARD}, line 2: record.{place}: leads out of the run's folder" in capsys.readouterr().err
    with pytest.raises(OSError, match="leads out of the run's folder"):
        open_inside(run, name)


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "arguments": ("cases", lambda folder: save_arguments(folder, "c1", {"x": np.zeros(1, np.float32)})),
    "arguments_file": ("cases/c1.npz", lambda folder: save_arguments(folder, "c1", {"x": np.zeros(1, np.float32)})),
    "artifacts": ("artifacts", lambda folder: save_artifacts(folder, "c1", {"x.ptx": "text"})),
    "artifacts_of_a_case": ("artifacts/c1", lambda folder: save_artifacts(folder, "c1", {"x.ptx": "text"})),
    "shard": (SHARD, lambda folder: RecordWriter(folder, "main")),
    "plan": (f"plan-{os.getpid()}.tmp", lambda folder: write_plan(folder, read_runs(folder)[0].plan)),
    "page": ("report.html", lambda folder: write_html(folder / "report.html", read_runs(folder))),
}


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize(("place", "write"), WRITERS.values(), ids=list(WRITERS))
def test_nothing_is_written_through_a_link(
    tmp_path: Path, place: str, write: Callable[[Path], object], dangling: bool
) -> None:
    folder, elsewhere = write_run(tmp_path / "run", PASS), tmp_path / "elsewhere"
    write(folder)
    if "." in place:
        (folder / place).unlink(missing_ok=True)
        elsewhere.write_text("mine")
    else:
        (folder / place).rename(tmp_path / "set aside")
        elsewhere.mkdir()
    (folder / place).symlink_to(tmp_path / "nowhere" if dangling else elsewhere)
    with pytest.raises(OSError, match="is a symlink"):
        write(folder)
    assert not (tmp_path / "nowhere").exists()
    assert (list(elsewhere.iterdir()) == []) if elsewhere.is_dir() else (elsewhere.read_text() == "mine")


def test_a_run_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", PASS)
    (tmp_path / "latest").symlink_to(run)
    assert main(["summary", str(tmp_path / "latest")]) == 0
