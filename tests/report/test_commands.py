"""The commands that reports print: a shell takes each name as one word and runs nothing in it."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.records.runs import read_runs
from kerneltest.records.schema import Plan
from kerneltest.report.commands import pytest_command, python_lines, repro_command
from kerneltest.report.html.build import render
from kerneltest.report.merge import merge
from tests.made_runs import PAIRING, WRONG, made_run
from tests.pages import Page

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
    (finding,) = Page(render(merge(read_runs(run)))).data["findings"]
    for command in (in_markdown, finding["commands"][0]):
        assert _run(tmp_path, command)[-1] == name


def test_an_ordinary_command_reads_well_on_any_system() -> None:
    options = "--kt-depth quick --kt-seed 3 --kt-fuzz 20 --kt-orders 2 --kt-backends simulate:sm_90"
    command = f'pytest -p kerneltest {options} "{PAIRING}[i]"'
    assert pytest_command(PLAN, "simulate:sm_90", f"{PAIRING}[i]") == command
    assert repro_command("out", "c1", "cuda") == "kerneltest repro out c1 --backend cuda"


def test_every_report_repeats_the_options_that_decide_what_is_run(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", WRONG, seed=3, fuzz=20, orders=2)
    main(["summary", str(run), "--markdown", str(tmp_path / "page.md")])
    (finding,) = Page(render(merge(read_runs(run)))).data["findings"]
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
