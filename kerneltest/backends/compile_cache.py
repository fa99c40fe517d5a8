"""A cache on disk for the answers of compilers, keyed by a hash of the request."""

import gzip
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

_folder: Path | None = None

Answer = dict[str, Any]  # plain JSON


def enable(folder: Path) -> None:
    """Stores the compilers' answers in `folder`."""
    global _folder
    _folder = folder
    folder.mkdir(parents=True, exist_ok=True)


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
    path = _path(request, versions)
    known = _read(path, keys)
    if known is not None:
        return known
    answer = run()
    if path is not None:
        temporary = path.with_suffix(f".{os.getpid()}.{id(answer)}")
        temporary.write_bytes(gzip.compress(json.dumps(answer).encode()))
        temporary.replace(path)
    return answer


def _read(path: Path | None, keys: frozenset[str]) -> Answer | None:
    if path is None or not path.exists():
        return None
    try:
        answer = json.loads(gzip.decompress(path.read_bytes()))
        if not (keys <= answer.keys() or {"verdict", "message"} <= answer.keys()):
            raise ValueError("not an answer of a compiler")
    except (OSError, ValueError, AttributeError, EOFError) as error:
        warnings.warn(f"{path} cannot be read ({error}): compiling again", stacklevel=2)
        return None
    return dict(answer)


def _path(request: Mapping[str, Any], versions: Mapping[str, str]) -> Path | None:
    if _folder is None:
        return None
    content = json.dumps({**request, **versions}, sort_keys=True)
    return _folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json.gz"


# Compiled code cached on disk between runs.

# By default JAX stores nothing that compiles in under a second or to little code, as kernels do.
_STORE_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


@contextmanager
def disk_cache(folder: Path) -> Iterator[None]:
    """Caches compiled code in `folder`: Triton's, libtpu's, and JAX's unless the user has set JAX's cache.

    Restores JAX's settings on exit, since a suite may have other tests.
    """
    enable(folder / "compiled")
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
