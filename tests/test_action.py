"""The composite actions: their steps run, as GitHub runs them, and do what docs/how-to/ci.md says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plugins import PLUGINS

ROOT = Path(__file__).parent.parent
LEG, PAGE = ROOT / "action.yml", ROOT / ".github/actions/page/action.yml"
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")
KERNEL = """
import jax.numpy as jnp
from jax.experimental import pallas as pl

def plus_one(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    return pl.pallas_call(body, out_shape=x)(x)
"""
SUITE = """
import kerneltest as kt
from kernel import plus_one

@kt.oracle_for(plus_one, x=kt.array("n", "int32"), dims=dict(n=kt.dim(values=(3,))))
def plus_two(x):
    return x + 2
"""


def _steps(action: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load(action.read_text(encoding="utf-8"))["runs"]["steps"])


class Job:
    """A job of GitHub in a folder: runs the scripts of an action's steps, and keeps their outputs."""

    def __init__(self, action: Path, folder: Path, **inputs: str) -> None:
        described = yaml.safe_load(action.read_text(encoding="utf-8")).get("inputs", {})
        assert set(inputs) <= set(described)
        self._steps, self.folder = _steps(action), folder
        self.known = {f"inputs.{name}": each["default"] for name, each in described.items()}
        self.known |= {f"inputs.{name}": text for name, text in inputs.items()}
        self.summary = folder / "step_summary.md"
        self.said: dict[str, str] = {}

    def run(self, steps: int | None = None, **environment: str) -> dict[str, int]:
        """Runs the first steps, or all. Returns exit codes by step; a step that a failure skips is left out."""
        codes: dict[str, int] = {}
        for step in self._steps[:steps]:
            if "run" in step and (not any(codes.values()) or "if" in step):
                name = step.get("name", step.get("id"))
                codes[name] = self._run(name, step, environment)
        return codes

    def _run(self, name: str, step: Mapping[str, Any], environment: Mapping[str, str]) -> int:
        assert step["shell"] == "bash"
        given = {key: self._filled(text) for key, text in step.get("env", {}).items()}
        outputs = self.folder / "outputs"
        files = {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(self.summary)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder / self._filled(step.get("working-directory", ".")),
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **files, **given, **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.said[name] = done.stdout + done.stderr
        if outputs.exists():
            pairs = (line.partition("=") for line in outputs.read_text(encoding="utf-8").splitlines())
            self.known |= {f"steps.{step.get('id')}.outputs.{key}": value for key, _, value in pairs}
            outputs.unlink()
        return done.returncode

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: self.known[match[1]], text)

    def output(self, name: str) -> str:
        return self.known[f"steps.name.outputs.{name}"]


@pytest.mark.parametrize("action", [LEG, PAGE], ids=["leg", "page"])
def test_actions_are_safe(action: Path) -> None:
    for step in _steps(action):
        assert "${{" not in step.get("run", ""), "an expression within a script is run as part of it"
        assert "uses" not in step or PINNED.fullmatch(step["uses"])
        assert "continue-on-error" not in step


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        ({}, "kerneltest-all"),
        ({"backends": "lower:*,compile:sm_90", "shard": "2/3"}, "kerneltest-lower-compile-sm_90-2of3"),
        ({"backends": "simulate:*", "label": "JAX 0.12"}, "kerneltest-simulate-JAX-0.12"),
    ],
)
def test_an_artifact_has_the_name_of_its_leg(inputs: dict[str, str], name: str, tmp_path: Path) -> None:
    job = Job(LEG, tmp_path, **inputs, **{"working-directory": "python"})
    (tmp_path / "python").mkdir()
    job.run(PATH="/usr/bin:/bin")  # without kerneltest, so that the other steps fail at once
    assert (job.output("name"), job.output("records")) == (name, f"python/reports/{name}")


@pytest.mark.parametrize(
    "inputs",
    [
        {"shard": "1/2\nsarif=elsewhere"},
        {"shard": "1/2;id"},
        {"shard": "0/2"},
        {"shard": "1/99999"},
        {"working-directory": ".\nsarif=elsewhere"},
        {"working-directory": ".\rname=other"},
    ],
)
def test_an_input_adds_no_output(inputs: dict[str, str], tmp_path: Path) -> None:
    job = Job(LEG, tmp_path, **inputs)
    assert job.run(steps=1, PATH="/usr/bin:/bin") == {"name": 1}
    assert job.said["name"].startswith("::error title=kerneltest::")
    assert not any(name.startswith("steps.name.outputs.") for name in job.known)


