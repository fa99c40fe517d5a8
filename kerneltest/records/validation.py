"""The schema of records, and the first error of a line that violates it, in words."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

SCHEMA: Final = 11
_MOST_PROBLEMS = 1000  # errors in one line, since the description of each takes a kilobyte


def is_not_json(error: ValidationError) -> bool:
    """Returns whether a line is not JSON at all."""
    return error.error_count() == 1 and error.errors()[0]["type"] == "json_invalid"


def first_problem(error: ValidationError) -> str:
    """Returns the first invalid field and its error in one line; a wrong schema version takes precedence."""
    if error.error_count() > _MOST_PROBLEMS:
        return f"{error.error_count():,} fields violate schema {SCHEMA}"
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["loc"] == ("schema",):
            found = "none" if problem["type"] == "missing" else ascii(problem["input"])[:40]
            return f"schema {found}, and this kerneltest reads schema {SCHEMA}: run the suites again"
    return _field(problems[0]) + problems[0]["msg"].removeprefix("Value error, ")


def _field(problem: Mapping[str, Any]) -> str:
    """Formats a field's path: `record.evidence.window.values[3]: `; "" for the whole line. Names may be hostile."""
    path = "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() and part.isascii() else f"[{part!a}]"
        for part in problem["loc"]
    )
    return f"{path.removeprefix('.')}: " if path else ""
