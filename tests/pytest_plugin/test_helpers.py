"""Helper processes judge cases of the running item. The verdicts are the same, whatever becomes of a helper."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kerneltest.pytest_plugin import helpers
from kerneltest.pytest_plugin.helper_start import CPU_TIERS
from kerneltest.records.item_keys import read_keys
from kerneltest.records.record_files import read_records
from kerneltest.records.schema import Record
from tests import forked
from tests.plugins import PLUGINS

# Only a helper is in trouble.
SUITE = """
import multiprocessing, os, time
import kerneltest as kt
import pytest
from kernels.vector_add import vector_add
from pathlib import Path

SEEN = Path(__file__).with_name("seen")
FLOATS = kt.array("n", "float32")
DECLARED = dict(x=FLOATS, y=FLOATS, dims=dict(n=kt.dim(values=(3, 5, 7))))
{before}

{mark}
@kt.oracle_for(vector_add, **DECLARED)
def added(x, y):
    parent = multiprocessing.parent_process()
    generation = 0 if parent is None else 1 if str(parent.pid) == os.environ["MAIN"] else 2
    if generation == {helper}:
        if not SEEN.exists():  # it may be killed while it writes
            SEEN.write_text(str(os.getpid()))
        {trouble}
        return {result}
    with SEEN.with_name("evaluated").open("a") as file:
        file.write("x")
    return {result}
"""
# The main process waits in the beginning until a helper has begun a case.
CONFTEST = """
import os, time
from pathlib import Path
os.environ.setdefault("MAIN", str(os.getpid()))
os.sched_getaffinity = lambda _: range({processors})
from kerneltest.pytest_plugin import dispatch, helper_start, helpers, isolated_process
helper_start._LEAST_CASES = helper_start._LEAST_CASES_FORKED = 0
helpers._PATIENCE = 2.0
{more}
dispatch.when_started = lambda config: {started}
isolated_process._STARTED = {started}

begin = helpers.Helpers.begin

def begin_and_wait(*arguments):
    begin(*arguments)
    ends = time.monotonic() + {patience}
    seen = Path(__file__).with_name("seen")
    while not seen.exists() and time.monotonic() < ends:
        time.sleep(0.05)
    with seen.with_name("begun").open("a") as file:
        print(seen.exists(), file=file)

helpers.Helpers.begin = begin_and_wait

def pytest_runtest_setup():
    import jax
    jax.config.update("jax_default_matmul_precision", {precision!r})
"""
# A device, whose cases run in the isolated process.
DEVICE = """
os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
import kerneltest as kt
from kerneltest.backends.interpret import Interpret

@kt.backend("pretended")
class Pretended(Interpret):
    tier = kt.Tier.DEVICE

    def __init__(self):
        pass

Pretended.__module__ = "kerneltest.pretended"  # verdicts of a user's own backend are not reused

dispatch._DRIVERS = (__file__,)
"""
# Python imports it when the isolated process starts, which forks its helpers before it collects.
SITE = """
import os, sys
if any("spawn_main" in word for word in sys.orig_argv):
    os.sched_getaffinity = lambda _: range({processors})
    from kerneltest.pytest_plugin import helper_start
    helper_start.gpu_memory = lambda: ({memory}, 80.0)
    helper_start.free_memory = lambda: 8.5 * 2**30
