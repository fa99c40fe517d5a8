"""Keys that a user presses, without waiting for the end of a line."""

import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def single_keys() -> Iterator[None]:
    """Has the terminal hand over each key at once and show none; standard input that is no terminal stays as it is."""
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
