"""Faults injected for real: each is a finding on its own case, and every other verdict stands."""

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from kerneltest.core.processes import free_memory
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.watchdog import CrashReason, ReasonSource
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.crash_reports import crash_file, write_crash_reason
from kerneltest.records.journal import Activity
from kerneltest.records.record_files import read_plan, read_records
from kerneltest.records.runs import RunRecords, read_running, read_runs
from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[2]
ONES = frozenset({"ones"})
INFINITE = frozenset({"one_inf", "nan_and_inf_in_one_tile"})
KILLER, OBSERVER = ReasonSource.KILLER, ReasonSource.OBSERVER
ORACLE = "the process died while evaluating the oracle: "
SECONDS = 600  # for each step: far more than any takes that ends
LATE = f"no answer within {SECONDS} s while "

# By pairing: the verdict, its message, and the families or the signature that it befalls.
FAULTS = {
    "segfault": (Verdict.CRASH, f"{ORACLE}Segmentation fault", ONES),
    "overflow": (Verdict.CRASH, f"{ORACLE}Segmentation fault", ONES),
    "abort": (Verdict.CRASH, f"{ORACLE}Aborted", ONES),
    "divide": (Verdict.CRASH, f"{ORACLE}Floating.point exception", ONES),
    "illegal": (Verdict.CRASH, f"{ORACLE}Illegal instruction", ONES),
    "bus": (Verdict.CRASH, f"{ORACLE}Bus error", ONES),
    "killed": (Verdict.CRASH, f"{ORACLE}killed by SIGKILL", ONES),
    "terminated": (Verdict.CRASH, f"{ORACLE}killed by SIGTERM", ONES),
    "leaves": (Verdict.CRASH, rf"{ORACLE}os\._exit\(0\) was called", ONES),
    "leaves_loudly": (Verdict.CRASH, rf"{ORACLE}os\._exit\(7\) was called", ONES),
    "leaves_in_c": (Verdict.CRASH, f"{ORACLE}it exited without a crash report", ONES),
    "exits": (Verdict.ORACLE_ERROR, r"oracle exits raised SystemExit: 0 \(tests/faults\.py:\d+\)", ONES),
    "loops": (Verdict.HANG, rf"{LATE}evaluating the oracle \(tests/faults\.py:\d+\)", ONES),
    "sleeps": (Verdict.HANG, rf"{LATE}evaluating the oracle \(tests/faults\.py:\d+\)", ONES),
    "sleeps_with_the_lock": (Verdict.HANG, "no answer within 0:00:01 while evaluating the oracle", ONES),
    "stopped": (Verdict.HANG, f"no answer within {SECONDS} s, and its watchdog could not end it", ONES),
    "eats": (Verdict.CRASH, rf"{ORACLE}it used \d\.\d GiB; its limit is 1\.0 GiB", ONES),
    "asks_for_too_much": (Verdict.ORACLE_ERROR, "oracle asks_for_too_much raised MemoryError: .*", ONES),
    "recurses": (Verdict.ORACLE_ERROR, "oracle recurses raised RecursionError: .*", ONES),
    "writes_garbage": (Verdict.PASS, "", frozenset()),
    "cut_off": (Verdict.CRASH, f"{ORACLE}killed by SIGKILL", ONES),
    "chatters": (Verdict.PASS, "", frozenset()),
    "aborts_in_run": (Verdict.CRASH, "the process died while running the kernel: Aborted", INFINITE),
    "aborts_in_filling": (Verdict.CRASH, "the process died while filling the arguments: Aborted", INFINITE),
    "aborts_in_trace": (Verdict.CRASH, "the process died while tracing the kernel: Aborted", "n=6,float32"),
    "hangs_in_trace": (Verdict.HANG, rf"{LATE}tracing the kernel \(tests/faults\.py:\d+\)", "n=6,float32"),
    "aborts_in_compilation": (Verdict.CRASH, "the process died while compiling the kernel: Aborted", "n=7,float32"),
    "dies_twice": (Verdict.CRASH, f"{ORACLE}Aborted", frozenset({"ones", "signed_zeros", "signed_zeros_everywhere"})),
}


def _pytest(folder: Path, *options: str, start: Path = ROOT, forks: bool = True, **environment: str) -> forked.Started:
    command = ["pytest", *PLUGINS, "-p", "no:cacheprovider", "--kt-report", str(folder / "out")]
    command += ["--kt-backends", "interpret", "--kt-depth", "quick", *options]
    known = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return forked.start(start, *command, environment=known, forks=forks)


