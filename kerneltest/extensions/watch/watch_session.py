"""The loop of `kerneltest watch`: saves and keys start runs, and a run that is out of date is stopped."""

import os
import sys
import termios
import time
import tty
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kerneltest.core.ids import PairingId
from kerneltest.extensions.watch.warm_process import WarmPytest
from kerneltest.report.text.lines import for_terminal

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
        from kerneltest.report.text.suspect_text import describe_suspect
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
        for line in describe_suspect(suspect, str(self._report)).texts:
            print(for_terminal(line), flush=True)


def _say(text: str) -> None:
    print(for_terminal(f"kerneltest watch: {text}"), flush=True)


# Keys that a user presses, without waiting for the end of a line.


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


# Saves of Python files, as the library `watchfiles` reports them.

MISSING = "watching files needs watchfiles: pip install 'kerneltest[watch]'"


class WatchError(ValueError):
    """Files cannot be watched. The message says why, and what to do."""


def watched_folders(files: Sequence[str]) -> tuple[Path, ...]:
    """Returns the current folder, and the folders of the given files and folders outside of it.

    Args:
      files: as given to pytest, so `::` and the name of a test may follow.

    Raises:
      WatchError: one does not exist.
    """
    folders = [Path.cwd()]
    for file in files:
        path = Path(PairingId.parse(file).file).resolve()
        if not path.exists():
            raise WatchError(f"{path} does not exist")
        folder = path if path.is_dir() else path.parent
        if not any(folder.is_relative_to(known) for known in folders):
            folders.append(folder)
    return tuple(folders)


def find_watchfiles() -> Any:
    """Returns the module that watches files.

    Raises:
      WatchError: it is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise WatchError(MISSING) from error
    return watchfiles


def watch_saves(folders: Sequence[Path], ignored: Path, on_save: Callable[[tuple[Path, ...], float], None]) -> None:
    """Calls `on_save` with files that were saved together and the time of the last save, in seconds. Never returns.

    Args:
      folders: the folders whose Python files are watched, except hidden and installed ones.
      ignored: the folder to which runs write.
      on_save: called for each change.
    """
    watchfiles = find_watchfiles()
    python_files = watchfiles.PythonFilter(ignore_paths=[ignored])
    for changes in watchfiles.watch(*folders, watch_filter=python_files, raise_interrupt=False):
        paths = sorted(Path(path) for _, path in changes)
        times = [path.stat().st_mtime for path in paths if path.exists()]
        on_save(tuple(paths), max(times, default=time.time()))
