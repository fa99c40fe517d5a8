"""Discovery of pairings in modules and classes: under a name, or in a list, a tuple or a dict.

It imports nothing of the package, so a pytest run without pairings costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing

_SAFE_KEY = re.compile(r"[\w.+-]+")  # colons, brackets and slashes are separators in node ids


def is_pairing(value: object) -> TypeGuard[Pairing]:
    """Returns whether a value is a pairing, by the name of its class."""
    return type(value).__name__ == "Pairing" and type(value).__module__ == "kerneltest.declare.pairing"


def iter_pairings(name: str, value: object) -> Iterator[tuple[str, Pairing]]:
    """Yields the pairings under a name with theirs: `norms[layer]` in a dict of words or numbers, else `norms[0]`."""
    if is_pairing(value):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        values = list(value.values()) if isinstance(value, dict) else value
        places = [(number, each) for number, each in enumerate(values) if is_pairing(each)]
        keys = [str(key) if isinstance(key, (str, int)) else "" for key in value] if places else []
        plain = isinstance(value, dict) and len(set(keys)) == len(keys) and all(map(_SAFE_KEY.fullmatch, keys))
        yield from ((f"{name}[{keys[number] if plain else number}]", each) for number, each in places)
