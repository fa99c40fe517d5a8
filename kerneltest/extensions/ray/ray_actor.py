"""A node's side of a run: it runs items in a child process, and passes on what that writes as it is written."""

from __future__ import annotations

import io
import os
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from kerneltest.core.failures import format_exception
from kerneltest.extensions.ray.code import in_words, unlike
from kerneltest.extensions.ray.events import Began, Done, Event, News, Orders, Work
from kerneltest.extensions.ray.source_archive import unpacked
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.executor import Arguments
from kerneltest.pytest_plugin.isolation import Child
from kerneltest.pytest_plugin.worker import Ended, Process, Setup
from kerneltest.records.io import RECORD_LINE, SMALLEST_LINE
from kerneltest.records.journal import Doing
from kerneltest.records.schema import Record

_EVERY = 0.2  # seconds between two looks at what was written
_EARLIER = "records-earlier.jsonl"  # what the session sent


class RefusedError(Exception):
    """This machine has other code than the session; says what."""


class Station:
    """What runs the items of a job on a node, in a child process and a folder of its own."""

    def __init__(self, orders: Orders, node: str) -> None:
        """Args:
        orders: of the run.
        node: the name of this machine in the cluster.

        Raises:
          RefusedError: this machine has other code.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="kerneltest-")).resolve()
        self.node = node
        try:
            there = orders.setup.root
            root = there if orders.archive is None else unpacked(orders.archive, self._folder / "project")
            if reasons := [reason for each in unlike(orders.code, root) for reason in each]:
                raise RefusedError(f"{socket.gethostname()} has other code: {in_words(reasons)}")
            (self._folder / "plan.json").write_bytes(orders.plan)
        except BaseException:
            rmtree(self._folder, ignore_errors=True)
            raise
        os.environ.update(orders.environment)
        sys.path[:0] = [each for path in orders.paths if (each := _moved(path, there, root)) not in sys.path]
        setup = _setup_here(orders.setup, root, self._folder, node)
        main = Process(setup, lambda doing, failure: None)
        self._child = Child(main, _arguments_here(orders.arguments, there, root), orders.memory)
        self._read: dict[str, int] = {}  # bytes by file
        self._told: Doing | None = None

    def serve(self, works: Sequence[Work]) -> Iterator[Event]:
        """Runs items one after another."""
        for work in works:
            name, started = work.task.name, time.monotonic()
            yield Began(name, self.node, socket.gethostname())
            (self._folder / _EARLIER).write_bytes(b"".join(line + b"\n" for line in work.records))
            said = io.StringIO()
            pool = ThreadPoolExecutor(1)
            try:
                with redirect_stdout(said), warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    future = pool.submit(self._child.run, (), work.task)
                    while not future.done():
                        time.sleep(_EVERY)
                        yield from self._news(name)
            finally:
                pool.shutdown(wait=False)  # a job that is ended before its time waits for nothing
            yield from self._news(name)
            words = "".join(f"{each.message}\n" for each in warned)
            yield _done(name, future, words + said.getvalue(), time.monotonic() - started)

    def close(self) -> None:
        """Ends the child process, whatever it does, and leaves nothing."""
        try:
            self._child.stop()
        finally:
            rmtree(self._folder, ignore_errors=True)

    def _news(self, item: str) -> Iterator[News]:
        records = [line for path in sorted(self._folder.glob("records-*.jsonl")) for line in self._lines(path)]
        smallest = [line for path in sorted(self._folder.glob("smallest-*.jsonl")) for line in self._lines(path)]
        doing = self._child.doing()
        changed, self._told = doing if doing != self._told else None, doing
        if records or smallest or changed:
            # A file is whole once a line names it.
            named = [name for line in records for name in _files(RECORD_LINE.validate_json(line).record)]
            for line in smallest:
                found = SMALLEST_LINE.validate_json(line).smallest
                named += [*_files(found.record), *([found.cut] if found.cut else [])]
            yield News(item, self._contents(named), tuple(records), tuple(smallest), changed)

    def _lines(self, path: Path) -> list[bytes]:
        """The whole lines of a file that were not read before."""
        if path.name == _EARLIER:
            return []
        start = self._read.get(path.name, 0)
        with path.open("rb") as file:
            file.seek(start)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read[path.name] = start + len(whole)
        return whole.splitlines()

    def _contents(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """The files of that name, which are then the session's."""
        contents = {}
        for name in dict.fromkeys(names):
            path = self._folder / name
            if path.is_file():
                contents[name] = path.read_bytes()
        return contents


def _done(name: str, future: Future[Ended], said: str, seconds: float) -> Done:
    error = future.exception()
    if error is None:
        return Done(name, future.result(), said, seconds)
    words = (
        str(error)
        if isinstance(error, crash_reports.UncollectedError)
        else f"on {socket.gethostname()}: {format_exception(error)}"
    )
    return Done(name, None, said, seconds, words)


def _files(record: Record) -> list[str]:
    """The files that a record names."""
    evidence = record.evidence
    own = [evidence.file, evidence.script] if evidence is not None else []
    return [name for name in [*own, *record.files] if name]


def _setup_here(setup: Setup, root: Path, folder: Path, node: str) -> Setup:
    """What the processes of this machine are told."""
    compiled = setup.compiled if setup.compiled is not None and setup.compiled.is_dir() else None
    kept = Path(os.path.normpath(root / os.path.relpath(setup.folder, setup.root)))
    return replace(setup, folder=folder, shard=f"ray-{node[:8]}-{os.getpid()}", root=root, compiled=compiled, kept=kept)


def _arguments_here(arguments: Arguments, there: Path, root: Path) -> Arguments:
    """By what this machine collects: paths below the session's root lie below the root here."""
    words = (*(_moved(word, there, root) for word in arguments.words), f"--rootdir={root}")
    return replace(arguments, words=words, folder=Path(_moved(str(arguments.folder), there, root)), elsewhere=True)


def _moved(word: str, there: Path, root: Path) -> str:
    """A path below the session's root as it is below the root here; other words as they are."""
    below = word == str(there) or word.startswith(f"{there}{os.sep}")
    return f"{root}{word.removeprefix(str(there))}" if below else word
