"""`--kt-fuzz`: drawn cases are planned, recorded and shrunk, and are the same on every worker."""

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.verdicts import GroupName
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz_group import draw_cases
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.records.record_files import load_arguments, read_plan, read_records
from tests import forked
from tests.execute.test_strategies import doubled, drops_nan_at_17, make_pairing
from tests.pages import Page
from tests.plugins import PLUGINS
from tests.sample import double

ROOT = Path(__file__).parents[2]

SUITE = """
import kerneltest as kt
from tests.sample import double
from tests.execute.test_strategies import drops_nan_at_17

dims = dict(n=kt.dim(values=(16, 17)))

@kt.oracle_for(drops_nan_at_17, x=kt.array("n", "float32"), dims=dims, tolerance=kt.tolerance.exact())
def broken(x):
    return 2 * x

@kt.oracle_for(double, x=kt.array("n", ("float32", "int8")), dims=dims, tolerance=kt.tolerance.exact())
def right(x):
    return 2 * x
"""


def _pytest(folder: Path, *arguments: str) -> CompletedProcess[str]:
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    # Hypothesis draws constants from modules such as this one. Cases must not depend on which modules are loaded.
    (folder / "test_other.py").write_text(f"VALUES = {random.Random(0).sample(range(70000), 200)}", encoding="utf-8")
    # Under CI, pytest repeats each failure in its summary.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER", "PYTHONPATH")
    }
    return forked.run(folder, "pytest", *PLUGINS, "-p", "no:cacheprovider", "-q", *arguments, environment=environment)


OPTIONS = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-fuzz", "40")


def test_the_same_seed_gives_the_same_cases_in_any_process_and_a_failing_one_is_shrunk(tmp_path: Path) -> None:
    runs = {
        "one": (*OPTIONS, "."),
        "two": (*OPTIONS, "-n", "2", "."),
        "alone": (*OPTIONS, "test_suite.py::broken[interpret-float32]"),
    }
    shown = {name: _pytest(tmp_path, "--kt-report", name, *arguments) for name, arguments in runs.items()}
    records = {name: [r for r in read_records(tmp_path / name) if r.group == GroupName.DRAWN] for name in runs}
    found = {name: {(r.item, r.case): r.verdict for r in read} for name, read in records.items()}
    assert found["one"] == found["two"]
    assert found["alone"] == {key: verdict for key, verdict in found["one"].items() if "broken" in key[0]}
    counts = Counter(item for item, _ in found["one"])
    assert counts == dict.fromkeys(
        [f"test_suite.py::{name}" for name in
         ("broken[interpret-float32]", "right[interpret-float32]", "right[interpret-int8]")], 40
    )  # fmt: skip
    assert {v for (item, _), v in found["one"].items() if "right" in item} == {"pass"}
    assert read_plan(tmp_path / "one").fuzz == 40
    planned = [item.families for item in read_plan(tmp_path / "one").items if item.group == GroupName.DRAWN]
    assert planned == [{"drawn": 40}] * 3
    assert "INCOMPLETE" not in shown["one"].stdout

    (told,) = [r for r in records["one"] if r.evidence is not None and r.evidence.file]
    assert (told.verdict, told.signature, told.wrong) == ("special_mismatch", "n=17,float32", 1)
    assert told.evidence is not None
    values = load_arguments(tmp_path / "one", told.evidence.file)["x"]
    assert sorted(map(str, values)) == ["0.0"] * 16 + ["nan"]
    assert "kerneltest repro one " in shown["one"].stdout
    page = Page((tmp_path / "one" / "report.html").read_text(encoding="utf-8"))
    told_again = [command for finding in page.data["findings"] for command in finding["commands"]]
    assert f"kerneltest repro one {told.case} --backend interpret" in told_again
    assert any("--kt-fuzz 40" in command for command in told_again)


def test_another_seed_and_another_dtype_draw_other_cases() -> None:
    drawn = {
        (dtype, number): [case.id for case in draw_cases(doubled(), "p", dtype, "quick", number, 30)]
        for dtype in ("float32", "int8")
        for number in (0, 1)
    }
    assert all(len(set(ids)) == 30 for ids in drawn.values())
    assert len({tuple(ids) for ids in drawn.values()}) == 4


def test_each_verdict_is_shrunk_once_and_the_others_carry_no_arguments() -> None:
    pairing = replace(make_pairing(drops_nan_at_17, values=(3, 17)), oracle=lambda x: 2 * x + (len(x) == 3) * (x == 0))
    items = plan_pairing(pairing, "p", resolve(["interpret"]), RunSettings(depth="quick", fuzz=120)).items
    (item,) = [each for each in items if each.group.name == GroupName.DRAWN]
    outcomes = list(run_item(item, Cache()))
    assert len(outcomes) == len({outcome.record.case for outcome in outcomes}) == 120
    kept = {o.record.verdict: o for o in outcomes if o.arguments is not None}
    assert kept.keys() == {"mismatch", "special_mismatch"} == {o.record.verdict for o in outcomes} - {"pass"}
    assert len([o for o in outcomes if o.arguments is not None]) == 2
    assert kept["mismatch"].record.signature == "n=3,float32"
    arguments = kept["mismatch"].arguments
    assert arguments is not None
    assert list(arguments["x"]) == [0, 0, 0]


def test_a_kernel_without_arrays_has_no_drawn_cases() -> None:
    pairing = kt.oracle_for(lambda n: double(n), n=kt.dim_size("n"))(lambda n: n)
    items = plan_pairing(pairing, "p", resolve(["interpret"]), RunSettings(depth="quick", fuzz=5)).items
    assert items
    assert GroupName.DRAWN not in {item.group.name for item in items}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kt-fuzz", "-1"), "--kt-fuzz must be a non-negative integer, not -1"),
        (("--kt-fuzz", "x"), "--kt-fuzz must be a non-negative integer, not 'x'"),
    ],
)
def test_a_bad_number_is_said(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    run = _pytest(tmp_path, *arguments)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in run.stderr
