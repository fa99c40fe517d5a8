"""Digests of the contents of installed packages: two builds of one version differ."""

import functools
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from importlib import metadata, util
from pathlib import Path

# What decides a verdict apart from the kernel, the oracle and the declaration.
_MODULES = ("kerneltest", "jax", "jaxlib", "numpy", "ml_dtypes", "scipy")
_COMPILERS = (
    "jax-cuda",
    "jax_cuda",
    "jax-rocm",
    "jax_rocm",
    "nvidia-",
    "nvidia_",
    "triton",
    "pytorch-triton",
    "libtpu",
)
_CHUNK = 2**20


@functools.cache
def contents_of_libraries() -> str:
    """Returns a digest of kerneltest, JAX, NumPy and the compilers, as they are installed here."""
    parts = [f"{name} {contents_of_module(name)}" for name in _MODULES]
    for each in metadata.distributions():
        name = (each.metadata["Name"] or "").lower()
        if name.startswith(_COMPILERS):
            parts.append(f"{name} {each.version} {_digest(_recorded(each.read_text('RECORD') or ''))}")
    return _digest(sorted(parts))


def contents_of_module(name: str) -> str:
    """Returns a digest of a top-level package: of its RECORD if an installer wrote one, else of all its files.

    Returns:
      Hexadecimal digits; "" if it is not installed.
    """
    try:
        spec = util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        return ""
    home = Path(places[0])
    for record in sorted(home.parent.glob(f"{name}-*.dist-info/RECORD")):
        lines = list(_recorded(record.read_text(encoding="utf-8", errors="replace")))
        if any(line.startswith(f"{name}/") for line in lines):
            return _digest(lines)
    return _digest(_files(home))


def _recorded(text: str) -> Iterator[str]:
    """Yields the lines of a RECORD that tell the content of a file."""
    yield from sorted(line for line in text.splitlines() if re.search(r",sha\d+=", line) and ".dist-info/" not in line)


def _files(home: Path) -> Iterator[str]:
    """Yields the path and the content of each file below a folder."""
    for folder, folders, names in os.walk(home):
        folders[:] = sorted(each for each in folders if each != "__pycache__" and not each.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix != ".pyc" and path.is_file():
                yield f"{path.relative_to(home).as_posix()} {_content(path)}"


def _content(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                digest.update(part)
    except OSError as error:
        return f"unreadable: {error}"
    return digest.hexdigest()


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]
