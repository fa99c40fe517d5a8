"""Triton IR to machine code and what the compiler reports of it. Runs in a process of its own, since LLVM may abort.

Reads a request a line from standard input and answers with a line; imports nothing of kerneltest.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

# XLA contracts products and sums; Triton's own default is about to change.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
# Line tables would name this process's temporary files, so that the same kernel gave other bytes each time.
os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")

_PTXAS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spills": r"(\d+) bytes spill stores",
}
_AMDGCN = {
    "registers": r"\.vgpr_count:\s+(\d+)",
    "scalar registers": r"\.sgpr_count:\s+(\d+)",
    "stack": r"\.private_segment_fixed_size:\s+(\d+)",
    "spills": r"\.vgpr_spill_count:\s+(\d+)",
}
_MATRIX = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma|v_s?w?mfmac?_|v_mfma_|v_s?wmmac?_)")
_DOUBLE = re.compile(r"^\s*(?:\S+ )?(?:(?:add|sub|mul|fma|div|sqrt|rcp)[.\w]*\.f64|v_(?:add|mul|fma|div\w*)_f64)", re.M)


class CompileError(Exception):
    """What stopped the compiler.

    Attributes:
      verdict: what that is called.
    """

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


def compile_kernel(
    text: str, *, platform: str, arch: int | str, warp: int, warps: int, stages: int, shared_memory: int
) -> tuple[dict[str, int], str]:
    """Compiles one kernel.

    Args:
      text: Triton IR as MLIR text.
      platform, arch, warp, shared_memory: of the target; the last in bytes.
      warps, stages: as the kernel's compiler parameters say.

    Returns:
      Facts (registers a thread, bytes of shared memory, of stack and of spilled registers, matrix and float64
      instructions) and the assembly.

    Raises:
      CompileError: with verdict `resource_exceeded` or `compile_error`.
    """
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import Language, make_backend

    cuda = platform == "cuda"
    backend = make_backend(GPUTarget("cuda" if cuda else "hip", arch, warp))
    options = backend.parse_options({"num_warps": warps, "num_stages": stages})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ttir")
        source.write_text(text, encoding="utf-8")
        module: Any = ir.parse_mlir_module(str(source), context)
        module.context = context
        steps: dict[str, Any] = {}
        backend.add_stages(steps, options, Language.TRITON)
        metadata: dict[str, Any] = {**options.__dict__, "target": backend.target}
        for name, step in steps.items():
            if name in ("cubin", "hsaco") and cuda:
                break  # the assembler is called below, for what it tells
            if name == "llir":
                _check_shared(_shared_memory(module, backend, options, Path(folder)), shared_memory)
            module = step(module, metadata)
            assembly = module if name in ("ptx", "amdgcn") else ""
            if assembly:
                text = str(assembly)
        _check_shared(int(metadata.get("shared", 0)), shared_memory)
        report = _assemble(text, int(arch), Path(folder)) if cuda else text
    facts = {"shared memory": int(metadata.get("shared", 0))}
    for key, pattern in (_PTXAS if cuda else _AMDGCN).items():
        if match := re.search(pattern, report):
            facts[key] = int(match.group(1))
    if not cuda:
        facts["spills"] = 4 * facts.get("spills", 0)  # AMD counts registers, ptxas bytes
    facts["matrix instructions"] = len(_MATRIX.findall(text))
    facts["float64 instructions"] = len(_DOUBLE.findall(text))
    return facts, text


def _check_shared(needed: int, available: int) -> None:
    if needed > available:
        raise CompileError(
            "resource_exceeded",
            f"needs {needed} bytes of shared memory for a block, and the target has {available}: make the blocks "
            "smaller, or num_stages",
        )


def _shared_memory(module: Any, backend: Any, options: Any, folder: Path) -> int:
    """Bytes of shared memory, by the pass that allocates it; on a copy, since a block too large takes LLVM minutes."""
    from triton._C.libtriton import amd, ir, nvidia, passes

    path = folder / "copy.ttgir"
    path.write_text(str(module), encoding="utf-8")
    copy = ir.parse_mlir_module(str(path), module.context)
    manager = ir.pass_manager(module.context)
    try:
        passes.convert.add_scf_to_cf(manager)
        if backend.target.backend == "cuda":
            from triton.backends.nvidia.compiler import get_ptx_version_from_options

            version = get_ptx_version_from_options(options, backend.target.arch)
            nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, backend.target.arch, version)
        else:
            amd.passes.ttgpuir.add_allocate_shared_memory(manager, options.arch)
    except (AttributeError, ImportError, TypeError):
        return 0  # another Triton's passes: the compiler tells the same, later
    manager.run(copy, "shared_memory")
    return int(copy.get_int_attr("ttg.shared") or 0)


def _assemble(ptx: str, arch: int, folder: Path) -> str:
    """What ptxas tells with -v."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    source = folder / "kernel.ptx"
    source.write_text(ptx, encoding="utf-8")
    command = [get_ptxas(arch).path, "-v", f"--gpu-name={sm_arch_from_capability(arch)}", str(source)]
    run = subprocess.run([*command, "-o", str(folder / "kernel.cubin")], capture_output=True, text=True, check=False)
    if run.returncode:
        said = (run.stderr.strip() or f"exit code {run.returncode}").splitlines()
        verdict = "resource_exceeded" if "too much shared data" in run.stderr else "compile_error"
        raise CompileError(verdict, f"ptxas: {said[0]}")
    return run.stderr


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        facts, assembly = compile_kernel(**request)
    except CompileError as error:
        return {"verdict": error.verdict, "message": str(error)}
    except Exception as error:
        return {"verdict": "compile_error", "message": f"Triton raised {type(error).__name__}: {error}"}
    return {"facts": facts, "assembly": assembly}


def main(requests: TextIO, answers: TextIO) -> None:
    """Answers requests until there are no more."""
    for line in requests:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    # The compiler prints to standard output now and then; answers go where it does not.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.stdin, channel)
