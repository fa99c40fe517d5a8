"""Files below a folder that may be hostile: only regular ones inside of it, never through a symlink.

`DiskStore` keeps what later runs may reuse, such as compiled code and the records of green items.
"""

import errno
import gzip
import os
import stat
import threading
import zlib
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, Literal

# Do not follow a symlink created in the meantime, and do not wait for a pipe.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def escapes_folder(name: str) -> bool:
    """Returns whether a relative file name escapes its folder on any operating system."""
    path = PureWindowsPath(name)  # splits at both kinds of slashes
    return bool(path.drive or path.root or ".." in path.parts or "\0" in name)


def open_inside(folder: Path, name: str, mode: Literal["rb", "wb", "ab", "xb"] = "rb") -> BinaryIO:
    """Opens a regular file in a run's folder, and makes folders for it; an OSError if it lies outside."""
    if escapes_folder(name):
        raise OSError(f"{name!a} leads out of the run's folder")
    path = folder
    for part in PureWindowsPath(name).parts:
        path /= part
        if path.is_symlink():
            raise OSError(f"{path.relative_to(folder)} is a symlink; a run's files must lie in its own folder")
    if path.exists() and not path.is_file():
        raise OSError(f"{path.relative_to(folder)} is not a regular file")
    if mode != "rb":
        path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, mode, opener=_opener)


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | _CAREFULLY, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{Path(path).name} is not a regular file")
    return descriptor


def read_regular_file(path: Path) -> bytes:
    """Returns the content of a file that a user names; an OSError if it is not a regular file, which could block."""
    if not path.is_dir() and path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


_MAX_STORED = 2**30  # bytes of all files of a store
_MAX_UNPACKED = 2**28  # bytes of one file
_LEVEL = 3  # of gzip; the highest level takes three times as long


class DamagedError(ValueError):
    """A file of a store that cannot be read; says why."""


class DiskStore:
    """Packed files by name below one folder, replaced atomically; the least recently used ones make room for others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file, None if there is none; DamagedError if it was not written by a store."""
        try:
            with open_inside(self.folder, name) as packed, gzip.open(packed, "rb") as file:
                content = file.read(_MAX_UNPACKED)
            os.utime(self.folder / name)
        except FileNotFoundError:
            return None
        except (OSError, EOFError, zlib.error) as error:
            raise DamagedError(str(error)) from error
        return content

    def write(self, name: str, content: bytes) -> None:
        temporary = f"{name}.{os.getpid()}.{threading.get_ident()}.tmp"
        written = self.folder / temporary
        try:
            written.unlink(missing_ok=True)
            with open_inside(self.folder, temporary, "xb") as file:
                file.write(gzip.compress(content, _LEVEL, mtime=0))
            written.replace(self.folder / name)
        except OSError:  # a later run does without it
            with suppress(OSError):
                written.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def prune(self, max_bytes: int = _MAX_STORED) -> None:
        """Deletes the least recently used files, of other programs too, until at most `max_bytes` are left."""
        found = []
        for path in self.folder.rglob("*"):
            with suppress(OSError):  # another run may have dropped it
                if stat.S_ISREG((status := path.lstat()).st_mode):
                    found.append((max(status.st_mtime, status.st_atime), status.st_size, path))
        for _, size, path in sorted(found, reverse=True):
            max_bytes -= size
            if max_bytes < 0:
                with suppress(OSError):
                    path.unlink()
