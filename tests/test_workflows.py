"""The workflows parse, and have the properties that keep secrets, runners and results safe; each check can fail."""

import itertools
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAIN, LEG, TESTS, RELEASE = (
    ROOT / ".github/workflows" / f"{name}.yml" for name in ("conformance", "conformance-leg", "tests", "release")
)
PINNED = re.compile(r"(\./\.github/workflows/[\w-]+\.yml|[\w-]+/[\w-]+@[0-9a-f]{40})")
SITE = {"pages": "write", "id-token": "write"}
WRITES = {  # job of a workflow -> all that it may do
    ("conformance", "publish"): {"contents": "read", "actions": "read", **SITE},
    ("docs", "publish"): SITE,
    ("release", "publish"): {"id-token": "write"},
    ("release", "notes"): {"contents": "write"},
}
FORK_GUARD = "github.event.pull_request.head.repo.full_name == github.repository"
MAIN_GUARD = "github.ref == 'refs/heads/main'"


def _problems(text: str) -> Iterator[str]:
    workflow = yaml.safe_load(text)
    triggers = workflow[True]  # YAML 1.1 reads the key `on` as a truth value
    if workflow.get("permissions") != {}:
        yield "permissions at the top are not {}"
    if "pull_request_target" in triggers:
        yield "pull_request_target runs a fork's code with secrets"
    if "continue-on-error" in text:
        yield "a leg that may fail would count as green"
    for name, job in workflow["jobs"].items():
        steps = job.get("steps", [])
        permissions = job.get("permissions")
        writes = permissions is not None and "write" in permissions.values()
        if permissions is None or (writes and permissions != WRITES.get((workflow["name"], name))):
            yield f"{name}: permissions"
        if writes and triggers != {"push": {"tags": ["v*.*.*"]}} and MAIN_GUARD not in job.get("if", ""):
            yield f"{name}: it would publish what is not on main and is no version"
        for uses in [job.get("uses"), *(step.get("uses") for step in steps)]:
            if uses is not None and not PINNED.fullmatch(uses):
                yield f"{name}: {uses} is not pinned by hash"
            if str(uses).startswith("actions/checkout@"):
                checkout = next(step for step in steps if step.get("uses") == uses)
                if checkout.get("with", {}).get("persist-credentials") is not False:
                    yield f"{name}: checkout leaves its token behind"
        if any("${{" in step.get("run", "") for step in steps):
            yield f"{name}: an expression within a script is run as part of it"
        if "matrix" in job.get("strategy", {}) and job["strategy"].get("fail-fast") is not False:
            yield f"{name}: one failing leg would end the others"
        if "self-hosted" in str(job) and FORK_GUARD not in job.get("if", ""):
            yield f"{name}: a fork's pull request would run on a runner of ours"
        if steps and "timeout-minutes" not in job:
            yield f"{name}: no time limit"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_safe(path: Path) -> None:
    assert list(_problems(path.read_text())) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("permissions: {}", "permissions: read-all", "permissions at the top"),
        ("  pull_request:", "  pull_request_target:", "pull_request_target"),
        ("timeout-minutes: 30", "continue-on-error: true\n    timeout-minutes: 30", "count as green"),
        ("      actions: read", "      actions: write", "report: permissions"),
        (re.search(r"@[0-9a-f]{40}", MAIN.read_text()).group(), "@v5", "not pinned"),  # type: ignore[union-attr]
        ("          persist-credentials: false", "          fetch-depth: 1", "token"),
        ("mkdir page", "mkdir ${{ github.head_ref }}", "within a script"),
        ("fail-fast: false", "fail-fast: true", "end the others"),
        (FORK_GUARD, "true", "fork"),
        ("    timeout-minutes: 30\n", "", "no time limit"),
        (f" && {MAIN_GUARD}", "", "not on main"),
    ],
)
def test_each_of_these_checks_can_fail(old: str, new: str, told: str) -> None:
    text = MAIN.read_text()
    assert old in text
    assert any(told in problem for problem in _problems(text.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('tags: ["v*.*.*"]', "branches: ['**']", "no version"),
        ("      id-token: write", "      id-token: write\n      contents: write", "publish: permissions"),
    ],
)
def test_a_release_is_of_a_version_and_writes_nothing_else(old: str, new: str, told: str) -> None:
    text = RELEASE.read_text()
    assert old in text
    assert any(told in problem for problem in _problems(text.replace(old, new)))


