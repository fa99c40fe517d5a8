"""A cache on disk for the answers of compilers, keyed by a hash of the request."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from kerneltest.core.files import DiskStore
from kerneltest.core.fingerprint import Fingerprint

_store: DiskStore | None = None

Answer = dict[str, Any]  # plain JSON


def enable(store: DiskStore) -> None:
    """Keeps the compilers' answers in a store."""
    global _store
    _store = store


def cached_compile(
    request: Mapping[str, Any], versions: Mapping[str, str], keys: frozenset[str], run: Callable[[], Answer]
) -> Answer:
    """Returns the stored answer to a request, or else asks the compiler and stores its answer.

    Args:
      request: plain JSON.
      versions: of the compilers, which are part of the key.
      keys: that an answer must have, unless it has a verdict and a message.
      run: asks the compiler.
    """
    if _store is None:
        return run()
    name = f"compiled/{Fingerprint.of(request, versions).text}.json.gz"
    try:
        if (known := _store.read(name)) is not None:
            return _checked(known, keys)
    except ValueError as error:
        warnings.warn(f"{_store.folder / name} cannot be read ({error}): compiling again", stacklevel=2)
    answer = run()
    _store.write(name, json.dumps(answer).encode())
    return answer


def _checked(known: bytes, keys: frozenset[str]) -> Answer:
    answer = json.loads(known)
    if not (isinstance(answer, dict) and (keys <= answer.keys() or {"verdict", "message"} <= answer.keys())):
        raise ValueError("not an answer of a compiler")
    return answer


# Compiled code cached on disk between runs.

# By default JAX stores nothing that compiles in under a second or to little code, as kernels do.
_STORE_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


@contextmanager
def disk_cache(folder: Path) -> Iterator[None]:
    """Caches compiled code in the folder of a store: Triton's, libtpu's, and JAX's unless the user has set its cache.

    Restores JAX's settings on exit, since a suite may have other tests.
    """
    enable(DiskStore(folder))
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
