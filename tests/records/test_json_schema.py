"""The published schema of records is current, takes what kerneltest writes, and refuses what kerneltest refuses."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from kerneltest.records.files import SCHEMA
from kerneltest.records.record_files import RECORD_LINE, RecordWriter, line_of
from kerneltest.records.schema import FaultLocation, MutantTrial, MutationScore, Reproducer, ScoredMutant
from tests.made_runs import WRONG, hostile, made_run
from tests.written import PASS
from tools.records_schema import LINES, PATH, records_schema

PYDANTIC = tuple(map(int, version("pydantic").split(".")[:2]))
VALIDATOR = Draft202012Validator(json.loads(PATH.read_text(encoding="utf-8")))


@pytest.mark.skipif(PYDANTIC < (2, 14), reason="the schema is published as a newer pydantic words it")
def test_the_file_is_current() -> None:
    schema = records_schema()
    assert json.loads(PATH.read_text(encoding="utf-8")) == schema, "run python -m tools.records_schema"
    Draft202012Validator.check_schema(schema)
    fields = schema["$defs"]["Record"]["properties"]
    assert [name for name, field in fields.items() if not field.get("description")] == []


def _lines(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(folder.rglob("*.json*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield path.name.partition("-")[0].removesuffix(".json"), json.loads(line)


def test_every_file_of_a_run_fits(tmp_path: Path) -> None:
    record, plan = hostile()
    run = made_run(tmp_path / "run", PASS, WRONG, record, **plan)
    fault = FaultLocation("k.py:1", "x", "y", True)
    writer = RecordWriter(run, "main")
    writer.write_reproducer(Reproducer("c1", WRONG, 1, 1, True, fault))
    writer.write_score(MutationScore(pairing="p", mutants=(MutantTrial(ScoredMutant("k.py", 1, "x"), "survived"),)))
    seen = set()
    for name, line in _lines(run):
        seen.add(name)
        VALIDATOR.validate(line)
    assert seen == {"records", "smallest", "mutants", "plan", "end"}
    assert any('{"float":"nan"}' in path.read_text(encoding="utf-8") for path in run.glob("records-*"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), SCHEMA + 1),
        (("record", "verdict"), "passed"),
        (("record", "compared"), -1),
        (("record", "compared"), "4"),
        (("record", "unknown"), 0),
        (("record", "bound_fraction"), {"float": "NaN"}),
        (("record", "detail", "kind"), "unheard of"),
        (("record", "evidence", "pattern", "kind"), "stripes"),
    ],
)
def test_the_schema_refuses_what_readers_refuse(path: tuple[str, ...], value: Any) -> None:
    line = json.loads(line_of(hostile()[0]))
    VALIDATOR.validate(line)
    *parents, last = path
    changed = line
    for name in parents:
        changed = changed[name]
    changed[last] = value
    assert not VALIDATOR.is_valid(line)
    with pytest.raises(ValidationError):
        RECORD_LINE.validate_json(json.dumps(line))


def test_each_kind_of_line_is_read_by_its_own_type() -> None:
    fields = {name: set(line.json_schema()["properties"]) for name, line in LINES.items()}
    assert fields == {name: {"schema", name} for name in LINES}
