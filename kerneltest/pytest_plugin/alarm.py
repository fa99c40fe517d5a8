"""The time that pytest-timeout gives an item, kept by kerneltest: its own exception would count as the kernel's."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class TimeIsUp(KeyboardInterrupt):
    """An item has run for as long as it may; says what it was doing."""


def set_alarm(seconds: float, ring: Callable[[], None]) -> Callable[[], None]:
    """Calls `ring` in the main thread after some seconds, unless somebody debugs then; returns what cancels that."""

    def handle(number: int, frame: FrameType | None) -> None:
        timeout: Any = sys.modules["pytest_timeout"]
        if not timeout.is_debugging():
            ring()

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return cancel
