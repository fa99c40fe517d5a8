"""The loop of `kerneltest watch`: saves and keys start runs, and a run that is out of date is stopped."""

import os
import signal
import sys
import termios
import threading
import time
import tty
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kerneltest.core.children import CONTEXTS, Child, ChildEndedError
from kerneltest.core.failures import UnusableInputError
from kerneltest.core.ids import PairingId
from kerneltest.core.media import for_terminal

KEYS = "a: run all, p: open the page, s: show the next suspect, q: quit"
_MOST_NAMES = 3
_NO_SOURCES = ("__pycache__", "node_modules", "site-packages")  # folders whose links are not followed
_READ_BY_JAX = ("JAX_", "XLA_FLAGS")


@dataclass(frozen=True, slots=True)
class Save:
    """Files were saved, the last one at `time`, in seconds since the epoch."""

    paths: tuple[Path, ...]
    time: float


@dataclass(frozen=True, slots=True)
class KeyPress:
    """A key was pressed: its character."""

    key: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The run of that number, counted from 1, ended with an exit status of pytest."""

    number: int
    status: int


Event = Save | KeyPress | RunEnd


class WarmPytest:
    """Starts runs of pytest, one at a time, forked from a server of one thread, in which JAX has started no device."""

    def __init__(self) -> None:
        CONTEXTS["forkserver"].set_forkserver_preload(["kerneltest.extensions.watch.preloaded"])
        self._child: Child | None = None

    def start(self, words: Sequence[str], on_end: Callable[[int], None]) -> None:
        """Starts a run with arguments for pytest; the previous one must have ended.

        A thread calls `on_end` with the run's exit status; a negative one is that of a signal.
        """
        child = self._child = Child(_serve, "the run", "forkserver")
        child.start()

        def wait() -> None:
            try:
                status = child.ask({"words": list(words)})["status"]
            except ChildEndedError as ended:
                status = ended.status
            child.close()  # once its exit handlers have run
            on_end(status)

        threading.Thread(target=wait, name="kerneltest-watch-run", daemon=True).start()

    def stop(self) -> None:
        """Ends the run and the processes that it started, if it is still running."""
        if self._child is not None:
            self._child.kill(seconds=3)
            self._child = None


def _serve() -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    import pytest

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _end)
    # Python considers bytecode current if the source has the same length and was saved in the same second.
    sys.dont_write_bytecode = True

    def run(request: Mapping[str, Any]) -> Mapping[str, Any]:
        before = _variables()
        status = int(pytest.main(request["words"]))
        if changed := sorted(name for name, value in _variables().items() if before.get(name) != value):
            names = ", ".join(changed)
            _say(f"the run set {names} after JAX was imported; set it in the shell instead")
        sys.stdout.flush()
        return {"status": status}

    return run


def _end(number: int, frame: object) -> None:
    # A run that a save has stopped shows no suspects, unlike one that is ended otherwise.
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_JAX)}


class WatchSession:
    """A session of watching: its current run, and its reaction to each event."""

    def __init__(self, pytest: WarmPytest, words: Sequence[str], report: Path) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()  # the events to handle, in order
        self.status = 0  # pytest's exit status in the last run that ended
        self._pytest, self._words, self._report = pytest, words, report
        self._number = 0
        self._since = time.time()
        self._is_running = False
        self._next_suspect = 0

    def run(self) -> int:
        """Runs everything once, then changed items, until `q` is pressed; returns the last run's exit status."""
        self._start("", time.time(), only_changed=False)
        while True:
            match self.events.get():
                case Save(paths, saved):
                    names = [os.path.relpath(path) for path in paths]
                    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
                    self._start(f"{', '.join(names[:_MOST_NAMES])}{more} changed", saved, only_changed=True)
                case RunEnd(number, status) if number == self._number:
                    self.status, self._is_running = status, False
                    seconds = time.time() - self._since
                    _say(f"{'green' if not status else 'not green'} after {seconds:.1f} s. {KEYS}")
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
        self._pytest.stop()
        self._number, self._since, self._is_running, self._next_suspect = self._number + 1, since, True, 0
        if why:
            _say(why)
        number = self._number
        changed = ["--kt-changed"] if only_changed else []
        self._pytest.start(
            [*changed, "--failed-first", "--no-header", f"--kt-report={self._report}", *self._words],
            lambda status: self.events.put(RunEnd(number, status)),
        )

    def _open_page(self) -> None:
        page = self._report / "report.html"
        if self._is_running or not page.exists():
            _say("no page yet: the run writes it at its end")
        else:
            _say(str(page))
            webbrowser.open(page.resolve().as_uri())

    def _show_suspect(self) -> None:
        from kerneltest.core.failures import RecordError
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


def read_keys(events: SimpleQueue[Event]) -> None:
    """Puts each key into a queue, until standard input ends."""
    while key := os.read(sys.stdin.fileno(), 1):
        events.put(KeyPress(key.decode(errors="replace")))


# Saves of Python files, as the library `watchfiles` reports them.


class WatchError(UnusableInputError):
    """Files cannot be watched. The message says why, and what to do."""


def watched_folders(files: Sequence[str]) -> tuple[Path, ...]:
    """Returns the current folder and those outside of it with given files (`FILE::NAME`) or what links point to."""
    folders = [Path.cwd()]
    for file in files:
        path = Path(PairingId.parse(file).file).resolve()
        if not path.exists():
            raise WatchError(f"{path} does not exist")
        _add_folder(path, folders)
    for folder in tuple(folders):
        for path in _linked(folder):
            _add_folder(path, folders)
    return tuple(folders)


def _add_folder(path: Path, folders: list[Path]) -> None:
    folder = path if path.is_dir() else path.parent
    if not any(folder.is_relative_to(known) for known in folders):
        folders.append(folder)


def _linked(folder: Path) -> Iterator[Path]:
    """Yields the files and folders that links below a folder point to; a save of these does not change the link."""
    for place, names, files in os.walk(folder):
        names[:] = [name for name in names if not name.startswith(".") and name not in _NO_SOURCES]
        for path in (Path(place, name) for name in (*names, *files)):
            if path.is_symlink() and path.exists() and (path.is_dir() or path.suffix == ".py"):
                yield path.resolve()


def find_watchfiles() -> Any:
    """Returns the module that watches files; raises a WatchError if it is not installed."""
    try:
        import watchfiles
    except ImportError as error:
        raise WatchError("watching files needs watchfiles: pip install 'kerneltest[watch]'") from error
    return watchfiles


def watch_saves(folders: Sequence[Path], ignored: Path, events: SimpleQueue[Event]) -> None:
    """Puts files that were saved together into a queue. Never returns."""
    watchfiles = find_watchfiles()
    python_files = watchfiles.PythonFilter(ignore_paths=[ignored])
    for changes in watchfiles.watch(*folders, watch_filter=python_files, raise_interrupt=False):
        paths = sorted(Path(path) for _, path in changes)
        times = [path.stat().st_mtime for path in paths if path.exists()]
        events.put(Save(tuple(paths), max(times, default=time.time())))
