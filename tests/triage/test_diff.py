"""What changed between two runs: every kind of change, what is a regression, what is refused, and the three forms."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.cli import main
from kerneltest.core.verdicts import Verdict
from kerneltest.records.run_plan import FunctionSource, NotApplicable, PairingSummary, Project
from kerneltest.records.runs import RunRecords, read_runs
from kerneltest.records.schema import Record
from kerneltest.triage.run_comparison import MEANING, REGRESSIONS, DiffError, compare_runs
from tests.written import ABSENT, HOSTILE, PASS, case, write_run

OTHER = case(family="ones", case="c2")  # what both runs have, so that neither is empty
ROOT = Path(__file__).parents[2]
SOURCE = FunctionSource("", ())
FACTS = {"row": {"registers": 40, "spills": 0}}

NOT_FOR = {"not_applicable": (NotApplicable(PASS.pairing, PASS.backend, "another dialect", 7),)}

CHANGES = [
    ((PASS,), (case(verdict="mismatch"),), "newly failing", ("pass", "mismatch")),
    ((case(verdict="xfail"),), (case(verdict="race"),), "newly failing", ("xfail", "race")),
    ((), (case(verdict="mismatch"),), "newly failing", ("absent", "mismatch")),
    ((PASS,), (case(case="", signature="*", verdict="crash"),), "newly failing", ("1 case", "crash")),
    ((case(verdict="mismatch"),), (case(verdict="race"),), "worse finding", ("mismatch", "race")),
    ((case(verdict="crash"),), (case(verdict="race"),), "milder finding", ("crash", "race")),
    ((PASS,), (case(verdict="unavailable"),), "newly unavailable", ("pass", "unavailable")),
    ((PASS,), (), "gone", ("pass", "absent")),
    ((PASS,), (case(signature="n=2", dims={"n": 2}),), "gone", ("pass", "absent")),
    ((PASS,), (case(dtypes={"x": "float32", "y": "int8"}),), "gone", ("pass", "absent")),
    ((PASS,), (case(statics={"mode": "up"}),), "gone", ("pass", "absent")),
    ((PASS,), (case(target="x"),), "gone", ("pass", "absent")),
    ((PASS,), (case(bound_fraction=0.41),), "error use", ("0.2 of the bound", "0.41")),
    ((case(compiler_metrics=FACTS),), (case(compiler_metrics={"row": {"registers": 52, "spills": 0}}),),
     "compile facts", ("row: registers 40", "row: registers 52")),
    ((case(compiler_metrics=FACTS),), (case(compiler_metrics={}),), "compile facts",
     ("row: registers 40, row: spills 0", "row: registers none, row: spills none")),
    ((PASS,), (case(verdict="xfail"),), "newly xfail", ("pass", "xfail")),
    ((case(verdict="mismatch"),), (PASS,), "newly passing", ("mismatch", "pass")),
    ((case(case="", signature="*", verdict="crash"),), (PASS,), "newly passing", ("crash", "1 case")),
    ((case(verdict="unavailable"),), (PASS,), "newly available", ("unavailable", "pass")),
    ((), (PASS,), "new", ("absent", "pass")),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind", "words"), CHANGES)
def test_every_kind_of_change(
    tmp_path: Path, old: tuple[Record, ...], new: tuple[Record, ...], kind: str, words: tuple[str, str]
) -> None:
    older, newer = read_runs(write_run(tmp_path / "a", OTHER, *old)), read_runs(write_run(tmp_path / "b", OTHER, *new))
    comparison = compare_runs(older, newer)
    first = comparison.changes[0]
    assert (first.kind, first.before, first.after) == (kind, *words)
    assert first.cell == PASS.cell
    assert {change.kind for change in comparison.changes} <= {kind, "new"}
    assert comparison.regressed is (kind in REGRESSIONS)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == int(kind in REGRESSIONS)


# What a pairing on a backend was, what it is, and the changes: kind, family, before, after.
SERVED = (PASS, case(family="ones", case="c2"))
CUDA = case(backend="cuda")
FAILING = (PASS, case(family="ones", case="c2", verdict="mismatch"))
WHOLE = [
    (ABSENT, SERVED, [("newly available", "*", "unavailable", "2 cases")]),
    (ABSENT, FAILING, [("newly failing", "ones", "unavailable", "mismatch"),
                       ("newly available", "*", "unavailable", "2 cases")]),
    (SERVED, ABSENT, [("newly unavailable", "*", "2 cases", "unavailable")]),
    (FAILING, ABSENT, [("newly unavailable", "*", "2 cases", "unavailable")]),
    (None, ABSENT, [("new", "*", "absent", "unavailable")]),
    (ABSENT, ABSENT, []),
    (ABSENT, None, []),
    (SERVED, None, [("gone", "*", "2 cases", "absent")]),  # the pairing itself, with the only one on its backend
    ((*SERVED, CUDA), CUDA, [("not run", "*", "2 cases", "absent")]),
    (NOT_FOR, SERVED, [("applicability", "*", "not applicable", "2 cases")]),
    (NOT_FOR, FAILING, [("newly failing", "ones", "not applicable", "mismatch"),
                        ("applicability", "*", "not applicable", "2 cases")]),
    (SERVED, NOT_FOR, [("applicability", "*", "2 cases", "not applicable")]),
    (ABSENT, NOT_FOR, []),
    (NOT_FOR, ABSENT, []),
    (NOT_FOR, NOT_FOR, []),
    (NOT_FOR, None, []),
    (None, NOT_FOR, []),
]  # fmt: skip


def _run_with(folder: Path, given: object) -> tuple[RunRecords, ...]:
    elsewhere = case(pairing="suites/test_t.py::q", backend="cuda")  # so that no run is empty
    records = given if isinstance(given, tuple) else (given,) if isinstance(given, Record) else ()
    return read_runs(write_run(folder, elsewhere, *records, **given if isinstance(given, dict) else {}))


@pytest.mark.parametrize(("old", "new", "expected"), WHOLE)
def test_a_backend_that_was_not_served_is_one_change_of_the_pairing(
    tmp_path: Path, old: object, new: object, expected: list[tuple[str, ...]]
) -> None:
    comparison = compare_runs(_run_with(tmp_path / "a", old), _run_with(tmp_path / "b", new))
    assert [(c.kind, c.cell.family, c.before, c.after) for c in comparison.changes] == expected
    assert {c.cell[:2] for c in comparison.changes} <= {PASS.cell[:2]}
    assert comparison.regressed is any(kind in REGRESSIONS for kind, *_ in expected)
    if new is ABSENT and expected:
        assert comparison.changes[0].message == "no device"


def test_a_pairing_on_a_backend_is_one_line_of_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passing = [case(family=family, case=f"{family}{n}", dims={"n": n}) for family in ("ones", "normal") for n in (1, 2)]
    cuda = [case(backend="cuda", family=str(n)) for n in range(40)]
    other = case(pairing="suites/test_t.py::q")
    old = write_run(tmp_path / "a", *passing, *cuda, other, case(pairing="suites/test_t.py::r"))
    failing = [replace(each, verdict=Verdict.RACE) for each in passing[:3]]
    new = write_run(tmp_path / "b", *failing, replace(passing[3], verdict=Verdict.MISMATCH), other)
    page = tmp_path / "page.html"
    assert main(["diff", str(old), str(new), "--html", str(page)]) == 1
    shown = capsys.readouterr().out
    assert f"  {PASS.pairing} / interpret / float32: 4 cases: pass -> race or mismatch, e.g. n=1\n" in shown
    cells = r'k-([a-z]+)(?: line)?"><span class="glyph">(.)</span> ([a-z]+)<'
    glyphs = re.findall(cells, page.read_text(encoding="utf-8"))
    wanted = [Verdict.PASS, Verdict.RACE, Verdict.MISMATCH]
    assert glyphs == [(str(each.kind), each.letter, str(each)) for each in wanted]
    assert (
        f"\nnot run (the run leaves the backend out)\n  {PASS.pairing} / cuda: whole cell: 40 cases -> absent\n"
        in shown
    )
    assert "  suites/test_t.py::r / interpret: whole cell: 1 case -> absent\n" in shown
    assert "; 1 not run; " in shown
    assert "4 newly failing, 1 gone; " in shown


def test_the_tables_above_have_every_kind() -> None:
    kinds = {kind for _, _, kind, _ in CHANGES} | {c[0] for *_, words in WHOLE for c in words}
    assert kinds | {"tolerance"} == set(MEANING)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [({"tolerance": "exact"}, {"tolerance": "ulp(4)"}, True), ({"tolerance": "exact"},) * 2 + (False,),
     ({}, {"tolerance": "exact"}, False)],
)  # fmt: skip
def test_a_tolerance_that_was_changed_is_told(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [
        str(write_run(tmp_path / side, PASS, pairings={PASS.pairing: PairingSummary(words, SOURCE, SOURCE)}))
        for side, words in (("a", before), ("b", after))
    ]
    assert main(["diff", *sides]) == 0
    shown = capsys.readouterr().out
    assert (f"  {PASS.pairing}: whole pairing: exact -> ulp(4)\n" in shown) == told
    assert ("no regression; 1 tolerance; 1 cases unchanged" in shown) == told


@pytest.mark.parametrize("command", ["summary RUN", "diff RUN RUN"])
def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path: Path, command: str) -> None:
    run = str(write_run(tmp_path / "run", PASS))
    words = [run if word == "RUN" else word for word in command.split()]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "kerneltest", *words], stdout=pipe, stderr=pipe, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def _cases(families: str, verdict: str = "mismatch", seed: int = 0, **more: Any) -> tuple[Record, ...]:
    """A case for each family, a letter; one of the same letter is the same case in another run."""
    return tuple(case(family=name, case=f"{verdict} {seed} {name}", verdict=verdict, **more) for name in families)


def _lost(families: str, message: str = "boom") -> tuple[Record, ...]:
    return _cases(families, "runtime_error", message=message)


def _unbuilt(families: str, message: str) -> tuple[Record, ...]:
    return _cases(families, "unimplemented", message=message, backend="lower:sm_90")


# What the older and the newer run found; fates and titles of the suspects, and whether that is a regression.
FATES = [
    ((), _cases("ab"), ["new: wrong values"], True),
    (_cases("ab"), _cases("ab", "pass"), ["gone: wrong values"], False),
    (_cases("ab"), (), ["not run again: wrong values"], True),  # for the cases that are gone
    (_cases("ab"), _cases("ab", "unavailable"), ["not run again: wrong values"], True),
    (_cases("ab"), _cases("ab"), ["still there: wrong values"], False),
    (_cases("ab"), _cases("ab", seed=1), ["still there: wrong values"], False),
    # In most of the cases, whatever it is called now; or of its own name, wherever it fails now.
    (_cases("abc"), _lost("ab"), ["still there: runtime_error: boom"], True),
    (_cases("ab"), _cases("xyz"), ["still there: wrong values"], True),
    (_cases("a"), _lost("abc"), ["new: runtime_error: boom"], True),
    # One falls apart into two, and two become one: every case failed before.
    (_cases("abcd"), (*_cases("ab"), *_lost("cd")),
     ["still there: wrong values", "still there: runtime_error: boom"], True),
    ((*_cases("a"), *_lost("b")), _cases("ab"), ["still there: wrong values"], False),
    ((*_lost("a", "one"), *_lost("b", "two"), *_lost("c", "three")), _cases("abc"),
     ["still there: wrong values"], False),
    # Of two that are called alike, ids number the first: it is gone, or another one comes before it.
    ((*_unbuilt("ab", "no exp"), *_unbuilt("c", "no log")), _unbuilt("c", "no log"),
     ["not run again: does not lower", "still there: does not lower"], True),
    (_unbuilt("c", "no log"), (*_unbuilt("ab", "no exp"), *_unbuilt("c", "no log")),
     ["new: does not lower", "still there: does not lower"], True),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "fates", "regressed"), FATES)
def test_what_becomes_of_suspects(
    tmp_path: Path, old: tuple[Record, ...], new: tuple[Record, ...], fates: list[str], regressed: bool
) -> None:
    since = {"started": "2026-01-05T00:00:00+00:00", "project": Project("p", "1a2b3c")}
    older = read_runs(write_run(tmp_path / "a", OTHER, *old, **since))
    newer = read_runs(write_run(tmp_path / "b", OTHER, *new, started="2026-01-06T00:00:00+00:00"))
    comparison = compare_runs(older, newer)
    assert [f"{each.fate}: {each.suspect.headline}" for each in comparison.suspects] == fates
    assert all(each.regression is (each.fate == "new") for each in comparison.suspects)
    assert {each.since for each in comparison.suspects if each.fate == "still there"} <= {"2026-01-05 at 1a2b3c"}
    assert comparison.regressed is regressed


SAME = [
    ((PASS,), (PASS,)),
    ((PASS,), (case(case="another seed"),)),
    ((case(bound_fraction=0.01),), (case(bound_fraction=0.09),)),  # ninefold, and far from the bound still
    ((PASS,), (case(bound_fraction=0.39),)),
    ((case(verdict="mismatch", bound_fraction=1.5),), (case(verdict="mismatch", bound_fraction=9.0),)),
    ((case(group="fuzz", dims={"n": 1}),), (case(group="fuzz", dims={"n": 7}),)),
    ((case(signature="n=1", dims={"n": 1, "m": 2}),), (case(signature="in other words", dims={"m": 2, "n": 1}),)),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_is_no_change(tmp_path: Path, old: tuple[Record, ...], new: tuple[Record, ...]) -> None:
    older, newer = read_runs(write_run(tmp_path / "a", OTHER, *old)), read_runs(write_run(tmp_path / "b", OTHER, *new))
    comparison = compare_runs(older, newer)
    assert comparison.changes == ()
    assert not comparison.regressed
    assert comparison.unchanged == 1 + len(old)


def test_a_gap_in_the_new_run_is_a_regression(tmp_path: Path) -> None:
    old = write_run(tmp_path / "a", PASS)
    comparison = compare_runs(read_runs(old), read_runs(write_run(tmp_path / "b", PASS, planned=2)))
    assert comparison.changes == ()
    assert comparison.regressed
    assert "incomplete: 1 of 1 planned cells" in comparison.problems[0]


def _environment(**more: object) -> dict[str, object]:
    return {"environment": {"jax": "1", "python": "3.11", "cuda: device": "H200", "cuda: driver": "1", **more}}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (_environment(jax="2"), "jax: 1 before, 2 now"),
        (_environment(**{"cuda: device": "A100"}), "cuda: device: H200 before, A100 now"),
        ({**_environment(), "seed": 3}, "seed: 0 before, 3 now"),
        ({**_environment(), "depth": "deep"}, "depth: quick before, deep now"),
        (_environment(python="3.12", **{"cuda: driver": "2"}), ""),
        ({"environment": {"jax": "1"}}, ""),  # no GPU there: its cells are unavailable, which is said of them
    ],
)
def test_unlike_environments_are_refused_unless_allowed(
    tmp_path: Path, plan: dict[str, object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = str(write_run(tmp_path / "a", PASS, **_environment()))  # type: ignore[arg-type]
    new = str(write_run(tmp_path / "b", PASS, **plan))  # type: ignore[arg-type]
    assert main(["diff", old, new]) == (2 if words else 0)
    shown = capsys.readouterr()
    assert words in shown.err
    assert main(["diff", old, new, "--allow-unlike"]) == 0
    assert words in capsys.readouterr().out


def test_sets_of_runs_are_compared_by_name_and_a_run_that_is_gone_is_a_regression(tmp_path: Path) -> None:
    cuda = case(backend="cuda")
    for side in ("a", "b"):
        write_run(tmp_path / side / "cpu", PASS)
    write_run(tmp_path / "a" / "cuda", cuda, environment={"jax": "2"})
    comparison = compare_runs(read_runs(tmp_path / "a"), read_runs(tmp_path / "b"))
    assert [(change.kind, change.run, change.cell[1]) for change in comparison.changes] == [("gone", "cuda", "cuda")]
    back = compare_runs(read_runs(tmp_path / "b"), read_runs(tmp_path / "a"))
    assert [change.kind for change in back.changes] == ["new"]


def test_the_baseline_that_pyproject_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "reports" / "pinned", PASS)
    new = str(write_run(tmp_path / "new", case(verdict="mismatch")))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for text, code, words in (
        ("", 2, "pins no baseline; name the older run too, or pin one in pyproject.toml"),
        ("[tool.kerneltest]\nbaseline = 3", 2, "is the path of a folder"),
        ("[tool.kerneltest", 2, "pyproject.toml: "),
        ("[tool.kerneltest]\nbaseline = 'reports/nothing'", 2, "no such folder"),
        ("[tool.kerneltest]\nbaseline = 'reports/pinned'", 1, ""),
    ):
        (tmp_path / "pyproject.toml").write_text(text)
        assert main(["diff", new]) == code
        assert words in capsys.readouterr().err


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
    old, bad = write_run(tmp_path / "a", PASS), write_run(tmp_path / "bad", PASS)
    shard = bad / "records-main.jsonl"
    if isinstance(text, dict):
        text = json.dumps({**json.loads(shard.read_text()), **text})
    shard.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["diff", str(old), str(bad)]) == 2
    assert str(bad) in capsys.readouterr().err


def test_a_leg_without_its_plan_is_not_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side in ("a", "b"):
        for leg in ("one", "two"):
            write_run(tmp_path / side / leg, PASS)
    (tmp_path / "b" / "two" / "plan.json").unlink()
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "two/plan.json: the plan cannot be read" in capsys.readouterr().err


def test_what_comes_from_outside_is_text_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = case(pairing=HOSTILE, family=HOSTILE, signature=HOSTILE, target=HOSTILE, message=HOSTILE, verdict="race")
    old = write_run(tmp_path / "a", PASS, environment={"jax": HOSTILE})
    new = write_run(tmp_path / "b", PASS, hostile, environment={"jax": HOSTILE})
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
    run = str(write_run(tmp_path / "a", PASS))
    assert main(["diff", run, run, option, str(tmp_path / "none" / "x")]) == 2
    assert "none/x" in capsys.readouterr().err
    assert main(["diff", run, run, "--factor", "nan"]) == 2


def test_many_changes_are_counted_and_not_all_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passing = [case(backend=f"b{i}") for i in range(30)]
    failing = [replace(record, verdict=Verdict.MISMATCH) for record in passing]
    assert main(["diff", str(write_run(tmp_path / "a", *passing)), str(write_run(tmp_path / "b", *failing))]) == 1
    shown = capsys.readouterr().out
    assert "... and 10 more" in shown
    assert "REGRESSION: 1 new suspect, 30 newly failing; 0 cases unchanged" in shown


@pytest.mark.parametrize("field", ["pairing", "backend", "family"])
def test_a_name_of_any_length_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str) -> None:
    long: dict[str, Any] = {field: "x" * 200_000}
    wrong = case(verdict="mismatch", **long)
    assert main(["diff", str(write_run(tmp_path / "a", PASS)), str(write_run(tmp_path / "b", PASS, wrong))]) == 1
    assert len(capsys.readouterr().out) < 20_000


def test_comparing_refuses_in_code_too(tmp_path: Path) -> None:
    run: tuple[RunRecords, ...] = read_runs(write_run(tmp_path / "a", PASS))
    other = (replace(run[0], plan=replace(run[0].plan, seed=1)),)
    with pytest.raises(DiffError, match="seed: 0 before, 1 now"):
        compare_runs(run, other)
