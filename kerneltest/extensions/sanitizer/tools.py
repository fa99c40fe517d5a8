"""The tools that `--kt-sanitize` names, and the commands that start them. Imports neither NumPy nor JAX."""

import shutil
from pathlib import Path

GUARDS = "guards"
_ALL = "all"

# By tool: what it looks for, in a sentence.
TOOLS = {
    "memcheck": "Under compute-sanitizer's memcheck: accesses out of bounds and misaligned ones.",
    "initcheck": "Under compute-sanitizer's initcheck: reads of global memory that was never written.",
    "racecheck": "Under compute-sanitizer's racecheck: threads that race in shared memory.",
    "synccheck": "Under compute-sanitizer's synccheck: barriers that not all threads reach.",
    GUARDS: "Between guard zones: writes just before or past an input or an output.",
}

MISSING = "compute-sanitizer is not on PATH: install NVIDIA's CUDA toolkit, or add the folder with it to PATH"
_TOOLKIT = Path("/usr/local/cuda/bin")

ERRORS = "errors.xml"
"""The file to which a tool writes its errors."""

MAX_RECORDS = 100
"""The number of errors that a tool writes for one process."""


def parse_tools(text: str) -> tuple[str, ...]:
    """Returns the tools that comma-separated words name, in the order of `TOOLS`; raises a ValueError for others."""
    words = {word.strip() for word in text.split(",")} - {""}
    if unknown := sorted(words - {*TOOLS, _ALL}):
        raise ValueError(f"unknown tool {unknown[0]!r}; known are {', '.join(TOOLS)}, or {_ALL!r}")
    return tuple(tool for tool in TOOLS if tool in words or _ALL in words)


def supports(tool: str, backend: str) -> bool:
    """Returns whether a tool supports the device of a backend."""
    return backend == "cuda" or (backend == "rocm" and tool == GUARDS)


def find_compute_sanitizer() -> str:
    """Returns the path of compute-sanitizer, or "" if it is not installed."""
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(_TOOLKIT)) or ""


def reason_missing(tool: str) -> str:
    """Returns why this machine lacks a tool, with the remedy, or ""."""
    return "" if tool == GUARDS or find_compute_sanitizer() else MISSING


def tool_command(tool: str, folder: Path) -> list[str]:
    """Returns the command under which a process runs; the tool writes its errors to `folder` when the process ends."""
    if tool == GUARDS:
        return []
    output = ["--xml", "--save", str(folder / ERRORS), "--log-file", str(folder / "log.txt")]
    # XLA makes driver calls that may fail, and starts compilers as child processes.
    filters = ["--report-api-errors", "no", "--target-processes", "application-only", "--show-backtrace", "device"]
    # Ports are tried in turn, and other processes of the run use some as well.
    limits = ["--launch-timeout", "120", "--max-connections", "1000", "--print-limit", str(MAX_RECORDS)]
    # Allocations are adjacent: without padding, an access past the end of one would be inside the next.
    padding = ["--padding", "4096"] if tool == "memcheck" else []
    return [find_compute_sanitizer(), "--tool", tool, *output, *filters, *limits, *padding]
