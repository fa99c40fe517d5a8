"""Strict JSON on one line, in which a NaN or an infinity is an object and never a bare word."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def dumps(value: Any) -> str:
    """Strict JSON on one line: a NaN or an infinity becomes `{"float": "nan"}`, never a bare word, never null."""
    return json.dumps(_encoded(value), allow_nan=False, separators=(",", ":"), ensure_ascii=True)


def loads(text: str) -> Any:
    """The inverse of `dumps`; rejects bare NaN and Infinity."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    def decode(value: dict[str, Any]) -> Any:
        return float(value["float"]) if value.keys() == {"float"} else value

    return json.loads(text, object_hook=decode, parse_constant=refuse)


def _encoded(value: Any) -> Any:
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no place in a record")
