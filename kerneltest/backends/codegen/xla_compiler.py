"""XLA's CUDA compiler as a child process without a GPU, since LLVM may abort: lowered functions to machine code.

Reads one request per line from standard input and answers each with one line.
"""

import base64
import os
from typing import Any

from kerneltest.core.children import answer_requests


def compile_module(module: bytes, target: str) -> str:
    """Compiles StableHLO bytecode for a GPU, the text of XLA's GpuTargetConfigProto; returns optimised HLO as text."""
    from kerneltest.trace.jax_compat.abstract_devices import compile_for_device, described_gpu

    executable = compile_for_device(module, described_gpu(target))
    return "\n\n".join(module.to_string() for module in executable.hlo_modules())


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"hlo": compile_module(base64.b64decode(request["module"]), request["target"])}
    except Exception as error:
        return {"verdict": "compile_error", "error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"  # a GPU that this machine has is neither needed nor started
    answer_requests(_answer)
