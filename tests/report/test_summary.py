"""What some runs come to: the counts, the matrix, the Markdown page, the badges; a gap or an absence is never green."""

import functools
import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kerneltest.cli import main
from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import Evidence
from kerneltest.records.run_plan import NotApplicable
from kerneltest.records.runs import read_runs
from kerneltest.records.schema import Record
from kerneltest.report.counts import count_cells
from kerneltest.report.matrix import by_tier
from kerneltest.report.text.lines import field_signs, field_words
from kerneltest.report.text.suspect_text import headline, name_with_location
from kerneltest.report.text.terminal_summary import summary_lines
from kerneltest.triage.suspects import suspects_in_run
from tests.written import HOSTILE, PAIRING, PASS, case, write_run

OTHER = case(family="ones", case="c2")
ABSENT = case(
    backend="cuda", dtype=ANY, group=ANY, family=ANY, signature="*", case="", compared=0, bound_fraction=None,
    verdict=Verdict.UNAVAILABLE, message="no device",
)  # fmt: skip
UNSERVED = {"unavailable": {"cuda": "no device"}}
NOT_FOR_IT = {"not_applicable": (NotApplicable(PAIRING, "interpret-tpu", "its kernels are not for TPUs", 7),)}
WRONG = case(verdict="mismatch", message="1 of 4 elements wrong\nx holds a NaN", wrong=1)


@pytest.mark.parametrize(
    ("records", "plan", "words", "colour", "code"),
    [
        ((PASS, OTHER), {}, "2 of 2 cells pass", "brightgreen", 0),
        ((case(verdict="xfail"), OTHER), {}, "1 of 2 cells pass, 1 xfail", "brightgreen", 0),
        ((PASS, OTHER), NOT_FOR_IT, "2 of 2 cells pass", "brightgreen", 0),
        ((ABSENT, OTHER), UNSERVED, "1 of 2 cells pass, 1 unavailable", "yellow", 0),
        ((WRONG, OTHER), {}, "1 suspect; 1 of 2 cells pass, 1 fail", "red", 1),
        ((PASS, OTHER), {"planned": 2}, "incomplete, 0 of 2 cells pass, 2 without a verdict", "orange", 1),
        ((case(compared=0), OTHER), {}, "incomplete, 1 of 2 cells pass, 1 without a verdict", "orange", 1),
        ((PASS, PASS, OTHER), {"planned": 1}, "incomplete, 2 of 2 cells pass", "orange", 1),
        ((), {}, "incomplete, 0 of 0 cells pass", "orange", 1),
    ],
)
def test_badge_and_exit_code_follow_the_reconciled_counts(
    tmp_path: Path, records: tuple[Record, ...], plan: dict[str, object], words: str, colour: str, code: int
) -> None:
    run = write_run(tmp_path / "run", *records, **plan)  # type: ignore[arg-type]
    svg, shields = tmp_path / "badge.svg", tmp_path / "badge.json"
    assert main(["summary", str(run), "--badge", str(svg), "--badge", str(shields)]) == code
    badge = json.loads(shields.read_text())
    assert badge == {"schemaVersion": 1, "label": "kernel conformance", "message": words, "color": colour}
    image = ElementTree.fromstring(svg.read_text())
    assert image.attrib["aria-label"] == f"kernel conformance: {words}"


def test_a_leg_that_was_not_run_is_told_and_keeps_the_badge_from_green(tmp_path: Path) -> None:
    write_run(tmp_path / "records" / "cpu", PASS)
    badge, page = tmp_path / "badge.json", tmp_path / "page.md"
    arguments = ["summary", str(tmp_path / "records"), "--leg", "cpu", "--badge", str(badge), "--markdown", str(page)]
    assert main(arguments) == 0
    assert json.loads(badge.read_text())["color"] == "brightgreen"
    assert main([*arguments, "--leg", "rocm"]) == 0
    assert json.loads(badge.read_text())["color"] == "yellow"
    assert json.loads(badge.read_text())["message"] == "1 of 1 cells pass, rocm not run"
    assert "- rocm\\: not run" in page.read_text()


def test_a_cell_unavailable_in_one_run_and_served_in_another_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "cpu", ABSENT, OTHER, **UNSERVED)  # type: ignore[arg-type]
    write_run(tmp_path / "gpu", case(backend="cuda"))
    counts = count_cells(read_runs(tmp_path))
    assert (counts.passed, counts.unavailable, counts.green) == (2, 0, True)
    assert count_cells(read_runs(tmp_path / "cpu")).unavailable == 1


def test_the_matrix_has_a_column_for_each_run_of_a_tier(tmp_path: Path) -> None:
    lowered = case(backend="lower:sm_90", verdict="unimplemented", family="signature")
    write_run(tmp_path / "old", PASS, lowered)
    write_run(tmp_path / "new", PASS)
    matrix = by_tier(read_runs(tmp_path))
    assert [column.title for column in matrix.columns] == ["interpret (new)", "interpret (old)", "lower"]
    (row,) = matrix.rows
    assert row.pairing == PAIRING
    assert [field_words(field) for field in row.fields] == ["1 pass", "1 pass", "1 unimplemented (sm_90)"]
    assert [field_signs(field) for field in row.fields] == ["✓1", "✓1", "✗1"]


