"""The folder of a run: only what kerneltest wrote is ever deleted, and only one run writes at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.pytest_plugin.run_folder import MARKER, FolderError, RunFolder
from kerneltest.pytest_plugin.summary import finish
from kerneltest.records.record_files import read_plan
from kerneltest.records.runs import read_runs
from tests.plugins import PLUGINS
from tests.pytest_plugin.test_plugin import RIGHT, ROOT, _pytest, _suite
from tests.written import PASS, write_run


def _user_files(folder: Path) -> dict[str, str]:
    """A folder of somebody's own, with names that kerneltest uses too."""
    files = {
        "cases/mine.npz": "a",
        "artifacts/a/b.ptx": "b",
        "plan.json": "{}",
        "report.html": "c",
        "records-x.jsonl": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return files


def test_a_folder_without_the_marker_is_refused_and_left_alone(tmp_path: Path) -> None:
    mine = _user_files(tmp_path / "mine")
    run = _pytest(tmp_path, "--kt-report", "mine", "--kt-backends", "interpret", "--kt-depth", "quick")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "contains files that are not from a kerneltest run" in run.stderr
    assert {name: (tmp_path / "mine" / name).read_text() for name in mine} == mine


@pytest.mark.parametrize("arguments", [("-k", "nothing_is_called_so"), ("test_plain.py",), ("--collect-only",)])
def test_a_run_without_pairings_leaves_the_last_one(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    _pytest(tmp_path, "--kt-report", "out", "--kt-backends", "interpret", "--kt-depth", "quick")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    _pytest(tmp_path, "--kt-report", "out", "--kt-backends", "interpret", *arguments)
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")}
    assert before == after


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_plan_that_disappears_in_mid_run_fails_it(tmp_path: Path, workers: str) -> None:
    suite = RIGHT + "\n\ndef test_zz_last():\n    import shutil\n    shutil.rmtree('out')\n"
    options = ("--kt-report", "out", "--kt-backends", "interpret", "--kt-depth", "quick", "-n", workers)
    run = _pytest(tmp_path, *options, suite=suite)
    assert run.returncode == 1, run.stdout
    assert "INCOMPLETE" in run.stdout


def test_one_run_at_a_time(tmp_path: Path) -> None:
    first = RunFolder.claim(tmp_path / "out")
    with pytest.raises(FolderError, match=r"in use by process \d+ on .* since 20"):
        RunFolder.claim(tmp_path / "out")
    first.release()
    RunFolder.claim(tmp_path / "out").release()


def test_only_what_kerneltest_writes_is_cleared(tmp_path: Path) -> None:
    folder = RunFolder.claim(tmp_path / "out")
    mine = _user_files(tmp_path / "out")
    (tmp_path / "out" / "cases" / "notes.md").write_text("keep")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.npz").write_text("keep")
    folder.clear()
    folder.release()
    left = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left - {MARKER, ".kerneltest.lock"} == {"plan.json", "cases/notes.md"}
    assert set(mine) > {"plan.json"}


def test_what_lies_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    folder = RunFolder.claim(tmp_path / "out")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.npz").write_text("keep")
    (tmp_path / "out" / "cases").symlink_to(tmp_path / "elsewhere")
    folder.clear()
    folder.release()
    assert (tmp_path / "elsewhere" / "x.npz").read_text() == "keep"


@pytest.mark.parametrize("name", [MARKER, "cases", "plan.json"])
def test_a_folder_that_holds_a_link_is_refused(tmp_path: Path, name: str) -> None:
    RunFolder.claim(tmp_path / "out").release()
    (tmp_path / "mine").write_text("keep")
    (tmp_path / "out" / name).unlink(missing_ok=True)
    (tmp_path / "out" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(FolderError, match=f"contains a symlink, {name}. Refusing to write through it; remove it"):
        RunFolder.claim(tmp_path / "out")
    assert (tmp_path / "mine").read_text() == "keep"


def test_an_ini_value_is_relative_to_the_ini_file(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkt_report = out\nkt_depth = quick\nkt_backends = interpret\n")
    (tmp_path / "sub").mkdir()
    _pytest(tmp_path / "sub", suite=RIGHT)
    assert read_plan(tmp_path / "out").depth == "quick"
    assert json.loads((tmp_path / "out" / MARKER).read_text())["run"] == read_plan(tmp_path / "out").run


def test_the_controller_waits_for_a_plan_that_takes_long(tmp_path: Path) -> None:
    slow = "import time\nfrom kerneltest.records import record_files\nwrite = record_files.write_plan\n"
    slow += "record_files.write_plan = lambda *args: (time.sleep(1), write(*args))\n"
    (tmp_path / "conftest.py").write_text(slow)
    old = RunFolder.claim(tmp_path / "out")
    (tmp_path / "out" / "records-old.jsonl").write_text("")
    old.release()
    options = ("--kt-report", "out", "--kt-backends", "interpret", "--kt-depth", "quick", "-n", "2")
    run = _pytest(tmp_path, *options, suite=RIGHT)
    assert run.returncode == 0, run.stdout
    assert f"report: {tmp_path / 'out' / 'report.html'}" in run.stdout
    assert not (tmp_path / "out" / "records-old.jsonl").exists()


@pytest.mark.parametrize(("workers", "end"), [("0", b"\xff"), ("2", b"")])  # xdist itself sends UTF-8 alone
def test_nothing_is_lost_where_the_cache_cannot_be_written_text_is_no_utf8_and_the_locale_is_c(
    tmp_path: Path, workers: str, end: bytes
) -> None:
    raises = "    if x.size == 5: raise ValueError('half a pair: \\udcff')\n    return 2 * x"
    suite = _suite("2 * x", lengths=(3, 5)).replace("    return 2 * x", raises)
    (tmp_path / "test_suite.py").write_text(suite, encoding="utf-8")
    (tmp_path / "cache").write_text("a file, where pytest keeps a folder")
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-n", workers, "-o", "cache_dir=cache"]
    command += [
        "-k",
        "float32",
        "--kt-backends",
        "interpret",
        "--kt-depth",
        "quick",
        "--kt-report",
        os.fsdecode(b"out" + end),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    said = (run.stdout + run.stderr).decode("ascii", "replace")
    assert run.returncode == 1, said
    assert "kerneltest caches no compiled code" in said
    (read,) = read_runs(tmp_path / os.fsdecode(b"out" + end))
    assert read.reconciled.complete
    assert {record.verdict for record in read.records} == {Verdict.PASS, Verdict.ORACLE_ERROR}
    assert "half a pair: \\udcff" in next(r.message for r in read.records if r.verdict is Verdict.ORACLE_ERROR)


@pytest.mark.parametrize("occupied", ["report.html", "end.json"])
def test_a_file_that_cannot_be_written_is_told_and_the_summary_stays(tmp_path: Path, occupied: str) -> None:
    folder = write_run(tmp_path / "out", PASS)
    (folder / "end.json").unlink()
    (folder / occupied).mkdir()
    summary = finish(folder, report="out")
    assert not summary.green
    assert "1 of 1 cells pass" in " ".join(line.text for line in summary.lines)
    assert "could not write" in summary.lines[-1].text
