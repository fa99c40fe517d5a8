"""XLA's CUDA compiler as a child process without a GPU, since LLVM may abort: lowered functions to machine code.

Reads one request per line from standard input and answers each with one line.
"""

import base64
import ctypes
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from kerneltest.backends.codegen.triton_compiler import PTXAS
from kerneltest.core.children import answer_requests

_ENTRY = re.compile(r"Compiling entry function '(\w+)_mosaic_gpu_kernel' for .*?(?=Compiling entry function|\Z)", re.S)
# By the fingerprint of a Mosaic GPU kernel: XLA compiles it once in a process, and ptxas reports it then.
_reports: dict[str, dict[str, int]] = {}


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    # The optimised HLO of StableHLO bytecode for a GPU, the text of XLA's GpuTargetConfigProto, and ptxas' report of
    # some Mosaic GPU kernels, of which it has names and fingerprints.
    from kerneltest.trace.jax_compat.abstract_devices import compile_for_devices, described_gpus

    output = os.dup(1)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        try:
            devices = described_gpus(request["target"], request["devices"])
            executable = compile_for_devices(base64.b64decode(request["module"]), devices)
            hlo = "\n\n".join(module.to_string() for module in executable.hlo_modules())
        except Exception as error:
            return {"verdict": "compile_error", "error": type(error).__name__, "message": str(error)}
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(output, 1)
            os.close(output)
        printed.seek(0)
        _take_reports(printed.read().decode(errors="replace"), request["kernels"])
    return {"hlo": hlo, "reports": [_reports.get(fingerprint, {}) for _, fingerprint in request["kernels"]]}


def _take_reports(text: str, kernels: Sequence[tuple[str, str]]) -> None:
    # ptxas names kernels; those of one name that are compiled together cannot be told apart.
    found: dict[str, list[dict[str, int]]] = defaultdict(list)
    new: dict[str, set[str]] = defaultdict(set)
    for entry in _ENTRY.finditer(text):
        facts = {fact: re.search(pattern, entry[0]) for fact, pattern in PTXAS.items()}
        found[entry[1]].append({fact: int(match[1]) for fact, match in facts.items() if match})
    for name, fingerprint in kernels:
        if fingerprint not in _reports:
            new[name].add(fingerprint)
    for name, fingerprints in new.items():
        if len(fingerprints) == len(found[name]) == 1:
            _reports[fingerprints.pop()] = found[name][0]


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"  # a GPU that this machine has is neither needed nor started
    os.environ["MOSAIC_GPU_DUMP_PTXAS"] = "1"  # to standard output
    answer_requests(_answer)
