"""docs/how-to: the code of each page runs, its commands end as it says, and what it shows is what comes out.

A Python block is the file that its first line names; another one with the same name follows in that file. Pages with a
plain command share one run, since a start takes longer than their cases. The others run by themselves.
"""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerneltest.backends.registry import select_ids
from kerneltest.cli import main
from kerneltest.records.runs import read_runs
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/how-to"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NO_SOCKETS = """
import socket

def refuse(self, address):
    raise AssertionError(f"a run connects to {address}")

socket.socket.connect = refuse
"""


TOGETHER = (
    "absolute-tolerance", "ci", "edges", "flaky-device", "private-kernels", "shard-map", "state-rng-callbacks",
)  # fmt: skip
ALONE = {  # exit codes
    "compare-commits": (0, 0, 0, 1, 1), "debug": (1,), "mosaic-gpu": (0,), "rocm": (0,), "slow-pairings": (0,),
    "triton": (0,),
}  # fmt: skip
PLAIN = re.compile(
    r"pytest -p kerneltest(?P<file> test_\w+\.py)? --kt-depth quick --kt-backends interpret"
    r"(?: --kt-timeout 60)?(?: --kt-report[ =](?P<report>\S+))?"
)


def _page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def _words(text: str) -> str:
    return " ".join(text.split())


def _run(folder: Path, command: str) -> tuple[int, str]:
    program, *words = shlex.split(command)
    if program == "git":
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    assert program in ("pytest", "kerneltest"), command
    ended = forked.run(folder, program, *(PLUGINS if program == "pytest" else ()), *words)
    return ended.returncode, ended.stdout + ended.stderr


def _commit(folder: Path) -> None:
    if not (folder / ".git").exists():
        _run(folder, "git init --quiet --initial-branch main")
        (folder / ".git/info/exclude").write_text("reports/\n__pycache__/\n.pytest_cache/\n", encoding="utf-8")
    _run(folder, "git add .")
    _run(folder, "git -c user.name=a -c user.email=a@b commit --quiet --message change")


@pytest.mark.parametrize("name", ALONE)
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    said, codes = "", []
    for language, block in FENCE.findall(_page(name)):
        if language in ("python", "toml"):
            file = tmp_path / block.partition("\n")[0].removeprefix("# ")
            if file.exists():  # the page compares commits: this is the next version
                _commit(tmp_path)
            file.write_text(block, encoding="utf-8")
        elif language == "sh":
            if (tmp_path / ".git").exists():
                _commit(tmp_path)
            for command in block.splitlines():
                code, output = _run(tmp_path, command)
                codes.append(code)
                said += output
        elif not language:
            assert all(_words(line) in _words(said) for line in block.splitlines()), said
    assert tuple(codes) == ALONE[name], said


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report of one run of all pages whose command is a plain one."""
    folder = tmp_path_factory.mktemp("pages")
    for name in TOGETHER:
        for language, block in FENCE.findall(_page(name)):
            if language == "python":
                with (folder / block.partition("\n")[0].removeprefix("# ")).open("a", encoding="utf-8") as written:
                    written.write(block)
    (folder / "conftest.py").write_text(NO_SOCKETS, encoding="utf-8")
    code, said = _run(folder, "pytest -p kerneltest --kt-depth quick --kt-backends interpret --kt-report report")
    assert code == 0, said
    return folder


@pytest.mark.parametrize("name", TOGETHER)
def test_a_plain_page_passes(
    name: str, together: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = FENCE.findall(_page(name))
    (script,) = (block for language, block in blocks if language == "sh")
    first, *others = script.splitlines()
    command = PLAIN.fullmatch(first)
    assert command is not None, f"run this page by itself: {first}"
    files = {block.partition("\n")[0].removeprefix("# ") for language, block in blocks if language == "python"}
    assert not command["file"] or {command["file"].strip()} == files
    (run,) = read_runs(together / "report")
    for file in files:
        mine = [record for record in run.records if record.pairing.startswith(f"{file}::")]
        assert sum(record.verdict == "pass" and record.compared > 0 for record in mine) > 5
    monkeypatch.chdir(together)
    for line in others:
        assert main(shlex.split(line.replace(str(command["report"]), "report"))[1:]) == 0, capsys.readouterr()


def test_what_a_report_says_of_a_private_kernel(
    together: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(together)
    files = {name: together / name for name in ("badge.json", "summary.md", "kernels.sarif")}
    options = ("--badge", "badge.json", "--markdown", "summary.md", "--sarif", "kernels.sarif")
    assert main(["summary", "report", *options]) == 0
    text = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    assert "secret" not in text["badge.json"]
    assert "secret" in text["summary.md"]
    assert not any("* 41" in each for each in text.values())
    assert "* 41" in (together / "report/plan.json").read_text(encoding="utf-8")


def test_the_notebook_runs() -> None:
    cells: dict[str, Any] = {}
    for language, block in FENCE.findall(_page("notebook")):
        if language == "python":
            exec(compile(block, "cell.py", "exec"), cells)
    assert not cells["result"]
    (title,) = re.findall(r"print\(suspect.title\)\n# (.+)", _page("notebook"))
    assert cells["suspect"].title == title


def test_every_page_is_walked_listed_and_in_the_navigation() -> None:
    names = {path.stem for path in FOLDER.glob("*.md")} - {"index"}
    assert names == {*TOGETHER, *ALONE, "notebook", "watch"}  # the last is that of tests/extensions/watch
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", _page("index"))) == names
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"how-to/([\w-]+)\.md", site)) == {*names, "index"}


def test_the_job_that_a_library_copies() -> None:
    job, page, upload = (block for language, block in FENCE.findall(_page("ci")) if language == "yaml")
    assert len(job.splitlines()) <= 13  # a line of permissions, and twelve of the job
    kernels = yaml.safe_load(job)["jobs"]["kernels"]
    matrix, action = kernels["strategy"]["matrix"], kernels["steps"][-1]
    assert all(select_ids(tier.split(",")) for tier in matrix["backends"])
    assert matrix["shard"] == ["1/2", "2/2"]
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert set(action["with"]) <= set(inputs)
    assert {name for name in inputs if f"`{name}`" in _page("ci")} | set(action["with"]) == set(inputs)
    assert yaml.safe_load(page)["page"]["steps"][-1]["uses"].partition("@")[0].endswith("/.github/actions/page")
    assert "steps.kernels.outputs.sarif" in yaml.safe_load(upload)[0]["with"]["sarif_file"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"kerneltest\[([\w,]+)\]", job)[0].split(",")) <= set(extras)


def test_the_search_is_asked_for_what_users_ask() -> None:
    questions = json.loads((ROOT / "docs/search-questions.json").read_text(encoding="utf-8"))
    assert len(questions) >= 50
    asked = {"multiple of 128", "interpret=True", "skip a backend", "run only one kernel", "progress bar", "enum"}
    assert {*asked, "Unimplemented primitive in Pallas GPU lowering", "Windows"} <= set(questions)
    docs = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndocs:")[2]
    assert "node tools/check_search.mjs site docs/search-questions.json" in docs.partition("\n\n")[0]
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))["jobs"]
    assert any(step.get("run") == "make docs" for step in jobs["lint"]["steps"])
