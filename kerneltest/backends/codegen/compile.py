"""Lowered kernels through Triton's compiler: in child processes, side by side, answers kept on disk by content."""

import atexit
import functools
import gzip
import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kerneltest.backends.codegen.isolate import Workers
from kerneltest.backends.codegen.lower import Kernel
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict

# A block that is too large for the registers can take LLVM minutes.
SECONDS = 120.0

_workers = Workers("kerneltest.backends.codegen.triton_compiler", "Triton's compiler")
atexit.register(_workers.close)
_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of one kernel.

    Attributes:
      facts: registers a thread, bytes of shared memory, of stack and of spilled registers, counts of instructions.
      advice: what its author may want to change.
      assembly: PTX or AMDGCN.
    """

    facts: dict[str, int]
    advice: tuple[str, ...]
    assembly: str


def keep_answers(folder: Path) -> None:
    """Keeps the compiler's answers in `folder` between runs."""
    global _folder
    _folder = folder
    folder.mkdir(parents=True, exist_ok=True)


@functools.cache
def triton_version() -> str:
    """Of the installed triton package."""
    return metadata.version("triton")


def compile_kernel(kernel: Kernel, target: Target) -> Compiled:
    """Compiles one kernel, or recalls it.

    Raises:
      Failure: what the compiler says, or that it died or took too long.
    """
    text = kernel.text
    request = {
        "text": text,
        "platform": target.platform,
        "arch": target.arch,
        "warp": target.warp,
        "warps": kernel.warps,
        "stages": kernel.stages,
        "shared_memory": target.shared_memory,
    }
    answer = _recalled(request) or _asked(request)
    if "verdict" in answer:
        raise Failure(Verdict(answer["verdict"]), answer["message"])
    return Compiled(answer["facts"], _advice(answer["facts"], text, target), answer["assembly"])


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = _workers.ask(request, SECONDS)
    said = [line for line in answer.pop("stderr").splitlines() if "error" in line.lower()]
    if answer.get("verdict") == Verdict.COMPILE_ERROR and said:
        answer["message"] += f" ({said[-1].strip()})"
    path = _path(request)
    if path is not None:
        temporary = path.with_suffix(f".{os.getpid()}.{id(answer)}")
        temporary.write_bytes(gzip.compress(json.dumps(answer).encode()))
        temporary.replace(path)
    return answer


def _recalled(request: dict[str, Any]) -> dict[str, Any] | None:
    path = _path(request)
    if path is None or not path.exists():
        return None
    try:
        answer = json.loads(gzip.decompress(path.read_bytes()))
        if not ({"facts", "assembly"} <= answer.keys() or {"verdict", "message"} <= answer.keys()):
            raise ValueError("it is not an answer of the compiler")
    except (OSError, ValueError, AttributeError, EOFError) as error:
        warnings.warn(f"{path} cannot be read ({error}): compiling again", stacklevel=2)
        return None
    return dict(answer)


def _path(request: dict[str, Any]) -> Path | None:
    if _folder is None:
        return None
    content = json.dumps({**request, "triton": triton_version()}, sort_keys=True)
    return _folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json.gz"


def _advice(facts: dict[str, int], text: str, target: Target) -> tuple[str, ...]:
    advice = []
    if facts.get("spills"):
        advice.append(
            f"{facts['spills']} bytes a thread spilled from registers to memory: smaller blocks, or more warps"
        )
    if facts["shared memory"] * 2 > target.shared_memory:
        share = facts["shared memory"] / target.shared_memory
        advice.append(f"{share:.0%} of the target's shared memory, so one block at a time: smaller blocks or stages")
    if facts["float64 instructions"] and "f64" not in text:
        advice.append(f"{facts['float64 instructions']} float64 instructions in a kernel without float64 values")
    if "tt.dot" in text and not facts["matrix instructions"]:
        asked = " (inputPrecision = ieee asks for that)" if "inputPrecision = ieee" in text else ""
        advice.append(f"a dot without matrix instructions{asked}: every product is an ordinary multiply-add")
    return tuple(advice)
