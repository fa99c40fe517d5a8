"""Lowering of one probe, and compilation of the result."""

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from .gpu import call_options, compile_ir, triton_ir
from .kernels.base import LoweringProbe
from .target import GpuTarget, Target, TpuTarget
from .tpu_topology import block_spec, device, tpu_shape


class EmptyError(Exception):
    """The lowered module holds no kernel."""


def lower(probe: LoweringProbe, dtype: str, target: Target, *, compiled: bool) -> bool:
    """Lowers one probe, and compiles it if `compiled`.

    Returns:
      Whether lax itself has the operation on the dtype; if it does not, nothing is lowered.

    Raises:
      AbsentError: this JAX has no such function.
      EmptyError: the lowered module holds no kernel.
      Exception: any that JAX or the compiler raises.
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
    if isinstance(target, TpuTarget):
        _on_tpu(probe, operands, outputs, target, compiled=compiled)
    else:
        _on_gpu(probe, operands, outputs, target, compiled=compiled)
    return True


def _on_gpu(
    probe: LoweringProbe, operands: Sequence[Any], outputs: Sequence[Any], gpu: GpuTarget, *, compiled: bool
) -> None:
    shapes = [jax.ShapeDtypeStruct(output.shape, output.dtype) for output in outputs]
    call = pl.pallas_call(_kernel(probe), out_shape=shapes, grid=probe.grid, **call_options())
    bytecode = triton_ir(_lower(call, operands, gpu).compiler_ir().operation)
    if not bytecode:
        raise EmptyError("the lowered module holds no Triton IR")
    if compiled:
        compile_ir(bytecode, gpu)


def _on_tpu(
    probe: LoweringProbe, operands: Sequence[Any], outputs: Sequence[Any], tpu: TpuTarget, *, compiled: bool
) -> None:
    count = len(operands)
    arrays = (*operands, *outputs)
    shapes = [jax.ShapeDtypeStruct(array.shape or (1,), array.dtype) for array in arrays]
    specs = [block_spec(array.shape, probe.block) for array in arrays]
    kernel = _kernel(probe)

    def with_scalars(*refs: Any) -> None:
        kernel(*(ref if each.shape else ref.at[0] for ref, each in zip(refs, arrays, strict=True)))

    call = pl.pallas_call(
        with_scalars, out_shape=shapes[count:], grid=probe.grid, in_specs=specs[:count], out_specs=specs[count:]
    )
    given = {"sharding": jax.sharding.SingleDeviceSharding(device(tpu))} if compiled else {}
    lowered = _lower(call, [jax.ShapeDtypeStruct(shape.shape, shape.dtype, **given) for shape in shapes[:count]], tpu)
    if "tpu_custom_call" not in lowered.as_text():
        raise EmptyError("the lowered module holds no Mosaic kernel")
    if compiled:
        lowered.compile()


def _kernel(probe: LoweringProbe) -> Any:
    """Returns the kernel of a probe, which takes references to operands and outputs."""

    def kernel(*refs: Any) -> None:
        if probe.output is not None:
            probe.body(*refs)
            return
        count = len(probe.operands)
        values = probe.body(*(ref[...] for ref in refs[:count]))
        for ref, value in zip(refs[count:], jax.tree_util.tree_leaves(values), strict=True):
            ref[...] = value

    return kernel


def _lower(call: Any, operands: Sequence[Any], target: Target) -> Any:
    with _as_on(target):
        return jax.jit(call).trace(*operands).lower(lowering_platforms=(target.platform,))


def _shape(described: Any, dtype: str, target: Target) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an operand or output; it has the probed dtype unless it names its own."""
    own = len(described) == 2 and isinstance(described[1], str)
    shape, dtype = described if own else (described, dtype)
    return jax.ShapeDtypeStruct(tpu_shape(shape) if isinstance(target, TpuTarget) else shape, jnp.dtype(dtype))


def _as_on(target: Target) -> Any:
    """Returns a context in which JAX lowers for the target's kind of device. Old versions of JAX need none."""
    sharding = jax.sharding
    if not hasattr(sharding, "AbstractDevice"):
        return nullcontext()
    on_tpu = isinstance(target, TpuTarget)
    described: dict[str, Any] = {"device_kind": target.device_kind, "num_cores": 1 if on_tpu else None}
    if "platform" in inspect.signature(sharding.AbstractDevice).parameters:
        described["platform"] = "tpu" if on_tpu else "gpu"
    abstract = sharding.AbstractDevice(**described)
    return sharding.use_abstract_mesh(sharding.AbstractMesh((), (), abstract_device=abstract))
