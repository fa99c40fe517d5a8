"""Compiled code cached on disk between runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from kerneltest.backends import compile_cache

# By default JAX stores nothing that compiles in under a second or to little code, as kernels do.
_STORE_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


@contextmanager
def disk_cache(folder: Path) -> Iterator[None]:
    """Caches compiled code in `folder`: Triton's, libtpu's, and JAX's unless the user has set JAX's cache.

    Restores JAX's settings on exit, since a suite may have other tests.
    """
    compile_cache.enable(folder / "compiled")
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        yield
        return
    changed = {"jax_compilation_cache_dir": str(folder / "xla"), **_STORE_ALL}
    before = {name: getattr(config, name) for name in changed}
    _update(changed)
    try:
        yield
    finally:
        _update(before)


def _update(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # the first compilation fixes the folder