def test_a_narrow_terminal_gets_signs_and_their_legend(tmp_path: Path) -> None:
    (run,) = read_runs(write_run(tmp_path / "run", PASS, case(verdict="mismatch", case="c2")))
    wide, narrow = ([line.text for line in summary_lines(run, (), width)] for width in (80, 30))
    assert any("1 pass, 1 mismatch" in line for line in wide)
    assert not any("✓ pass" in line for line in wide)
    assert any("✓1 ✗1" in line for line in narrow)
    assert any("✓ pass" in line for line in narrow)
    assert {line.kind for line in summary_lines(run, (), 80) if "1 mismatch" in line.text} == {"red"}


GREEN = (PASS, ABSENT, case(family="ones", case="c2", reused_from="2026-01-01T00:00:00"))
CUT = {"planned": 40}


@pytest.mark.parametrize(
    ("records", "plan", "options", "shown"),
    [
        (
            GREEN,
            UNSERVED | NOT_FOR_IT,
            {"width": 80},
            [
                "1 of 2 cases were judged by earlier",
                "unavailable: cuda; not applicable: interpret-tpu (-v says why)",
                "2 of 3 cells",
            ],
        ),
        (GREEN, UNSERVED, {"verbose": -1}, ["kerneltest: 2 of 3 cells pass, 1 unavailable"]),
        (
            GREEN,
            UNSERVED,
            {"verbose": 1},
            ["interpret", PAIRING, "cuda unavailable: no device", "judged by earlier runs"],
        ),
        ((WRONG, OTHER), {}, {}, ["1 mismatch", "1 suspect; 1 of 2 cells pass, 1 fail"]),
        ((WRONG, OTHER), {}, {"verbose": -1}, ["kerneltest: 1 suspect; 1 of 2 cells pass, 1 fail"]),
        (
            (WRONG,),
            CUT,
            {"stopped": True},
            ["INCOMPLETE: stopped early; 1 of 1 planned cells have no verdict", "1 suspect"],
        ),
        (
            (WRONG,),
            CUT,
            {"stopped": True, "verbose": 1},
            [PAIRING, "INCOMPLETE: stopped early; 1 of 1 planned cells have no verdict"],
        ),
        (
            (PASS,),
            CUT,
            {},
            ["INCOMPLETE: 1 of 1 planned cells have no verdict", "no verdict: suites/test_t.py::p / interpret (1"],
        ),
    ],
)
def test_a_summary_has_the_lines_that_its_verbosity_asks_for(
    tmp_path: Path, records: tuple[Record, ...], plan: dict[str, object], options: dict[str, Any], shown: list[str]
) -> None:
    (run,) = read_runs(write_run(tmp_path / "run", *records, **plan))  # type: ignore[arg-type]
    suspects = suspects_in_run(run)
    lines = [line.text for line in summary_lines(run, suspects, **options)]
    below = lines[lines.index("") + 1 :] if suspects else lines
    assert [words for words in shown if words not in "\n".join(below)] == [], below
    assert not options.get("stopped") or not any("no verdict:" in line for line in below)
    assert options.get("verbose", 0) > 0 or len(below) <= (3 if run.reconciled.green else 6)
    width = options.get("width")
    assert not width or max(map(len, below)) <= width


def test_the_matrix_of_a_brief_summary_has_only_the_pairings_that_need_attention(tmp_path: Path) -> None:
    fine = case(pairing="suites/test_t.py::fine", item="suites/test_t.py::fine[i]", case="c3")
    (run,) = read_runs(write_run(tmp_path / "run", WRONG, fine, ABSENT, **UNSERVED))  # type: ignore[arg-type]
    brief, full = ([line.text for line in summary_lines(run, (), verbose=verbose)] for verbose in (0, 1))
    assert not any("::fine" in line or "cuda  " in line for line in brief)
    assert any("::fine" in line for line in full)


def test_the_markdown_has_suspects_commands_matrix_and_what_was_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    absent = case(backend="rocm", case="", signature="*", verdict="unavailable", compared=0)
    run = write_run(
        tmp_path / "run", WRONG, absent, unavailable={"rocm": "no device"}, xfail={PAIRING: ("race on cuda: reason",)}
    )
    assert main(["summary", str(run), "--markdown", str(page)]) == 1
    text = re.sub(" +", " ", page.read_text())  # tables are padded
    head = "## ❌ Kernel conformance: 1 suspect; 0 of 2 cells pass, 1 fail, 1 unavailable\n\n"
    assert text.startswith(f"{head}### suites/test\\_t.py\\:\\:p\n\n1. **wrong values** (1 of 1 cases on interpret; ")
    assert re.search(r"^\| suites/test\\_t\.py\\:\\:p \| 1 mismatch \| unavailable \|$", text, re.MULTILINE)
    assert " - for example\\: n=1\n - 1 of 4 elements wrong\n" in text
    assert text.index("wrong values") < text.index("1 mismatch")
    assert f'pytest -p kerneltest --kt-depth quick --kt-seed 0 --kt-backends interpret "{PAIRING}[i]"' in text
    assert "- rocm unavailable\\: no device" in text
    assert "race on cuda\\: reason" in text


