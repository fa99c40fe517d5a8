"""Registries: the functions by which users and the built-in extensions add to kerneltest.

A registry lists its entries in an explicit order. It imports the extensions that add to it before it is first read, so
that nothing which is never used is imported.
"""

import difflib
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Generic, Protocol, TypeVar

AFTER_BUILT_IN = 100
"""The order of entries that name none: those of users follow all built-in ones."""


def load_extensions(registry: str) -> list[ModuleType]:
    """Imports the extensions that add to a registry, by the table of `kerneltest.extensions`, and returns them."""
    loaded: list[ModuleType] = import_module("kerneltest.extensions").load(registry)  # which no room may import
    return loaded


class NamedEntry(Protocol):
    """An entry: whatever has a name."""

    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=NamedEntry)


class Registry(Generic[E]):
    """Entries by name, in order: `kind` is a word for one, `extended_by` a key of `kerneltest.extensions.MODULES`."""

    def __init__(self, kind: str, extended_by: str) -> None:
        self.kind = kind
        self._extended_by = extended_by
        self._registered: dict[str, tuple[int, E, str]] = {}  # by name: order, entry, and the module that adds it
        self._is_loaded = False

    def add(self, entry: E, home: str, order: int = AFTER_BUILT_IN) -> None:
        """Registers an entry of the module `home`, or replaces its own; ValueError if the name is another's."""
        _, _, known = self._registered.get(entry.name, (order, entry, home))
        if known != home:
            raise ValueError(f"{self.kind}: the name {entry.name!r} is already registered by {known}")
        self._registered[entry.name] = order, entry, home

    def entries(self) -> tuple[E, ...]:
        if not self._is_loaded:
            self._is_loaded = True  # the extensions may read the registry themselves
            load_extensions(self._extended_by)
        return tuple(entry for _, entry, _ in sorted(self._registered.values(), key=lambda registered: registered[0]))

    def get(self, name: str) -> E | None:
        return next((entry for entry in self.entries() if entry.name == name), None)


# Suggestions for names that are unknown.

ABBREVIATED = 0.5
"""The cutoff for names that users abbreviate: `fp16` and `float16` have a ratio of 0.55."""


def suggest(given: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns `; did you mean 'float16'?` for the closest known name, or "" below difflib's `cutoff`."""
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""
