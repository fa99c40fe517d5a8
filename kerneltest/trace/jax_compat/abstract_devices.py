"""Answers to kernels that ask for the device, while they are traced for one that this machine does not have."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
from jax._src import shard_map
from jax._src.mesh import AbstractMesh, get_abstract_mesh
from jax.sharding import AbstractDevice
from jaxlib.xla_client import Device

from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes

_JAX_ITSELF = str(Path(jax.__file__).parent / "_src")
_on_query: ContextVar[Callable[[], object] | None] = ContextVar("device_query", default=None)


@contextmanager
def answer_for_devices(on_query: Callable[[], object] | None = None) -> Iterator[None]:
    """Has the abstract device in effect answer for this machine's devices, and for those of a mesh.

    Args:
      on_query: called whenever code outside of JAX asks a device for its platform or kind; by default the function of
        the context around this one.
    """
    token = _on_query.set(on_query or _on_query.get())
    try:
        with replace_attributes(*_replacements()):
            yield
    finally:
        _on_query.reset(token)


def _replacements() -> Iterator[Replacement]:
    yield Replacement(Device, "__getattr__", _attribute)
    for name in ("platform", "device_kind"):
        yield Replacement(Device, name, property(_answer(name)))
    yield Replacement(shard_map, "_as_manual_mesh", _manual_mesh)


_jax_attributes: Mapping[str, Any] = {name: vars(Device)[name] for name in ("__getattr__", "platform", "device_kind")}
_jax_manual_mesh = shard_map._as_manual_mesh


def _answer(name: str) -> Callable[[Device], str]:
    """The getter of a property that code outside of JAX uses to choose an implementation."""

    def get(device: Device) -> str:
        own: str = _jax_attributes[name].__get__(device)
        if sys._getframe(1).f_code.co_filename.startswith(_JAX_ITSELF):
            return own
        if (on_query := _on_query.get()) is not None:
            on_query()
        around = get_abstract_mesh().abstract_device
        return own if around is None else getattr(around, name)

    return get


def _attribute(device: Device, name: str) -> Any:
    try:
        return _jax_attributes["__getattr__"](device, name)
    except AttributeError:
        known = _attributes(get_abstract_mesh().abstract_device)
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