def test_what_comes_from_outside_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = case(pairing=HOSTILE, item=HOSTILE, family=HOSTILE, signature=HOSTILE, message=HOSTILE, verdict="race")
    hostile_backend = case(backend=f"lower:{HOSTILE}", verdict="race")
    run = write_run(tmp_path / "run", hostile, hostile_backend, unavailable={"cuda": HOSTILE})
    page, badge = tmp_path / "page.md", tmp_path / "badge.svg"
    assert main(["summary", str(run), "--leg", HOSTILE, "--markdown", str(page), "--badge", str(badge)]) == 1
    assert "\x1b" not in capsys.readouterr().out + page.read_text()
    outside_of_code = "".join(page.read_text().split("```")[::2])
    assert "<" not in outside_of_code.replace("\\<", "")
    assert "`" not in outside_of_code.replace("\\`", "")
    ElementTree.fromstring(badge.read_text())


HALF = "\udcff"  # of a surrogate pair: what Python makes of a byte in a name that is no UTF-8


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_half_a_surrogate_pair_ends_no_command(tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = dict(message=HALF, signature=HALF, evidence=Evidence(stderr=HALF, arguments={HALF: HALF}))
    runs = tmp_path / f"runs{HALF}"
    write_run(runs / f"a{HALF}", case(verdict="race", **words), xfail={HALF: (HALF,)}, environment={HALF: HALF})
    write_run(runs / "b", PASS, unavailable={"cuda": HALF})
    names = [f"{tmp_path}/{HALF}{suffix}" for suffix in (".md", ".svg", ".json", ".html")]
    text, svg, shields, page = names
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", out)
    badges = ["--badge", svg, "--badge", shields]
    assert main(["summary", str(runs), "--leg", HALF, "--markdown", text, *badges]) == 1
    assert main(["diff", str(runs), str(runs), "--markdown", text, "--html", page]) == 0
    assert main(["report", str(runs), "-o", page]) == 1
    for name in names:
        Path(name).read_text(encoding="utf-8")
    ElementTree.parse(svg)
    assert "not run" in json.loads(Path(shields).read_text(encoding="utf-8"))["message"]
    assert out.buffer.getvalue().decode(encoding).count("\n") > 10  # type: ignore[attr-defined]
    headline([case(message=HALF)], ()).encode()  # which pytest writes, and xdist sends


def test_more_suspects_than_a_page_holds_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [case(verdict="mismatch", pairing=f"t.py::p{i}", case=f"c{i}", message="long " * 10_000) for i in range(60)]
    page = tmp_path / "page.md"
    main(["summary", str(write_run(tmp_path / "run", *many)), "--markdown", str(page)])
    assert "60 suspects; " in page.read_text()
    assert "and 10 more suspects" in page.read_text()
    assert page.stat().st_size < 100_000
    assert "and 40 more suspects" in capsys.readouterr().out


def test_a_bug_that_two_runs_show_is_one_suspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for leg in ("interpret", "simulate:sm_90"):
        write_run(tmp_path / "runs" / leg, case(backend=leg, verdict="mismatch"), case(backend=leg, case="c2"))
    page = tmp_path / "page.md"
    assert main(["summary", str(tmp_path / "runs"), "--markdown", str(page)]) == 1
    shown = capsys.readouterr().out
    assert shown.count("wrong values") == 1
    assert "1 of 2 cases on interpret; also simulate:sm_90" in shown
    assert shown.splitlines()[-1] == "1 suspect; 0 of 2 cells pass, 2 fail"
    assert page.read_text().count("**wrong values**") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none"], "none: no such folder"),
        (["run", "run"], "are both named run"),
        (["run", "--badge", "badge.png"], "badge.png: a badge is an .svg or a .json file"),
        (["."], ""),
        (["run", "--markdown", "none/x.md"], "none/x.md"),
        (["empty"], "empty holds no run: there is no plan.json in it or below it"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", PASS)
    (tmp_path / "empty").mkdir()
    assert main(["summary", *arguments]) == (2 if words else 0)
    assert words in capsys.readouterr().err


def test_a_kernel_is_named_with_the_place_of_the_function_that_decorators_and_partials_wrap() -> None:
    def kernel(x: int, y: int) -> int:
        return x + y

    @functools.wraps(kernel)
    def checked(*args: int) -> int:
        return kernel(*args)

    named = f"kernel ({Path(__file__).name}:{kernel.__code__.co_firstlineno})"
    for wrapped in (kernel, checked, functools.partial(checked, 1)):
        assert name_with_location(wrapped, Path(__file__).parent) == named
