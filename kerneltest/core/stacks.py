"""The stacks of threads that go on running."""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_one_at_a_time = threading.Lock()


@contextmanager
def stacks() -> Iterator[dict[int, FrameType]]:
    """The innermost frame of each thread, by the thread's number. Look at frames and their `f_back` inside alone.

    Python 3.11 makes the object of a frame when it is asked for, and may collect garbage first. What that calls lets
    other threads run, the frame may be gone by then, and the process crashes. So nothing is collected meanwhile.
    """
    with _one_at_a_time:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield sys._current_frames()
        finally:
            if collects:
                gc.enable()
