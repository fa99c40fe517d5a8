"""Triton IR in a module lowered for a GPU, and its compilation to machine code."""

import os
import tempfile
from pathlib import Path
from typing import Any

from .kernels.base import first_available
from .target import GpuTarget


def call_options() -> dict[str, Any]:
    """Returns the arguments of `pallas_call` that select lowering to Triton."""
    return {"compiler_params": first_available("plt.CompilerParams", "plt.TritonCompilerParams")()}


def triton_ir(operation: Any) -> bytes:
    """Returns the MLIR bytecode of the first Triton kernel that an operation calls; empty if there is none."""
    for region in operation.regions:
        for block in region:
            for inner in block:
                attributes = inner.operation.attributes
                if "call_target_name" in attributes and "triton" in str(attributes["call_target_name"]):
                    return bytes(attributes["mhlo.backend_config"]["ir"].value_bytes)
                if ir := triton_ir(inner.operation):
                    return ir
    return b""


def compile_ir(bytecode: bytes, gpu: GpuTarget) -> None:
    """Compiles Triton IR to the target's machine code with the `triton` package, which may abort the process."""
    import triton

    # Triton reads text, and only jaxlib's MLIR converts the bytecode that JAX emits to text.
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.triton import dialect
    from triton.backends.compiler import GPUTarget

    with mlir.make_ir_context() as context, tempfile.TemporaryDirectory() as folder:
        dialect.register_dialect(context)
        context.load_all_available_dialects()
        path = Path(folder) / "kernel.ttir"
        path.write_text(str(ir.Module.parse(bytecode)), encoding="utf-8")
        os.environ["TRITON_CACHE_DIR"] = folder
        triton.compile(str(path), target=GPUTarget(gpu.triton_backend, gpu.arch, gpu.warp))
