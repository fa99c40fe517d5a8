"""Real devices, as JAX finds them."""

import functools
import subprocess
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.device_at_scale import DeviceAtScale
from kerneltest.backends.jitted import compile_for, mesh_problem
from kerneltest.core.precision import AMD, NVIDIA, TPU, XLA_AMD, XLA_NVIDIA, Precision
from kerneltest.core.targets import Tier
from kerneltest.trace.tracing import Traced, device_problem, kernel_device
from kerneltest.trace.walk import computes_outside_calls

# The rounding inside Pallas calls, and of the operations around them.
_PRECISIONS = {"cuda": (NVIDIA, XLA_NVIDIA), "rocm": (AMD, XLA_AMD), "tpu": (TPU, TPU)}
_DRIVER = {
    "cuda": ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
    "rocm": ["rocm-smi", "--showdriverversion", "--csv"],
}


@dataclass(frozen=True, slots=True)
class Device(Backend):
    """The device of one platform.

    Attributes:
      id: the platform as JAX names it, `cuda`, `rocm` or `tpu`.
      foreign: dialects that have no lowering for it.
    """

    id: str
    foreign: frozenset[str]
    tier = Tier.DEVICE
    runs_jaxpr = True
    supports_scale = True

    @property
    def platform(self) -> str:
        return self.id

    def unavailable(self) -> str:
        return device_problem(self.id)

    def unsupported_reason(self, traced: Traced) -> str:
        foreign = traced.foreign_dialect(self.foreign)
        return f"a kernel written for {foreign} cannot be compiled for {self.id}" if foreign else ""

    def unavailable_for(self, traced: Traced) -> str:
        return mesh_problem(traced, self.id)

    def prepare(self, traced: Traced) -> Executable:
        return compile_for(traced, kernel_device(self.id), self._precision_of(traced), interpret=False)

    def prepare_at_scale(self, traced: Traced) -> DeviceAtScale:
        return DeviceAtScale(traced, kernel_device(self.id), self._precision_of(traced))

    def _precision_of(self, traced: Traced) -> Precision:
        inside, around = _PRECISIONS[self.id]
        precision = inside.combine(around) if computes_outside_calls(traced.jaxpr.jaxpr) else inside
        return traced.adapt_precision(precision)

    def environment(self) -> dict[str, Any]:
        place = kernel_device(self.id)
        return {
            "platform": place.client.platform_version.splitlines()[0],
            "device": place.device_kind,
            **({"driver": _driver(self.id)} if self.id in _DRIVER else {}),
        }


def device_responds(platform: str) -> bool:
    """Checks whether the device of a platform ("" for none) still works: some errors poison it for the process."""
    if not platform:
        return True
    try:
        return bool(np.asarray(jax.device_put(np.ones(1, bool), kernel_device(platform)))[0])
    except Exception:
        return False


@functools.cache
def _driver(platform: str) -> str:
    """Returns the driver's version."""
    try:
        shown = subprocess.run(_DRIVER[platform], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
    return shown.strip().splitlines()[-1] if shown.strip() else "unknown"