def test_a_label_adds_no_output(tmp_path: Path) -> None:
    job = Job(LEG, tmp_path, label="x\nsarif=elsewhere", backends="all\nrecords=/")
    job.run(steps=1, PATH="/usr/bin:/bin")
    assert job.output("name") == "kerneltest-all-records-x-sarif-elsewhere"


@pytest.mark.slow
def test_a_leg_annotates_the_kernel_and_fails_on_a_finding(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "kernel.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    arguments = " ".join([*PLUGINS, "--kt-depth quick --kt-minimize 0 --kt-isolate never"])
    job = Job(LEG, tmp_path, paths="test_suite.py", backends="interpret", arguments=arguments)
    codes = job.run(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert codes == {"name": 0, "Pairings": 1, "Annotations, summary and SARIF": 0}, job.said
    assert "::error file=kernel.py,line=5,title=kerneltest " in job.said["Annotations, summary and SARIF"]
    assert "### plus\\_one" in job.summary.read_text(encoding="utf-8")
    (run,) = json.loads((tmp_path / job.output("records") / "kerneltest.sarif").read_text(encoding="utf-8"))["runs"]
    assert run["results"]
    made = {path.name for path in (tmp_path / job.output("records")).iterdir()}
    assert {"plan.json", "end.json", "report.html", "junit.xml", "summary.md"} <= made


STUB = """#!/bin/bash
echo "$@" >> "$CALLS"
for word; do case "$word" in kerneltest-records/*of[0-9]) test -e "$word" || exit 2;; esac; done
test "$3" != merge || mkdir "${@: -1}"
while test $# -gt 0; do test "$1" != --markdown || touch "$2"; shift; done
exit 1
"""


def _stub_python(folder: Path) -> Path:
    """Puts a `python` into `bin` that notes its arguments. Returns the file that has them."""
    stub = folder / "bin/python"
    stub.parent.mkdir()
    stub.write_text(STUB, encoding="utf-8")
    stub.chmod(0o755)
    return folder / "calls"


NO_SHARDS = [
    "1ofa[$(touch ran)]",
    "1of$(touch ran)",
    "1of99999999",
    "1of010",
    "1of0",
    "1of",
    "1of-1",
    "1of2 3",
    "1of2+1",
]


@pytest.mark.parametrize("suffix", NO_SHARDS)
def test_an_artifact_whose_name_ends_in_no_number_is_a_leg_of_its_own(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"kerneltest-records/kerneltest-x-{suffix}").mkdir(parents=True)
    calls = _stub_python(tmp_path)
    codes = Job(PAGE, tmp_path).run(PATH=f"{tmp_path}/bin:/usr/bin:/bin", CALLS=str(calls))
    assert set(codes.values()) == {0}
    assert not (tmp_path / "ran").exists()
    report, _ = calls.read_text(encoding="utf-8").splitlines()
    assert report == f"-m kerneltest report kerneltest-records/kerneltest-x-{suffix}/ -o kerneltest-page/index.html"


def test_the_page_merges_each_leg_out_of_its_own_shards(tmp_path: Path) -> None:
    legs = ["lower-compile-1of2", "lower-compile-2of2", "lower-1of3", "lower-2of3", "lower-3of3"]
    records = tmp_path / "kerneltest-records"
    for leg in legs:
        (records / f"kerneltest-{leg}").mkdir(parents=True)
    calls = _stub_python(tmp_path)
    codes = Job(PAGE, tmp_path).run(PATH=f"{tmp_path}/bin:/usr/bin:/bin", CALLS=str(calls))
    assert set(codes.values()) == {0}
    lower, both, report, summary = calls.read_text(encoding="utf-8").splitlines()
    start = "-m kerneltest merge"
    folder = "kerneltest-records/kerneltest-lower"
    assert lower == f"{start} {' '.join(f'{folder}-{n}of3' for n in (1, 2, 3))} -o {folder}"
    assert both == f"{start} {folder}-compile-1of2 {folder}-compile-2of2 -o {folder}-compile"
    assert report == f"-m kerneltest report {folder}-compile/ {folder}/ -o kerneltest-page/index.html"
    assert summary.startswith("-m kerneltest summary kerneltest-records --markdown")
