"""The progress of a command on standard error, and its time limit."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kerneltest.core.failures import UnusableInputError
from kerneltest.core.media import for_terminal
from kerneltest.execute.watchdog import limit_time
from kerneltest.records.journal import Journal, Phase

_EVERY = 10.0  # seconds between lines where there is no terminal
_WIDTH = 100


class TimeLimitError(UnusableInputError):
    """The time limit of the command has passed."""


class CommandProgress:
    """Shows a command's activity (on a terminal, one line; in a file, every 10 s), and interrupts it at its end."""

    def __init__(self, seconds: float = 0.0) -> None:
        """Starts the time limit, in seconds; 0 for none."""
        self.seconds = seconds
        self._started = self._shown = time.monotonic()
        self._stream = sys.stderr  # it may be redirected meanwhile
        self._is_terminal = self._stream.isatty()
        self._interruptible = Journal()  # of the code that is to be interrupted

    @property
    def is_over(self) -> bool:
        return bool(self.seconds) and time.monotonic() - self._started >= self.seconds

    def end_if_over(self) -> bool:
        """Returns whether the time is over. If so, what `interrupt` surrounds has as long again to clean up."""
        if self.is_over:
            self._interruptible.enter_phase(Phase.TRACING)
        return self.is_over

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._is_terminal:
            self._stream.write(f"\r\033[K{for_terminal(text)[:_WIDTH]}")
            self._stream.flush()
        elif now - self._shown >= _EVERY:
            print(for_terminal(f"{now - self._started:.0f} s: {text}"), file=self._stream, flush=True)
            self._shown = now

    def clear(self) -> None:
        if self._is_terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()

    @contextmanager
    def interrupt(self) -> Iterator[None]:
        """Raises a `TimeLimitError` in the code inside once the time is over; what ends all the same is kept."""
        error = TimeLimitError(f"the limit of {self.seconds:g} s has passed; give a larger --limit")
        if self.is_over:
            raise error
        journal = self._interruptible
        journal.start("the command")
        journal.enter_phase(Phase.TRACING)
        left = self._started + self.seconds - time.monotonic() if self.seconds else 0.0
        try:
            with limit_time(journal, left):
                yield
        except Exception as raised:  # it may follow from the hang that was raised
            if self.is_over:
                raise error from raised
            raise
