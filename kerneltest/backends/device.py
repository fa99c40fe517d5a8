"""Real devices, through JAX's device list."""

import functools
import subprocess
from dataclasses import dataclass
from typing import Any

import jax

from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.jitted import compile_for
from kerneltest.core.precision import AMD, NVIDIA, TPU, XLA_AMD, XLA_NVIDIA
from kerneltest.core.targets import Tier
from kerneltest.jaxprs.trace import Traced, device_problem
from kerneltest.jaxprs.walk import computes_around

# Of what is inside Pallas calls, and of what is around them.
_ROWS = {"cuda": (NVIDIA, XLA_NVIDIA), "rocm": (AMD, XLA_AMD), "tpu": (TPU, TPU)}
_DRIVER = {
    "cuda": ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
    "rocm": ["rocm-smi", "--showdriverversion", "--csv"],
}


@dataclass(frozen=True, slots=True)
class Device(Backend):
    """The first device of a platform.

    Attributes:
      id: the platform as JAX calls it, `cuda`, `rocm` or `tpu`.
      foreign: dialects it has no lowering for.
    """

    id: str
    foreign: frozenset[str]
    tier = Tier.DEVICE
    runs_jaxpr = True

    @property
    def platform(self) -> str:
        return self.id

    def unavailable(self) -> str:
        return device_problem(self.id)

    def unsupported_reason(self, traced: Traced) -> str:
        wrong = sorted(traced.dialects & self.foreign)
        return f"a kernel written for {', '.join(wrong)} cannot be compiled for {self.id}" if wrong else ""

    def prepare(self, traced: Traced) -> Executable:
        inside, around = _ROWS[self.id]
        row = inside.beside(around) if computes_around(traced.jaxpr.jaxpr) else inside
        precision = row if traced.reduced_dots else row.with_exact_dots()
        return compile_for(traced, jax.devices(self.id)[0], precision, interpret=False)

    def environment(self) -> dict[str, Any]:
        device = jax.devices(self.id)[0]
        return {
            "platform": device.client.platform_version.splitlines()[0],
            "device": device.device_kind,
            **({"driver": _driver(self.id)} if self.id in _DRIVER else {}),
        }


@functools.cache
def _driver(platform: str) -> str:
    try:
        shown = subprocess.run(_DRIVER[platform], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
    return shown.strip().splitlines()[-1] if shown.strip() else "unknown"
