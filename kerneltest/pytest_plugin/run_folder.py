"""The folder of a run: claimed by one run at a time, and cleared of what an earlier run wrote."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout

from kerneltest.core.failures import RecordError, UnusableInputError
from kerneltest.core.ids import ANY
from kerneltest.core.media import lines_for_terminal

if TYPE_CHECKING:
    from kerneltest.execute.settings import RunSettings
    from kerneltest.records.run_plan import Plan


_PREFIX = "kerneltest-"  # of temporary folders
_LOCK = ".kerneltest.lock"  # held by the folder's process; the system releases it when that dies
MARKER = ".kerneltest"  # kerneltest may clear folders that contain it
# All files that a run writes there; no others are ever deleted.
_WRITTEN = ("records-*.jsonl", "records-*.jsonl.gz", "end.json", "running-*.txt", "crash-*.jsonl", "died-*.txt",
            "said-*.txt", "costs-*.json", "keys-*.jsonl", "report.html", "smallest-*.jsonl", "smallest-*.jsonl.gz",
            "mutants-*.jsonl", "mutants-*.jsonl.gz", "suspect-*.claim", "cases/cut_*.py", "cases/*.npz",
            "cases/reproduce_*.py", "artifacts/*/*.ttir", "artifacts/*/*.ptx", "artifacts/*/*.amdgcn",
            "artifacts/*/*.hlo.txt")  # fmt: skip


class FolderError(UnusableInputError):
    """A folder to which a run cannot or must not write; says why and what to do."""


class RunFolder:
    """A folder that belongs to one run at a time."""

    def __init__(self, path: Path, run: str, lock: FileLock | None = None) -> None:
        """Uses a folder that another process has claimed, as an xdist worker does, or that is locked for this one."""
        self.path, self.run = path, run  # the id of the run, which its plan also holds
        self._lock = lock

    @classmethod
    def claim(cls, path: Path) -> RunFolder:
        """Locks a new, an empty, or an earlier run's folder until it is released; raises a FolderError."""
        run, lock = uuid.uuid4().hex, FileLock(path / _LOCK)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / MARKER).is_file() and any(path.iterdir()):
                raise FolderError(
                    f"{path} contains files that are not from a kerneltest run. Name a new or an empty folder, or "
                    "empty that one"
                )
            if links := [each.name for each in path.iterdir() if each.is_symlink()]:
                raise FolderError(f"{path} contains a symlink, {links[0]}. Refusing to write through it; remove it")
            lock.acquire(timeout=0)
            owner = {
                "run": run,
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            (path / MARKER).write_text(json.dumps(owner) + "\n", encoding="utf-8")
        except Timeout as error:
            raise FolderError(f"{path} is in use by {_describe_owner(path)}. Name another folder, or wait") from error
        except OSError as error:
            raise FolderError(f"cannot write to {path}: {error.strerror or error}") from error
        return cls(path, run, lock)

    @contextmanager
    def folder_beside(self) -> Iterator[Path]:
        """Yields a folder next to this one, in which to write what `take_files` moves here; deleted at the end."""
        path = self.path.resolve()
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent, ignore_cleanup_errors=True) as made:
            yield Path(made)

    def take_files(self, other: Path) -> None:
        """Replaces what an earlier run wrote here by the files of another folder; the plan comes last."""
        self.clear()
        files = [path for path in other.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: path.name == "plan.json"):
            target = self.path / path.relative_to(other)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)

    def clear(self) -> None:
        """Deletes what an earlier run wrote, except for its plan, which is overwritten."""
        for pattern in _WRITTEN:
            for path in self.path.glob(pattern):
                if path.resolve().is_relative_to(self.path.resolve()):
                    path.unlink()
        for path in [*self.path.glob("artifacts/*"), self.path / "artifacts", self.path / "cases"]:
            if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
                path.rmdir()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()


class TemporaryFolder(RunFolder):
    """A folder below the system's temporary one. Its release deletes it, or the next run if its process was killed."""

    def __init__(self) -> None:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        lock = FileLock(path / f"{_LOCK}.new")
        lock.acquire(timeout=0)
        # Only now: a folder whose lock is not held is an abandoned one, which any other run deletes.
        Path(lock.lock_file).rename(path / _LOCK)
        super().__init__(path, uuid.uuid4().hex, lock)

    def release(self) -> None:
        rmtree(self.path, ignore_errors=True)
        super().release()


def remove_abandoned_folders() -> None:
    """Deletes the temporary folders of this user's processes that were killed. Those of living ones are locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        folder = path.parent
        try:
            if folder.is_symlink() or path.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with FileLock(path, timeout=0):
                rmtree(folder, ignore_errors=True)
        except (OSError, Timeout):
            continue


def _describe_owner(path: Path) -> str:
    try:
        owner = json.loads((path / MARKER).read_text(encoding="utf-8"))
        return f"process {int(owner['pid'])} on {owner['host']!s:.80} since {owner['started']!s:.40}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another run"


# The plan of a run in its folder: who writes it, and whether an interrupted run can be resumed with it.


class PlanFile:
    """The plan of a run. Until this run has one, its folder keeps what an earlier run left there."""

    def __init__(self, folder: RunFolder, settings: RunSettings, *, may_resume: bool) -> None:
        """Reads the plan of the run to resume, if this process is to resume one; raises pytest.UsageError."""
        self.is_written = False  # whether this run has written its plan, here or in an xdist worker
        self._folder = folder
        self._resumed: Plan | None = None
        if not (settings.resume and may_resume):
            return
        from kerneltest.records.resume import load_previous_plan

        try:
            self._resumed = load_previous_plan(folder.path)
        except RecordError as error:
            folder.release()
            raise pytest.UsageError(lines_for_terminal(f"--kt-resume: {error}")) from error

    def begin_run(self, plan: Plan | None = None) -> None:
        """Clears the folder, or prepares its run to be resumed; ends the session if that run has another plan."""
        self.is_written = True
        if self._resumed is None:
            self._folder.clear()
            return
        from kerneltest.records.record_files import read_plan, write_plan
        from kerneltest.records.resume import prepare_resume, resume_obstacles

        path = self._folder.path
        try:
            problem = "; ".join(resume_obstacles(self._resumed, plan or read_plan(path)))
            if not problem:
                prepare_resume(path)
        except RecordError as error:
            problem = str(error)
        if problem:
            write_plan(path, self._resumed)  # a worker may have overwritten it
            self.is_written = False
            message = f"--kt-resume: this run differs from the one in {path}: {problem}. Undo that or omit --kt-resume"
            pytest.exit(lines_for_terminal(message), returncode=pytest.ExitCode.USAGE_ERROR)

    def _read(self) -> Plan | None:
        if not (self._folder.path / "plan.json").exists():
            return None
        from kerneltest.records.record_files import read_plan

        try:
            return read_plan(self._folder.path)
        except RecordError:
            return None

    @property
    def is_on_disk(self) -> bool:
        return (plan := self._read()) is not None and plan.run == self._folder.run

    def cases_by_item(self) -> dict[str, int]:
        """Returns the number of cases of each item whose backend is available; {} before the plan is written."""
        counts: Counter[str] = Counter()
        if (plan := self._read()) is not None:
            for item in plan.items:
                counts[item.item] += sum(item.families.values()) if item.group != ANY else 0
        return +counts
