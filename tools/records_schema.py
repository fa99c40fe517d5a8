"""Writes the JSON Schema of records, docs/schema/records-N.json: `python -m tools.records_schema`.

It follows from the types that kerneltest reads records with, so that other tools read what it reads. Comments beside or
above fields become their descriptions. A test fails while the file is not current.
"""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kerneltest.core import details
from kerneltest.records import evidence, run_plan, schema
from kerneltest.records.files import SCHEMA
from kerneltest.records.record_files import END_LINE, MUTANTS_LINE, PLAN_LINE, RECORD_LINE, REPRODUCER_LINE

PATH = Path(__file__).parent.parent / f"docs/schema/records-{SCHEMA}.json"
URL = f"https://kerneltest.github.io/kerneltest/schema/{PATH.name}"
LINES = {
    "record": RECORD_LINE,
    "plan": PLAN_LINE,
    "end": END_LINE,
    "smallest": REPRODUCER_LINE,
    "mutants": MUTANTS_LINE,
}


def records_schema() -> dict[str, Any]:
    """Returns the schema of one line of JSON of a run's folder, whichever file it is from."""
    of_lines, shared = TypeAdapter.json_schemas([(name, "validation", line) for name, line in LINES.items()])
    for name, definition in shared["$defs"].items():
        for field, description in _comments(name):
            definition["properties"][field]["description"] = description
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": URL,
        "title": f"Records of kerneltest, schema {SCHEMA}",
        "description": "One line of records-*.jsonl, smallest-*.jsonl, mutants-*.jsonl, plan.json or end.json.",
        "oneOf": [schema for (_, _), schema in of_lines.items()],
        **shared,
    }


_FIELD = re.compile(r"    (\w+): [^#]*?(?:  # (.*))?")


def _comments(name: str) -> Iterator[tuple[str, str]]:
    """Yields the fields of a class with their comments. One that begins with names, `wrong, total:`, is for these."""
    modules = (details, evidence, run_plan, schema)
    owner = next((getattr(module, name) for module in modules if hasattr(module, name)), object)
    for base in owner.__mro__[:-1] if is_dataclass(owner) else ():
        above: list[str] = []
        for line in inspect.getsource(base).splitlines():
            if line.startswith("    # "):
                above.append(line.removeprefix("    # "))
                continue
            if (found := _FIELD.fullmatch(line)) and (text := found[2] or " ".join(above)):
                several = re.fullmatch(r"(\w+(?:, \w+)+): (.*)", text)
                fields, words = (several[1].split(", "), several[2]) if several else ([found[1]], text)
                yield from ((field, words) for field in fields)
            above.clear()


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(records_schema(), indent=1) + "\n", encoding="utf-8")
