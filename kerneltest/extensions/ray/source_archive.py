"""The project's files in one piece, for machines that have none of them, or others."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

_MOST = 2**27  # bytes of all files
_NO_CODE = {"__pycache__", "node_modules", "site-packages"}


class ShippingError(ValueError):
    """A project that is too large to be shipped; says what to do."""


def packed(root: Path, without: Path) -> bytes:
    """An archive of a project's files, but for hidden ones, virtual environments and a run's own folder.

    Raises:
      ShippingError: it is too large.
    """
    archive, size = io.BytesIO(), 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as file:
        for path in _files(root, without):
            size += path.stat().st_size
            if size > _MOST:
                raise ShippingError(
                    f"{root} holds more than {_MOST >> 20} MiB, which is not shipped: put the project on all nodes, at "
                    "the same place and with the same sources"
                )
            file.write(path, path.relative_to(root).as_posix())
    return archive.getvalue()


def unpacked(archive: bytes, folder: Path) -> Path:
    """The folder, with what `packed` packed."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        file.extractall(folder)
    return folder


def _files(root: Path, without: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(root):
        here = Path(name)
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".") and each not in _NO_CODE and here / each != without
            if not (here / each / "pyvenv.cfg").exists()
        )
        yield from (here / each for each in sorted(files) if not each.startswith(".") and (here / each).is_file())
