"""Lowering of one probe for a GPU or a TPU, and compilation of the result."""

import inspect
import json
import os
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu

from .probes import BLOCK, MATRIX, VECTOR, LoweringProbe, first_available


@dataclass(frozen=True)
class Target:
    """A GPU architecture or a TPU generation to lower for, as the caller describes it."""

    id: str  # as the map calls it
    # platform, device_kind: as JAX calls them
    platform: str
    device_kind: str
    # triton_backend, arch: as Triton calls them; only of a GPU, as is `warp`
    triton_backend: str = ""
    arch: int | str = ""
    warp: int = 0  # threads in a warp or a wavefront
    topology: str = ""  # as libtpu calls it; "" for a GPU


def read_targets(text: str) -> list[Target]:
    """Returns the targets in a JSON list of objects; raises a ValueError or a TypeError for other text."""
    return [Target(**described) for described in json.loads(text)]


class EmptyError(Exception):
    """The lowered module holds no kernel."""


def lower(probe: LoweringProbe, dtype: str, target: Target, *, compiled: bool) -> bool:
    """Lowers one probe, and compiles it if `compiled`; False if lax lacks it for the dtype.

    Raises an AbsentError if this JAX has no such function, an EmptyError if the module holds no kernel, or what JAX or
    the compiler raises.
    """
    jax.config.update("jax_enable_x64", "64" in probe.name or "64" in dtype)
    operands = [_shape(operand, dtype, target) for operand in probe.operands]
    if probe.output is None:
        try:
            output = jax.eval_shape(probe.body, *operands)
        except (TypeError, ValueError, NotImplementedError):
            return False
    else:
        output = _shape(probe.output, dtype, target)
    outputs = jax.tree_util.tree_leaves(output)
    (_on_tpu if target.topology else _on_gpu)(probe, operands, outputs, target, compiled)
    return True


def _on_gpu(probe: LoweringProbe, operands: list[Any], outputs: list[Any], gpu: Target, compiled: bool) -> None:
    shapes = [jax.ShapeDtypeStruct(output.shape, output.dtype) for output in outputs]
    parameters = first_available("plt.CompilerParams", "plt.TritonCompilerParams")()  # selects lowering to Triton
    call = pl.pallas_call(_kernel(probe), out_shape=shapes, grid=probe.grid, compiler_params=parameters)
    bytecode = _triton_ir(_lower(call, operands, gpu).compiler_ir().operation)
    if not bytecode:
        raise EmptyError("the lowered module holds no Triton IR")
    if compiled:
        _compile_ir(bytecode, gpu)


def _on_tpu(probe: LoweringProbe, operands: list[Any], outputs: list[Any], tpu: Target, compiled: bool) -> None:
    count = len(operands)
    arrays = (*operands, *outputs)
    shapes = [jax.ShapeDtypeStruct(array.shape or (1,), array.dtype) for array in arrays]
    specs = [_block_spec(array.shape, probe.block) for array in arrays]
    kernel = _kernel(probe)

    def with_scalars(*refs: Any) -> None:
        kernel(*(ref if each.shape else ref.at[0] for ref, each in zip(refs, arrays, strict=True)))

    call = pl.pallas_call(
        with_scalars, out_shape=shapes[count:], grid=probe.grid, in_specs=specs[:count], out_specs=specs[count:]
    )
    given = {}
    if compiled:  # starts libtpu
        (device, *_) = topologies.get_topology_desc(platform="tpu", topology_name=tpu.topology).devices
        given = {"sharding": jax.sharding.SingleDeviceSharding(device)}
    lowered = _lower(call, [jax.ShapeDtypeStruct(shape.shape, shape.dtype, **given) for shape in shapes[:count]], tpu)
    if "tpu_custom_call" not in lowered.as_text():
        raise EmptyError("the lowered module holds no Mosaic kernel")
    if compiled:
        lowered.compile()


def _kernel(probe: LoweringProbe) -> Any:
    def kernel(*refs: Any) -> None:
        if probe.output is not None:
            probe.body(*refs)
            return
        count = len(probe.operands)
        values = probe.body(*(ref[...] for ref in refs[:count]))
        for ref, value in zip(refs[count:], jax.tree_util.tree_leaves(values), strict=True):
            ref[...] = value

    return kernel


def _lower(call: Any, operands: list[Any], target: Target) -> Any:
    with _as_on(target):
        return jax.jit(call).trace(*operands).lower(lowering_platforms=(target.platform,))


def _shape(described: Any, dtype: str, target: Target) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an operand or output; it has the probed dtype unless it names its own."""
    own = len(described) == 2 and isinstance(described[1], str)
    shape, dtype = described if own else (described, dtype)
    return jax.ShapeDtypeStruct(tpu_shape(shape) if target.topology else shape, jnp.dtype(dtype))


def _as_on(target: Target) -> Any:
    """Returns a context in which JAX lowers for the target's kind of device. Old versions of JAX need none."""
    sharding = jax.sharding
    if not hasattr(sharding, "AbstractDevice"):
        return nullcontext()
    described: dict[str, Any] = {"device_kind": target.device_kind, "num_cores": 1 if target.topology else None}
    if "platform" in inspect.signature(sharding.AbstractDevice).parameters:
        described["platform"] = "tpu" if target.topology else "gpu"
    abstract = sharding.AbstractDevice(**described)
    return sharding.use_abstract_mesh(sharding.AbstractMesh((), (), abstract_device=abstract))


def _triton_ir(operation: Any) -> bytes:
    for region in operation.regions:
        for block in region:
            for inner in block:
                attributes = inner.operation.attributes
                if "call_target_name" in attributes and "triton" in str(attributes["call_target_name"]):
                    return bytes(attributes["mhlo.backend_config"]["ir"].value_bytes)
                if ir := _triton_ir(inner.operation):
                    return ir
    return b""


def _compile_ir(bytecode: bytes, gpu: Target) -> None:
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


# libtpu needs these on a machine without a TPU, and to be loaded by several processes.
LIBTPU_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

# A TPU works on tiles of 8 by 128; it refuses one-dimensional and narrow arrays for reasons other than the primitive.
_SHAPES = {
    VECTOR: (16, 128),
    MATRIX: (8, 128),
    BLOCK: (128, 128),
    (8,): (8, 128),
    (32,): (128,),
    (1, 16): (1, 128),
    (4, 16): (4, 16, 128),
}


def tpu_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that replaces a GPU probe's shape on TPUs."""
    return _SHAPES.get(shape) or (*shape[:-2], *_SHAPES.get(shape[-2:], shape[-2:]))


def _block_spec(shape: tuple[int, ...], block: tuple[int, ...]) -> Any:
    """Returns the spec that passes an array in blocks, or whole in VMEM; a scalar is an array of one in SMEM."""
    if block:
        return pl.BlockSpec(block, lambda *position: position)
    return pl.BlockSpec(memory_space=pltpu.VMEM if shape else pltpu.SMEM)
