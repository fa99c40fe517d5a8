"""Triton's compiler as a child process, since LLVM may abort: Triton IR to machine code and facts about it.

Reads one request per line from standard input and answers each with one line.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from kerneltest.core.children import answer_requests, run_tool

# XLA contracts products and sums as well. Triton is about to change its own default.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
# Line tables hold names of temporary files, so the same kernel would give other bytes each time.
os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")

PTXAS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d{1,9}) bytes stack frame",
    "spills": r"(\d{1,9}) bytes spill stores",
}
_AMDGCN = {
    "registers": r"\.vgpr_count:\s+(\d+)",
    "scalar registers": r"\.sgpr_count:\s+(\d+)",
    "stack": r"\.private_segment_fixed_size:\s+(\d+)",
    "spills": r"\.vgpr_spill_count:\s+(\d+)",
}
_MATRIX = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma|v_s?w?mfmac?_|v_mfma_|v_s?wmmac?_)")
_SHARED_DATA = re.compile(r"too much shared data \((?P<needed>0x[0-9a-f]+) bytes, (?P<available>0x[0-9a-f]+) max\)")
_DOUBLE = re.compile(
    r"^[ \t]*(?:\S+ )?(?:(?:add|sub|mul|fma|div|sqrt|rcp)[.\w]*\.f64|v_(?:add|mul|fma|div\w*)_f64)", re.M
)


class CompileError(Exception):
    """An error of the compiler: its verdict, and the `needed` and `available` bytes of a resource, if known."""

    def __init__(self, verdict: str, message: str, **amounts: int) -> None:
        super().__init__(message)
        self.verdict, self.amounts = verdict, amounts


def compile_kernel(
    text: str, *, platform: str, arch: int | str, warp: int, warps: int, stages: int, shared_memory: int
) -> tuple[dict[str, int], str]:
    """Compiles Triton IR, as MLIR text; returns facts and assembly, or raises a CompileError."""
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
                break  # the assembler is called below, for its report
            if name == "llir":
                _check_shared(_shared_memory(module, backend, options, Path(folder)), shared_memory)
            module = step(module, metadata)
            assembly = module if name in ("ptx", "amdgcn") else ""
            if assembly:
                text = str(assembly)
        _check_shared(int(metadata.get("shared", 0)), shared_memory)
        report = _assemble(text, int(arch), Path(folder)) if cuda else text
    facts = {"shared memory": int(metadata.get("shared", 0))}
    for key, pattern in (PTXAS if cuda else _AMDGCN).items():
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
            f"needs {needed} bytes of shared memory per block, but the target has {available}: use smaller blocks or a "
            "smaller num_stages",
            needed=needed,
            available=available,
        )


# Returns the bytes of shared memory that are allocated; 0 if unknown. Runs the pass that allocates them on a copy of
# the module, since LLVM takes minutes for a block that is too large.
def _shared_memory(module: Any, backend: Any, options: Any, folder: Path) -> int:
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
        return 0  # another version of Triton, whose compiler reports it later
    manager.run(copy, "shared_memory")
    return int(copy.get_int_attr("ttg.shared") or 0)


def _assemble(ptx: str, arch: int, folder: Path) -> str:
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    source = folder / "kernel.ptx"
    source.write_text(ptx, encoding="utf-8")
    command = [get_ptxas(arch).path, "-v", f"--gpu-name={sm_arch_from_capability(arch)}", str(source)]
    run = run_tool([*command, "-o", str(folder / "kernel.cubin")])
    if run.returncode:
        said = (run.stderr.strip() or f"exit code {run.returncode}").splitlines()
        verdict = "resource_exceeded" if "too much shared data" in run.stderr else "compile_error"
        amounts = _SHARED_DATA.search(run.stderr)
        sizes = {key: int(size, 16) for key, size in amounts.groupdict().items()} if amounts else {}
        raise CompileError(verdict, f"ptxas: {said[0]}", **sizes)
    return run.stderr


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        facts, assembly = compile_kernel(**request)
    except CompileError as error:
        return {"verdict": error.verdict, "message": str(error), **error.amounts}
    except Exception as error:
        return {"verdict": "compile_error", "message": f"Triton raised {type(error).__name__}: {error}"}
    return {"facts": facts, "assembly": assembly}


if __name__ == "__main__":
    answer_requests(_answer)
