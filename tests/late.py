"""Steps that take too long without taking any time, so that no other step does, however slow the machine is."""

from collections.abc import Iterator

import pytest

from kerneltest.execute import watchdog
from kerneltest.execute.watchdog import Watchdog

_STARTED: list[Watchdog] = []


def be_late() -> None:
    """Lets the time limit of the running step pass at once."""
    dog = _STARTED[-1]
    dog.journal.changed -= dog.seconds  # last, so that the watchdog finds the thread in the caller


def watch_closely(patch: pytest.MonkeyPatch) -> None:
    """Prepares for `be_late`, and lets watchdogs look more often."""
    start = Watchdog.start

    def noted(dog: Watchdog) -> None:
        _STARTED.append(dog)
        start(dog)

    patch.setattr(Watchdog, "start", noted)
    patch.setattr(watchdog, "_LONGEST", 0.05)


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    watch_closely(monkeypatch)
    yield
    _STARTED.clear()
