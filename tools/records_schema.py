"""Writes the JSON Schema of records, docs/schema/records-N.json: `python -m tools.records_schema`.

It follows from the types that kerneltest reads records with, so that other tools read what it reads. A test fails while
the file is not current.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

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
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": URL,
        "title": f"Records of kerneltest, schema {SCHEMA}",
        "description": "One line of records-*.jsonl, smallest-*.jsonl, mutants-*.jsonl, plan.json or end.json.",
        "oneOf": [schema for (_, _), schema in of_lines.items()],
        **shared,
    }


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(records_schema(), indent=1) + "\n", encoding="utf-8")
