"""Runs laid over each other, and the commands that show a finding again."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import Verdict
from kerneltest.records.run_plan import NotApplicable, Plan
from kerneltest.records.runs import overlay_runs, read_all, read_runs
from kerneltest.records.schema import Record
from kerneltest.report.html.page import render
from kerneltest.report.rerun_commands import pytest_command, python_lines, repro_command
from tests.made_runs import PAIRING, WRONG, made_record, made_run
from tests.pages import Page

NO_DEVICE = {"unavailable": {"cuda": "no device"}}
NOT_FOR_IT = {"not_applicable": (NotApplicable(PAIRING, "interpret-tpu", "its kernels are not for TPUs", 7),)}
OTHER = "suites/test_t.py::q"


def _absent(pairing: str = PAIRING, backend: str = "cuda") -> Record:
    """What stands for all that a backend would be asked, on a machine that lacks it."""
    return made_record(
        item=f"{pairing}[{backend}]",
        pairing=pairing,
        backend=backend,
        dtype=ANY,
        group=ANY,
        family=ANY,
        signature="*",
        case="",
        verdict=Verdict.UNAVAILABLE,
        message="no device",
        compared=0,
    )


def _page(*folders: Path) -> Page:
    return Page(render(overlay_runs(read_all(folders))))


def _matrix(page: Page) -> list[list[str]]:
    """The rows of the matrix as words: the heading, then a field for each backend."""
    (table,) = re.findall(r'<table id="matrix">(.*?)</table>', page.source, re.DOTALL)
    lines = re.findall(r'<tr class="(?:pairing|dtype)".*?</tr>', table, re.DOTALL)
    return [[Page(each).words for each in re.findall(r"<t[hd].*?</t[hd]>", line, re.DOTALL)] for line in lines]


def test_an_absent_backend_is_one_line_and_one_field_a_pairing_without_dtypes(tmp_path: Path) -> None:
    records = (made_record(), _absent(), made_record(pairing=OTHER), _absent(OTHER))
    page = _page(made_run(tmp_path / "run", *records, **NO_DEVICE))  # type: ignore[arg-type]
    assert "4 planned cells = 2 pass + 2 unavailable" in page.words
    assert page.words.count("no device") == 1
    of_pairing, of_dtype, *_ = _matrix(page)
    assert of_pairing == ["p", "✓ 1p on interpret: 1 pass", "– p on cuda: 1 unavailable"]
    assert of_dtype == ["float32", "✓ 1p, float32 on interpret: 1 pass", "not planned"]
    assert len(_matrix(page)) == 4
    assert {page.data["pairings"][row]["id"] for row in page.data["rows"]["pairing"]} == {PAIRING, OTHER}


def test_what_does_not_apply_is_an_empty_field_told_once_with_its_reason(tmp_path: Path) -> None:
    records = (made_record(), made_record(pairing=OTHER), made_record(pairing=OTHER, backend="interpret-tpu"))
    page = _page(made_run(tmp_path / "run", *records, **NOT_FOR_IT))  # type: ignore[arg-type]
    assert "3 planned cells = 3 pass" in page.words
    assert _matrix(page)[0] == ["p", "✓ 1p on interpret: 1 pass", "not applicable"]
    assert "interpret-tpu its kernels are not for TPUs (1 pairing, 7 cases)" in page.words
    assert page.words.count("its kernels are not for TPUs") == 1
    assert len(page.data["rows"]["verdict"]) == 3
    assert "✓ No finding" in page.words


@pytest.mark.parametrize("served_is_newer", [False, True])
def test_what_one_machine_lacked_and_another_served_is_shown_as_served(tmp_path: Path, served_is_newer: bool) -> None:
    lacked = made_run(
        tmp_path / "cpu",
        made_record(),
        _absent(),
        _absent(OTHER),
        started=f"2026-0{2 - served_is_newer}",
        **NO_DEVICE,  # type: ignore[arg-type]
    )
    on_cuda = (made_record(backend="cuda"), made_record(backend="cuda", dtype="int32", family="ones"))
    served = made_run(tmp_path / "gpu", *on_cuda, started=f"2026-0{1 + served_is_newer}")
    merged = overlay_runs(read_all([lacked, served]))
    # The other pairing is still only known as unavailable; of this one nothing says so any more.
    assert [cell for cell in merged.cells if ANY in cell] == [(OTHER, "cuda", ANY, ANY)]
    page = _page(lacked, served)
    assert "4 planned cells = 3 pass + 1 unavailable" in page.words
    assert _matrix(page)[0] == ["p", "✓ 1p on interpret: 1 pass", "✓ 2p on cuda: 2 pass"]
    assert [line[0] for line in _matrix(page)] == ["p", "float32", "int32", "q"]
    assert "cuda in cpu: no device (the matrix shows gpu)" in page.words


def test_totals_add_up_to_the_plan_whatever_runs_are_merged(tmp_path: Path) -> None:
    folders = [
        made_run(tmp_path / "a", made_record(), _absent(), started="1", **NO_DEVICE),  # type: ignore[arg-type]
        made_run(tmp_path / "b", WRONG, made_record(family="ones", compared=0), planned=2, started="2"),
        made_run(tmp_path / "c", made_record(backend="cuda", dtype="int32"), started="3"),
        made_run(tmp_path / "d", made_record(pairing=OTHER), started="4", **NOT_FOR_IT),  # type: ignore[arg-type]
    ]
    for several in ([folders[0]], folders[:2], folders[1:], folders, folders[::-1]):
        top = re.search(r"([\d,]+) planned cells = (.+?) [\d,]+ cases? run", _page(*several).words)
        assert top is not None
        counts = [int(part.split()[0]) for part in top[2].split(" + ")]
        assert int(top[1]) == sum(counts) == len(overlay_runs(read_all(several)).cells)


PLAN = Plan((), 3, "quick", {}, {}, {}, fuzz=20, orders=2)
NAMES = ("v[`touch X`]", "v[$(touch X)]", 'v["; touch X; "]', "v['; touch X; ']", "v[!touch]", "v[\\]", "-x", "v[a\nb]")


def _run(folder: Path, command: str) -> list[str]:
    """The words that a shell passes on for a command; what is run only prints them."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("pytest", "kerneltest"):
        (programs / name).write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (folder / "X").exists()
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_takes_any_name_as_one_word(tmp_path: Path, name: str) -> None:
    assert _run(tmp_path, pytest_command(PLAN, "interpret", name))[-1].removeprefix("./") == name
    assert _run(tmp_path, repro_command(name, "c1", name)) == ["repro", name, "c1", "--backend", name]


