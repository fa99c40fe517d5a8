"""The tools that `--kt-sanitize` names, and what a machine lacks of them. Imports neither NumPy nor JAX."""

import shutil
from pathlib import Path

GUARDS = "guards"
_ALL = "all"

# By tool, what it looks for, in a sentence.
TOOLS = {
    "memcheck": "Under compute-sanitizer's memcheck: accesses out of bounds and misaligned ones.",
    "initcheck": "Under compute-sanitizer's initcheck: reads of global memory that nobody wrote.",
    "racecheck": "Under compute-sanitizer's racecheck: threads that race in shared memory.",
    "synccheck": "Under compute-sanitizer's synccheck: barriers that not all threads reach.",
    GUARDS: "Between guard zones: writes just before or past an input or an output.",
}

MISSING = (
    "compute-sanitizer is not on PATH: install it with NVIDIA's CUDA toolkit, or put the folder that has it on PATH"
)
_TOOLKIT = Path("/usr/local/cuda/bin")


def parse_tools(text: str) -> tuple[str, ...]:
    """The tools that some comma-separated words stand for, in their own order.

    Raises:
      ValueError: a word that names none; lists the known ones.
    """
    words = {word.strip() for word in text.split(",")} - {""}
    if unknown := sorted(words - {*TOOLS, _ALL}):
        raise ValueError(f"unknown tool {unknown[0]!r}; known are {', '.join(TOOLS)}, or {_ALL!r}")
    return tuple(tool for tool in TOOLS if tool in words or _ALL in words)


def serves(tool: str, backend: str) -> bool:
    """Whether a tool is for the device of a backend."""
    return backend == "cuda" or (backend == "rocm" and tool == GUARDS)


def compute_sanitizer() -> str:
    """Its path, or ""."""
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(_TOOLKIT)) or ""


def missing(tool: str) -> str:
    """Why this machine lacks a tool, with what to do, or ""."""
    return "" if tool == GUARDS or compute_sanitizer() else MISSING


MOST_RECORDS = 100  # that a process writes of its errors


def command(tool: str, folder: Path) -> list[str]:
    """What a process is started with; its errors will be in `folder`, once it has ended."""
    if tool == GUARDS:
        return []
    told = ["--xml", "--save", str(folder / ERRORS), "--log-file", str(folder / "said.txt")]
    # XLA asks the driver for things that it need not have, and starts compilers of its own.
    quiet = ["--report-api-errors", "no", "--target-processes", "application-only", "--show-backtrace", "device"]
    # Ports are taken in turn, and other processes of the run take some as well.
    patient = ["--launch-timeout", "120", "--max-connections", "1000", "--print-limit", str(MOST_RECORDS)]
    # Allocations stand side by side, and an access past the end of one would lie in the next.
    apart = ["--padding", "4096"] if tool == "memcheck" else []
    return [compute_sanitizer(), "--tool", tool, *told, *quiet, *patient, *apart]


ERRORS = "errors.xml"
