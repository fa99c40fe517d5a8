"""How often Python looks for garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Tracing makes and drops objects by the thousand: with Python's own threshold, a twelfth of a run is spent on looking.
_OBJECTS = 20_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Inside, Python looks for garbage seldom, unless it has been told to do so less often still, or never."""
    before = gc.get_threshold()
    if 0 < before[0] < _OBJECTS:
        gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
