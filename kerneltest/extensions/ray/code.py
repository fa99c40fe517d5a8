"""Which code a machine would run: results of other code are not joined with these."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import kerneltest

_PACKAGES = ("jax", "jaxlib", "numpy", "ml_dtypes", "triton", "libtpu")
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class Code:
    """What has to be the same on all machines of a run.

    Attributes:
      versions: of packages, by name.
      own: a digest of kerneltest's sources.
      files: a digest of each file of the project that the session has loaded, by its path below the root.
    """

    versions: Mapping[str, str]
    own: str
    files: Mapping[str, str]


def code_of(root: Path, more: Iterable[Path] = ()) -> Code:
    """The code of this process: the modules that it has loaded from below a folder, and some more files of it."""
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {Path(name).resolve() for name in named if isinstance(name, str)} | {each.resolve() for each in more}
    files = {}
    for path in sorted(paths):
        if path.suffix == ".py" and path.is_relative_to(root) and "site-packages" not in path.parts and path.is_file():
            files[path.relative_to(root).as_posix()] = _digest(path)
    return Code(_versions(), _own(), files)


def unlike(code: Code, root: Path) -> tuple[list[str], list[str]]:
    """What this machine has otherwise: of what is installed, and of the project's files below a folder."""
    installed = [
        f"{name} is {_versions().get(name, 'not there')}, and {version} where the run was planned"
        for name, version in code.versions.items()
        if _versions().get(name) != version
    ]
    if code.own != _own():
        installed.append("kerneltest's own sources differ")
    files = [
        f"{name} {'differs' if (root / name).is_file() else 'is not there'}"
        for name, digest in code.files.items()
        if _digest(root / name) != digest
    ]
    return installed, files


def in_words(reasons: list[str]) -> str:
    """Some reasons, the first few of them."""
    more = f" and {len(reasons) - _MOST_TOLD} more" if len(reasons) > _MOST_TOLD else ""
    return "; ".join(reasons[:_MOST_TOLD]) + more


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _own() -> str:
    home = Path(kerneltest.__file__).parent
    told = "".join(f"{path.relative_to(home).as_posix()} {_digest(path)}\n" for path in sorted(home.rglob("*.py")))
    return hashlib.sha256(told.encode()).hexdigest()


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
