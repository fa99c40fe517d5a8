"""Temporary folders that are deleted by their process, or by the next run if that process was killed."""

import os
import tempfile
from pathlib import Path
from shutil import rmtree

from filelock import FileLock, Timeout

_PREFIX = "kerneltest-"
_LOCK = ".kerneltest.lock"  # held by the folder's process; the system releases it when that dies


class TemporaryFolder:
    """A folder below the system's temporary one that belongs to this process.

    Attributes:
      path: of the folder.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        self._lock = FileLock(self.path / f"{_LOCK}.new")
        self._lock.acquire(timeout=0)
        # Only now: a folder whose lock is not held is an abandoned one, which any other run deletes.
        Path(self._lock.lock_file).rename(self.path / _LOCK)

    def remove(self) -> None:
        """Deletes the folder."""
        rmtree(self.path, ignore_errors=True)
        self._lock.release()


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