@pytest.mark.parametrize("name", [f"t.py::{name}" for name in NAMES if "\n" not in name])
def test_so_does_every_report(tmp_path: Path, name: str) -> None:
    run = made_run(tmp_path / "run", replace(WRONG, item=name))
    main(["summary", str(run), "--markdown", str(tmp_path / "page.md")])
    (in_markdown,) = re.findall(r"^pytest .+", (tmp_path / "page.md").read_text(), re.MULTILINE)
    (finding,) = Page(render(overlay_runs(read_runs(run)))).data["findings"]
    for command in (in_markdown, finding["commands"][0]):
        assert _run(tmp_path, command)[-1] == name


def test_an_ordinary_command_reads_well_on_any_system() -> None:
    options = "--kt-depth quick --kt-seed 3 --kt-fuzz 20 --kt-orders 2 --kt-backends simulate:sm_90"
    command = f'pytest -p kerneltest {options} "{PAIRING}[i]"'
    assert pytest_command(PLAN, "simulate:sm_90", f"{PAIRING}[i]") == command
    watched = replace(PLAN, fuzz=0, orders=0, sanitize=("memcheck", "guards"))
    assert " --kt-sanitize memcheck,guards --kt-backends cuda " in pytest_command(watched, "cuda", "i")
    assert repro_command("out", "c1", "cuda") == "kerneltest repro out c1 --backend cuda"


def test_every_report_repeats_the_options_that_decide_what_is_run(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", WRONG, seed=3, fuzz=20, orders=2)
    main(["summary", str(run), "--markdown", str(tmp_path / "page.md")])
    (finding,) = Page(render(overlay_runs(read_runs(run)))).data["findings"]
    command = pytest_command(PLAN, "interpret", f"{PAIRING}[i]")
    assert command in (tmp_path / "page.md").read_text().splitlines()
    assert finding["commands"][0] == command


@pytest.mark.parametrize(
    "pairing",
    ["suites/test_t.py::Class::p", "suites/test-t.py::p", "suites/class.py::p", "t.py::p; import os", "t.py::import"],
)
def test_a_pairing_without_an_importable_name_has_no_python_lines(pairing: str) -> None:
    assert python_lines(PLAN, replace(WRONG, pairing=pairing)) is None


def test_the_python_lines_hold_literals(tmp_path: Path) -> None:
    lines = python_lines(PLAN, replace(WRONG, backend="'+evil()+'", case="é\n'"))
    assert lines is not None
    assert lines.isascii()
    assert "backends=[\"'+evil()+'\"]" in lines
    assert "orders=2" in lines
    compile(lines, "lines", "exec")
