"""Access to a run's folder, which may be hostile: only regular files inside it, never through a symlink."""

import os
import stat
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, Literal

from kerneltest.core.failures import escape_surrogates

# Do not follow a symlink created in the meantime, and do not wait for a pipe.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class RecordError(ValueError):
    """A file of a run that cannot be read; names the file, the line and the field."""


def escapes_folder(name: str) -> bool:
    """Returns whether a relative file name escapes its folder on any operating system."""
    path = PureWindowsPath(name)  # splits at both kinds of slashes
    return bool(path.drive or path.root or ".." in path.parts or "\0" in name)


def write_text(path: Path, text: str) -> None:
    """Writes a text file at a path given by the user; text that is not valid Unicode is escaped."""
    path.write_text(escape_surrogates(text), encoding="utf-8")


def open_inside(folder: Path, name: str, mode: Literal["rb", "wb", "ab", "xb"] = "rb") -> BinaryIO:
    """Opens a file in a run's folder. For writing, missing folders are created.

    Args:
      folder: the run's folder, which may itself be a symlink.
      name: path relative to the folder.
      mode: as for the built-in `open`.

    Raises:
      OSError: the file cannot be opened, is not a regular file, or lies outside the folder.
    """
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


def slug(text: str) -> str:
    """Returns text as a part of a file's name: everything but letters and digits becomes `_`."""
    return "".join(c if c.isalnum() else "_" for c in text)
