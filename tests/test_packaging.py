"""What is published next to the code agrees with it: versions, requirements, release notes, the schema of records."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kerneltest as kt
from kerneltest.cli.command_registry import COMMANDS
from kerneltest.records.files import SCHEMA
from tools.release_notes import release_notes

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_every_file_names_one_version() -> None:
    version = PROJECT["version"]
    assert kt.__version__ == version
    assert yaml.safe_load(_text("CITATION.cff"))["version"] == version
    assert yaml.safe_load(_text("recipe/recipe.yaml"))["context"]["version"] == version
    assert f"[Unreleased]: {PROJECT['urls']['Homepage']}/compare/v{version}...HEAD" in _text("CHANGELOG.md")


def test_the_recipe_has_the_requirements_of_the_package() -> None:
    run = [each.replace(" ", "") for each in yaml.safe_load(_text("recipe/recipe.yaml"))["requirements"]["run"]]
    plain = [each.replace(" ", "") for each in PROJECT["dependencies"] if ";" not in each]
    assert run == ["python>=${{python_min}}", *plain]
    assert f">={yaml.safe_load(_text('recipe/recipe.yaml'))['context']['python_min']}" == PROJECT["requires-python"]


def test_every_requirement_has_a_minimum() -> None:
    extras = [each for name, extra in PROJECT["optional-dependencies"].items() if name != "test" for each in extra]
    free = [each for each in [*PROJECT["dependencies"], *extras] if not re.search(r"[>=]=", each.partition(";")[0])]
    assert free == ["jax[tpu]; platform_system == 'Linux'"]  # its minimum is that of jax


def test_the_lowest_versions_run_tests_that_exist() -> None:
    job = yaml.safe_load(_text(".github/workflows/tests.yml"))["jobs"]["lowest"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    install, run = (step["run"] for step in job["steps"][-2:])
    assert "--resolution lowest-direct" in install
    paths = re.findall(r"tests/[\w/.]+", run)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
    extras = set(re.findall(r"\.\[([\w,]+)\]", install)[0].split(","))
    assert extras <= set(PROJECT["optional-dependencies"])


def test_the_notes_of_a_release_are_its_changelog() -> None:
    notes = release_notes(_text("CHANGELOG.md"), PROJECT["version"])
    assert notes.startswith("### Added")
    assert f"/blob/v{PROJECT['version']}/docs/tolerances.md)" in notes
    assert not re.search(r"\]\((?!https://)", notes)
    assert "The first version" not in notes
    with pytest.raises(ValueError, match="says nothing of 9"):
        release_notes(_text("CHANGELOG.md"), "9.9.9")


def test_the_page_on_compatibility_names_what_is_read() -> None:
    page = _text("docs/compatibility.md")
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == [str(SCHEMA)]
    assert f"| Python | {PROJECT['requires-python'].removeprefix('>=')} | 3.13 |" in page
    assert f"| JAX | {_minimum('jax')} |" in page
    assert f"schema/records-{SCHEMA}.json" in page


def _minimum(name: str) -> str:
    (found,) = (each for each in PROJECT["dependencies"] if each.startswith(f"{name}>="))
    return str(found.partition(">=")[2])


def test_every_command_has_its_exit_codes_in_the_table() -> None:
    rows = re.findall(r"^\| `kerneltest (\w+)` \|", _text("docs/ci.md").partition("## Exit codes")[2], re.MULTILINE)
    assert sorted(rows) == sorted(command.name for command in COMMANDS.entries())


def test_the_container_starts_as_the_guide_for_contributors_says() -> None:
    container = json.loads(_text(".devcontainer/devcontainer.json"))
    targets = container["updateContentCommand"].removeprefix("make ").split()
    makefile = _text("Makefile")
    assert all(re.search(rf"^{re.escape(t.replace('.venv', '$(VENV)'))}:", makefile, re.MULTILINE) for t in targets)
    assert PROJECT["requires-python"].removeprefix(">=") in container["image"]
