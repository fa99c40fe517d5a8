"""The project and the commit that a plan names."""

import subprocess
from pathlib import Path

from kerneltest.pytest_plugin.project import identify_project
from kerneltest.records.run_plan import Project


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_project_has_its_declared_name_and_its_commit(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    assert identify_project(folder) == Project("kernels", "")
    file = folder / "pyproject.toml"
    file.write_text('[project]\nname = "flash"\n')
    _git(folder, "init", "-q")
    assert identify_project(folder) == Project("flash", "")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "first")
    commit = _git(folder, "rev-parse", "HEAD")[:12]
    assert identify_project(folder) == Project("flash", commit)
    file.write_text("[project\n")
    assert identify_project(folder) == Project("kernels", f"{commit} with uncommitted changes")
