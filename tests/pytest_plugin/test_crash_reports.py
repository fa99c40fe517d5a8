"""Cases that end their process, or never end: each costs itself, and the item goes on."""

import gc
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerneltest.core.details import Detail, DeviceLost, Raised, Stated
from kerneltest.core.failures import Failure, Guard
from kerneltest.core.verdicts import Verdict
from kerneltest.execute import watchdog
from kerneltest.execute.watchdog import CrashReason, Watchdog
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.crash_reports import crash_file, write_crash_reason
from kerneltest.pytest_plugin.dispatch import XdistCrashes
from kerneltest.pytest_plugin.hooks import pytest_handlecrashitem
from kerneltest.pytest_plugin.pytest_run import RUN
from kerneltest.records.journal import Activity, Journal, Phase
from kerneltest.records.record_files import RecordWriter, read_records
from kerneltest.records.runs import read_running, read_runs
from tests import forked
from tests.plugins import PLUGINS
from tests.written import PASS, case, write_run

LOST = DeviceLost("XlaRuntimeError", "CUDA_ERROR_ILLEGAL_ADDRESS")
DIED = "the process died while tracing the kernel"
ROOT = Path(__file__).parents[2]
SUITE = """
import ctypes, os, signal, threading, time
import kerneltest as kt, numpy as np
from kernels.vector_add import vector_add
from kerneltest.backends.interpret import Interpret
from tests.late import be_deaf, be_late

def double(x):
    return vector_add(x, x)

def forever():
    be_late()
    while True:
        time.sleep(0.01)

def paired(fault):
    def oracle(x):
        if type(x) is np.ndarray and x.size and (x == 1).all() and not os.environ.get("HUNG"):
            fault()
        return 2 * x
    oracle.__name__ = oracle.__qualname__ = fault.__name__
    return kt.oracle_for(double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))(oracle)

def segfault():
    ctypes.string_at(0)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def stuck(sleep=ctypes.CDLL(None).sleep):
    be_late()
    sleep(600)

def deaf(sleep=ctypes.PyDLL(None).sleep):
    be_deaf()
    sleep(600)

def quiet():
    os._exit(0)

faults = segfault, killed, stuck, deaf, forever, quiet
segfault, killed, stuck, deaf, forever, quiet = map(paired, faults)

if os.environ.get("HUNG"):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    Interpret.prepare = lambda self, traced: (open("hangs", "w").close(), threading.Event().wait())
"""
CONFTEST = "import pytest\nfrom tests.late import watch_closely\nwatch_closely(pytest.MonkeyPatch())\n"


def _start(folder: Path, *options: str, **environment: str) -> forked.Started:
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = ["pytest", *PLUGINS, "-p", "no:cacheprovider", "--kt-report", "out"]
    command += ["--kt-backends", "interpret", "--kt-depth", "quick", *options]
    return forked.start(folder, *command, environment={**os.environ, "PYTHONPATH": str(ROOT), **environment})


def _ended(run: forked.Started, seconds: float) -> str:
    """What a run said, once it has ended by itself."""
    try:
        return run.said(seconds)
    except TimeoutError:
        run.send_signal(signal.SIGABRT)  # Python tells where it is
        pytest.fail(f"the run did not end: {run.said(10)}")


def _verdicts(folder: Path) -> dict[str, Counter[tuple[Verdict, str]]]:
    """By pairing, its verdicts that are no pass, with their messages."""
    verdicts: dict[str, Counter[tuple[Verdict, str]]] = {}
    for record in read_records(folder):
        bad = verdicts.setdefault(record.pairing.partition("::")[2], Counter())
        if record.verdict is not Verdict.PASS:
            # The oracle is also followed once for each signature, before the first case that needs to know its sums.
            assert record.family in ("ones", "small_integers")
            assert record.case
            bad[record.verdict, record.message] += 1
    return verdicts


