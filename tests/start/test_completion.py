"""A shell that asks for completions gets the commands and their options."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("argcomplete")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("kerneltest re", {"report", "repro"}),
        ("kerneltest summary --fo", {"--format"}),
        ("kerneltest run --kt-ar", {"--kt-artifacts"}),
        ("kerneltest watch --kt-depth s", {"standard"}),
        ("kerneltest mutate --depth ", {"quick", "standard", "deep"}),
    ],
)
def test_commands_and_options_are_completed(tmp_path: Path, line: str, completed: set[str]) -> None:
    answer = tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "IFS": "\v"}
    asked["_ARGCOMPLETE_STDOUT_FILENAME"] = str(answer)
    subprocess.run([sys.executable, "-m", "kerneltest"], env={**os.environ, **asked}, check=False)
    assert {word.strip() for word in answer.read_text().split("\v")} == completed
