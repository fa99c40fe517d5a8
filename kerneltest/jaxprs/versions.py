"""The versions of JAX that kerneltest knows, and what it runs on here."""

import functools
import platform
from importlib import metadata

import jax
import numpy as np

OLDEST, NEWEST = (0, 10, 2), (0, 12)


def version_problem() -> str:
    """Why this JAX is not one that kerneltest was tested with, or ""."""
    version = jax.__version_info__[:3]
    if version < OLDEST:
        return f"JAX {jax.__version__} is older than {'.'.join(map(str, OLDEST))}, the oldest that kerneltest knows"
    if version[:2] > NEWEST:
        return f"JAX {jax.__version__} is newer than {'.'.join(map(str, NEWEST))}, the newest that was tested"
    return ""


@functools.cache
def environment() -> dict[str, str]:
    """Versions and devices, as JAX reports them."""
    devices = sorted({f"{d.client.platform_version.splitlines()[0]}: {d.device_kind}" for d in jax.devices()})
    return {
        "jax": jax.__version__,
        "jaxlib": metadata.version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "devices": "; ".join(devices),
    }
