"""The time limit of commands that evaluate kernels outside of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

from kerneltest.pytest_plugin.crash_reports import ConsoleCrashLog
from kerneltest.pytest_plugin.watchdog import Watchdog
from kerneltest.records.journal import Journal

_STANDARD_ERROR = 2


@contextmanager
def limit_time(journal: Journal, seconds: float) -> Iterator[None]:
    """Raises a `hang` in whatever a journal notes inside if it takes too long, as in a run; 0 for no limit.

    If compiled code does not let it, the process ends with status 1.
    """
    if not seconds:
        yield
        return
    log = ConsoleCrashLog(_STANDARD_ERROR)
    watchdog = Watchdog(journal, seconds, log, lambda activity, failure: None)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()
        log.close()
