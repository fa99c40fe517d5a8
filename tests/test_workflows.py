"""The workflows parse, and have the properties that keep secrets, runners and results safe; each check can fail."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAIN, LEG = (ROOT / ".github/workflows" / name for name in ("conformance.yml", "conformance-leg.yml"))
PINNED = re.compile(r"(\./\.github/workflows/[\w-]+\.yml|[\w-]+/[\w-]+@[0-9a-f]{40})")
WRITES = {"publish": {"pages": "write", "id-token": "write"}}
FORK_GUARD = "github.event.pull_request.head.repo.full_name == github.repository"


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
        if permissions is None or ("write" in permissions.values() and permissions != WRITES.get(name)):
            yield f"{name}: permissions"
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
        ("    timeout-minutes: 10\n", "", "no time limit"),
    ],
)
def test_each_of_these_checks_can_fail(old: str, new: str, told: str) -> None:
    text = MAIN.read_text()
    assert old in text
    assert any(told in problem for problem in _problems(text.replace(old, new)))


def _jobs() -> dict[str, Any]:
    return dict(yaml.safe_load(MAIN.read_text())["jobs"])


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
    assert upload["name"] == "records-${{ inputs.tier }}-jax${{ inputs.jax }}"
    assert upload["if-no-files-found"] == "error"
