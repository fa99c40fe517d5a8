"""Values grouped by a key, and those that are reached from others."""

from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def group_pairs(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Returns the values of each key; keys and values are in the order of the pairs."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def reach(start: Iterable[K], neighbours: Callable[[K], Iterable[K]]) -> list[K]:
    """Returns some values and all that their neighbours lead to, each once."""
    found, waiting = dict[K, None](), list(start)
    while waiting:
        if (value := waiting.pop()) not in found:
            found[value] = None
            waiting += neighbours(value)
    return list(found)
