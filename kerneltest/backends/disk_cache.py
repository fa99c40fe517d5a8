"""Compiled code kept on disk between runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from kerneltest.backends.compile_cache import keep_answers

# A kernel compiles in less than the second, and to less than the size, below which JAX keeps nothing.
_KEEPING_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


@contextmanager
def cached_on_disk(folder: Path) -> Iterator[None]:
    """Where compiled code is kept in `folder`: Triton's, libtpu's, and JAX's unless that has a place or none.

    JAX's settings are as they were afterwards: a suite has tests of its own.
    """
    keep_answers(folder / "compiled")
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        yield
        return
    changed = {"jax_compilation_cache_dir": str(folder / "xla"), **_KEEPING_ALL}
    before = {name: getattr(config, name) for name in changed}
    _update(changed)
    try:
        yield
    finally:
        _update(before)


def _update(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # what was compiled before has settled where to
