"""Texts and strict JSON in the files of a run."""

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from kerneltest.core.failures import escape_surrogates
from kerneltest.core.media import for_terminal


def write_text(path: Path, text: str) -> None:
    """Writes a text file at a path given by the user; text that is not valid Unicode is escaped."""
    path.write_text(escape_surrogates(text), encoding="utf-8")


def slug(text: str) -> str:
    """Returns text as a part of a file's name: everything but letters and digits becomes `_`."""
    return "".join(c if c.isalnum() else "_" for c in text)


# Strict JSON: a NaN or an infinity is an object, never a bare word.


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


_NAMES = core_schema.typed_dict_field(core_schema.literal_schema(["nan", "inf", "-inf"]))
_SPECIAL_FLOAT = core_schema.no_info_after_validator_function(
    lambda value: float(value["float"]), core_schema.typed_dict_schema({"float": _NAMES}, extra_behavior="forbid")
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


# The schema of records, and the first error of a line that violates it, in words.

SCHEMA: Final = 12
_MOST_PROBLEMS = 1000  # errors in one line, since the description of each takes a kilobyte
_MOST_OF_A_PROBLEM = 1000  # characters of an error, which quotes an invalid value in full


def first_problem(error: ValidationError) -> str:
    """Returns the first invalid field and its error as one line of text; a wrong schema version takes precedence."""
    if error.error_count() > _MOST_PROBLEMS:
        return f"{error.error_count():,} fields violate schema {SCHEMA}"
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["loc"] == ("schema",):
            found = "none" if problem["type"] == "missing" else ascii(problem["input"])[:40]
            return f"schema {found}, and this kerneltest reads schema {SCHEMA}: run the suites again"
    return _field(problems[0]) + for_terminal(problems[0]["msg"].removeprefix("Value error, ")[:_MOST_OF_A_PROBLEM])


def _field(problem: Mapping[str, Any]) -> str:
    """Formats a field's path: `record.evidence.window.values[3]: `; "" for the whole line. Names may be hostile."""
    path = "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() and part.isascii() else f"[{part!a}]"
        for part in problem["loc"]
    )
    return f"{path.removeprefix('.')}: " if path else ""
