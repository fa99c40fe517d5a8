"""docs/getting-started.md is true: its commands run in a new environment, from the wheel, by pip and by uv."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
SOURCE = "git+https://github.com/kerneltest/kerneltest"
OFFLINE = re.compile(
    "name resolution|dns error|Could not resolve|Network is unreachable|NewConnectionError|Failed to fetch|"
    "No matching distribution found"
)

EDIT = "import sys; f, a, b = sys.argv[1:]; t = open(f).read(); assert a in t; open(f, 'w').write(t.replace(a, b))"


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


def _steps(tool: str) -> list[tuple[str, str]]:
    """The blocks of the page, each with its kind, without the one that installs by another tool."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    installs = {"pip": "python3 -m venv", "uv": "uv venv"}
    others = [
        text for kind, text in blocks for name, start in installs.items() if name != tool and text.startswith(start)
    ]
    assert len(others) == 1
    return [(kind, text) for kind, text in blocks if text not in others]


def _script(tool: str, wheel: Path) -> str:
    """One shell script of all steps: files are written, edits made, and each command's output is told apart."""
    lines = ["shopt -s expand_aliases"]
    for number, (kind, text) in enumerate(_steps(tool)):
        match kind:
            case "sh":
                lines += [f"echo @@@{number}", text.replace(SOURCE, str(wheel)).strip(), 'echo "exit $?"']
            case "python":
                lines += [f"cat > {text.splitlines()[0].removeprefix('# ')} <<'END'", text.rstrip(), "END"]
            case "diff":
                name, old, new = (line[1:] for line in text.splitlines())
                lines.append(f"{sys.executable} -c {_quoted(EDIT)} {name[3:]} {_quoted(old)} {_quoted(new)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_from_an_empty_folder_to_a_finding_and_back(tool: str, wheel: Path, tmp_path: Path) -> None:
    ours = {"PYTHONPATH", "VIRTUAL_ENV", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",  # `python3` and `uv` of this one
        "PIP_NO_COMPILE": "1",  # which takes longer than all else
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "JAX_PLATFORMS": "cpu",
    }
    ran = subprocess.run(
        ["bash", "-c", _script(tool, wheel)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if "No module named kerneltest" in ran.stderr or OFFLINE.search(ran.stderr):
        pytest.skip(f"the package index cannot be reached: {ran.stderr.strip().splitlines()[-1]}")
    told = dict(re.findall(r"^@@@(\d+)\n(.*?)(?=^@@@|\Z)", ran.stdout, re.DOTALL | re.MULTILINE))
    steps = _steps(tool)
    for number, (kind, text) in enumerate(steps):
        if kind == "":
            output = _words(told[str(number - 1)])
            assert [line for line in text.splitlines() if _words(line) not in output] == [], output + ran.stderr
    codes = [re.findall(r"^exit (\d+)$", text, re.MULTILINE) for text in told.values()]
    # doctor, init, the run with the finding, the run without, audit
    assert [code for each in codes for code in each] == ["0", "0", "0", "0", "1", "0", "0"], ran.stdout + ran.stderr
    assert (tmp_path / "blend/.venv/bin/kerneltest").exists()
