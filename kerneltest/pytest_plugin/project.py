"""The project that a run tests, and its commit."""

import subprocess
import tomllib
from pathlib import Path

from kerneltest.core.children import run_tool
from kerneltest.records.run_plan import Project

_TIMEOUT = 10.0  # seconds, for git


def identify_project(root: Path) -> Project:
    """Returns the name in pyproject.toml, or else the folder's, and the commit that git has checked out."""
    commit = _git(root, "rev-parse", "HEAD").strip()[:12]
    if commit and _git(root, "status", "--porcelain", "--untracked-files=no").strip():
        commit += " with uncommitted changes"
    return Project(_declared_name(root / "pyproject.toml") or root.resolve().name, commit)


def _declared_name(file: Path) -> str:
    try:
        declared = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return declared if isinstance(declared, str) else ""


# Returns what git prints; "" if there is no git, no repository or no commit.
def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        done = run_tool(command, _TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
