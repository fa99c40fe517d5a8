"""What kernels that ask for the device find while they are traced for one that this machine does not have."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from jax._src import shard_map
from jax._src.mesh import AbstractMesh, get_abstract_mesh
from jax.sharding import AbstractDevice
from jaxlib.xla_client import Device

from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes


def answer_for_devices() -> AbstractContextManager[None]:
    """Has the abstract device in effect answer for this machine's devices, and for those of a mesh."""
    return replace_attributes(
        Replacement(Device, "__getattr__", _attribute), Replacement(shard_map, "_as_manual_mesh", _manual_mesh)
    )


_jax_attribute: Any = vars(Device)["__getattr__"]
_jax_manual_mesh = shard_map._as_manual_mesh


def _attribute(device: Device, name: str) -> Any:
    try:
        return _jax_attribute(device, name)
    except AttributeError:
        known = _attributes(get_abstract_mesh().abstract_device)
        if name not in known:
            raise
        return known[name]


def _attributes(device: AbstractDevice | None) -> Mapping[str, Any]:
    """The attributes that a device has and a CPU does not."""
    if device is None or device.num_cores is None:
        return {}
    if device.platform == "tpu":
        return {"num_cores": device.num_cores}
    capability = {"compute_capability": "9.0"} if device.device_kind.startswith("NVIDIA") else {}
    return {"core_count": device.num_cores, **capability}


def _manual_mesh(mesh: Any, axes: frozenset[str]) -> AbstractMesh:
    """The mesh inside `jax.shard_map`, of abstract devices in place of CPUs."""
    own: AbstractMesh = _jax_manual_mesh(mesh, axes)
    device, around = own.abstract_device, get_abstract_mesh().abstract_device
    return own.update(abstract_device=around) if device is None or device.platform == "cpu" else own
