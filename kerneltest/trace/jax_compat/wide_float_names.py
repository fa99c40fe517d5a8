"""The names of narrower floats in `jax.numpy`, such as `jnp.bfloat16`, standing for float64 in one thread."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import jax.numpy as jnp
from jax._src.pallas.mosaic import tpu_info

from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes

_NAMES = frozenset({"bfloat16", "float16", "float32", "half", "single"})

_widens: ContextVar[bool] = ContextVar("widens", default=False)
_lock = threading.Lock()
_entered = 0  # contexts that are active in any thread
_own_class: type[ModuleType] = type(jnp)


class _WideNames(_own_class):  # type: ignore[misc, valid-type]
    """`jax.numpy` while a context is active; threads outside of it see the module as it is."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("float64" if name in _NAMES and _widens.get() else name)


_tilings = sys.modules[tpu_info.infer_tiling.__module__]  # another module since JAX 0.12
_jax_tiling_factor = _tilings._get_tiling_factor


def _tiling_factor(length: int, most: int, packing: int) -> int:
    """JAX's own never returns for types of more than 32 bits, of which it packs none into a word."""
    found: int = _jax_tiling_factor(length, most, max(packing, 1))
    return found


@contextmanager
def widen_float_names() -> Iterator[None]:
    """Has the names of narrower floats in `jax.numpy` stand for float64 in this thread."""
    global _entered
    with _lock:
        _entered += 1
        jnp.__class__ = _WideNames
    token = _widens.set(True)
    try:
        with replace_attributes(Replacement(_tilings, "_get_tiling_factor", _tiling_factor)):
            yield
    finally:
        _widens.reset(token)
        with _lock:
            _entered -= 1
            if not _entered:
                jnp.__class__ = _own_class
