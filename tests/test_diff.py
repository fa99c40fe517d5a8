"""What changed between two runs: every kind of change, what is a regression, what is refused, and the three forms."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.diff import MEANING, REGRESSIONS, DiffError, compare
from kerneltest.record import Plan, PlannedItem, Record, Writer, write_plan
from kerneltest.runs import Run, read_runs

PAIRING = "suites/test_t.py::p"
PASS = Record(
    f"{PAIRING}[i]", PAIRING, "interpret", "float32", "numeric", "normal", "n=1", "", "c1", "pass", "", 4, used=0.2
)
ABSENT = replace(PASS, case="", signature="*", verdict="unavailable", message="no device", compared=0, used=None)
HOSTILE = "</script><img src=x onerror=alert(1)>|`[a](b)\x1b[31m"


def _run(folder: Path, *records: Record, planned: int | None = None, **plan: object) -> Path:
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


def _case(**more: object) -> Record:
    return replace(PASS, **more)  # type: ignore[arg-type]


OTHER = _case(family="ones", case="c2")  # what both runs have, so that neither is empty
FACTS = {"row": {"registers": 40, "spills": 0}}

CHANGES = [
    ((PASS,), (_case(verdict="mismatch"),), "newly failing", ("pass", "mismatch")),
    ((_case(verdict="expected"),), (_case(verdict="race"),), "newly failing", ("expected", "race")),
    ((), (_case(verdict="mismatch"),), "newly failing", ("absent", "mismatch")),
    ((ABSENT,), (_case(verdict="mismatch"),), "newly failing", ("unavailable", "mismatch")),
    ((PASS,), (_case(case="", signature="*", verdict="crash"),), "newly failing", ("1 cases", "crash")),
    ((_case(verdict="mismatch"),), (_case(verdict="race"),), "worse finding", ("mismatch", "race")),
    ((_case(verdict="crash"),), (_case(verdict="race"),), "milder finding", ("crash", "race")),
    ((PASS,), (ABSENT,), "newly unavailable", ("1 cases", "unavailable")),
    ((PASS,), (), "gone", ("pass", "absent")),
    ((PASS,), (_case(used=0.41),), "error use", ("0.2 of the bound", "0.41")),
    ((_case(facts=FACTS),), (_case(facts={"row": {"registers": 52, "spills": 0}}),), "compile facts",
     ("row: registers 40", "row: registers 52")),
    ((_case(facts=FACTS),), (_case(facts={}),), "compile facts",
     ("row: registers 40, row: spills 0", "row: registers none, row: spills none")),
    ((PASS,), (_case(verdict="expected"),), "newly limited", ("pass", "expected")),
    ((_case(verdict="mismatch"),), (PASS,), "newly passing", ("mismatch", "pass")),
    ((ABSENT,), (PASS,), "newly available", ("unavailable", "1 cases")),
    ((), (PASS,), "new", ("absent", "pass")),
    ((), (ABSENT,), "new", ("absent", "unavailable")),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind", "words"), CHANGES)
def test_every_kind_of_change(
    tmp_path: Path, old: tuple[Record, ...], new: tuple[Record, ...], kind: str, words: tuple[str, str]
) -> None:
    older, newer = read_runs(_run(tmp_path / "a", OTHER, *old)), read_runs(_run(tmp_path / "b", OTHER, *new))
    found = compare(older, newer)
    first = found.changes[0]
    assert (first.kind, first.before, first.after) == (kind, *words)
    assert first.cell == PASS.cell
    assert {change.kind for change in found.changes} - {"newly available"} <= {kind}
    assert found.regressed is (kind in REGRESSIONS)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == int(kind in REGRESSIONS)


def test_the_table_above_has_every_kind() -> None:
    assert {kind for _, _, kind, _ in CHANGES} == set(MEANING)


SAME = [
    ((PASS,), (PASS,)),
    ((PASS,), (_case(case="another seed"),)),
    ((_case(used=0.01),), (_case(used=0.09),)),  # ninefold, and far from the bound still
    ((PASS,), (_case(used=0.39),)),
    ((_case(verdict="mismatch", used=1.5),), (_case(verdict="mismatch", used=9.0),)),
    ((ABSENT,), ()),
    ((_case(group="fuzz", signature="n=1"),), (_case(group="fuzz", signature="n=7"),)),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_no_change(tmp_path: Path, old: tuple[Record, ...], new: tuple[Record, ...]) -> None:
    found = compare(read_runs(_run(tmp_path / "a", OTHER, *old)), read_runs(_run(tmp_path / "b", OTHER, *new)))
    assert found.changes == ()
    assert not found.regressed


def test_a_gap_in_the_new_run_is_a_regression(tmp_path: Path) -> None:
    old = _run(tmp_path / "a", PASS)
    found = compare(read_runs(old), read_runs(_run(tmp_path / "b", PASS, planned=2)))
    assert found.changes == ()
    assert found.regressed
    assert "incomplete: 1 of 1 planned cells" in found.problems[0]


def _environment(**more: object) -> dict[str, object]:
    return {"environment": {"jax": "1", "python": "3.11", "cuda: device": "H200", "cuda: driver": "1", **more}}


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (_environment(jax="2"), "jax: 1 before, 2 now"),
        (_environment(**{"cuda: device": "A100"}), "cuda: device: H200 before, A100 now"),
        ({**_environment(), "seed": 3}, "seed: 0 before, 3 now"),
        ({**_environment(), "depth": "deep"}, "depth: quick before, deep now"),
        (_environment(python="3.12", **{"cuda: driver": "2"}), ""),
        ({"environment": {"jax": "1"}}, ""),  # no GPU there: its cells are unavailable, which is told of them
    ],
)
def test_unlike_environments_are_refused_unless_allowed(
    tmp_path: Path, plan: dict[str, object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = str(_run(tmp_path / "a", PASS, **_environment()))  # type: ignore[arg-type]
    new = str(_run(tmp_path / "b", PASS, **plan))  # type: ignore[arg-type]
    assert main(["diff", old, new]) == (2 if told else 0)
    shown = capsys.readouterr()
    assert told in shown.err
    assert main(["diff", old, new, "--allow-unlike"]) == 0
    assert told in capsys.readouterr().out


def test_sets_of_runs_are_compared_by_name_and_a_run_that_is_gone_is_a_regression(tmp_path: Path) -> None:
    cuda = _case(backend="cuda")
    for side in ("a", "b"):
        _run(tmp_path / side / "cpu", PASS)
    _run(tmp_path / "a" / "cuda", cuda, environment={"jax": "2"})
    found = compare(read_runs(tmp_path / "a"), read_runs(tmp_path / "b"))
    assert [(change.kind, change.run, change.cell[1]) for change in found.changes] == [("gone", "cuda", "cuda")]
    back = compare(read_runs(tmp_path / "b"), read_runs(tmp_path / "a"))
    assert [change.kind for change in back.changes] == ["new"]


def test_the_baseline_that_pyproject_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path / "reports" / "pinned", PASS)
    new = str(_run(tmp_path / "new", _case(verdict="mismatch")))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for text, code, told in (
        ("", 2, "pins no baseline; name the older run too, or pin one in pyproject.toml"),
        ("[tool.kerneltest]\nbaseline = 3", 2, "is the path of a folder"),
        ("[tool.kerneltest", 2, "pyproject.toml: "),
        ("[tool.kerneltest]\nbaseline = 'reports/nothing'", 2, "no such folder"),
        ("[tool.kerneltest]\nbaseline = 'reports/pinned'", 1, ""),
    ):
        (tmp_path / "pyproject.toml").write_text(text)
        assert main(["diff", new]) == code
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "3\n3\n",
        "[]\n[]\n",
        "[" * 100_000 + "\n\n",
        '{"schema": 99}\n{}\n',
        b"\xff\xfe\n\n",
        {"verdict": "fine"},
        {"verdict": 3},
        {"pairing": ["x"]},
        {"used": "much"},
        {"facts": {"row": {"registers": "<b>"}}},
        {"facts": [1]},
    ],
    ids=lambda text: repr(text)[:30],
)
def test_records_that_cannot_be_used_are_named(
    tmp_path: Path, text: str | bytes | dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    old, bad = _run(tmp_path / "a", PASS), _run(tmp_path / "bad", PASS)
    shard = bad / "records-main.jsonl"
    if isinstance(text, dict):
        text = json.dumps({**json.loads(shard.read_text()), **text})
    shard.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["diff", str(old), str(bad)]) == 2
    assert str(bad) in capsys.readouterr().err


def test_a_leg_without_its_plan_is_not_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("a", "b"):
        for leg in ("one", "two"):
            _run(tmp_path / side / leg, PASS)
    (tmp_path / "b" / "two" / "plan.json").unlink()
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "two/plan.json: no readable plan" in capsys.readouterr().err


def test_what_comes_from_outside_is_text_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = _case(pairing=HOSTILE, family=HOSTILE, signature=HOSTILE, target=HOSTILE, message=HOSTILE, verdict="race")
    old = _run(tmp_path / "a", PASS, environment={"jax": HOSTILE})
    new = _run(tmp_path / "b", PASS, hostile, environment={"jax": HOSTILE})
    page, text = tmp_path / "page.html", tmp_path / "page.md"
    assert main(["diff", str(old), str(new), "--html", str(page), "--markdown", str(text)]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "onerror=alert(1)" in shown
    assert "<img" not in page.read_text()
    assert "&lt;img" in page.read_text()
    assert "default-src 'none'; style-src 'sha256-" in page.read_text()
    (row,) = [line for line in text.read_text().splitlines() if "race" in line and line.startswith("|")]
    assert row.replace("\\|", "").count("|") == 7
    assert "<" not in row.replace("\\<", "")
    assert "\x1b" not in row


@pytest.mark.parametrize("option", ["--markdown", "--html"])
def test_where_nothing_can_be_written_is_said(tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(_run(tmp_path / "a", PASS))
    assert main(["diff", run, run, option, str(tmp_path / "none" / "x")]) == 2
    assert "none/x" in capsys.readouterr().err
    assert main(["diff", run, run, "--factor", "nan"]) == 2


def test_many_changes_are_counted_and_not_all_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passing = [_case(family=f"f{i}", case=f"c{i}") for i in range(30)]
    failing = [replace(record, verdict="mismatch") for record in passing]
    assert main(["diff", str(_run(tmp_path / "a", *passing)), str(_run(tmp_path / "b", *failing))]) == 1
    shown = capsys.readouterr().out
    assert "... and 10 more cells" in shown
    assert "REGRESSION: 30 newly failing; 0 cases unchanged" in shown


def test_comparing_refuses_in_code_too(tmp_path: Path) -> None:
    run: tuple[Run, ...] = read_runs(_run(tmp_path / "a", PASS))
    other = (replace(run[0], plan=replace(run[0].plan, seed=1)),)
    with pytest.raises(DiffError, match="seed: 0 before, 1 now"):
        compare(run, other)
