"""Beside other plugins and settings: verdicts, items, records, exit code and page are what they are without them."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from kerneltest.records.record_files import read_plan
from kerneltest.records.runs import RunRecords, read_runs
from tests import forked
from tests.pages import Page

ROOT = Path(__file__).parents[2]
SUITE = """
import kerneltest as kt
import mine
import pytest

pytestmark = pytest.mark.{name}

@kt.oracle_for(
    mine.double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3, 5))), tolerance=kt.tolerance.exact()
)
def {name}(x):
    return {oracle}

def test_plain():
    pass
"""
FILES = {
    "mine.py": """
import jax
from jax.experimental import pallas as pl

def body(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]

def double(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
""",
    "test_a.py": SUITE.format(name="wrong", oracle="2 * x + (x == x.max())"),
    "test_b.py": SUITE.format(name="right", oracle="2 * x"),
    "pytest.ini": "[pytest]\nmarkers =\n  wrong: fails\n  right: passes\n",
}
WRONG, RIGHT = "test_a.py::wrong[interpret-float32]", "test_b.py::right[interpret-float32]"


@dataclass(frozen=True)
class Ran:
    """A run of the two pairings: where, what pytest said, and what was recorded."""

    folder: Path
    code: int
    out: str

    @property
    def run(self) -> RunRecords:
        (run,) = read_runs(self.folder / "out")
        return run

    def endings(self, *items: str) -> dict[tuple[str, str, str], str]:
        """Verdicts by item, family and case; of some items, or all."""
        chosen = [record for record in self.run.records if record.item in (items or (WRONG, RIGHT))]
        return {(r.item, r.family, r.case): f"{r.verdict} {r.compared} {r.wrong}" for r in chosen}

    def digests(self) -> dict[str, Mapping[str, str]]:
        return {item.item + item.group: item.digests for item in self.run.plan.items}


def _ran(
    folder: Path, *arguments: str, files: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    for name, text in {**FILES, **(files or {})}.items():
        (folder / name).write_text(text, encoding="utf-8")
    unshuffled = () if "randomly" in arguments else ("-p", "no:randomly")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out", "--kt-minimize", "0")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **(env or {})}
    command = ("pytest", "-p", "kerneltest", *unshuffled, *options, *arguments)
    done = forked.run(folder, *command, environment=environment)
    return Ran(folder, done.returncode, done.stdout + done.stderr)


@cache
def _alone() -> Ran:
    return _ran(Path(mkdtemp(prefix="kerneltest-test-")))


def _covers_the_kernel(ran: Ran) -> None:
    (covered,) = json.loads((ran.folder / "coverage.json").read_text())["files"].values()
    assert covered["missing_lines"] == []


def _is_in_its_page(ran: Ran) -> None:
    page = (ran.folder / "page.html").read_text(encoding="utf-8")
    assert "wrong[interpret-float32]" in page
    assert "wrong values" in page


def _says(words: str) -> Callable[[Ran], None]:
    def check(ran: Ran) -> None:
        assert re.search(words, ran.out), ran.out

    return check


PROFILE = """
import hypothesis
hypothesis.settings.register_profile("ours", max_examples=1, derandomize=True, deadline=1)
hypothesis.settings.load_profile("ours")
"""


@dataclass(frozen=True)
class Beside:
    """Another plugin or option, and a check that it still does its job."""

    arguments: tuple[str, ...]
    does: Callable[[Ran], None] = lambda ran: None
    files: Mapping[str, str] = field(default_factory=dict)


WHOLE = {
    "pytest-cov": Beside(("--cov=mine", "--cov-report=json"), _covers_the_kernel),
    "pytest-randomly": Beside(("-v", "-p", "randomly", "--randomly-seed=4"), _says(r"(?s)test_b\.py::.*test_a\.py::")),
    "pytest-timeout": Beside(("--timeout=300",), _says("timeout: 300.0s")),
    "pytest-rerunfailures": Beside(("--reruns=2",), _says("2 failed|1 failed, 3 passed, 2 rerun")),
    "pytest-html": Beside(("--html=page.html", "--self-contained-html"), _is_in_its_page),
    "Hypothesis": Beside(("-v", "--hypothesis-seed=1"), _says("hypothesis profile 'ours'"), {"conftest.py": PROFILE}),
    "--import-mode=importlib": Beside(("--import-mode=importlib", "-o", "pythonpath=.")),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_run_beside_it_is_what_it_is_alone(tmp_path: Path, name: str) -> None:
    row, alone = WHOLE[name], _alone()
    ran = _ran(tmp_path, *row.arguments, files=row.files)
    assert ran.endings() == alone.endings()
    assert ran.digests() == alone.digests()
    assert (ran.code, ran.run.reconciled.problems, ran.run.reconciled.missing) == (1, (), [])
    pages = [Page((each.folder / "out" / "report.html").read_text(encoding="utf-8")) for each in (ran, alone)]
    one, other = ([{**each, "slowest": []} for each in page.data["pairings"]] for page in pages)  # not the same twice
    assert one == other
    row.does(ran)


@dataclass(frozen=True)
class Selected:
    """An option that selects, and what is left: items planned, items with records, and the exit code."""

    arguments: tuple[str, ...]
    planned: tuple[str, ...]
    recorded: tuple[str, ...]
    code: int


SOME = {
    "-x": Selected(("-x",), (WRONG, RIGHT), (WRONG,), 1),
    "--lf": Selected(("--lf",), (WRONG,), (WRONG,), 1),
    "-k": Selected(("-k", "right"), (RIGHT,), (RIGHT,), 0),
    "-m": Selected(("-m", "not wrong"), (RIGHT,), (RIGHT,), 0),
}


@pytest.mark.parametrize("name", SOME)
def test_what_is_selected_is_planned_and_the_rest_is_not_run(tmp_path: Path, name: str) -> None:
    row = SOME[name]
    if "--lf" in row.arguments:
        _ran(tmp_path)
    ran = _ran(tmp_path, *row.arguments)
    assert ran.code == row.code, ran.out
    assert {item.item for item in ran.run.plan.items} == set(row.planned)
    whole = _alone().endings(*row.recorded)
    if "-x" in row.arguments:  # which ends the item, too
        assert ran.endings().items() < whole.items()
    else:
        assert ran.endings() == whole
    assert bool(ran.run.reconciled.missing) is (row.planned != row.recorded)
    assert ("INCOMPLETE" in ran.out) is (row.planned != row.recorded)


def test_collecting_alone_runs_nothing_and_writes_nothing(tmp_path: Path) -> None:
    ran = _ran(tmp_path, "--co", "-q", env={"PYTHONDONTWRITEBYTECODE": "1"})  # Python itself writes nothing either
    assert RIGHT in ran.out
    assert {path.name for path in tmp_path.iterdir()} == FILES.keys()


SLOW = (
    FILES["test_a.py"]
    .replace("pytest.mark.wrong", "pytest.mark.timeout(4)")
    .replace("    return", "    __import__('time').sleep(100 * (x.size > 3))\n    return")
)


@pytest.mark.parametrize("once", ["false", "true"])
def test_a_time_out_accuses_no_kernel_and_loses_nothing(tmp_path: Path, once: str) -> None:
    ran = _ran(tmp_path, "--reruns=1", "-o", f"timeout_func_only={once}", files={"test_a.py": SLOW})
    assert ran.code == 1
    assert "1 failed, 3 passed, 1 rerun" in ran.out
    said = re.search(r"pytest-timeout ended the item after 4 s, with (\d+) of (\d+) cases judged", ran.out)
    assert said is not None, ran.out
    assert int(said[1]) < int(said[2])
    assert re.search("It was .*test_a.py::wrong", ran.out)
    alone = _alone().endings(WRONG)
    recorded = ran.endings(WRONG)
    assert len(recorded) == int(said[1])
    assert recorded.items() <= alone.items()
    assert ran.endings(RIGHT) == _alone().endings(RIGHT)
    assert ran.run.reconciled.missing
    assert ran.run.reconciled.problems == ()


SETTINGS = {
    "jax_enable_x64": ("True", {}),
    "jax_default_matmul_precision": ("'highest'", {}),
    "jax_debug_nans": ("True", {}),
    "jax_default_device": ("jax.devices()[1]", {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}),
}
KEPT = """
import jax
from kerneltest.trace.tracing import kernel_device
from conftest import BEFORE

def test_settings_are_as_they_were():
    assert BEFORE == dict(jax.config.values)

def test_the_default_device_is_taken():
    assert kernel_device("cpu") == (jax.config.jax_default_device or jax.devices()[0])
"""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_respected_recorded_and_left_as_it_was(tmp_path: Path, name: str) -> None:
    value, env = SETTINGS[name]
    setting = f"import jax\njax.config.update({name!r}, {value})\nBEFORE = dict(jax.config.values)\n"
    inside = f"def double(x):\n    assert jax.config.{name} == {value} or {name == 'jax_debug_nans'}"
    mine = FILES["mine.py"].replace("def double(x):", inside)
    ran = _ran(tmp_path, files={"conftest.py": setting, "test_c.py": KEPT, "mine.py": mine}, env=env)
    assert "1 failed, 5 passed" in ran.out, ran.out
    assert ran.endings() == _alone().endings()
    recorded = read_plan(tmp_path / "out").environment[name]
    assert recorded == value.strip("'") or (name == "jax_default_device" and recorded.endswith("1"))
