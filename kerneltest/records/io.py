"""A run on disk: plan and records as strict JSON lines with a versioned schema, in shards; arguments; artifacts."""

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from kerneltest.core.dtypes import Array, dtype_named
from kerneltest.records.schema import End, Plan, Record
from kerneltest.records.strict_json import dumps


def save_artifacts(folder: Path, case: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Saves the texts of an artifact under `artifacts/`; returns their paths within the folder."""
    (folder / "artifacts" / case).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "artifacts" / case / name).write_text(text, encoding="utf-8")
    return tuple(f"artifacts/{case}/{name}" for name in files)


def save_arguments(folder: Path, case: str, arguments: Mapping[str, Array]) -> str:
    """Saves a case's array arguments under `cases/`; returns the path within the folder."""
    (folder / "cases").mkdir(exist_ok=True)
    # By dtype and leaf, as unsigned integers: NumPy's format knows no bfloat16.
    raw = {f"{value.dtype.name}:{leaf}": _bits(value) for leaf, value in arguments.items()}
    np.savez_compressed(folder / "cases" / f"{case}.npz", **raw)  # type: ignore[arg-type]
    return f"cases/{case}.npz"


def load_arguments(path: Path) -> dict[str, Array]:
    """The array arguments saved by `save_arguments`, by leaf."""
    with np.load(path, allow_pickle=False) as saved:
        arrays = [(key.split(":", 1), saved[key]) for key in saved.files]
    return {leaf: bits.view(dtype_named(name)).reshape(bits.shape) for (name, leaf), bits in arrays}


def _bits(value: Array) -> Array:
    return value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])


SCHEMA: Final = 7
_MOST_BYTES = 2**30  # bytes of a shard, once unpacked

# Nothing is converted to the type that is due; unknown fields, bare NaNs and infinities are errors.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class RecordError(ValueError):
    """A record or a plan that cannot be read; names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class _RecordLine:
    schema: Literal[7]
    record: Record

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _PlanLine:
    schema: Literal[7]
    plan: Plan

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _EndLine:
    schema: Literal[7]
    end: End

    __pydantic_config__ = _STRICT


RECORD_LINE, _PLAN_LINE, _END_LINE = TypeAdapter(_RecordLine), TypeAdapter(_PlanLine), TypeAdapter(_EndLine)


class Writer:
    """Appends records to one shard of a run's folder, each flushed as it comes."""

    def __init__(self, folder: Path, shard: str) -> None:
        self.folder = folder
        self._file = (folder / f"records-{shard}.jsonl").open("a", encoding="utf-8")

    def write(self, record: Record) -> None:
        self._file.write(dumps(_RecordLine(SCHEMA, record)) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def write_plan(folder: Path, plan: Plan) -> None:
    """Writes `plan.json`: what the run will do."""
    _write_whole(folder / "plan.json", dumps(_PlanLine(SCHEMA, plan)))


def read_plan(folder: Path) -> Plan:
    """The plan of a run.

    Raises:
      RecordError: there is none, or it cannot be read.
    """
    path = folder / "plan.json"
    try:
        return _PLAN_LINE.validate_json(path.read_bytes()).plan
    except OSError as error:
        raise RecordError(f"{path}: no readable plan: {error}") from error
    except ValidationError as error:
        raise RecordError(f"{path}: no readable plan: {_first_problem(error)}") from error


def write_end(folder: Path, end: End) -> None:
    """Writes `end.json`: all records of the run are written."""
    _write_whole(folder / "end.json", dumps(_EndLine(SCHEMA, end)))


def read_end(folder: Path) -> End | None:
    """The end of a run; None where it has not ended.

    Raises:
      RecordError: it cannot be read.
    """
    path = folder / "end.json"
    try:
        return _END_LINE.validate_json(path.read_bytes()).end
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        raise RecordError(f"{path}: {_first_problem(error)}") from error


def _write_whole(path: Path, line: str) -> None:
    """In one step, so that a reader finds all of it or none."""
    temporary = path.with_name(f"{path.stem}-{os.getpid()}.tmp")
    temporary.write_text(line + "\n", encoding="utf-8")
    temporary.replace(path)


def shards(folder: Path) -> list[Path]:
    """The files of a run's records, by name."""
    return sorted([*folder.glob("records-*.jsonl"), *folder.glob("records-*.jsonl.gz")])


def read_records(folder: Path) -> Iterator[Record]:
    """The records of a run, shard by shard in order of name; a shard may be gzipped.

    A last line that was cut off while it was written is dropped.

    Raises:
      RecordError: a shard cannot be read, or a line is corrupt or of another schema.
    """
    for shard in shards(folder):
        *whole, rest = _bytes(shard).split(b"\n")
        for number, line in enumerate([*whole, rest] if rest else whole, 1):
            try:
                yield RECORD_LINE.validate_json(line).record
            except ValidationError as error:
                if number > len(whole) and _is_no_json(error):
                    break
                raise RecordError(f"{shard}, line {number}: {_first_problem(error)}") from error


def _bytes(shard: Path) -> bytes:
    try:
        with (gzip.open if shard.suffix == ".gz" else open)(shard, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(f"{shard}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise RecordError(f"{shard}: cannot be read: {error}") from error
    if len(raw) > _MOST_BYTES:
        raise RecordError(f"{shard}: holds more than {_MOST_BYTES >> 20} MiB, which no run of kerneltest writes")
    return raw


def _is_no_json(error: ValidationError) -> bool:
    return error.errors()[0]["type"] == "json_invalid"


def _first_problem(error: ValidationError) -> str:
    """The field and what is wrong with it, on one line; another schema explains all else."""
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["loc"] == ("schema",):
            found = "none" if problem["type"] == "missing" else ascii(problem["input"])[:40]
            return f"schema {found}, and this version reads schema {SCHEMA}"
    return _field(problems[0]) + problems[0]["msg"].removeprefix("Value error, ")


def _field(problem: Mapping[str, Any]) -> str:
    """`record.evidence.window.values[3]: `; "" where the whole line is meant. Names may come from anywhere."""
    path = "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() and part.isascii() else f"[{part!a}]"
        for part in problem["loc"]
    )
    return f"{path.removeprefix('.')}: " if path else ""
