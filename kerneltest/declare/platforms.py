"""Patterns of backend ids, and words for kinds of hardware, with which a declaration speaks of some backends."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

WORDS = {
    "gpu": ("*:sm_*", "*:gfx*", "cuda", "rocm", "interpret-mosaic-gpu"),
    "nvidia": ("*:sm_*", "cuda", "interpret-mosaic-gpu"),
    "amd": ("*:gfx*", "rocm"),
    "tpu": ("*:tpu-*", "tpu", "interpret-tpu"),
}


def speaks_of(patterns: Iterable[str], backend: str) -> bool:
    """Whether some patterns or words cover a backend, given by its id."""
    return any(fnmatchcase(backend, each) for pattern in patterns for each in WORDS.get(pattern, (pattern,)))