def _jobs(path: Path = MAIN) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text())["jobs"])


def _project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_each_supported_python_is_tested_and_the_oldest_with_the_oldest_jax() -> None:
    name = "Programming Language :: Python :: 3."
    declared = [each.removeprefix(name) for each in _project()["classifiers"] if each.startswith(name)]
    matrix = _jobs(TESTS)["unit"]["strategy"]["matrix"]
    (oldest,) = matrix["include"]
    assert [oldest["python"], *matrix["python"]] == [f"3.{each}" for each in declared]
    assert _project()["requires-python"] == f">={oldest['python']}"
    assert oldest["jax"].replace("==", "jax>=") in _project()["dependencies"]
    assert _jobs(TESTS)["lint"]["steps"][1]["with"]["python-version"] == oldest["python"]
    environments = re.search(r"env_list = (.+)", (ROOT / "tox.ini").read_text())
    assert environments is not None
    assert {f"py3{each}" for each in declared} <= set(environments[1].split(", "))


@pytest.mark.parametrize(
    ("tag", "built", "changelog", "right"),
    [
        ("v0.2.0", "0.2.0", "## [0.2.0] - 2027-01-31", True),
        ("v0.2.1", "0.2.0", "## [0.2.1] - 2027-01-31", False),
        ("v0.2.0", "0.2.0", "## [Unreleased]", False),
        ("v0.2.0", "0.2.0", "## [0.20.0] - 2027-01-31", False),
    ],
)
def test_a_tag_names_the_version_that_was_built(
    tag: str, built: str, changelog: str, right: bool, tmp_path: Path
) -> None:
    (step,) = (each for each in _jobs(RELEASE)["build"]["steps"] if each.get("name") == "The tag names the version")
    assert step["env"] == {"TAG": "${{ github.ref_name }}"}
    (tmp_path / "dist").mkdir()
    for name in (f"kerneltest-{built}-py3-none-any.whl", f"kerneltest-{built}.tar.gz"):
        (tmp_path / "dist" / name).touch()
    (tmp_path / "CHANGELOG.md").write_text(changelog + "\n")
    ran = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env={**os.environ, "TAG": tag}, check=False)
    assert (ran.returncode == 0) == right


def test_nothing_is_published_that_was_not_tested() -> None:
    jobs = _jobs(RELEASE)
    assert set(jobs["publish"]["needs"]) == {"tests", "build"}
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
    assert jobs["publish"]["environment"]["name"] == "pypi"


def test_every_leg_is_an_environment_of_tox() -> None:
    environments = re.search(r"\[testenv:\{(.+)\}\]", (ROOT / "tox.ini").read_text())
    assert environments is not None
    assert {*_jobs()["cpu"]["strategy"]["matrix"]["tier"], "cuda", "rocm"} == set(environments[1].split(","))


def test_the_summary_waits_for_the_legs_there_are() -> None:
    legs = set(re.findall(r"--leg (\S+)", MAIN.read_text()))
    matrices = [job["strategy"]["matrix"] for job in _jobs().values() if "strategy" in job]
    cpu, device = (matrices[0]["tier"], matrices[0]["jax"]), (["cuda", "rocm"], matrices[1]["jax"])
    named = {
        f"records-{tier}-jax{jax}" for tiers, jaxes in (cpu, device) for tier, jax in itertools.product(tiers, jaxes)
    }
    assert legs <= named
    assert {leg.split("-")[1] for leg in legs} == {*cpu[0], *device[0]}
    upload = yaml.safe_load(LEG.read_text())["jobs"]["leg"]["steps"][-1]["with"]
    kind, last = "${{ inputs.shard && 'shard' || 'records' }}", "${{ inputs.shard && '-' }}${{ inputs.shard }}"
    assert upload["name"] == f"{kind}-${{{{ inputs.tier }}}}-jax${{{{ inputs.jax }}}}{last}"
    assert upload["if-no-files-found"] == "error"
