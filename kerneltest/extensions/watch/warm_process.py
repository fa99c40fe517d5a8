"""Runs of pytest, each in a process forked from one that has already imported the modules."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext

import psutil

_PRELOADED = "kerneltest.extensions.watch.preloaded"
_READ_BY_JAX = ("JAX_", "XLA_FLAGS")
_SECONDS_TO_END = 3  # after which a process is killed


class WarmPytest:
    """Starts runs of pytest, one at a time.

    The server that forks them has one thread, so a fork is safe: JAX starts threads only with its first
    device, and that is in the forked process.
    """

    def __init__(self) -> None:
        self._context: ForkServerContext = get_context("forkserver")
        self._context.set_forkserver_preload([_PRELOADED])
        self._process: psutil.Process | None = None

    def start(self, words: Sequence[str], on_end: Callable[[int], None]) -> None:
        """Starts a run in the current folder. The previous run must have ended.

        Args:
          words: the arguments for pytest.
          on_end: called in another thread with the exit status; a negative one is that of a signal.
        """
        process = self._context.Process(target=_run_pytest, args=(list(words),))
        process.start()
        self._process = psutil.Process(process.pid) if psutil.pid_exists(process.pid or 0) else None

        def wait() -> None:
            process.join()
            on_end(process.exitcode or 0)

        threading.Thread(target=wait, name="kerneltest-watch-run", daemon=True).start()

    def stop(self) -> None:
        """Ends the run and the processes that it started, if it is still running."""
        if self._process is None:
            return
        try:
            running = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for signal_of in (psutil.Process.terminate, psutil.Process.kill):
            for process in running:
                if process.is_running():
                    signal_of(process)
            _, running = psutil.wait_procs(running, timeout=_SECONDS_TO_END)
        self._process = None


def _run_pytest(words: list[str]) -> None:
    """Runs pytest in this process."""
    import pytest

    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Python considers bytecode current if the source has the same length and was saved in the same second.
    sys.dont_write_bytecode = True
    before = _variables()
    status = int(pytest.main(words))
    if changed := sorted(name for name, value in _variables().items() if before.get(name) != value):
        print(f"kerneltest watch: the run set {', '.join(changed)} after JAX was imported; set it in the shell instead")
    sys.exit(status)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_JAX)}
