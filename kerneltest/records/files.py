"""Files of a run's folder, which may come from anywhere: regular ones in it, and none that a link leads to."""

import os
import stat
from pathlib import Path, PureWindowsPath
from typing import BinaryIO, Literal

from kerneltest.core.failures import printable

# Neither a link that was put there meanwhile is followed, nor a pipe waited for.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def leads_out(name: str) -> bool:
    """Whether the name of a file leads out of its folder, on any system."""
    path = PureWindowsPath(name)  # to it, both kinds of slashes part names
    return bool(path.drive or path.root or ".." in path.parts or "\0" in name)


def write_text(path: Path, text: str) -> None:
    """Writes a text file that a user named, whatever is in the text."""
    path.write_text(printable(text), encoding="utf-8")


def opened(folder: Path, name: str, mode: Literal["rb", "wb", "ab", "xb"] = "rb") -> BinaryIO:
    """Opens a file of a run's folder; to be written, it and the folders above it are made where they are missing.

    Args:
      folder: of the run, which may itself be a link.
      name: relative to it.
      mode: of the built-in `open`.

    Raises:
      OSError: it cannot be opened, it is no regular file, or it does not lie in the folder.
    """
    if leads_out(name):
        raise OSError(f"{name!a} leads out of the run's folder")
    path = folder
    for part in PureWindowsPath(name).parts:
        path /= part
        if path.is_symlink():
            raise OSError(f"{path.relative_to(folder)} is a link, and a run's files lie in its own folder")
    if path.exists() and not path.is_file():
        raise OSError(f"{path.relative_to(folder)} is no regular file")
    if mode != "rb":
        path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, mode, opener=_opener)


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | _CAREFULLY, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{Path(path).name} is no regular file")
    return descriptor
