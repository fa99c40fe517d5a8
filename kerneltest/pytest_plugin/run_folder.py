"""The folder of a run: claimed by one run at a time, and cleared of what an earlier run wrote."""

import json
import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from kerneltest.pytest_plugin.temporary_folders import TemporaryFolder

MARKER = ".kerneltest"  # kerneltest may clear folders that contain it
_LOCK = ".kerneltest.lock"
# All files that a run writes there; no others are ever deleted.
_WRITTEN = ("records-*.jsonl", "records-*.jsonl.gz", "end.json", "running-*.txt", "crash-*.jsonl", "died-*.txt",
            "said-*.txt", "costs-*.json", "keys-*.jsonl", "report.html", "smallest-*.jsonl", "smallest-*.jsonl.gz",
            "mutants-*.jsonl", "mutants-*.jsonl.gz", "suspect-*.claim", "cases/cut_*.py", "cases/*.npz",
            "cases/reproduce_*.py", "artifacts/*/*.ttir", "artifacts/*/*.ptx", "artifacts/*/*.amdgcn",
            "artifacts/*/*.hlo.txt")  # fmt: skip


class FolderError(ValueError):
    """A folder to which a run cannot or must not write; says why and what to do."""


class RunFolder:
    """A folder that belongs to one run at a time.

    Attributes:
      path: of the folder.
      run: the run's id, which its plan also holds.
    """

    def __init__(self, path: Path, run: str = "") -> None:
        """Uses a folder that another process has claimed, as an xdist worker does."""
        self.path = path
        self.run = run
        self._lock: FileLock | None = None
        self._temporary: TemporaryFolder | None = None

    @classmethod
    def claim(cls, path: Path) -> "RunFolder":
        """Locks a new, an empty, or an earlier run's folder until it is released.

        Raises:
          FolderError: it holds other files, another run is using it, or it is not writable.
        """
        folder = cls(path, uuid.uuid4().hex)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / MARKER).is_file() and any(path.iterdir()):
                raise FolderError(
                    f"{path} contains files that are not from a kerneltest run. Name a new or an empty folder, or "
                    "empty that one"
                )
            if links := [each.name for each in path.iterdir() if each.is_symlink()]:
                raise FolderError(f"{path} contains a symlink, {links[0]}. Refusing to write through it; remove it")
            folder._lock = FileLock(path / _LOCK)
            folder._lock.acquire(timeout=0)
            owner = {
                "run": folder.run,
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            (path / MARKER).write_text(json.dumps(owner) + "\n", encoding="utf-8")
        except Timeout as error:
            raise FolderError(f"{path} is in use by {_describe_owner(path)}. Name another folder, or wait") from error
        except OSError as error:
            raise FolderError(f"cannot write to {path}: {error.strerror or error}") from error
        return folder

    @classmethod
    def temporary(cls) -> "RunFolder":
        """Creates a folder that is deleted when it is released."""
        temporary = TemporaryFolder()
        folder = cls(temporary.path, uuid.uuid4().hex)
        folder._temporary = temporary
        return folder

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
        """Unlocks the folder for other runs."""
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            self._temporary.remove()


def _describe_owner(path: Path) -> str:
    try:
        owner = json.loads((path / MARKER).read_text(encoding="utf-8"))
        return f"process {int(owner['pid'])} on {owner['host']!s:.80} since {owner['started']!s:.40}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another run"
