"""XLA's CUDA compiler as a child process without a GPU, since LLVM may abort: lowered functions to machine code.

Reads one request per line from standard input and answers each with one line.
"""

import base64
import os
from typing import Any

from kerneltest.core.children import answer_requests


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    # The optimised HLO of StableHLO bytecode for a GPU, the text of XLA's GpuTargetConfigProto.
    from kerneltest.trace.jax_compat.abstract_devices import compile_for_device, described_gpu

    try:
        executable = compile_for_device(base64.b64decode(request["module"]), described_gpu(request["target"]))
        return {"hlo": "\n\n".join(module.to_string() for module in executable.hlo_modules())}
    except Exception as error:
        return {"verdict": "compile_error", "error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"  # a GPU that this machine has is neither needed nor started
    answer_requests(_answer)
