"""The progress of a command on standard error, and its time limit."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kerneltest.core.media import for_terminal

_EVERY = 10.0  # seconds between lines where there is no terminal
_WIDTH = 100


class TimeLimitError(Exception):
    """The time limit of the command has passed."""


class CommandProgress:
    """Shows what a command is doing, and interrupts it when its time is over.

    A terminal shows one line, which is replaced. A file gets a line every ten seconds.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        """Starts the time limit, in seconds; 0 for none."""
        self.seconds = seconds
        self._started = self._shown = time.monotonic()
        self._stream = sys.stderr  # it may be redirected meanwhile
        self._is_terminal = self._stream.isatty()

    @property
    def is_over(self) -> bool:
        return bool(self.seconds) and time.monotonic() - self._started >= self.seconds

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._is_terminal:
            self._stream.write(f"\r\033[K{for_terminal(text)[:_WIDTH]}")
            self._stream.flush()
        elif now - self._shown >= _EVERY:
            print(for_terminal(f"{now - self._started:.0f} s: {text}"), file=self._stream, flush=True)
            self._shown = now

    def clear(self) -> None:
        """Removes the line from the terminal."""
        if self._is_terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()

    @contextmanager
    def interrupt(self) -> Iterator[None]:
        """Raises a `TimeLimitError` in the code inside once the time is over; in other threads, only before it."""
        if self.is_over:
            raise TimeLimitError(f"the limit of {self.seconds:g} s has passed")
        if not self.seconds or threading.current_thread() is not threading.main_thread():
            yield
            return
        earlier = signal.signal(signal.SIGALRM, self._raise)
        signal.setitimer(signal.ITIMER_REAL, self._started + self.seconds - time.monotonic())
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, earlier)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise TimeLimitError(f"the limit of {self.seconds:g} s has passed")
