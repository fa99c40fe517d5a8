"""Steps that take too long without taking any time, so that no other step does, however slow the machine is."""

from collections.abc import Iterator
from copy import copy

import pytest

from kerneltest.execute import watchdog
from kerneltest.execute.watchdog import Watchdog
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
