"""One probe to Triton IR, and the IR to machine code."""

import inspect
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from .kernels.base import Probe, first_available
from .target import Target


def lower(probe: Probe, dtype: str, target: Target) -> bytes | None:
    """The Triton IR of one probe as MLIR bytecode; None where lax itself has no such operation on the dtype.

    Raises:
      AbsentError: this JAX has no such function.
      Exception: whatever JAX raises.
    """
    jax.config.update("jax_enable_x64", "64" in probe.name or "64" in dtype)
    operands = [_shape(operand, dtype) for operand in probe.operands]
    if probe.output is None:
        try:
            output = jax.eval_shape(probe.body, *operands)
        except (TypeError, ValueError, NotImplementedError):
            return None
    else:
        output = _shape(probe.output, dtype)

    def kernel(*refs: Any) -> None:
        if probe.output is not None:
            probe.body(*refs)
            return
        values = probe.body(*(ref[...] for ref in refs[: len(operands)]))
        for ref, value in zip(refs[len(operands) :], jax.tree_util.tree_leaves(values), strict=True):
            ref[...] = value

    parameters = first_available("plt.CompilerParams", "plt.TritonCompilerParams")
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree_util.tree_leaves(output)]
    call = pl.pallas_call(kernel, out_shape=shapes, grid=probe.grid, compiler_params=parameters())
    with _device(target.device_kind):
        lowered = jax.jit(call).trace(*operands).lower(lowering_platforms=(target.platform,))
    return _triton_ir(lowered.compiler_ir().operation)


def _shape(described: Any, dtype: str) -> jax.ShapeDtypeStruct:
    """Of an operand or output that is a shape, or a shape and a dtype of its own."""
    own = len(described) == 2 and isinstance(described[1], str)
    shape, dtype = described if own else (described, dtype)
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def _device(kind: str) -> Any:
    """A context in which JAX takes the GPU to be of some kind; versions without one do not ask for the kind."""
    sharding = jax.sharding
    if not hasattr(sharding, "AbstractDevice"):
        return nullcontext()
    described: dict[str, Any] = {"device_kind": kind, "num_cores": None}
    if "platform" in inspect.signature(sharding.AbstractDevice).parameters:
        described["platform"] = "gpu"
    device = sharding.AbstractDevice(**described)
    return sharding.use_abstract_mesh(sharding.AbstractMesh((), (), abstract_device=device))


def _triton_ir(operation: Any) -> bytes:
    """Of the first call of a Triton kernel inside of an operation; empty if there is none."""
    for region in operation.regions:
        for block in region:
            for inner in block:
                attributes = inner.operation.attributes
                if "call_target_name" in attributes and "triton" in str(attributes["call_target_name"]):
                    return bytes(attributes["mhlo.backend_config"]["ir"].value_bytes)
                if ir := _triton_ir(inner.operation):
                    return ir
    return b""


def compile_ir(bytecode: bytes, target: Target) -> None:
    """Compiles Triton IR to the target's machine code with the `triton` package, which may abort the process."""
    import triton

    # Triton reads text. Nothing public turns the bytecode that JAX emits into text: it takes jaxlib's MLIR.
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
        triton.compile(str(path), target=GPUTarget(target.triton_backend, target.arch, target.warp))
