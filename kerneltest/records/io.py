"""Plans and records on disk: strict JSON lines with a versioned schema, in shards."""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import asdict, fields
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from kerneltest.core.tiers import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.schema import Declared, Evidence, NotApplicable, Plan, PlannedItem, Record, Source, Window
from kerneltest.records.strict_json import dumps, loads

SCHEMA = 5
MOST = 2**30  # bytes of a shard, once unpacked


class RecordError(ValueError):
    """A record or a plan that cannot be read; names the file and the line."""


class Writer:
    """Appends records to one shard of a run's folder, each flushed as it comes."""

    def __init__(self, folder: Path, shard: str) -> None:
        self.folder = folder
        self._file = (folder / f"records-{shard}.jsonl").open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        self._file.write(dumps({"schema": SCHEMA, **asdict(record)}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def write_plan(folder: Path, plan: Plan) -> None:
    """Writes `plan.json` in one step, so that a reader finds all of it or none."""
    temporary = folder / f"plan-{id(plan)}.tmp"
    temporary.write_text(dumps({"schema": SCHEMA, **asdict(plan)}) + "\n", encoding="utf-8")
    temporary.replace(folder / "plan.json")


def read_plan(folder: Path) -> Plan:
    """The plan of a run.

    Raises:
      RecordError: there is none, or it cannot be read.
    """
    path = folder / "plan.json"
    try:
        data = loads(path.read_text(encoding="utf-8"))
        _check_schema(data, path)
        data["items"] = tuple(PlannedItem(**{**item, "tier": Tier(item["tier"])}) for item in data["items"])
        data["xfail"] = {name: tuple(texts) for name, texts in data["xfail"].items()}
        data["not_applicable"] = tuple(NotApplicable(**each) for each in data["not_applicable"])
        data["pairings"] = {name: _declared(each) for name, each in data["pairings"].items()}
        return Plan(**data)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{path}: no readable plan: {error}") from error


def shards(folder: Path) -> list[Path]:
    """The files of a run's records, by name."""
    return sorted([*folder.glob("records-*.jsonl"), *folder.glob("records-*.jsonl.gz")])


def _text(shard: Path) -> str:
    with (gzip.open if shard.suffix == ".gz" else open)(shard, "rb") as file:
        try:
            raw = file.read(MOST + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise RecordError(f"{shard}: not a whole gzip file: {error}") from error
    if len(raw) > MOST:
        raise RecordError(f"{shard}: holds more than {MOST >> 20} MiB, which no run of kerneltest writes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"{shard}: not UTF-8: {error}") from error


def read_records(folder: Path) -> Iterator[Record]:
    """The records of a run, shard by shard in order of name; a shard may be gzipped. A truncated last line is dropped.

    Raises:
      RecordError: a line other than the last is corrupt, or of another schema.
    """
    for shard in shards(folder):
        lines = _text(shard).splitlines()
        for number, line in enumerate(lines, 1):
            try:
                data = loads(line)
                _check_schema(data, shard)
                yield _record(data)
            except (ValueError, TypeError, KeyError) as error:
                if number == len(lines) and isinstance(error, JSONDecodeError):
                    break  # the process was killed while it wrote this line
                raise RecordError(f"{shard}, line {number}: {error}") from error


def _record(data: dict[str, Any]) -> Record:
    evidence = data.get("evidence")
    if evidence is not None:
        for name in ("index", "wrong_blocks"):
            evidence[name] = tuple(evidence[name])
        evidence["window"] = _window(evidence["window"]) if evidence["window"] is not None else None
        evidence["inputs"] = tuple(map(_window, evidence["inputs"]))
        evidence = Evidence(**evidence)
    for name in ("advice", "files", "ulps"):
        data[name] = tuple(data[name])
    known = {each.name for each in fields(Record)}
    if unknown := data.keys() - known:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    return Record(**{**data, "evidence": evidence, "verdict": Verdict(data["verdict"]), "tier": Tier(data["tier"])})


def _window(data: dict[str, Any]) -> Window:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    found = Window(**given)
    count = found.extent[0] * found.extent[1]
    lengths = {len(each) for each in (found.values, found.expected, found.bound, found.wrong) if each}
    if len(found.extent) != 2 or len(found.blocks) != 2 or lengths - {count} or len(found.origin) != len(found.shape):
        raise ValueError(f"a window of {found.extent} elements does not hold as many")
    return found


def _declared(data: dict[str, Any]) -> Declared:
    kernel, oracle = (
        Source(data[name]["file"], tuple((int(line), str(text)) for line, text in data[name]["parts"]))
        for name in ("kernel", "oracle")
    )
    return Declared(data["declaration"], kernel, oracle)


def _check_schema(data: dict[str, Any], path: Path) -> None:
    found = data.pop("schema", None)
    if found != SCHEMA:
        raise RecordError(f"{path}: schema {found!r}, and this version reads schema {SCHEMA}")
