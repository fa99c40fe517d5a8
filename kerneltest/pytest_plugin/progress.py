"""The progress line: one live line below pytest's output on an interactive terminal."""

import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kerneltest.pytest_plugin.hook_guard import guard_hooks

PROGRESS = "kerneltest-progress"
"""The name of the plugin."""

_EVERY = 0.2  # seconds between two updates
_RATE_AFTER = 1.0  # seconds before a rate is shown
_LEAST_SHARE = 0.05  # of the cases, before which compiling and the fastest backends decide the rate


@dataclass(slots=True)
class Progress:
    """The progress of a run."""

    planned: dict[str, int]  # number of cases by item, without items whose backend is unavailable
    started: float  # time of the start, in seconds
    running: dict[str, None] = field(default_factory=dict)  # the running items, in order
    ended: set[str] = field(default_factory=set)
    judged: int = 0  # number of cases of the items that have ended

    def end(self, item: str, *, skipped: bool) -> None:
        """Counts an item as ended; removes it from the plan if it was skipped, which says nothing about speed."""
        self.running.pop(item, None)
        if skipped:
            self.planned.pop(item, None)
        elif item in self.planned and item not in self.ended:
            self.ended.add(item)
            self.judged += self.planned[item]

    def line(self, now: float, judged_here: int, stage: str) -> str:
        """Returns the line: items, cases, rate, time left, and what is running, whose stage is "" under xdist."""
        judged, planned = self.judged + judged_here, sum(self.planned.values())
        elapsed = now - self.started
        parts = [f"{len(self.ended)}/{len(self.planned)} items", f"{judged}/{planned} cases"]
        if judged and elapsed > _RATE_AFTER:
            rate = judged / elapsed
            parts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
            if self.ended and judged >= _LEAST_SHARE * planned:
                parts.append(f"{_clock((planned - judged) / rate)} left")
        name = next(iter(self.running), "").rpartition("/")[2]
        others = f" and {len(self.running) - 1} more" if len(self.running) > 1 else ""
        activity = f"{stage} {name}{others}".strip()
        return ", ".join(parts) + (f" · {activity}" if activity else "")


def _clock(seconds: float) -> str:
    whole = round(max(0.0, seconds))
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


class ProgressLine:
    """A pytest plugin that shows the run's progress below the reporter's output, and erases it while that writes."""

    def __init__(
        self, reporter: Any, plan: Callable[[], Mapping[str, int]], stage: Callable[[], tuple[int, str]], output: int
    ) -> None:
        self._writer = reporter.config.get_terminal_writer()
        self._plan = plan  # the number of cases by item; called when the first item starts
        self._stage = stage  # the number of judged cases of the running item, and its stage in words
        self._output = output  # file descriptor of the terminal, which pytest does not capture
        self._progress: Progress | None = None
        self._lock = threading.RLock()
        self._hidden = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, name="kerneltest-progress", daemon=True)

    @contextmanager
    def hide(self) -> Iterator[None]:
        with self._lock:
            if not self._hidden and self._progress:
                self._write("\x1b[J")
            self._hidden += 1
        try:
            yield
        finally:
            self._writer.flush()
            with self._lock:
                self._hidden -= 1
                self._draw()

    def _draw(self) -> None:
        progress = self._progress
        if self._hidden or self._stopped.is_set() or progress is None or not progress.running:
            return
        try:
            columns = os.get_terminal_size(self._output).columns
        except OSError:
            columns = 0
        if not columns:  # some containers and CI jobs report no width
            return
        line = progress.line(time.monotonic(), *self._stage())[: max(0, columns - 1)]
        width = self._writer.width_of_current_line
        column = (width - 1) % columns + 2 if width else 1  # from 1; at the right edge it stays there
        self._write(f"\r\n\x1b[2K{line}\x1b[A\x1b[{min(column, columns)}G")

    def _write(self, text: str) -> None:
        try:
            os.write(self._output, text.encode())
        except OSError:
            self._stopped.set()  # the terminal is gone; the run continues

    def _keep_drawing(self) -> None:
        while not self._stopped.wait(_EVERY):
            with self._lock:
                self._draw()

    @pytest.hookimpl(tryfirst=True)
    def stop(self) -> None:
        if not self._stopped.is_set():
            with self._lock:
                self._stopped.set()
                self._write("\x1b[J")
        if self._thread.is_alive():
            self._thread.join()

    def show_item(self, item: str) -> None:
        self._start()
        with self._lock:
            if self._progress:
                self._progress.running[item] = None

    def _start(self) -> None:
        if self._progress is None and (planned := self._plan()):
            self._progress = Progress(dict(planned), time.monotonic())
            self._thread.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> Generator[None, object, object]:
        self._start()
        with self.hide():
            result = yield
            if self._progress:
                self._progress.running[nodeid] = None
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        with self.hide():
            result = yield
            if self._progress and (report.skipped or report.when not in ("setup", "teardown")):
                self._progress.end(report.nodeid, skipped=report.skipped)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> Generator[None, object, object]:
        with self.hide():
            result = yield
            if self._progress:
                self._progress.running.pop(nodeid, None)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self) -> Generator[None, object, object]:
        with self.hide():
            return (yield)

    pytest_enter_pdb = pytest_keyboard_interrupt = pytest_internalerror = pytest_sessionfinish = stop

    def pytest_unconfigure(self) -> None:
        self.stop()
        os.close(self._output)

    guard_hooks(vars())


def open_terminal(config: pytest.Config) -> int | None:
    """Returns a file descriptor of the interactive terminal; None if there is none or if others write to it, too."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    logs = config.pluginmanager.hasplugin("logging") and config.getini("log_cli")
    shared = logs or config.getoption("capture", "no") == "no" or config.getoption("usepdb", False)
    if reporter is None or config.option.verbose < 0 or shared or os.environ.get("TERM") in (None, "", "dumb"):
        return None
    try:
        # duplicated before pytest captures standard output
        output = os.dup(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    if os.isatty(output):
        return output
    os.close(output)
    return None
