"""The ids of all backends, so that a declaration can be checked before any backend is imported."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from kerneltest.core.suggestions import suggest
from kerneltest.core.targets import TARGETS, TPUS

# Words for kinds of hardware, with the patterns of backend ids that they stand for.
HARDWARE_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("*:sm_*", "*:gfx*", "cuda", "rocm", "interpret-mosaic-gpu"),
    "nvidia": ("*:sm_*", "cuda", "interpret-mosaic-gpu"),
    "amd": ("*:gfx*", "rocm"),
    "tpu": ("*:tpu-*", "tpu", "interpret-tpu"),
}

# The backends of kerneltest, in the order of reports; `kt.backend` adds those of users.
BACKEND_IDS: dict[str, None] = dict.fromkeys(
    (
        "interpret",
        "interpret-mosaic-gpu",
        "interpret-tpu",
        *(f"lower:{target}" for target in (*TARGETS, *TPUS)),
        *(f"compile:{target}" for target in (*TARGETS, *TPUS)),
        "compile:xla-sm_90",
        *(f"simulate:{target}" for target in TARGETS),
        "cuda",
        "rocm",
        "tpu",
    )
)


# Words that users take for backends, with what to write instead.
_MEANT: Mapping[str, str] = {
    "cpu": "a CPU runs 'interpret'",
    "gpu": "a GPU runs 'cuda' or 'rocm', and a CPU 'simulate:*'",
    "nvidia": "an NVIDIA GPU runs 'cuda', and a CPU 'simulate:sm_90'",
    "amd": "an AMD GPU runs 'rocm', and a CPU 'simulate:gfx942'",
}


def suggest_backend(given: str, known: Iterable[str]) -> str:
    """Returns what to write in place of an unknown backend, as in `; did you mean 'interpret'?`, or ""."""
    return f"; {_MEANT[given]}" if given in _MEANT else suggest(given, known)


def unknown_pattern(pattern: str) -> str:
    """Returns what is wrong with a pattern that matches no backend, with the closest id; "" if it matches one."""
    if pattern in HARDWARE_PATTERNS or any(fnmatchcase(each, pattern) for each in BACKEND_IDS):
        return ""
    hint = suggest_backend(pattern, [*BACKEND_IDS, *HARDWARE_PATTERNS]) or "; `kerneltest doctor` lists the backends"
    return f"{pattern!r} matches no backend{hint} (register a backend of your own with kt.backend first)"