def _ended(run: forked.Started, seconds: float = 300) -> str:
    try:
        return run.said(seconds)
    except TimeoutError:
        run.send_signal(signal.SIGKILL)
        pytest.fail(f"the run did not end: {run.said(10)}")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecords, str]:
    """One run of all faults but those that end an item, in two workers, and what it said."""
    folder = tmp_path_factory.mktemp("faulty")
    options = ("-n", "2", "--kt-isolate", "always", "--kt-memory", "1", "--kt-timeout", f"{SECONDS}")
    only = ("--kt-minimize", "1", "-p", "tests.late", "-k", "not dies_always and not disk_is_full")
    run = _pytest(folder, *options, *only, "tests/faults.py", KT_FAULTS="1")
    said = _ended(run, 600)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, said
    (read,) = read_runs(folder / "out")
    return read, said


def test_each_fault_is_a_finding_on_its_own_case_and_all_others_pass(faulty: tuple[RunRecords, str]) -> None:
    run, said = faulty
    found: dict[str, Counter[tuple[Verdict, str]]] = {}
    for record in run.records:
        name = record.pairing.partition("::")[2]
        verdict, words, where = FAULTS[name]
        found.setdefault(name, Counter())
        if record.family in where if isinstance(where, frozenset) else record.signature == where:
            assert record.verdict is verdict, record
            assert re.fullmatch(words, record.message), record
            found[name][verdict, record.family] += 1
        else:
            assert record.verdict is Verdict.PASS, record
    assert found.keys() == FAULTS.keys(), said
    for name, (_, _, where) in FAULTS.items():
        if isinstance(where, frozenset):
            assert {family for _, family in found[name]} == where, f"{name}: {said}"
    assert run.reconciled.complete, said
    assert sum(sum(item.families.values()) for item in run.plan.items) == len(run.records) > 900


def test_a_finding_tells_what_its_process_wrote_last(faulty: tuple[RunRecords, str]) -> None:
    run, said = faulty
    segfault, sleeps = (
        next(r for r in run.records if r.pairing.endswith(f"::{name}") and r.verdict.is_finding)
        for name in ("segfault", "sleeps_with_the_lock")
    )
    assert segfault.evidence is not None
    assert segfault.evidence.stderr.endswith("The end of its output:\nsaid before the end")
    assert "tests/faults.py" in segfault.evidence.stderr  # the stacks
    assert sleeps.evidence is not None
    assert "_sleeps_with_the_lock" in sleeps.evidence.stderr
    assert "a line that nobody asked for" not in said  # of an item that passes


def test_no_more_is_run_of_an_item_that_ends_process_after_process(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-isolate", "always", "tests/faults.py::dies_always[interpret-float32]")
    said = _ended(run)
    read = read_running(tmp_path / "out")
    crashes = [record for record in read.records if record.verdict is Verdict.CRASH]
    assert len(crashes) == len(read.records)
    assert (
        crash_reports.MAX_CRASHES - 1 <= len(crashes) <= crash_reports.MAX_CRASHES
    )  # the first death may have had compilations beside it
    assert "INCOMPLETE" in said
    assert "the rest of the item is not run" in said


def test_a_full_disk_ends_its_item_alone(tmp_path: Path) -> None:
    run = _pytest(tmp_path, "--kt-isolate", "always", "-k", "disk_is_full or (abort and not aborts)", "tests/faults.py")
    said = _ended(run)
    assert "OSError: [Errno 27] File too large" in said
    read = read_running(tmp_path / "out")
    assert {cell[0] for cell in read.reconciled.missing} == {"tests/faults.py::disk_is_full"}
    beside = Counter(record.verdict for record in read.records if record.pairing.endswith("::abort"))
    assert beside[Verdict.CRASH] == 1
    assert beside.keys() == {Verdict.CRASH, Verdict.PASS}


SUITE = """
import multiprocessing, os
import kerneltest as kt
from kernels.vector_add import vector_add

ISOLATED = multiprocessing.parent_process() is not None
if os.environ.get("FAULT") == "dies":
    ISOLATED and os.abort()

@kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(5,))))
def oracle(x, y):
    assert ISOLATED == (os.environ["ISOLATED"] == "yes")
    return x + y

if os.environ.get("FAULT") == "renames" and ISOLATED:
    another = oracle
    del oracle
"""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dies", "the process died while starting: killed by SIGABRT"),
        ("renames", "Test files must define the same tests on every import; otherwise use --kt-isolate never"),
    ],
)
def test_what_cannot_be_collected_again_is_told_once(tmp_path: Path, fault: str, words: str) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    run = _pytest(tmp_path, "--kt-isolate", "always", start=tmp_path, FAULT=fault, ISOLATED="yes")
    said = _ended(run)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert words in said
    assert "INCOMPLETE" in said or "crash" in said


