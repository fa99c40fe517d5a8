"""The pairings that a name of a module or class holds: one, or some in a list, a tuple or a dict.

Nothing of the core is loaded, so that a run without pairings costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing

_PLAIN = re.compile(r"[\w.+-]+")  # a node id is taken apart at colons, brackets and slashes


def is_pairing(value: object) -> TypeGuard[Pairing]:
    """Told by the name of its class."""
    return type(value).__name__ == "Pairing" and type(value).__module__ == "kerneltest.declare.pairing"


def held(name: str, value: object) -> Iterator[tuple[str, Pairing]]:
    """The pairings under a name, each with its own: `softmax`, `norms[0]` in a list, `norms[layer]` in a dict.

    In a dict whose keys are not all words or numbers, pairings are counted as in a list.
    """
    if is_pairing(value):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        values = list(value.values()) if isinstance(value, dict) else value
        places = [(number, each) for number, each in enumerate(values) if is_pairing(each)]
        keys = [str(key) if isinstance(key, (str, int)) else "" for key in value] if places else []
        plain = isinstance(value, dict) and len(set(keys)) == len(keys) and all(map(_PLAIN.fullmatch, keys))
        yield from ((f"{name}[{keys[number] if plain else number}]", each) for number, each in places)
