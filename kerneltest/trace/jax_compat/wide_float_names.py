"""The names of narrower floats in `jax.numpy`, such as `jnp.bfloat16`, standing for float64 in one thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import jax.numpy as jnp

_NAMES = frozenset({"bfloat16", "float16", "float32", "half", "single"})

_widens: ContextVar[bool] = ContextVar("widens", default=False)
_lock = threading.Lock()
_entered = 0  # contexts that are active in any thread
_own_class: type[ModuleType] = type(jnp)


class _WideNames(_own_class):  # type: ignore[misc, valid-type]
    """`jax.numpy` while a context is active; threads outside of it see the module as it is."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("float64" if name in _NAMES and _widens.get() else name)


@contextmanager
def widen_float_names() -> Iterator[None]:
    """Has the names of narrower floats in `jax.numpy` stand for float64 in this thread."""
    global _entered
    with _lock:
        _entered += 1
        jnp.__class__ = _WideNames
    token = _widens.set(True)
    try:
        yield
    finally:
        _widens.reset(token)
        with _lock:
            _entered -= 1
            if not _entered:
                jnp.__class__ = _own_class
