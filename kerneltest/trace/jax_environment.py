"""The settings and versions of JAX, and the devices, as a run records them."""

import functools
import platform
from importlib import metadata

import jax
import numpy as np

from kerneltest.trace.tracing import device_problem

JAX_SETTINGS = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_default_device", "jax_debug_nans", "jax_debug_infs",
    "jax_disable_jit",
)  # fmt: skip


def jax_settings() -> dict[str, str]:
    """The user's settings of JAX that affect the results of kernels, and those of `without_debugging`."""
    return {name: str(getattr(jax.config, name)) for name in JAX_SETTINGS}


@functools.cache
def jax_environment() -> dict[str, str]:
    """The versions of JAX and Python, and the devices, as JAX reports them."""
    found = [] if device_problem() else jax.devices()
    named = ((d.client.platform_version.splitlines()[0], d.device_kind) for d in found)
    devices = sorted({": ".join(dict.fromkeys(names)) for names in named})  # a CPU is called the same twice
    return {
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": "; ".join(devices) or device_problem(),
    }
