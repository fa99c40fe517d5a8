"""SARIF and annotations of GitHub: suspects at the line of the kernel, and inert whatever records say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneltest.cli import main
from kerneltest.core.details import Stated
from kerneltest.core.verdicts import Verdict
from kerneltest.records.record_files import RecordWriter
from kerneltest.records.run_plan import FunctionSource, PairingSummary
from kerneltest.records.schema import FaultLocation, Record, Reproducer
from tests.written import PAIRING, PASS, case, write_run

KERNEL = FunctionSource("kernels/k.py", ((3, "@jax.jit\ndef k(x):\n    return x\n"),))
ORACLE = FunctionSource("suites/test_t.py", ((9, "def p(x):\n    return x\n"),))
WRONG = case(verdict="mismatch", message="1 of 4 elements wrong", wrong=1)
FAULT = FaultLocation("kernels/k.py:7", "x < n", "changing n fixes it", True, ("kernels/k.py:8", "kernels/k.py:8"))
HOSTILE = "x\n::stop-commands::a%0A::error file=a,line=1::b"


def written(folder: Path, record: Record, kernel: FunctionSource = KERNEL, fault: FaultLocation | None = None) -> Path:
    (folder / ".git").mkdir()
    run = write_run(folder / "run", record, PASS, pairings={PAIRING: PairingSummary({}, kernel, ORACLE)})
    if fault is not None:
        smallest = replace(record, case="smaller")
        RecordWriter(run, "main").write_reproducer(Reproducer(record.case, smallest, 1, 1, True, fault))
    return run


def _sarif(run: Path) -> dict[str, Any]:
    path = run.parent / "kerneltest.sarif"
    assert main(["summary", str(run), "--sarif", str(path)]) == 1
    log = json.loads(path.read_text(encoding="utf-8"))
    assert log["version"] == "2.1.0"
    (only,) = log["runs"]
    return dict(only)


def _raised(source: str, verdict: Verdict = Verdict.RUNTIME_ERROR) -> Record:
    return case(verdict=verdict, message="raised", detail=Stated("raised", source=source))


@pytest.mark.parametrize(
    ("record", "kernel", "fault", "file", "line"),
    [
        (WRONG, KERNEL, FAULT, "kernels/k.py", 7),  # the root cause
        (WRONG, KERNEL, replace(FAULT, place="no line"), "kernels/k.py", 4),
        (_raised("kernels/k.py:5"), KERNEL, None, "kernels/k.py", 5),
        (_raised("suites/test_t.py:10", Verdict.ORACLE_ERROR), KERNEL, None, "suites/test_t.py", 10),  # its own bug
        (WRONG, KERNEL, None, "kernels/k.py", 4),  # the definition, below its decorator
        (WRONG, FunctionSource("", ()), None, "suites/test_t.py", 0),  # the file of a kernel without source
    ],
)
def test_a_suspect_is_shown_at_its_line(
    record: Record,
    kernel: FunctionSource,
    fault: FaultLocation | None,
    file: str,
    line: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run = written(tmp_path, replace(record, case="bad", family="ones"), kernel, fault)
    (result,) = _sarif(run)["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": file, "uriBaseId": "%SRCROOT%"}
    assert place.get("region", {"startLine": 0})["startLine"] == line
    capsys.readouterr()
    assert main(["summary", str(run), "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith(f"::error file={file},line={line or 1},title=kerneltest ")


def test_a_log_says_what_each_result_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (run := _sarif(written(tmp_path, replace(WRONG, case="bad", family="ones"), fault=FAULT)))
    (result,) = run["results"]
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "wrong"
    assert len(result["partialFingerprints"]["suspect/v1"]) == 8
    assert "root cause: kernels/k.py:7" in result["message"]["text"]
    (other,) = result["relatedLocations"]
    assert other["physicalLocation"]["region"] == {"startLine": 8}
    assert result["locations"][0]["logicalLocations"] == [{"name": "k", "kind": "function"}]


def test_a_subfolder_of_a_repository_is_part_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = written(tmp_path, replace(WRONG, case="bad", family="ones"))
    (tmp_path / "python").mkdir()
    monkeypatch.chdir(tmp_path / "python")
    (result,) = _sarif(run)["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "python/kernels/k.py"


def test_an_installed_kernel_has_no_line_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    installed = FunctionSource("/usr/lib/a kernel.py", KERNEL.parts)
    run = written(tmp_path, replace(WRONG, case="bad", family="ones"), installed)
    (result,) = _sarif(run)["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///usr/lib/a%20kernel.py"}
    capsys.readouterr()
    main(["summary", str(run), "--format", "github"])
    assert capsys.readouterr().out.startswith("::error title=kerneltest ")


def test_records_write_no_commands_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record = case(verdict="runtime_error", message=HOSTILE, case="bad", family="ones", backend=HOSTILE)
    run = written(tmp_path, record, FunctionSource(HOSTILE, ((1, f"def {HOSTILE}(x): pass"),)))
    main(["summary", str(run), "--format", "github"])
    commands = [line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("::")]
    assert len(commands) == 1
    properties = commands[0].removeprefix("::error ").partition("::")[0]
    assert [part.partition("=")[0] for part in properties.split(",")] == ["file", "line", "title"]


def test_an_incomplete_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "leg", PASS, planned=2)
    assert main(["summary", str(run), "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error title=kerneltest::")
    assert _sarif(run)["invocations"] == [{"executionSuccessful": False}]
