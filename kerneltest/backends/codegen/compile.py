"""Lowered kernels through Triton's compiler: in child processes, side by side, answers kept on disk by content."""

import atexit
import functools
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from kerneltest.backends.codegen.lower import Kernel
from kerneltest.backends.compile_cache import answered
from kerneltest.backends.workers import Workers
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict

# A block that is too large for the registers can take LLVM minutes.
SECONDS = 120.0

_workers = Workers("kerneltest.backends.codegen.triton_compiler", "Triton's compiler")
atexit.register(_workers.close)


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
    told = frozenset({"facts", "assembly"})
    answer = answered(request, {"triton": triton_version()}, told, lambda: _asked(request))
    if "verdict" in answer:
        raise Failure(Verdict(answer["verdict"]), answer["message"])
    return Compiled(answer["facts"], _advice(answer["facts"], text, target), answer["assembly"])


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = _workers.ask(request, SECONDS)
    said = [line for line in answer.pop("stderr").splitlines() if "error" in line.lower()]
    if answer.get("verdict") == Verdict.COMPILE_ERROR and said:
        answer["message"] += f" ({said[-1].strip()})"
    return answer


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
