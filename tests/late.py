"""Steps that take too long without taking any time, so that no other step does, however slow the machine is."""

import importlib
import os
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache, wraps
from typing import Any

import pytest

from kerneltest.execute import watchdog
from kerneltest.execute.watchdog import Watchdog
from kerneltest.pytest_plugin.crash_reports import crash_file
from kerneltest.records.journal import Activity
from kerneltest.start.command_progress import CommandProgress

_RUNNING: list[Watchdog] = []
_COMMANDS: list[CommandProgress] = []


def be_late() -> None:
    """Lets the time limit of the running step pass at once."""
    dog = _RUNNING[-1]
    dog.journal.changed -= dog.seconds  # last, so that the watchdog finds the thread in the caller


def be_deaf() -> None:
    """Lets the timer for code that keeps all of Python from running end the process in a second."""
    dog = copy(_RUNNING[-1])
    dog.seconds = 1.0 - 2 * watchdog.GRACE
    dog._arming.acquire()  # for ever, since the watchdog would postpone the timer
    dog._set_timer()


def end_limit() -> None:
    """Lets the `--limit` of the running command pass at once."""
    command = _COMMANDS[-1]
    command._started -= command.seconds
    be_late()


def watch_closely(patch: pytest.MonkeyPatch) -> None:
    """Prepares for `be_late` and `end_limit`, and lets watchdogs look more often."""
    start, stop, begin = Watchdog.start, Watchdog.stop, CommandProgress.__init__
    raise_hang, longest = Watchdog._raise_hang, watchdog._LONGEST

    def noted(dog: Watchdog) -> None:
        _RUNNING.append(dog)
        start(dog)

    def removed(dog: Watchdog) -> None:
        _RUNNING.remove(dog)
        stop(dog)

    def begun(command: CommandProgress, seconds: float = 0.0) -> None:
        _COMMANDS.append(command)
        begin(command, seconds)

    def raised(dog: Watchdog, activity: Activity, since: float) -> None:
        raise_hang(dog, activity, since)
        dog._stopped.wait(longest)  # the hang has as long as ever to reach what catches it before it is raised again

    patch.setattr(Watchdog, "start", noted)
    patch.setattr(Watchdog, "stop", removed)
    patch.setattr(Watchdog, "_raise_hang", raised)
    patch.setattr(CommandProgress, "__init__", begun)
    patch.setattr(watchdog, "_LONGEST", 0.05)


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    watch_closely(monkeypatch)
    yield
    _RUNNING.clear()
    _COMMANDS.clear()


def _be_gone() -> None:
    """Lets the time limit of the running step, and what its watchdog has to end it, pass for who watches both."""
    journal = _RUNNING[-1].journal
    assert journal.folder is not None
    os.utime(crash_file(journal.folder, journal.shard, "journal"), (0, 0))


def pytest_configure() -> None:
    """In a run that loads this as a plugin, the cases of `tests/faults.py` that never end are late at once."""
    _hurry_faults()


@cache  # one process may collect several times
def _hurry_faults() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watchdog, "GRACE", watchdog.GRACE)  # which the faults shorten
        faults = importlib.import_module("tests.faults")

    def late(fault: Callable[[], None], be_late: Callable[[], None] = be_late) -> None:
        @wraps(fault)
        def late_fault() -> None:
            be_late()
            fault()

        pairing = faults.in_oracle(late_fault)
        setattr(faults, pairing.name, pairing)

    def _hangs_in_trace(x: Any) -> Any:
        if len(x) == faults.LONG:
            be_late()
        return hangs(x)

    late(faults._loops)
    late(faults._sleeps)
    late(faults._sleeps_with_the_lock, be_deaf)
    late(faults._stopped, _be_gone)
    hangs, faults.hangs_in_trace = faults._hangs_in_trace, faults.of_a_kernel(_hangs_in_trace)
    watch_closely(pytest.MonkeyPatch())
