"""Pastes README.md and docs/getting-started.md into empty folders, block by block, and times the way to a finding.

    python tools/walk_readme.py --python 3.11 --python 3.13

A block of `sh` is run, one of `python` is written to the file that its first line names, and one of `diff` edits a
file. A block without a language must be among the output of the block before it, line by line. One shell runs all
commands of a page. A wheel stands for the clone. Blocks of `console` are left out, since they are run in the clone.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/getting-started.md")
_CLONE = re.compile(r"(?<=pip install )(\.|\.\./kerneltest)$", re.MULTILINE)
FINDING = 1  # pytest's exit code for failures
LIMIT = 60.0  # processor seconds to the first finding, which other work on the machine does not prolong
_EDIT = "import sys; f, a, b = sys.argv[1:]; t = open(f).read(); assert a in t; open(f, 'w').write(t.replace(a, b))"
# What `_script` prints around a block: its number and output, exit code and time, and the two lines of `times`.
_STEP = re.compile(r"^@@@(\d+)\n(.*?)\n?@@@ (\d+) ([\d.]+)\n([^\n]+\n[^\n]+)$", re.DOTALL | re.MULTILINE)
_TIME = re.compile(r"(\d+)m([\d.]+)s")
_CLEARED = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its language, "" for output, and its text."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A block of commands that was run.

    Attributes:
      commands: the block's text.
      code: the exit code of its last command.
      seconds: from the start of the page to the end of the block.
      processor: seconds of processor time in the meantime, in user and system mode.
      output: what it printed.
      lacking: lines that the page shows as its output, and that it did not print.
    """

    commands: str
    code: int
    seconds: float
    processor: float
    output: str
    lacking: tuple[str, ...]


def read_blocks(page: str) -> list[Block]:
    """Returns the fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]


def walk(blocks: Sequence[Block], folder: Path, environment: Mapping[str, str], source: str = "") -> list[Step]:
    """Pastes blocks into an empty folder.

    Args:
      blocks: of a page.
      folder: the empty folder.
      environment: of the shell.
      source: what pip installs in place of a clone; "" if no block installs.
    """
    started = time.time()
    shell = subprocess.run(
        ["bash", "-c", _script(blocks, source)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    steps = []
    for number, output, code, ended, times in _STEP.findall(shell.stdout):
        after = blocks[int(number) + 1 :][:1]
        shown = after[0].text.splitlines() if after and not after[0].language else []
        lacking = tuple(line for line in shown if _words(line) not in _words(output))
        processor = sum(60 * int(minutes) + float(seconds) for minutes, seconds in _TIME.findall(times))
        steps.append(Step(blocks[int(number)].text, int(code), float(ended) - started, processor, output, lacking))
    if len(steps) < sum(block.language == "sh" for block in blocks):
        raise RuntimeError(f"the shell ended early:\n{shell.stdout}")
    return steps


def _script(blocks: Sequence[Block], source: str) -> str:
    """Returns one shell script of all blocks."""
    lines = []
    for number, block in enumerate(blocks):
        match block.language:
            case "sh":
                paste = _CLONE.sub(lambda _: source, block.text).strip()
                lines += [f"echo @@@{number}", paste, 'printf "\\n@@@ %s %s\\n" "$?" "$(date +%s.%N)"; times']
            case "python":
                lines += [f"cat > {block.text.splitlines()[0].removeprefix('# ')} <<'END'", block.text.rstrip(), "END"]
            case "diff":
                name, old, new = (_quote(line[1:]) for line in block.text.replace("--- ", "-").splitlines())
                lines.append(f"{_quote(sys.executable)} -c {_quote(_EDIT)} {name} {old} {new}")
    return "\n".join(lines)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _words(text: str) -> str:
    return " ".join(text.split())


def first_finding(steps: Sequence[Step]) -> Step | None:
    """Returns the first run of pytest with a finding; None without one."""
    return next((step for step in steps if "pytest" in step.commands and step.code == FINDING), None)


def without_other_tool(blocks: Sequence[Block], tool: str) -> list[Block]:
    """Returns blocks without the one that installs by the other one of `pip` and `uv`."""
    other = {"pip": "uv venv", "uv": "python3 -m venv"}[tool]
    return [block for block in blocks if not block.text.startswith(other)]


def without_installation(blocks: Sequence[Block]) -> list[Block]:
    """Returns blocks without those that install."""
    return [block for block in blocks if "pip install" not in block.text]


def clean_environment(binaries: Path) -> dict[str, str]:
    """Returns the variables of a shell that finds Python in a folder, and nothing of the project's own environment."""
    kept = {
        name: value for name, value in os.environ.items() if name not in _CLEARED and not name.startswith("PYTEST_")
    }
    return kept | {"PATH": f"{binaries}{os.pathsep}{kept['PATH']}", "JAX_PLATFORMS": "cpu", "PIP_NO_COMPILE": "1"}


def _walk_with(python: str, wheel: Path, page: str) -> bool:
    """Walks a page on a version of Python, prints how it went, and returns whether that is as the page says."""
    with tempfile.TemporaryDirectory() as temporary:
        venv, empty = Path(temporary, "venv"), Path(temporary, "empty")
        empty.mkdir()
        made = subprocess.run(["uv", "venv", "-q", "--seed", "--python", python, str(venv)], check=False)
        if made.returncode:
            print(f"{page}: Python {python} is not available")
            return False
        steps = walk(without_other_tool(read_blocks(page), "pip"), empty, clean_environment(venv / "bin"), str(wheel))
    for step in steps:
        times = f"{step.seconds:6.1f} s, {step.processor:6.1f} s of processor time"
        print(f"{page}, Python {python}: {times}, exit {step.code}: {step.commands.splitlines()[-1]}")
        print("".join(f"  not printed: {line}\n" for line in step.lacking) + step.output * bool(step.lacking), end="")
    found = first_finding(steps)
    if found is None:
        print(f"{page}, Python {python}: no finding")
        return False
    times = f"{found.seconds:.1f} s, {found.processor:.1f} s of processor time"
    print(f"{page}, Python {python}: first finding after {times}")
    return found.processor < LIMIT and not any(step.lacking for step in steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", metavar="VERSION", help="repeat (default: 3.11 and 3.13)")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"default: {' '.join(PAGES)}")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as built:
        subprocess.run(["uv", "build", "-q", "--wheel", "--out-dir", built, str(ROOT)], check=True)
        (wheel,) = Path(built).glob("*.whl")
        pages, versions = chosen.pages or PAGES, chosen.python or ["3.11", "3.13"]
        good = [_walk_with(python, wheel, page) for page in pages for python in versions]
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