@pytest.mark.slow
def test_a_case_that_ends_its_process_costs_itself_alone(tmp_path: Path) -> None:
    run = _start(tmp_path, "-n", "2", "--kt-timeout", "300", "-k", "not forever and not quiet")
    said = _ended(run, 300)
    assert run.returncode == 1, said
    phase = "while evaluating the oracle"
    assert _verdicts(tmp_path / "out") == {
        "segfault": {(Verdict.CRASH, f"the process died {phase}: Segmentation fault"): 1},
        "killed": {(Verdict.CRASH, f"the process died {phase}: it exited or was killed, and left no crash report"): 1},
        "stuck": {(Verdict.HANG, f"no answer within 300 s {phase} (test_suite.py:32)"): 1},
        "deaf": {(Verdict.HANG, f"no answer within 0:00:01 {phase}"): 1},
    }
    (read,) = read_runs(tmp_path / "out")
    assert read.reconciled.complete  # what was left of the items went on elsewhere
    (crash,) = (record for record in read.records if record.verdict is Verdict.CRASH and "fault" in record.message)
    assert crash.evidence is not None
    assert "test_suite.py" in crash.evidence.stderr
    assert crash.evidence.file  # the inputs
    assert "4 failed" in said


@pytest.mark.slow
def test_without_workers_a_loop_costs_its_case_and_an_exit_is_told(tmp_path: Path) -> None:
    run = _start(tmp_path, "--kt-timeout", "300", "-k", "forever or quiet")
    said = _ended(run, 120)
    assert run.returncode == 1
    assert "os._exit(0) was called. It was evaluating the oracle for case" in said
    verdicts = _verdicts(tmp_path / "out")
    ((verdict, words),) = verdicts["forever"]
    assert verdict is Verdict.HANG
    assert re.fullmatch(r"no answer within 300 s while evaluating the oracle \(test_suite\.py:1[34]\)", words)
    (read,) = read_runs(tmp_path / "out")
    assert read.reconciled.problems[0].startswith("the run did not end; main was evaluating the oracle for case")


@pytest.mark.slow
def test_one_interrupt_ends_a_run_whose_compilation_hangs(tmp_path: Path) -> None:
    run = _start(tmp_path, "-k", "segfault", HUNG="1")
    while not (tmp_path / "hangs").exists():
        assert run.returncode is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    said = _ended(run, 120)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "INCOMPLETE" in said


@pytest.mark.parametrize(
    ("text", "verdict", "words"),
    [
        ("Fatal Python error: Aborted\n\nThread", Verdict.CRASH, f"{DIED}: Aborted"),
        ("", Verdict.CRASH, f"{DIED}: it exited or was killed, and left no crash report"),
        ("Timeout (0:10:20)!\nThread", Verdict.HANG, "no answer within 0:10:20 while tracing the kernel"),
    ],
)
def test_last_words_tell_a_crash_from_a_hang(tmp_path: Path, text: str, verdict: Verdict, words: str) -> None:
    crash_file(tmp_path, "gw0", "stacks").write_text(text, encoding="utf-8")
    failure = crash_reports.failure_from_crash(tmp_path, Activity("i", "c", phase=Phase.TRACING, shard="gw0"))
    assert (failure.verdict, str(failure)) == (verdict, words)


class _Log:
    def __init__(self) -> None:
        self.stacks = StringIO()
        self.reasons: list[CrashReason] = []

    def write(self, reason: CrashReason, activity: Activity | None) -> None:
        self.reasons.append(reason)

    def close(self) -> None:
        pass


def test_a_reason_that_the_process_gave_is_its_cause(tmp_path: Path) -> None:
    crash_file(tmp_path, "gw0", "stacks").write_text("Timeout (0:10:20)!\n", encoding="utf-8")
    write_crash_reason(tmp_path, "gw0", CrashReason("no answer", is_hang=True, location="test_suite.py:3"))
    failure = crash_reports.failure_from_crash(tmp_path, Activity("i", "c", phase=Phase.TRACING, shard="gw0"))
    assert (failure.verdict, str(failure)) == (Verdict.HANG, "no answer (test_suite.py:3)")


