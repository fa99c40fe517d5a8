"""The code that a machine would run: results of different code are not combined."""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kerneltest
from kerneltest.core.fingerprint import file_contents, folder_contents, package_versions

_HOME = Path(kerneltest.__file__).parent
_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ProjectCode:
    """The code that must be the same on all machines of a run."""

    versions: Mapping[str, str]  # of packages, by name
    own: str  # fingerprint of kerneltest's files
    # fingerprints of the project's files that the session has loaded, by path relative to the root
    files: Mapping[str, str]


def project_code(root: Path, more: Iterable[Path] = ()) -> ProjectCode:
    """Returns the code of this process: loaded modules below `root`, without installed packages, and more files."""
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {Path(name).resolve() for name in loaded if isinstance(name, str)} | {each.resolve() for each in more}
    files = {}
    for path in sorted(paths):
        if path.suffix == ".py" and path.is_relative_to(root) and "site-packages" not in path.parts and path.is_file():
            files[path.relative_to(root).as_posix()] = file_contents(path)
    return ProjectCode(package_versions(), folder_contents(_HOME), files)


def code_differences(code: ProjectCode, root: Path) -> tuple[list[str], list[str]]:
    """Returns how this machine's code differs: in installed packages, and in the project's files below `root`."""
    mine = package_versions()
    packages = [
        f"{name} is {mine.get(name, 'not installed')}; the run was planned with {version}"
        for name, version in code.versions.items()
        if mine.get(name) != version
    ]
    if code.own != folder_contents(_HOME):
        packages.append("kerneltest's own sources differ")
    files = [
        f"{name} {'differs' if (root / name).is_file() else 'is missing'}"
        for name, contents in code.files.items()
        if file_contents(root / name) != contents
    ]
    return packages, files


def format_reasons(reasons: Sequence[str]) -> str:
    """Returns the first few reasons as one line."""
    more = f" and {len(reasons) - _MAX_SHOWN} more" if len(reasons) > _MAX_SHOWN else ""
    return "; ".join(reasons[:_MAX_SHOWN]) + more


# An archive of the project's files, for machines that lack them or have other versions.

_MAX_BYTES = 2**27  # of all files
_EXCLUDED = {"__pycache__", "node_modules", "site-packages"}


class ArchiveError(ValueError):
    """A project that is too large to send; says what to do."""


def pack(root: Path, exclude: Path) -> bytes:
    """Returns an archive of a project's files, without hidden ones and virtual environments; raises an ArchiveError."""
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
            folder
            for folder in folders
            if not folder.startswith(".") and folder not in _EXCLUDED and here / folder != exclude
            if not (here / folder / "pyvenv.cfg").exists()
        )
        yield from (here / file for file in sorted(files) if not file.startswith(".") and (here / file).is_file())
