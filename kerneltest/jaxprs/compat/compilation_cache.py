"""JAX's cache of compiled code on disk, which only a private configuration switches off for a while."""

from contextlib import AbstractContextManager
from typing import Any

from jax._src import config


def without_disk_cache() -> AbstractContextManager[Any]:
    """Compiles without JAX's cache on disk, from which code for a device that is not there cannot be read back."""
    off: AbstractContextManager[Any] = config.enable_compilation_cache(False)
    return off
