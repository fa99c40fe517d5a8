"""Strict JSON: a NaN or an infinity is an object, never a bare word."""

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from kerneltest.core.failures import escape_surrogates


def dumps(value: Any) -> str:
    """Returns a value as strict JSON on one line; a NaN or an infinity becomes `{"float": "nan"}`."""
    try:
        text = _PLAIN.encode(value)
    except ValueError:  # a NaN or an infinity
        return _STRICT.encode(_encode(value))
    return _STRICT.encode(_encode(value)) if "\\ud" in text else text  # half of a surrogate pair


def _convert_level(value: Any) -> Any:
    """Converts one level of a value that the standard encoder does not know."""
    if is_dataclass(value):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    return _encode(value)


_STRICT = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_PLAIN = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_convert_level)  # twice as fast


class ReadsSpecialFloats:
    """Annotation for types with floats: reads the objects that `dumps` writes for NaN and infinities."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.union_schema(
            [handler(source), _SPECIAL_FLOAT],
            mode="left_to_right",
            custom_error_type="number",
            custom_error_message="Input should be a finite number, "
            '{"float": "nan"}, {"float": "inf"} or {"float": "-inf"}',
        )


def _special_float(value: Mapping[str, str]) -> float:
    return float(value["float"])


_NAMES = core_schema.typed_dict_field(core_schema.literal_schema(["nan", "inf", "-inf"]))
_SPECIAL_FLOAT = core_schema.no_info_after_validator_function(
    _special_float, core_schema.typed_dict_schema({"float": _NAMES}, extra_behavior="forbid")
)


def _encode(value: Any) -> Any:
    if isinstance(value, str):  # not every reader accepts half of a surrogate pair
        return escape_surrogates(value)
    if isinstance(value, (bool, int)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    if isinstance(value, Mapping):
        return {_encode(str(key)): _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if is_dataclass(value):
        return {name: _encode(getattr(value, name)) for name in value.__dataclass_fields__}
    raise TypeError(f"{type(value).__name__} has no place in a record")
