"""Saves of Python files, as the library `watchfiles` reports them."""

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

MISSING = "watching files needs watchfiles: pip install 'kerneltest[watch]'"


class WatchError(ValueError):
    """Files cannot be watched. The message says why, and what to do."""


def watched_folders(files: Sequence[str]) -> tuple[Path, ...]:
    """Returns the current folder, and the folders of the given files and folders outside of it.

    Args:
      files: as given to pytest, so `::` and the name of a test may follow.

    Raises:
      WatchError: one does not exist.
    """
    folders = [Path.cwd()]
    for file in files:
        path = Path(file.partition("::")[0]).resolve()
        if not path.exists():
            raise WatchError(f"{path} does not exist")
        folder = path if path.is_dir() else path.parent
        if not any(folder.is_relative_to(known) for known in folders):
            folders.append(folder)
    return tuple(folders)


def find_watchfiles() -> Any:
    """Returns the module that watches files.

    Raises:
      WatchError: it is not installed.
    """
    try:
        return import_module("watchfiles")
    except ImportError as error:
        raise WatchError(MISSING) from error


def watch_saves(folders: Sequence[Path], ignored: Path, on_save: Callable[[tuple[Path, ...], float], None]) -> None:
    """Calls `on_save` with files that were saved together and the time of the last save, in seconds. Never returns.

    Args:
      folders: the folders whose Python files are watched, except hidden and installed ones.
      ignored: the folder to which runs write.
      on_save: called for each change.
    """
    watchfiles = find_watchfiles()
    python_files = watchfiles.PythonFilter(ignore_paths=[ignored])
    for changes in watchfiles.watch(*folders, watch_filter=python_files, raise_interrupt=False):
        paths = sorted(Path(path) for _, path in changes)
        times = [path.stat().st_mtime for path in paths if path.exists()]
        on_save(tuple(paths), max(times, default=time.time()))
