"""Keys that a user presses, without waiting for the end of a line."""

import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def single_keys() -> Iterator[None]:
    """Makes the terminal deliver each key at once and not echo it. Other standard input stays unchanged."""
    if not os.isatty(sys.stdin.fileno()):
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def read_keys(on_key: Callable[[str], None]) -> None:
    """Calls `on_key` with each key, until standard input ends."""
    while key := os.read(sys.stdin.fileno(), 1):
        on_key(key.decode(errors="replace"))