@pytest.mark.parametrize(("isolate", "isolated"), [("always", "yes"), ("device", "no"), ("never", "no")])
@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_the_option_says_which_items_have_a_process_of_their_own(
    tmp_path: Path, isolate: str, isolated: str, workers: tuple[str, ...]
) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    run = _pytest(tmp_path, "--kt-isolate", isolate, *workers, start=tmp_path, ISOLATED=isolated)
    said = _ended(run)
    assert run.returncode == pytest.ExitCode.OK, said
    left = {path.name.partition("-")[0] for path in (tmp_path / "out").glob("*.txt")}
    assert left == set()


def _begun(run: forked.Started, folder: Path, records: int) -> None:
    """Waits until a run has written some records."""
    while run.returncode is None:
        written = sum(path.read_bytes().count(b"\n") for path in folder.glob("out/records-*.jsonl"))
        if written >= records:
            return
        time.sleep(0.05)
    pytest.fail(f"the run ended: {run.said()}")


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_what_it_had_done_and_no_process(
    tmp_path: Path, end: signal.Signals, workers: tuple[str, ...]
) -> None:
    records = 40  # more than one item has
    # One that sleeps, so that the run has not ended by itself.
    chosen = "(abort and not aborts) or exits or recurses or chatters or (sleeps and not lock)"
    options = ("--kt-isolate", "always", "--kt-timeout", "4", "-k", chosen, *workers)
    run = _pytest(tmp_path, *options, "tests/faults.py", forks=False)  # all processes are its descendants
    _begun(run, tmp_path, records)
    family = [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]
    run.send_signal(end)
    said = _ended(run, 300)
    if end is signal.SIGINT:
        assert run.returncode == pytest.ExitCode.INTERRUPTED
        (left,) = read_runs(tmp_path / "out")
        assert "INCOMPLETE" in said or left.reconciled.complete  # a worker may still end what it has been given
        assert workers or not left.reconciled.complete
    _, alive = psutil.wait_procs(family, timeout=120)
    assert not alive
    read = list(read_records(tmp_path / "out"))
    assert len(read) >= records
    planned = {item.item for item in read_plan(tmp_path / "out").items}
    assert {record.item for record in read} <= planned
    assert {r.verdict for r in read} <= {Verdict.PASS, Verdict.CRASH, Verdict.ORACLE_ERROR, Verdict.HANG}


@pytest.mark.parametrize(
    ("said", "reason", "message"),
    [
        ("", CrashReason("killed by SIGKILL", OBSERVER), "the process died while starting: killed by SIGKILL"),
        ("Fatal Python error: Aborted\n", CrashReason("exit 1", OBSERVER), "the process died while starting: Aborted"),
        ("", CrashReason("it used 9 GiB", KILLER), "the process died while starting: it used 9 GiB"),
        ("Fatal Python error: Aborted\n", CrashReason("no answer", KILLER, is_hang=True), "no answer"),
    ],
)
def test_what_a_process_said_itself_goes_before_how_it_ended(
    tmp_path: Path, said: str, reason: CrashReason, message: str
) -> None:
    crash_file(tmp_path, "main.1", "stacks").write_text(said, encoding="utf-8")
    write_crash_reason(tmp_path, "main.1", reason)
    assert str(crash_reports.failure_from_crash(tmp_path, Activity("i", shard="main.1"))) == message


def test_a_container_may_have_less_memory_free_than_its_machine(tmp_path: Path) -> None:
    machine = free_memory(tmp_path)
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    (tmp_path / "memory.current").write_text("100\n", encoding="ascii")
    assert free_memory(tmp_path) == pytest.approx(machine, rel=0.2)
    (tmp_path / "memory.max").write_text("1100\n", encoding="ascii")
    assert free_memory(tmp_path) == 1000
    (tmp_path / "memory.current").write_text("1200\n", encoding="ascii")
    assert free_memory(tmp_path) == 0


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--kt-isolate", "sometimes"), "--kt-isolate must be one of always, device, never, not 'sometimes'"),
        (("--kt-memory", "lots"), "--kt-memory must be a non-negative number of GiB, not 'lots'"),
        (("--kt-memory", "-1"), "--kt-memory must be a non-negative number of GiB, not -1"),
    ],
)
def test_an_option_that_makes_no_sense_is_told(tmp_path: Path, option: tuple[str, ...], words: str) -> None:
    run = _pytest(tmp_path, *option, start=tmp_path)
    assert words in _ended(run, 300)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
