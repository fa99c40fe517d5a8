"""Temporary changes to JAX: attributes of its modules, the platform that it reports, and its settings.

Each change is undone on exit, after an exception as well. Changes may be nested and may overlap between threads: the
latest of those still active applies, and the last one to end restores JAX's own value.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax._src import config


@dataclass(frozen=True, eq=False, slots=True)
class Replacement:
    """A value to put in place of an attribute of JAX's.

    Attributes:
      owner: the module or class that has the attribute itself, not by inheritance.
      name: the attribute.
      value: the replacement.
    """

    owner: object
    name: str
    value: object


_lock = threading.Lock()
# For each attribute that is replaced now: JAX's own value, then the active replacements in the order of their entry.
_layers: dict[tuple[int, str], list[Replacement]] = {}


@contextmanager
def replace_attributes(*replacements: Replacement) -> Iterator[None]:
    """Replaces attributes of JAX, and restores them on exit.

    A thread started inside that outlives the context sees JAX's own attributes from then on.
    """
    with ExitStack() as stack:
        for replacement in replacements:
            stack.callback(_pop, _push(replacement))
        yield


def _push(replacement: Replacement) -> Replacement:
    """Applies a replacement, and returns a copy that identifies this entry, since one may be entered repeatedly."""
    owner, name = replacement.owner, replacement.name
    entry = replace(replacement)
    with _lock:
        original = Replacement(owner, name, vars(owner)[name])
        setattr(owner, name, replacement.value)
        _layers.setdefault((id(owner), name), [original]).append(entry)
    return entry


def _pop(entry: Replacement) -> None:
    owner, name = entry.owner, entry.name
    with _lock:
        layers = _layers[id(owner), name]
        layers.remove(entry)
        setattr(owner, name, layers[-1].value)
        if len(layers) == 1:
            del _layers[id(owner), name]


_answer: ContextVar[Callable[[], str] | None] = ContextVar("default_backend", default=None)


@contextmanager
def report_platform(answer: Callable[[], str]) -> Iterator[None]:
    """Has `jax.default_backend()` return what `answer` does, in this thread; "" stands for the machine's own."""
    original = jax.default_backend

    def default_backend() -> str:
        own = _answer.get()  # None in a thread that only runs at the same time
        return (own() if own is not None else "") or original()

    token = _answer.set(answer)
    try:
        with replace_attributes(Replacement(jax, "default_backend", default_backend)):
            yield
    finally:
        _answer.reset(token)


def keep_jax_frames() -> AbstractContextManager[Any]:
    """Keeps JAX's own frames in the exceptions that JAX raises."""
    whole: AbstractContextManager[Any] = config.traceback_filtering("off")
    return whole


@contextmanager
def disable_debugging_in_callbacks() -> Iterator[None]:
    """Switches JAX's debugging modes off for all threads: callbacks run on XLA's, which ignore thread-local values."""
    modes = {
        "jax_debug_nans": config.debug_nans,
        "jax_debug_infs": config.debug_infs,
        "jax_disable_jit": config.disable_jit,
    }
    on = [name for name, mode in modes.items() if mode.get_global()]
    for name in on:
        jax.config.update(name, False)
    try:
        yield
    finally:
        for name in on:
            jax.config.update(name, True)
