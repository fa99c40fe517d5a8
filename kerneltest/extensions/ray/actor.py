"""A node's side of a run: it runs items in an isolated process, and sends what that writes while it runs."""

from __future__ import annotations

import io
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from kerneltest.core.failures import format_exception
from kerneltest.extensions.ray.code import code_differences, format_reasons, unpack
from kerneltest.extensions.ray.messages import ItemDone, ItemProgress, ItemStarted, JobSetup, NodeEvent, QueuedItem
from kerneltest.pytest_plugin.crash_reports import UncollectedError
from kerneltest.pytest_plugin.executor import ItemResult
from kerneltest.pytest_plugin.isolation import IsolatedWorker
from kerneltest.pytest_plugin.run_folder import TemporaryFolder, remove_abandoned_folders
from kerneltest.pytest_plugin.worker import ItemWorker
from kerneltest.records.journal import Activity, read_orphaned
from kerneltest.records.record_files import RECORD_LINE, REPRODUCER_LINE
from kerneltest.records.schema import Record

_EVERY = 0.2  # seconds between two messages
_EARLIER = "records-earlier.jsonl"  # records that the session sent


class CodeMismatchError(Exception):
    """This machine has other code than the session; says which."""


class NodeWorker:
    """Runs the items of a job on a node, in an isolated process and a folder of its own."""

    def __init__(self, job: JobSetup, node: str) -> None:
        """Raises `CodeMismatchError` if this machine has other code than the session."""
        remove_abandoned_folders()
        self._temporary = TemporaryFolder()
        self._folder = self._temporary.path
        self.node = node
        try:
            session_root = job.worker.root
            root = session_root if job.archive is None else unpack(job.archive, self._folder / "project")
            if reasons := [reason for difference in code_differences(job.code, root) for reason in difference]:
                raise CodeMismatchError(f"{socket.gethostname()} has different code: {format_reasons(reasons)}")
            (self._folder / "plan.json").write_bytes(job.plan)
        except BaseException:
            self._temporary.release()
            raise
        os.environ.update(job.environment)
        sys.path[:0] = [each for path in job.paths if (each := _localize(path, session_root, root)) not in sys.path]
        setup = replace(
            job.worker,
            folder=self._folder,
            shard=f"ray-{node[:8]}-{os.getpid()}",
            root=root,
            store=job.worker.store if job.worker.store is not None and job.worker.store.is_dir() else None,
            published_folder=Path(os.path.normpath(root / os.path.relpath(job.worker.folder, session_root))),
        )
        words = (*(_localize(word, session_root, root) for word in job.arguments.words), f"--rootdir={root}")
        folder = Path(_localize(str(job.arguments.folder), session_root, root))
        arguments = replace(job.arguments, words=words, folder=folder, is_remote=True)
        main = ItemWorker(setup, lambda activity, failure: None)
        self._isolated = IsolatedWorker(main, arguments, job.memory)
        self._sent: dict[str, int] = {}  # bytes by file
        self._last_activity: Activity | None = None

    def serve(self, items: Sequence[QueuedItem]) -> Iterator[NodeEvent]:
        for item in items:
            name, started = item.request.name, time.monotonic()
            yield ItemStarted(name, self.node, socket.gethostname())
            (self._folder / _EARLIER).write_bytes(b"".join(line + b"\n" for line in item.records))
            output = io.StringIO()
            pool = ThreadPoolExecutor(1)
            try:
                with redirect_stdout(output), warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    future = pool.submit(self._isolated.run, (), item.request)
                    while not future.done():
                        time.sleep(_EVERY)
                        yield from self._progress(name)
            finally:
                pool.shutdown(wait=False)  # a cancelled job does not wait for its item
            yield from self._progress(name)
            text = "".join(f"{each.message}\n" for each in caught) + output.getvalue()
            crashes = tuple(each for each in read_orphaned(self._folder) if each.item == name)
            yield replace(_done(name, future, text, time.monotonic() - started), crashes=crashes)

    def close(self) -> None:
        try:
            self._isolated.stop()
        finally:
            self._temporary.release()

    def _progress(self, item: str) -> Iterator[ItemProgress]:
        records = [line for path in sorted(self._folder.glob("records-*.jsonl")) for line in self._new_lines(path)]
        smallest = [line for path in sorted(self._folder.glob("smallest-*.jsonl")) for line in self._new_lines(path)]
        activity = self._isolated.activity()
        changed, self._last_activity = activity if activity != self._last_activity else None, activity
        if records or smallest or changed:
            # A file is complete once a line names it.
            names = [name for line in records for name in _files_of(RECORD_LINE.validate_json(line).record)]
            for line in smallest:
                found = REPRODUCER_LINE.validate_json(line).smallest
                names += [*_files_of(found.record), *([found.reduced_script] if found.reduced_script else [])]
            yield ItemProgress(item, self._contents(names), tuple(records), tuple(smallest), changed)

    def _new_lines(self, path: Path) -> list[bytes]:
        if path.name == _EARLIER:
            return []
        start = self._sent.get(path.name, 0)
        with path.open("rb") as file:
            file.seek(start)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._sent[path.name] = start + len(complete)
        return complete.splitlines()

    def _contents(self, names: Sequence[str]) -> Mapping[str, bytes]:
        contents = {}
        for name in dict.fromkeys(names):
            path = self._folder / name
            if path.is_file():
                contents[name] = path.read_bytes()
        return contents


def _done(name: str, future: Future[ItemResult], output: str, seconds: float) -> ItemDone:
    error = future.exception()
    if error is None:
        return ItemDone(name, future.result(), output, seconds)
    is_explained = isinstance(error, UncollectedError)
    reason = str(error) if is_explained else f"on {socket.gethostname()}: {format_exception(error)}"
    return ItemDone(name, None, output, seconds, reason)


def _files_of(record: Record) -> list[str]:
    evidence = record.evidence
    own = [evidence.file, evidence.script] if evidence is not None else []
    return [name for name in [*own, *record.files] if name]


def _localize(word: str, session_root: Path, root: Path) -> str:
    is_below = word == str(session_root) or word.startswith(f"{session_root}{os.sep}")
    return f"{root}{word.removeprefix(str(session_root))}" if is_below else word
