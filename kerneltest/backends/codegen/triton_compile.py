"""Compilation of lowered kernels by Triton, in parallel child processes, with a cache on disk."""

import atexit
import functools
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from kerneltest.backends.codegen.gpu_lowering import LoweredKernel
from kerneltest.backends.compile_cache import Answer, cached_compile
from kerneltest.backends.workers import Workers
from kerneltest.core.details import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.core.verdicts import Verdict

# LLVM can take minutes for a block that is too large for the registers.
SECONDS = 120.0

_workers = Workers("kerneltest.backends.codegen.triton_compiler", "Triton's compiler")
atexit.register(_workers.close)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """One compiled kernel.

    Attributes:
      facts: registers per thread, bytes of shared memory, of stack and of spilled registers, counts of instructions.
      advice: facts that its author may want to change, in words.
      assembly: PTX or AMDGCN.
    """

    facts: dict[str, int]
    advice: tuple[str, ...]
    assembly: str


@functools.cache
def triton_version() -> str:
    """Returns the version of the installed triton package."""
    return metadata.version("triton")


def compile_kernel(kernel: LoweredKernel, target: Target) -> CompiledKernel:
    """Compiles one kernel, or returns it from the cache.

    Raises:
      Failure: the compiler's error, its death or its timeout.
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
    keys = frozenset({"facts", "assembly"})
    answer = cached_compile(request, {"triton": triton_version()}, keys, lambda: _ask(request))
    if "verdict" in answer:
        raise _failure(answer, kernel.name)
    return CompiledKernel(answer["facts"], _advice(answer["facts"], text, target), answer["assembly"])


def _failure(answer: Answer, kernel: str) -> Failure:
    verdict, message = Verdict(answer["verdict"]), answer["message"]
    if verdict is not Verdict.RESOURCE_EXCEEDED:
        return Failure(verdict, NotBuilt(Stage.COMPILE, kernel, "", message))
    needed, available = answer.get("needed"), answer.get("available")
    detail = ResourceExceeded(Stage.COMPILE, kernel, "shared memory", needed, available, "B", message)
    return Failure(verdict, detail)


def _ask(request: dict[str, Any]) -> Answer:
    answer: Answer = _workers.ask(request, SECONDS)
    said = [line for line in answer.pop("stderr").splitlines() if "error" in line.lower()]
    if answer.get("verdict") == Verdict.COMPILE_ERROR and said:
        answer["message"] += f" ({said[-1].strip()})"
    return answer


def _advice(facts: dict[str, int], text: str, target: Target) -> tuple[str, ...]:
    advice = []
    if facts.get("spills"):
        advice.append(
            f"{facts['spills']} bytes per thread spilled from registers to memory: use smaller blocks or more warps"
        )
    if facts["shared memory"] * 2 > target.shared_memory:
        share = facts["shared memory"] / target.shared_memory
        advice.append(
            f"{share:.0%} of the target's shared memory, so blocks run one at a time: use smaller ones or fewer stages"
        )
    if facts["float64 instructions"] and "f64" not in text:
        advice.append(f"{facts['float64 instructions']} float64 instructions in a kernel without float64 values")
    if "tt.dot" in text and not facts["matrix instructions"]:
        asked = " (inputPrecision = ieee asks for that)" if "inputPrecision = ieee" in text else ""
        advice.append(f"a dot without matrix instructions{asked}: every product is an ordinary multiply-add")
    return tuple(advice)
