"""The loop of `kerneltest watch`: saves and keys start runs, and a run that is out of date is stopped."""

import os
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from kerneltest.extensions.watch.warm_process import WarmPytest
from kerneltest.report.text.tables import for_terminal

KEYS = "a: run all, p: open the page, s: show the next suspect, q: quit"
_STOPPED_BY_USER = 2  # pytest's exit status after Ctrl-C
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Save:
    """Files were saved.

    Attributes:
      paths: the paths of the files.
      time: the time of the last save, in seconds since the epoch.
    """

    paths: tuple[Path, ...]
    time: float


@dataclass(frozen=True, slots=True)
class KeyPress:
    """A key was pressed.

    Attributes:
      key: its character.
    """

    key: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run ended.

    Attributes:
      number: the number of the run, from 1.
      status: pytest's exit status.
    """

    number: int
    status: int


Event = Save | KeyPress | RunEnd


class WatchSession:
    """A session of watching: its current run, and its reaction to each event.

    Attributes:
      events: the events to handle, in order.
      status: pytest's exit status in the last run that ended.
    """

    def __init__(self, pytest: WarmPytest, words: Sequence[str], report: Path) -> None:
        """Initialises the instance.

        Args:
          pytest: starts the runs.
          words: the arguments of pytest: files and options.
          report: the folder for the page.
        """
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.status = 0
        self._pytest, self._words, self._report = pytest, words, report
        self._number = 0
        self._since = time.time()
        self._is_running = False
        self._next_suspect = 0

    def run(self) -> int:
        """Runs everything once, then changed items, until `q` is pressed. Returns the last run's exit status."""
        self._start("", time.time(), only_changed=False)
        while True:
            match self.events.get():
                case Save(paths, saved):
                    names = [os.path.relpath(path) for path in paths]
                    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
                    self._start(f"{', '.join(names[:_MOST_NAMES])}{more} changed", saved, only_changed=True)
                case RunEnd(number, status) if number == self._number:
                    self._end(status)
                    if status == _STOPPED_BY_USER:
                        return status
                case KeyPress("a"):
                    self._start("all", time.time(), only_changed=False)
                case KeyPress("p"):
                    self._open_page()
                case KeyPress("s"):
                    self._show_suspect()
                case KeyPress("q"):
                    self._pytest.stop()
                    return self.status

    def _start(self, why: str, since: float, *, only_changed: bool) -> None:
        """Starts a run that replaces the one that is out of date."""
        self._pytest.stop()
        self._number, self._since, self._is_running, self._next_suspect = self._number + 1, since, True, 0
        if why:
            _say(why)
        number = self._number
        changed = ["--kt-changed"] if only_changed else []
        self._pytest.start(
            [*changed, "--failed-first", "--no-header", "--kt-report", str(self._report), *self._words],
            lambda status: self.events.put(RunEnd(number, status)),
        )

    def _end(self, status: int) -> None:
        self.status, self._is_running = status, False
        _say(f"{'green' if not status else 'not green'} after {time.time() - self._since:.1f} s. {KEYS}")

    def _open_page(self) -> None:
        page = self._report / "report.html"
        if self._is_running or not page.exists():
            _say("no page yet: the run writes it at its end")
        else:
            _say(str(page))
            webbrowser.open(page.resolve().as_uri())

    def _show_suspect(self) -> None:
        """Shows one suspect of the last run; the next key press shows the next one."""
        from kerneltest.records.files import RecordError
        from kerneltest.records.runs import read_runs
        from kerneltest.report.text.suspect_text import format_suspect
        from kerneltest.triage.suspects import suspects_in_run

        if self._is_running:
            _say("the run has not ended yet")
            return
        try:
            suspects = [suspect for run in read_runs(self._report) for suspect in suspects_in_run(run)]
        except RecordError as error:
            _say(f"there is no run to show: {error}")
            return
        if not suspects:
            _say("no suspect")
            return
        number = self._next_suspect % len(suspects)
        self._next_suspect += 1
        suspect = suspects[number]
        _say(f"suspect {number + 1} of {len(suspects)}, in {suspect.pairing}")
        for line in format_suspect(suspect, str(self._report)):
            print(for_terminal(line), flush=True)


def _say(text: str) -> None:
    print(for_terminal(f"kerneltest watch: {text}"), flush=True)
