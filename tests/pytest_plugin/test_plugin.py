"""The plugin as its users meet it: a real pytest in its own process, with and without xdist."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.records.record_files import read_plan, read_records
from kerneltest.records.runs import read_runs
from kerneltest.report.html.page import facts_of
from tests import forked
from tests.pages import Page
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]

SUITE = """
import kerneltest as kt
from kernels.vector_add import vector_add

def double(x):
    return vector_add(x, x)

@kt.oracle_for(
    double, x=kt.array("n", {dtypes}), dims=dict(n=kt.dim(values={lengths})), tolerance=kt.tolerance.exact()
)
def doubled(x):
    return {oracle}

def test_plain():
    pass
"""
QUICK = ("--kt-backends", "interpret", "--kt-depth", "quick")
BOTH = ("float32", "int8")


def _suite(oracle: str, dtypes: str | tuple[str, ...] = "float32", lengths: tuple[int, ...] = (3,)) -> str:
    return SUITE.format(oracle=oracle, dtypes=repr(dtypes), lengths=lengths)


# Cases are what takes time: tests that look at several items, or at lengths, have sessions of their own suites.
RIGHT, WRONG = _suite("2 * x"), _suite("2 * x + (x == x.max())")
RIGHT_TWICE, WRONG_TWICE = _suite("2 * x", BOTH), _suite("2 * x + (x == x.max())", BOTH)


def _pytest(
    folder: Path, *arguments: str, suite: str | None = RIGHT, start: Callable[..., CompletedProcess[str]] = forked.run
) -> CompletedProcess[str]:
    if suite is not None:
        (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    return start(folder, "pytest", *PLUGINS, "-p", "no:cacheprovider", *arguments)


def test_items_are_named_after_pairing_backend_and_dtype(tmp_path: Path) -> None:
    options = ("--collect-only", "-q", "--kt-backends", "interpret,cuda,lower:sm_90,rocm")
    shown = _pytest(tmp_path, *options, suite=RIGHT_TWICE).stdout
    ids = re.findall(r"test_suite\.py::doubled\[(.+)\]", shown)
    assert ids[:2] == ["lower:sm_90-float32", "interpret-float32"]
    assert ids[-2:] == ["cuda", "rocm"]  # one item stands for all that is asked of a backend that is not there
    assert "interpret-int8" in ids
    assert len(set(ids)) == len(ids)
    assert "test_suite.py::test_plain" in shown


def test_a_run_passes_skips_what_is_absent_and_writes_a_report(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-report", "out", "--kt-depth", "quick", "-rs", "-v")
    assert run.returncode == 0, run.stdout
    assert re.search(r"^ +interpret +lower +simulate +cuda +rocm$", run.stdout, re.MULTILINE)
    passed = r"\d+ pass"
    assert re.search(rf"test_suite\.py::doubled +{passed} +{passed} +{passed} +unavailable +unavailable", run.stdout)
    assert "rocm unavailable: JAX finds no rocm device here" in run.stdout
    assert "2 skipped" in run.stdout
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {
        ".kerneltest",
        ".kerneltest.lock",
        "plan.json",
        "records-main.jsonl",
        "end.json",
        "report.html",
        "costs-main.json",
        "keys-main.jsonl",
    }
    plan = read_plan(tmp_path / "out")
    assert plan.unavailable.keys() == {"cuda", "rocm"}
    assert {(each.backend, each.cases > 0) for each in plan.not_applicable} == {
        ("interpret-mosaic-gpu", True),
        ("interpret-tpu", True),
        ("lower:tpu-v5e", True),
        ("tpu", True),
    }
    assert plan.environment["jax"]


def test_artifacts_are_kept_on_request_and_linked(tmp_path: Path) -> None:
    _pytest(tmp_path, "--kt-report", "out", "--kt-backends", "lower:gfx942", "--kt-depth", "quick", "--kt-artifacts")
    records = list(read_records(tmp_path / "out"))
    assert all(record.verdict == "pass" and len(record.files) == 1 for record in records)
    assert "tt.func" in (tmp_path / "out" / records[0].files[0]).read_text()
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    (pairing,) = page.data["pairings"]
    assert [files for _, _, files in pairing["artifacts"]] == [list(record.files) for record in records]
    _pytest(tmp_path, "--kt-report", "out", "--kt-backends", "lower:gfx942", "--kt-depth", "quick")
    assert not (tmp_path / "out" / "artifacts").exists()


def _verdicts(folder: Path) -> dict[tuple[str, str], str]:
    return {(r.item, r.case): r.verdict for r in read_records(folder)}


def test_a_run_alone_and_one_in_two_workers_give_the_same_ids_and_verdicts(tmp_path: Path) -> None:
    runs = {"one": (), "two": ("-n", "2")}
    for name, more in runs.items():
        options = ("--kt-depth", "quick", "--kt-minimize", "0", "--kt-backends", "interpret,lower:sm_90,rocm")
        _pytest(tmp_path, "--kt-report", name, *options, *more, suite=WRONG_TWICE)
    one, two = (_verdicts(tmp_path / name) for name in runs)
    assert one == two
    assert {"pass", "mismatch", "unavailable"} <= set(one.values())
    assert len({path.name for path in (tmp_path / "two").glob("records-gw*.jsonl")}) == 2
    assert (tmp_path / "two" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kt-backends", "gpu"], "unknown backend 'gpu'; a GPU runs 'cuda' or 'rocm', and a CPU 'simulate:*'"),
        (
            ["--kt-backends", "none"],
            "unknown backend 'none'; known are interpret, interpret-mosaic-gpu, interpret-tpu, ",
        ),
        (["--kt-backends", "lower:sm_91"], "unknown backend 'lower:sm_91'; did you mean 'lower:sm_90'?"),
        (["--kt-artifacts"], "--kt-artifacts needs --kt-report"),
        (["--kt-budget", "-1"], "--kt-budget must be a non-negative number of seconds, not -1"),
        (["--kt-sanitize", "leakcheck"], "--kt-sanitize must be a comma-separated list of memcheck, "),
        (["--kt-seed", "x"], "--kt-seed must be an integer, not 'x'"),
        (["--kt-report", "/proc/nowhere"], "--kt-report: cannot write to /proc/nowhere"),
    ],
)
def test_a_bad_option_is_said_before_anything_runs(tmp_path: Path, arguments: list[str], words: str) -> None:
    run = _pytest(tmp_path, *arguments)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in run.stderr
    assert "collected" not in run.stdout


def test_a_backend_asked_for_by_name_and_absent_fails(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-backends", "rocm")
    assert run.returncode == 1
    assert "rocm was requested and is unavailable: JAX finds no rocm device" in run.stdout
    assert "nothing was compared in the whole run" in run.stdout


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("words", "config"),
    [(["--kt-report={}"], ""), (["--kt-report", "{}"], ""), (["--kt-report", "{}", "."], ""),
     (["--kt-report", "{}"], "pytest.ini"), (["-n", "1", "--kt-report", "{}"], "")],
    ids=["joined", "apart", "with a folder", "with an ini-file above", "xdist"],
)  # fmt: skip
def test_ids_follow_the_project_even_if_a_report_elsewhere_moves_the_root_which_is_said(
    tmp_path: Path, words: list[str], config: str
) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    part = project / "part" if config else project
    part.mkdir(parents=True)
    out.mkdir()
    if config:
        (project / config).write_text("[pytest]\n", encoding="utf-8")
    run = _pytest(part, "--kt-backends", "interpret", "--kt-depth", "quick", *(word.format(out) for word in words))
    remark = f"--kt-report {out} made pytest look for its ini-file in", f": write --kt-report={out}"
    assert [text in run.stdout for text in remark] == ["{}" in words] * 2, run.stdout
    plan, file = read_plan(out), "part/test_suite.py" if config else "test_suite.py"
    assert {item.pairing for item in plan.items} == {f"{file}::doubled"}
    assert plan.project.name == "project"
    assert {"kerneltest", "ml_dtypes", "jax"} <= plan.environment.keys()
    assert {"kerneltest", "ml_dtypes"} <= facts_of(read_runs(out)).keys()


@pytest.mark.parametrize("is_given", [False, True])
def test_a_root_that_is_given_is_kept_and_otherwise_no_conftest_above_the_project_is_read(
    tmp_path: Path, is_given: bool
) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    project.mkdir()
    out.mkdir()
    (tmp_path / "conftest.py").write_text("def pytest_report_header(): return 'from above'\n", encoding="utf-8")
    given = [f"--rootdir={tmp_path}"] * is_given
    run = _pytest(project, "--collect-only", *given, "--kt-report", str(out))
    assert f"rootdir: {tmp_path if is_given else project}\n" in run.stdout, run.stdout
    assert ("from above" in run.stdout) is is_given
    assert ("made pytest look for its ini-file" in run.stdout) is not is_given


@pytest.mark.slow
def test_a_finding_is_run_again_from_where_it_was_found_if_a_report_moves_the_root(tmp_path: Path) -> None:
    project, out = tmp_path / "project", tmp_path / "out"
    project.mkdir()
    out.mkdir()
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-isolate", "always", "--kt-report", str(out))
    run = _pytest(project, *options, suite=WRONG)
    item = "test_suite.py::doubled[interpret-float32]"
    assert f"FAILED {item} - suspect" in run.stdout
    again = _pytest(project, *options, item, suite=WRONG)
    assert (run.returncode, again.returncode) == (1, 1), again.stdout
    assert not [record for record in read_records(out) if record.verdict == Verdict.INTERNAL_ERROR]
    assert not [*out.glob("*.claim")]


def test_options_can_stand_in_the_ini_file(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkt_depth = quick\nkt_backends = interpret\nkt_seed = 9\n")
    _pytest(tmp_path, "--kt-report", "out")
    plan = read_plan(tmp_path / "out")
    assert (plan.depth, plan.seed, {item.backend for item in plan.items}) == ("quick", 9, {"interpret"})


def test_what_a_budget_leaves_out_is_named_and_fails_nothing(tmp_path: Path) -> None:
    slow = RIGHT_TWICE.replace("return 2 * x", "__import__('time').sleep(0.05); return 2 * x")
    options = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-report", "out", "--kt-budget", "1")
    run = _pytest(tmp_path, *options, suite=slow)
    assert run.returncode == 0, run.stdout
    said = re.search(r"doubled on interpret: (\d+) of (\d+) cases left out to meet --kt-budget 1: ", run.stdout)
    assert said is not None, run.stdout
    records, plan = list(read_records(tmp_path / "out")), read_plan(tmp_path / "out")
    left = [record for record in records if record.message.startswith("left out: ")]
    assert (len(left), len(records)) == (int(said[1]), int(said[2]))
    assert {(record.verdict, record.compared) for record in left} == {("unavailable", 0)}
    assert {record.dtype for record in records if record.compared} == {"float32", "int8"}
    assert plan.budget == 1
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert said[0].strip() in page.words


def test_a_declaration_that_does_not_fit_fails_at_collection(tmp_path: Path) -> None:
    run = _pytest(tmp_path, suite=RIGHT.replace("x=kt.array", "y=kt.array"))
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "pairing 'doubled' has 2 mistakes:" in run.stdout
    assert "argument 'y': the kernel has no such parameter; it has x" in run.stdout


def test_a_killed_worker_costs_one_case_and_the_item_goes_on(tmp_path: Path) -> None:
    dies = _suite("__import__('os')._exit(3) if x.dtype == 'int64' and (x == 1).all() else 2 * x", "int8")
    options = ("--kt-report", "out", *QUICK, "-n", "1", "--junitxml", "junit.xml")
    run = _pytest(tmp_path, *options, suite=dies)
    assert run.returncode == 1
    properties = _properties(tmp_path / "junit.xml")
    names = {item.item.partition("::")[2] for item in read_plan(tmp_path / "out").items}
    assert {name for name, _ in properties} == {*names, "test_plain"}
    died = next(found for name, found in properties if name == "doubled[interpret-int8]")
    assert {"backend": "interpret", "dtype": "int8", "verdict": "crash"}.items() <= died.items()
    assert "small_integers" in died["family"].split()
    died_of = [(r.dtype, r.family) for r in read_records(tmp_path / "out") if r.verdict != "pass"]
    assert died_of == [("int8", "ones")] * len(died_of)
    assert "INCOMPLETE" not in run.stdout


def test_a_run_cut_short_keeps_what_it_had_and_says_incomplete(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-report", "out", *QUICK, "-x", suite=WRONG_TWICE)
    assert run.returncode == 1
    assert re.search(r"^INCOMPLETE: stopped early; \d+ of \d+ planned cells have no verdict$", run.stdout, re.MULTILINE)
    assert "no verdict:" not in run.stdout
    assert "= FAILURES =" not in run.stdout  # the summary shows what was found
    assert list(read_records(tmp_path / "out"))
    assert "INCOMPLETE" in (tmp_path / "out" / "report.html").read_text()


def test_an_old_run_in_the_folder_is_replaced(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        _pytest(tmp_path, "--kt-report", "out", *QUICK, "--kt-seed", seed)
    assert read_plan(tmp_path / "out").seed == 2
    (shard,) = (tmp_path / "out").glob("records-*")
    assert len(shard.read_text().splitlines()) == len(list(read_records(tmp_path / "out")))


def test_an_xfail_that_matches_nothing_planned_warns(tmp_path: Path) -> None:
    limited = "xfail=[kt.xfail('race', {}, reason='r', url='https://example.org')], tolerance="
    for wrong, told in (("dtype='float64'", True), ("backend='rocm'", False)):
        suite = RIGHT.replace("tolerance=", limited.format(wrong))
        run = _pytest(tmp_path, *QUICK, suite=suite)
        assert ("matches nothing planned" in run.stdout) is told


def _properties(junit: Path) -> list[tuple[str, dict[str, str]]]:
    return [
        (each.attrib["name"], {p.attrib["name"]: p.attrib["value"] for p in each.iter("property")})
        for each in ElementTree.parse(junit).iter("testcase")
    ]


def test_properties_say_what_an_item_was(tmp_path: Path) -> None:
    _pytest(tmp_path, "--junitxml", "junit.xml", *QUICK, "--kt-minimize", "0", suite=WRONG.replace("float32", "int8"))
    found = dict(_properties(tmp_path / "junit.xml"))
    said = found["doubled[interpret-int8]"]
    assert "extreme_integers" in said.pop("family").split()
    assert said == {"backend": "interpret", "dtype": "int8", "verdict": "mismatch"}
    failure = next(ElementTree.parse(tmp_path / "junit.xml").iter("failure"))
    assert failure.attrib["message"].startswith("wrong values")


PLAIN = """
import sys
import kerneltest as kt