"""


def _run(
    folder: Path,
    processors: int,
    trouble: str = "pass",
    *,
    patience: float = 60,
    started: float | None = None,
    precision: str | None = None,
    gpu_memory: float | None = None,
    more: str = "",
    result: str = "x + y",
    before: str = "",
    mark: str = "",
) -> tuple[list[Record], int]:
    """Returns the records of a run, and how often the owner of helpers evaluated the oracle."""
    folder.mkdir()
    started = time.time() + 5 if started is None else started  # forked processes import kerneltest early
    conftest = CONFTEST.format(
        processors=processors, started=started, precision=precision, patience=patience, more=more
    )
    backend, helper = "interpret", 1
    if gpu_memory is not None:
        backend, helper = "pretended", 2
        conftest += DEVICE
        site = SITE.format(processors=processors, memory=gpu_memory)
        (folder / "sitecustomize.py").write_text(site, encoding="utf-8")
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    suite = SUITE.format(trouble=trouble, helper=helper, result=result, before=before, mark=mark)
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    known = ("-p", "no:cacheprovider", "--kt-backends", backend, "--kt-depth", "quick", "--kt-report", "out")
    run = forked.run if gpu_memory is None else forked.fresh
    ended = run(folder, "pytest", *PLUGINS, *known)
    assert ended.returncode == (result != "x + y"), ended.stdout
    if (seen := folder / "seen").exists():
        with suppress(psutil.NoSuchProcess):  # no helper is left
            psutil.Process(int(seen.read_text(encoding="utf-8"))).wait(timeout=10)
    records = sorted(read_records(folder / "out"), key=lambda record: (record.group, record.case))
    # The parts of a bound belong to the largest error so far, in the order of the cases.
    records = [replace(record, seconds=0.0, ulps=(), error_budget=()) for record in records]
    evaluated = folder / "evaluated"
    return records, len(evaluated.read_text(encoding="utf-8")) if evaluated.exists() else 0


def _without_files(findings: list[Record]) -> list[str]:
    """Records as text, since evidence holds NaN; the first finding in the order of the cases has files."""
    evidence = (each.evidence and replace(each.evidence, file="", script="") for each in findings)
    return [repr(replace(each, evidence=own)) for each, own in zip(findings, evidence, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], int]:
    return _run(tmp_path_factory.mktemp("alone") / "run", 1)


@pytest.mark.parametrize(
    "trouble",
    ["pass", "return x + y + 1", "raise ValueError", "os._exit(0)", "os.abort()", "time.sleep(1000)", "breakpoint()"],
    ids=["none", "a finding", "an exception", "an exit", "a crash", "a hang", "a debugger"],
)
def test_the_records_are_those_of_one_process(tmp_path: Path, alone: tuple[list[Record], int], trouble: str) -> None:
    records, evaluated = _run(tmp_path / "run", 2, trouble)
    assert (tmp_path / "run" / "seen").exists()
    assert records == alone[0]
    assert trouble != "pass" or evaluated < alone[1]


def test_wrong_values_that_a_helper_finds_count_once_its_owner_has_found_them_too(tmp_path: Path) -> None:
    alone, evaluated_alone = _run(tmp_path / "alone", 1, result="x + y + 1e-3")
    records, evaluated = _run(tmp_path / "run", 2, result="x + y + 1e-3")
    assert sum(record.verdict.is_finding for record in records) > 100
    assert _without_files(records) == _without_files(alone)
    assert evaluated < 0.9 * evaluated_alone


BEFORE = "first = kt.oracle_for(vector_add, **DECLARED)(lambda x, y: x + y)"


def test_helpers_go_on_with_the_next_item(tmp_path: Path) -> None:
    _run(tmp_path / "run", 2, patience=30, before=BEFORE)
    begun = (tmp_path / "run" / "begun").read_text(encoding="utf-8").split()
    assert begun == ["True", "True"]  # the second was begun while its owner waited in the first


def test_helpers_do_not_run_what_is_skipped(tmp_path: Path) -> None:
    _run(tmp_path / "run", 2, patience=4, before=BEFORE, mark="@pytest.mark.skip(reason='hangs')")
    assert not (tmp_path / "run" / "seen").exists()


def test_helpers_that_have_started_are_ended_if_another_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = []

    class Started:
        def __init__(self, *_: object) -> None:
            if made:
                raise OSError("too many processes")
            made.append(self)

        def stop(self) -> None:
            stopped.append(self)

    made: list[Started] = []
    monkeypatch.setattr(helpers, "_Helper", Started)
    setup: Any = None
    with pytest.raises(OSError, match="too many"):
        helpers.Helpers(setup, 2, CPU_TIERS, setup)
    assert stopped == made != []


@pytest.mark.parametrize("trouble", ["pass", "os.abort()"], ids=["none", "a crash"])
def test_helpers_are_spawned_where_jax_has_threads_already(
    tmp_path: Path, alone: tuple[list[Record], int], trouble: str
) -> None:
    records, _ = _run(tmp_path / "run", 2, trouble, more="import jax; jax.devices()")
    assert (tmp_path / "run" / "seen").exists()
    assert records == alone[0]


@pytest.mark.parametrize(
    "unlike", [dict(started=0.0), dict(precision="highest")], ids=["a module saved since", "another setting of JAX"]
)
def test_a_helper_that_may_see_another_kernel_judges_nothing(
    tmp_path: Path, alone: tuple[list[Record], int], unlike: dict[str, Any]
) -> None:
    records, evaluated = _run(tmp_path / "run", 2, patience=4, **unlike)
    assert not (tmp_path / "run" / "seen").exists()
    assert (records, evaluated) == alone


def test_the_isolated_process_has_helpers_if_the_gpu_has_memory_for_them(
    tmp_path: Path, alone: tuple[list[Record], int]
) -> None:
    def as_alone(records: list[Record]) -> list[Record]:
        return [
            replace(record, backend=own.backend, item=own.item, tier=own.tier)
            for record, own in zip(records, alone[0], strict=True)
        ]

    with_memory, evaluated = _run(tmp_path / "with", 4, gpu_memory=11.5)
    assert (tmp_path / "with" / "seen").exists()
    without, evaluated_alone = _run(tmp_path / "without", 4, gpu_memory=10.5, patience=1)
    assert not (tmp_path / "without" / "seen").exists()
    assert as_alone(with_memory) == as_alone(without)
    assert evaluated < evaluated_alone
    keys = [read_keys(tmp_path / name / "out") for name in ("with", "without")]
    assert keys[0] == keys[1]
    assert all(keys[0].values())
