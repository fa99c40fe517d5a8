"""JAX's lowering of Mosaic GPU kernels, for a GPU of any generation."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from kerneltest.core.targets import Target
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes

_target: ContextVar[Target | None] = ContextVar("target", default=None)


def _arch_replacements() -> Iterator[Replacement]:
    # Replaces JAX's choice of the architecture, unless Mosaic GPU, whose import takes most of a second, is not in use.
    for module in ("utils", "core"):  # the former since JAX 0.12
        owner: Any = sys.modules.get(f"jax.experimental.mosaic.gpu.{module}")
        if hasattr(owner, "_infer_arch"):
            yield Replacement(owner, "_infer_arch", _chosen_arch(owner._infer_arch))


def _chosen_arch(by_jax: Callable[[], tuple[int, int]]) -> Callable[[], tuple[int, int]]:
    def infer_arch() -> tuple[int, int]:
        target = _target.get()  # None in a thread that only runs at the same time
        if target is None or not target.compute_capability:
            return by_jax()
        major, minor = map(int, target.compute_capability.split("."))
        return major, minor

    return infer_arch


@contextmanager
def lowering_for(target: Target) -> Iterator[None]:
    """A context in which kernels are lowered for a target.

    An abstract device has no compute capability, for which Mosaic GPU assumes 9.0. It is also unknown inside of traced
    functions, which keep the mesh that they were traced with.
    """
    device = AbstractDevice(device_kind=target.device_kind, num_cores=None, platform="gpu")
    token = _target.set(target)
    try:
        with (
            use_abstract_mesh(AbstractMesh((), (), abstract_device=device)),
            replace_attributes(*_arch_replacements()),
        ):
            yield
    finally:
        _target.reset(token)
