"""Answers to kernels that ask for the device, while they are traced for one that this machine does not have."""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import compiler, shard_map
from jax._src.interpreters import mlir
from jax._src.lib import tpu, xla_client  # type: ignore[attr-defined, unused-ignore]
from jax._src.mesh import AbstractMesh, get_abstract_mesh
from jax.experimental import topologies
from jax.sharding import AbstractDevice
from jaxlib.mlir import ir
from jaxlib.xla_client import Device

from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes, setting

_JAX_ITSELF = str(Path(jax.__file__).parent / "_src")
_on_query: ContextVar[Callable[[], object] | None] = ContextVar("device_query", default=None)


@contextmanager
def answer_for_devices(on_query: Callable[[], object] | None = None) -> Iterator[None]:
    """Has the abstract device in effect answer for this machine's devices, and for those of a mesh.

    `on_query` is called whenever code outside of JAX asks a device for its platform, its kind, or what a CPU lacks; by
    default the function of the context around this one.
    """
    replacements = (
        Replacement(Device, "__getattr__", _attribute),
        *(Replacement(Device, name, property(_answer(name))) for name in ("platform", "device_kind")),
        Replacement(shard_map, "_as_manual_mesh", _manual_mesh),
    )
    with setting(_on_query, on_query or _on_query.get()), replace_attributes(*replacements):
        yield


_jax_attributes: Mapping[str, Any] = {name: vars(Device)[name] for name in ("__getattr__", "platform", "device_kind")}
_jax_manual_mesh = shard_map._as_manual_mesh


# The getter of a property that code outside of JAX uses to choose an implementation.
def _answer(name: str) -> Callable[[Device], str]:
    def get(device: Device) -> str:
        own: str = _jax_attributes[name].__get__(device)
        if not _asked_by_jax():
            around = get_abstract_mesh().abstract_device
            return own if around is None else getattr(around, name)
        return own

    return get


# Whether code of JAX called the function that calls this one. A query by other code is noted.
def _asked_by_jax() -> bool:
    if sys._getframe(2).f_code.co_filename.startswith(_JAX_ITSELF):
        return True
    if (on_query := _on_query.get()) is not None:
        on_query()
    return False


def _attribute(device: Device, name: str) -> Any:
    known = _attributes(get_abstract_mesh().abstract_device)
    if not _asked_by_jax() and name in known:
        return known[name]
    try:
        return _jax_attributes["__getattr__"](device, name)
    except AttributeError:
        if name not in known:
            text = f"a device of platform {device.client.platform} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=device) from None
        return known[name]


def hide_own_frame(error: BaseException) -> None:
    """Has the traceback of an exception end where code asked a device for an attribute, not where that was answered."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code is _attribute.__code__:
            trace.tb_next = None
        trace = trace.tb_next


# The attributes that a device has and a CPU does not.
def _attributes(device: AbstractDevice | None) -> Mapping[str, Any]:
    if device is None or device.num_cores is None:
        return {}
    if device.platform == "tpu":
        return {"num_cores": device.num_cores}
    capability = {"compute_capability": "9.0"} if device.device_kind.startswith("NVIDIA") else {}
    return {"core_count": device.num_cores, **capability}


# The mesh inside `jax.shard_map`, of abstract devices in place of CPUs.
def _manual_mesh(mesh: Any, axes: frozenset[str]) -> AbstractMesh:
    own: AbstractMesh = _jax_manual_mesh(mesh, axes)
    device, around = own.abstract_device, get_abstract_mesh().abstract_device
    return own.update(abstract_device=around) if device is None or device.platform == "cpu" else own


# XLA's compilers on a machine without their devices: lowered modules as bytecode, compiled for a described device.


def module_bytes(lowered: Any) -> bytes:
    """Bytecode of the StableHLO, Mosaic modules included, that `jax.jit(...).trace(...).lower(...)` returned."""
    written: bytes = mlir.module_to_bytecode(lowered.compiler_ir("stablehlo"))
    return written


@functools.cache
def described_gpus(config: str, count: int) -> Sequence[Any]:
    """Returns devices that the text of a GpuTargetConfigProto describes; loads XLA's CUDA plugin."""
    shape = f"1x1x{count}"
    return tuple(topologies.get_topology_desc(shape, "cuda", topology=shape, target_config=config).devices)


def compile_for_devices(module: bytes, devices: Sequence[Any]) -> Any:
    """Compiles StableHLO bytecode for a partition on each of some devices, and returns XLA's executable."""
    count = len(devices)
    options = compiler.get_compile_options(1, count, device_assignment=np.array([[device.id for device in devices]]))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        return devices[0].client.compile(
            parsed, executable_devices=xla_client.DeviceList(tuple(devices)), compile_options=options
        )


# XLA's TPU compiler on a machine without a TPU: lowered modules, compiled for a topology.

TPU_CUSTOM_CALL = "tpu_custom_call"


def mosaic_text(module: bytes) -> str:
    """MLIR text of a Mosaic module."""
    context = ir.Context()
    tpu.register_dialect(context)
    context.allow_unregistered_dialects = True
    return str(ir.Module.parse(module, context))


@functools.cache
def device_of(topology: str) -> Any:
    """Returns a device of a topology, such as `v5e:2x2`, to compile for; starts libtpu."""
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