def _watched(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, grace: float = 600.0
) -> tuple[Watchdog, list[Failure], threading.Event]:
    """A watchdog of 0.2 s in a process that cannot be ended; it may look late if the machine is busy."""
    given_up: list[Failure] = []
    ended = threading.Event()

    def end(status: int) -> None:
        ended.set()

    monkeypatch.setattr(watchdog, "GRACE", grace)
    monkeypatch.setattr(watchdog.exit_guard, "leave", end)
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback", lambda file: None)
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda *args, **more: None)
    dog = Watchdog(journal, 0.2, _Log(), lambda doing, failure: given_up.append(failure))
    return dog, given_up, ended


def _looks(dog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts how often a watchdog looks, as often as it can."""
    monkeypatch.setattr(watchdog, "_LONGEST", 0.01)
    postpone, looks = dog._postpone, threading.Semaphore(0)

    def postponed() -> None:
        postpone()
        looks.release()

    monkeypatch.setattr(dog, "_postpone", postponed)
    return looks


def _wait_for(looks: threading.Semaphore, number: int) -> None:
    for _ in range(number):
        assert looks.acquire(timeout=60)


def _spin() -> None:
    while True:
        time.sleep(0.01)


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Python drops what is raised into callbacks of its garbage collector."""
    gc.disable()
    yield
    gc.enable()


def _judge(dog: Watchdog, case: Callable[[], None]) -> None:
    """Has kerneltest call a case, so that what the watchdog raises into ends before the test does."""
    dog.seconds = 600.0  # the case itself says when it is late
    dog.start()
    Guard([]).collect("judging a case", case, None, Failure)


@pytest.mark.usefixtures("no_garbage")
def test_a_hang_is_raised_into_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    journal.start("i", "c", "f", "s")
    journal.enter_phase(Phase.RUNNING)
    dog, given_up, _ = _watched(journal, monkeypatch)
    _looks(dog, monkeypatch)
    raise_hang = dog._raise_hang

    def raise_once(activity: Activity, since: float) -> None:
        raise_hang(activity, since)
        journal.stop()  # else the next look might raise another one into the test

    def case() -> None:
        journal.changed -= dog.seconds
        _spin()

    monkeypatch.setattr(dog, "_raise_hang", raise_once)
    with pytest.raises(Failure, match=r"no answer within 600 s while running the kernel \(.*_reports\.py:\d+\)"):
        _judge(dog, case)
    dog.stop()
    assert given_up == []


@pytest.mark.usefixtures("no_garbage")
def test_a_machine_that_was_asleep_has_as_long_to_end_a_case_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    journal, dropped = Journal(), threading.Event()
    journal.start("i", "c", "f", "s")
    journal.enter_phase(Phase.RUNNING)
    dog, given_up, _ = _watched(journal, monkeypatch)
    _looks(dog, monkeypatch)
    raise_hang = dog._raise_hang

    def raise_twice(activity: Activity, since: float) -> None:
        is_first = not dropped.is_set()
        raise_hang(activity, since)
        if is_first:
            assert dropped.wait(60)
        else:
            journal.stop()  # else the next look might raise another one into the test

    def dropping() -> None:
        with suppress(Failure):
            journal.changed -= 10_000.0
            _spin()
        dropped.set()
        while not given_up:
            time.sleep(0.01)

    monkeypatch.setattr(dog, "_raise_hang", raise_twice)
    with pytest.raises(Failure, match="no answer"):
        _judge(dog, dropping)
    dog.stop()
    assert dropped.is_set()
    assert given_up == []


MOVES: dict[str, Callable[[Journal, Watchdog], object]] = {
    "the next step": lambda journal, dog: journal.enter_phase(Phase.JUDGING),
    "the same step again": lambda journal, dog: journal.enter_phase(Phase.RUNNING),
    "the next item": lambda journal, dog: journal.start("j"),
    "none": lambda journal, dog: journal.stop(),
    "the end of the watch": lambda journal, dog: dog._stopped.set(),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_step_that_ends_while_its_stack_is_read_gets_no_hang(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, moved = Journal(), threading.Event()
    journal.start("i", "c", "f", "s")
    journal.enter_phase(Phase.RUNNING)
    dog, _, _ = _watched(journal, monkeypatch)
    reason = dog._reason

    def slow_reason(activity: Activity) -> CrashReason:
        found = reason(activity)
        MOVES[name](journal, dog)
        moved.set()
        return found

    monkeypatch.setattr(dog, "_reason", slow_reason)
    dog.start()
    while not moved.is_set():
        time.sleep(0.01)
    journal.stop()
    for _ in range(10):  # a hang would be raised in here
        time.sleep(0.01)
    dog.stop()


def test_a_hang_that_ends_the_watchdog_s_stop_leaves_no_timer_and_no_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, _, _ = _watched(Journal(), monkeypatch)
    ended: list[None] = []
    monkeypatch.setattr(watchdog.faulthandler, "cancel_dump_traceback_later", lambda: ended.append(None))
    before = signal.getsignal(signal.SIGURG)
    dog.start()
    dog.arm()

    def interrupted() -> None:
        raise Failure(Verdict.HANG, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(dog._thread, "join", interrupted)
        with pytest.raises(Failure):
            dog.stop()
    assert ended
    assert signal.getsignal(signal.SIGURG) == before
    dog._thread.join()


def _handle(number: int, frame: object) -> None:
    pass


@pytest.mark.parametrize(
    ("handler", "is_free"), [(signal.SIG_DFL, True), (signal.SIG_IGN, True), (_handle, False), (None, False)]
)
def test_the_watchdog_takes_no_signal_that_another_handles(
    handler: Any, is_free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler is None if it is one of C."""
    given: list[Any] = [handler]
    monkeypatch.setattr(watchdog.signal, "getsignal", lambda number: given[-1])
    monkeypatch.setattr(watchdog.signal, "signal", lambda number, handler: given.append(handler))
    outer, inner = (_watched(Journal(), monkeypatch)[0] for _ in range(2))
    for dog in (outer, inner):
        dog.start()
        assert (given[-1] != handler) == is_free
        assert dog._wakes == is_free
    for dog in (inner, outer):
        dog.stop()
    assert given[-1] == handler
    assert len(given) == (5 if is_free else 1)


def test_no_stack_is_looked_at_while_a_case_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    journal.start("i", "c", "f", "s")
    dog, _, _ = _watched(journal, monkeypatch)
    dog.seconds, looked = 600.0, threading.Event()
    looks = _looks(dog, monkeypatch)
    monkeypatch.setattr(watchdog, "thread_stacks", looked.set)
    dog.start()
    _wait_for(looks, 3)
    assert not looked.is_set()
    journal.stop()
    dog.stop()


def test_where_python_raises_nothing_the_process_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    journal.start("i", "c", "f", "s")  # before the first step, where nothing would catch it
    dog, given_up, ended = _watched(journal, monkeypatch, grace=0.1)
    dog.start()
    assert ended.wait(60)
    dog.stop()
    assert given_up[0].verdict is Verdict.HANG


def test_a_debugger_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    journal.start("i", "c", "f", "s")
    journal.enter_phase(Phase.RUNNING)
    dog, given_up, ended = _watched(journal, monkeypatch, grace=0.1)
    began = journal.changed

    def takes_time() -> None:
        dog.start()
        try:
            while journal.changed < began + 3 * dog.seconds and not ended.is_set():
                time.sleep(0.01)
        finally:  # before the debugger ends
            journal.stop()
            dog.stop()

    exec("def prompt():\n    takes_time()", scope := {"__name__": "pdb", "takes_time": takes_time})
    scope["prompt"]()
    assert given_up == []


@pytest.mark.parametrize("way", ["of which no more is run", "that xdist cannot run again"])
def test_an_item_that_is_given_up_keeps_its_crash_and_is_incomplete(tmp_path: Path, way: str) -> None:
    folder = write_run(tmp_path / "out", case(case="c1"), planned=3)
    Journal(folder, "gw0").start(PASS.item, "c2", "normal", "n=1")
    dispatcher: Any = SimpleNamespace(worker=SimpleNamespace(writer=RecordWriter(folder, "controller")))
    run = SimpleNamespace(crashes=XdistCrashes(folder, dispatcher))
    again: list[str] = []

    def mark_test_pending(item: str) -> None:
        if way == "that xdist cannot run again":
            raise NotImplementedError
        again.append(item)

    sched = SimpleNamespace(config=SimpleNamespace(stash={RUN: run}), mark_test_pending=mark_test_pending)
    for number in range(1, 10):
        report = SimpleNamespace(node=SimpleNamespace(gateway=SimpleNamespace(id="gw0")), outcome="failed", longrepr="")
        pytest_handlecrashitem(PASS.item, report, sched)
        if report.outcome == "failed":
            break
        assert len(again) == number
    assert len(again) == (8 if way == "of which no more is run" else 0)
    assert report.longrepr.endswith(f"for case c2 (normal, n=1) of {PASS.item}; the rest of the item is not run")
    assert ("verdict", "crash") in (run.crashes.take_properties(PASS.item) or [])
    ended = read_running(folder)
    assert [record.verdict for record in ended.records if record.case == "c2"] == [Verdict.CRASH]
    assert len(ended.reconciled.missing) == 1


@pytest.mark.parametrize("pairings", [True, False])
def test_a_plain_test_that_dies_is_left_to_xdist(tmp_path: Path, pairings: bool) -> None:
    folder = write_run(tmp_path / "out", PASS) if pairings else tmp_path
    dispatcher: Any = None
    sched = SimpleNamespace(
        config=SimpleNamespace(stash={RUN: SimpleNamespace(crashes=XdistCrashes(folder, dispatcher))})
    )
    report = SimpleNamespace(longrepr="as it was")
    pytest_handlecrashitem("test_plain.py::test_it", report, sched)
    assert report.longrepr == "as it was"


@pytest.mark.parametrize(
    ("backend", "detail", "lost"),
    [
        ("cuda", LOST, True),
        ("cuda", Raised("the kernel", "XlaRuntimeError", "CUDA_ERROR_OUT_OF_MEMORY"), False),
        ("rocm", LOST, True),
        ("cuda", Stated("3 of 4 elements wrong"), False),
        ("interpret", Raised("the kernel", "ValueError", "CUDA_ERROR_ILLEGAL_ADDRESS"), False),
    ],
)
def test_only_some_errors_lose_the_device(backend: str, detail: Detail, lost: bool) -> None:
    record = case(backend=backend, verdict="runtime_error", detail=detail, message=detail.text())
    assert crash_reports.device_is_lost(record) is lost


def test_what_a_sanitizer_s_own_process_died_of_ends_no_other() -> None:
    lost = case(backend="cuda", verdict="crash", detail=LOST, message=LOST.text())
    assert crash_reports.ends_its_process(lost)
    assert not crash_reports.ends_its_process(replace(lost, group="sanitized"))


def test_an_item_that_has_not_begun_its_first_case_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case may block the thread before it looks again."""
    timers: list[float] = []
    dog, _, ended = _watched(Journal(), monkeypatch, grace=3.0)
    looks = _looks(dog, monkeypatch)
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda after, **more: timers.append(after))
    monkeypatch.setattr(watchdog.faulthandler, "cancel_dump_traceback_later", lambda: timers.append(0.0))
    dog.journal.changed -= dog.seconds
    dog.arm()  # before the first look
    dog.start()
    _wait_for(looks, 4)
    assert not ended.is_set()
    assert len(timers) > 3
    assert set(timers) == {dog.seconds + 6.0}
    dog.disarm()
    dog.stop()


def test_between_items_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[str] = []
    dog, _, ended = _watched(journal := Journal(), monkeypatch, grace=0.0)
    dog.seconds, looks = 600.0, _looks(dog, monkeypatch)
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda *args, **more: timers.append("set"))
    monkeypatch.setattr(watchdog.faulthandler, "cancel_dump_traceback_later", lambda: timers.append("ended"))
    journal.changed -= dog.seconds
    dog.start()
    _wait_for(looks, 4)
    assert timers == []
    journal.start("i")
    dog.arm()
    journal.stop()
    dog.disarm()
    assert timers[0] == "set"
    while looks.acquire(blocking=False):  # those from before
        pass
    _wait_for(looks, 2)
    assert timers[-1] == "ended"
    dog.stop()
    assert not ended.is_set()
