"""What the process runs that isolates items: it collects as its parent did, and runs what it is asked to."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from kerneltest.execute.item import Item
from kerneltest.pytest_plugin import crash_reports
from kerneltest.pytest_plugin.executor import Arguments
from kerneltest.pytest_plugin.worker import Ended, Process, Setup, Task
from kerneltest.records.io import read_plan

Planned = frozenset[tuple[str, str, str]]

_ALWAYS = ("--collect-only", "-q", "--kt-report=", "--kt-shard=", "--kt-durations=", "--kt-isolate=never",
           "--kt-ray=", "-W", "ignore::pytest.PytestAssertRewriteWarning")  # fmt: skip


class _Worker:
    """This process, once it has begun.

    Attributes:
      judged: how many cases of the item that is running are; its parent reads it.
      ended: when the item ended, in seconds since 1970.
    """

    def __init__(self, setup: Setup, arguments: Arguments, judged: Any, ended: Any) -> None:
        self.judged, self.ended = judged, ended
        self._setup, self._arguments = setup, arguments
        self._process: Process | None = None
        self._items: dict[Path, Mapping[str, tuple[Item, ...]]] = {}
        self._ahead: Mapping[str, tuple[Item, ...]] = {}

    def collect_ahead(self) -> None:
        """Collects all that its parent does, at the same time."""
        with suppress(crash_reports.UncollectedError):  # told when an item is missed
            self._ahead = collected(self._arguments)

    def run(self, task: Task, planned: Planned) -> Ended:
        if self._process is None:
            self._listen()
            self._process = Process(replace(self._setup, planned=planned), lambda doing, failure: None)
        parts = self._parts(task.name)
        try:
            return self._process.run(parts, task, self._count)
        finally:
            self.ended.value = int(time.time())

    def _count(self) -> None:
        self.judged.value += 1

    def _listen(self) -> None:
        """Keeps what is written to standard output and error; not before the run's folder is cleared."""
        if self._arguments.captured:
            with crash_reports.said_file(self._setup.folder, self._setup.shard).open("ab") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)

    def _parts(self, name: str) -> tuple[Item, ...]:
        file = self._setup.root / name.partition("::")[0]
        if name in self._ahead:
            self._items[file] = self._ahead
        elif file not in self._items:
            self._items[file] = collected(self._arguments, file)
        try:
            parts = self._items[file][name]
        except KeyError:
            raise crash_reports.UncollectedError(
                f"{name} was collected once, and not when its file was collected again in the process that was to run "
                "it: let what a test file defines not depend on time or chance, or run with --kt-isolate never"
            ) from None
        if self._arguments.elsewhere:
            self._compare(name, parts)
        return parts

    def _compare(self, name: str, parts: tuple[Item, ...]) -> None:
        """Refuses an item that this machine would run otherwise than it was planned."""
        from kerneltest.pytest_plugin.plan_mismatch import differences

        if unlike := list(differences(read_plan(self._setup.folder), parts, name)):
            raise crash_reports.UncollectedError(
                f"{name} would not be the same on {socket.gethostname()}: {'; '.join(unlike)}. Let all machines of a "
                "cluster have the same packages, settings, devices and sources"
            )


_worker: _Worker | None = None


def begin(setup: Setup, arguments: Arguments, pid: Any, judged: Any, ended: Any) -> None:
    """Makes this process one that may die: it takes nobody along, and leaves word."""
    global _worker
    parent = multiprocessing.parent_process()
    temporary = setup.folder if arguments.elsewhere else None
    threading.Thread(target=_follow, args=(parent, temporary), daemon=True).start()
    with suppress(OSError):  # where memory runs out, Linux ends this process and not its parent
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.chdir(arguments.folder)
    _worker = _Worker(setup, arguments, judged, ended)
    pid.value = os.getpid()


def collect_ahead() -> None:
    """Collects all items, before the first is asked for."""
    assert _worker is not None
    _worker.collect_ahead()


def serve(task: Task, planned: Planned) -> Ended:
    """Runs one item; `planned` is as in `Setup`."""
    assert _worker is not None
    return _worker.run(task, planned)


def _follow(parent: Any, temporary: Path | None) -> None:
    """Ends this process with its parent, however that ends, and takes a folder along that is nobody else's."""
    parent.join()
    if temporary is not None:
        rmtree(temporary, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


def collected(arguments: Arguments, file: Path | None = None) -> Mapping[str, tuple[Item, ...]]:
    """The items of a session by name, or of one of its files.

    Raises:
      UncollectedError: they cannot be collected.
    """
    taking = _Taking(file and file.resolve())
    told = io.StringIO()
    with redirect_stdout(told):
        status = pytest.main([*arguments.words, *_ALWAYS], plugins=[taking])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        words = f"{file or 'the session'}: collected once, and not again in the process that was to run it"
        raise crash_reports.UncollectedError(f"{words}:\n{told.getvalue().strip()}")
    return taking.items


class _Taking:
    """Has pytest collect one file, where one is given, and keeps the items."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.items: dict[str, tuple[Item, ...]] = {}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        path = collection_path.resolve()
        return None if self.file is None or self.file.is_relative_to(path) else True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            parts = tuple(getattr(item, "items", ()))
            if parts and all(isinstance(part, Item) for part in parts):  # a pairing's, and no other test
                self.items[parts[0].name] = parts