HEAVY = {"jax", "numpy", "hypothesis", "jinja2", "pydantic"}

def test_plain():
    assert {"oracle_for", "check"} <= set(dir(kt))
    assert not HEAVY & set(sys.modules)
"""
CONTROLLER = """
def pytest_unconfigure():
    import sys
    from test_suite import HEAVY
    print("LOADED", sorted(HEAVY & set(sys.modules)))
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_plain_tests_list_the_api_and_load_neither_jax_nor_numpy(tmp_path: Path, workers: str) -> None:
    (tmp_path / "conftest.py").write_text(CONTROLLER, encoding="utf-8")
    options = ("-s", "-n", workers, "-p", "no:html")  # which loads Jinja
    run = _pytest(tmp_path, *options, suite=PLAIN, start=forked.fresh)
    assert "1 passed" in run.stdout
    assert "LOADED []" in run.stdout


@pytest.mark.slow
def test_the_controller_of_workers_loads_no_jax(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_unconfigure():\n    print('LOADED', 'jax' in sys.modules)\n"
    )
    run = _pytest(tmp_path, "-n", "2", "--kt-backends", "interpret", "--kt-depth", "quick", start=forked.fresh)
    assert "2 passed" in run.stdout
    assert "LOADED False" in run.stdout


def test_the_package_is_installed_under_its_own_entry_point() -> None:
    from importlib.metadata import PackageNotFoundError, entry_points, metadata

    try:
        metadata("kerneltest")
    except PackageNotFoundError:
        pytest.skip("a bare checkout: kerneltest is on PYTHONPATH and not installed")
    assert [e.value for e in entry_points(group="pytest11") if e.name == "kerneltest"] == ["kerneltest"]


def test_the_option_adds_proofs_and_the_plan_says_so(tmp_path: Path) -> None:
    options = ("--kt-backends", "simulate:sm_90", "--kt-depth", "quick", "--kt-report", "out", "--kt-prove")
    ran = _pytest(tmp_path, *options, suite=_suite("2 * x", BOTH, (3, 5)))
    assert ran.returncode == 0, ran.stdout
    assert read_plan(tmp_path / "out").prove
    proofs = [record for record in read_records(tmp_path / "out") if record.group == "proofs"]
    assert {record.dtype for record in proofs} == {"float32", "int8"}
    assert all("n is 3 or 5" in record.message for record in proofs)
