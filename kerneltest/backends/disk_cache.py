"""Compiled code kept on disk between runs."""

from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from kerneltest.backends.answers import keep_answers


def cache_on_disk(folder: Path) -> None:
    """Keeps compiled code in `folder` between runs: Triton's, libtpu's, and JAX's unless that has a place or none."""
    keep_answers(folder / "compiled")
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder / "xla"))
    # A kernel compiles in less than the second, and to less than the size, below which JAX keeps nothing.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    compilation_cache.reset_cache()  # a suite that compiled something while imported has settled it without a folder
