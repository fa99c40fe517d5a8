"""An archive of the project's files, for machines that lack them or have other versions."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

_MAX_BYTES = 2**27  # of all files
_EXCLUDED = {"__pycache__", "node_modules", "site-packages"}


class ArchiveError(ValueError):
    """A project that is too large to send; says what to do."""


def pack(root: Path, exclude: Path) -> bytes:
    """Returns an archive of a project's files, without hidden ones and virtual environments.

    Args:
      root: of the project.
      exclude: a folder to leave out: the run's.

    Raises:
      ArchiveError: the files are too large.
    """
    archive, size = io.BytesIO(), 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as file:
        for path in _files(root, exclude):
            size += path.stat().st_size
            if size > _MAX_BYTES:
                raise ArchiveError(
                    f"{root} contains more than {_MAX_BYTES >> 20} MiB, which is too much to send: put the project on "
                    "all nodes, at the same path and with the same sources"
                )
            file.write(path, path.relative_to(root).as_posix())
    return archive.getvalue()


def unpack(archive: bytes, folder: Path) -> Path:
    """Extracts an archive into a folder and returns the folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        file.extractall(folder)
    return folder


def _files(root: Path, exclude: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(root):
        here = Path(name)
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".") and each not in _EXCLUDED and here / each != exclude
            if not (here / each / "pyvenv.cfg").exists()
        )
        yield from (here / each for each in sorted(files) if not each.startswith(".") and (here / each).is_file())
