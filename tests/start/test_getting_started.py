"""docs/getting-started.md is true: its commands run in a new environment, from the wheel, by pip and by uv."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.walk_readme import clean_environment, read_blocks, walk, without_other_tool

ROOT = Path(__file__).parent.parent.parent
OFFLINE = re.compile(
    "name resolution|dns error|Could not resolve|Network is unreachable|NewConnectionError|Failed to fetch|"
    "No matching distribution found"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode and OFFLINE.search(built.stderr):
        pytest.skip(f"the package index cannot be reached: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_from_an_empty_folder_to_a_finding_and_back(tool: str, wheel: Path, tmp_path: Path) -> None:
    # `python3` and `uv` are those of this environment
    environment = clean_environment(Path(sys.executable).parent) | {
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    blocks = without_other_tool(read_blocks("docs/getting-started.md"), tool)
    codes = [0, 0, 0, 0, 1, 0, 0]  # mkdir, install, doctor, init, the run with the finding, the run without, audit
    if tool == "uv":  # which installs what pip does, so that what follows the finding is the same
        end = next(number for number, block in enumerate(blocks) if "cdiv" in block.text)
        blocks, codes = blocks[:end], codes[:5]
    steps = walk(blocks, tmp_path, environment, str(wheel))
    output = "\n".join(step.output for step in steps)
    if "No module named kerneltest" in output or OFFLINE.search(output):
        pytest.skip("the package index cannot be reached")
    assert [(step.commands, line) for step in steps for line in step.lacking] == [], output
    assert [step.code for step in steps] == codes, output
    assert (tmp_path / "blend/.venv/bin/kerneltest").exists()
