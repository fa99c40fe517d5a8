"""A run on disk: plan and records as strict JSON lines with a versioned schema, in shards; arguments; artifacts."""

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from kerneltest.core.details import Detail
from kerneltest.core.dtypes import Array, dtype_named
from kerneltest.core.failures import printable
from kerneltest.records.files import opened
from kerneltest.records.schema import End, Plan, Record, Smallest
from kerneltest.records.schema_10 import OLDER_SCHEMA, upgrade_line
from kerneltest.records.strict_json import dumps

SCHEMA: Final = 11
# Readers refuse what is larger; no run writes as much.
_MOST_PLAN = 2**24  # bytes
_MOST_COMMAS = 2**20  # of a plan: a value takes two bytes there, and 400 in an error
_MOST_LINE = 2**21  # bytes of one record
_MOST_RECORDS = 2**31  # bytes of a shard, once unpacked: more than a million cases
_MOST_TEXT = 20_000  # characters of a message
_MOST_DETAIL = 4_000  # characters of a text in a detail, most of which the message has as well
_MOST_PROBLEMS = 1000  # of one line or plan: a description of each takes a kilobyte


class RecordError(ValueError):
    """A record, a plan or a file beside them that cannot be read; names the file, the line and the field."""


_Line = TypeVar("_Line")


def save_artifacts(folder: Path, case: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Saves the texts of an artifact under `artifacts/`; returns their paths within the folder."""
    paths = {f"artifacts/{case}/{name}": text for name, text in files.items()}
    for path, text in paths.items():
        with opened(folder, path, "wb") as file:
            file.write(printable(text).encode())
    return tuple(paths)


def save_arguments(folder: Path, case: str, arguments: Mapping[str, Array]) -> str:
    """Saves a case's array arguments under `cases/`; returns the path within the folder."""
    # By dtype and leaf, as unsigned integers: NumPy's format knows no bfloat16.
    raw = {f"{value.dtype.name}:{leaf}": _bits(value) for leaf, value in arguments.items()}
    path = f"cases/{case}.npz"
    with opened(folder, path, "wb") as file:
        np.savez_compressed(file, **raw)  # type: ignore[arg-type]
    return path


def load_arguments(folder: Path, name: str, most: int = 2**30) -> dict[str, Array]:
    """The array arguments saved by `save_arguments`, by leaf.

    Args:
      folder: of the run.
      name: what `save_arguments` returned.
      most: bytes that the arrays may have together; no more than that is unpacked.

    Raises:
      RecordError: they cannot be read, or are larger.
    """
    arguments: dict[str, Array] = {}
    try:
        with opened(folder, name) as file, zipfile.ZipFile(file) as saved:
            for entry in saved.infolist():
                dtype, leaf = entry.filename.removesuffix(".npy").split(":", 1)
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{leaf} is compressed in a way that NumPy does not use")
                with saved.open(entry) as packed:
                    bits = _array(packed, most - sum(value.nbytes for value in arguments.values()))
                arguments[leaf] = bits.view(dtype_named(dtype)).reshape(bits.shape)
    except Exception as error:  # of many kinds, in a damaged file
        raise RecordError(f"{name}: no readable inputs: {error}") from error
    return arguments


def _array(file: IO[bytes], most: int) -> Array:
    """An array of unsigned integers in NumPy's format; its size is checked before there is room for it."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is in another version of NumPy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind != "u" or not 0 <= size <= most:
        raise ValueError(f"an array of {dtype} of shape {shape} is not what was saved")
    return np.frombuffer(bytearray(file.read(size)), dtype).reshape(shape, order="F" if fortran else "C")


def _bits(value: Array) -> Array:
    return value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])


# Nothing is converted to the type that is due; unknown fields, bare NaNs and infinities are errors.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


@dataclass(frozen=True, slots=True)
class _RecordLine:
    schema: Literal[11]
    record: Record

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _PlanLine:
    schema: Literal[11]
    plan: Plan

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _EndLine:
    schema: Literal[11]
    end: End

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class _SmallestLine:
    schema: Literal[11]
    smallest: Smallest

    __pydantic_config__ = _STRICT


RECORD_LINE, _PLAN_LINE, _END_LINE = TypeAdapter(_RecordLine), TypeAdapter(_PlanLine), TypeAdapter(_EndLine)
SMALLEST_LINE = TypeAdapter(_SmallestLine)


class Writer:
    """Appends records to one shard of a run's folder, each flushed as it comes, with the ends of overlong messages."""

    def __init__(self, folder: Path, shard: str) -> None:
        self.folder, self.shard = folder, shard
        self._file = opened(folder, f"records-{shard}.jsonl", "ab")

    def write(self, record: Record) -> None:
        self._file.write(line_of(record) + b"\n")
        self._file.flush()

    def copy(self, lines: bytes) -> None:
        """Appends lines that `line_of` made."""
        self._file.write(lines)
        self._file.flush()

    def write_smallest(self, smallest: Smallest) -> None:
        """Appends a smallest case to a file of its own beside the shard."""
        record = replace(smallest.record, message=shortened(smallest.record.message))
        with opened(self.folder, f"smallest-{self.shard}.jsonl", "ab") as file:
            file.write(dumps(_SmallestLine(SCHEMA, replace(smallest, record=record))).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def line_of(record: Record) -> bytes:
    """A record as it is written, without the line's end; of what is too long, the beginning and the end."""
    if record.evidence is not None:
        record = replace(record, evidence=replace(record.evidence, stderr=shortened(record.evidence.stderr)))
    if len(record.message) > _MOST_TEXT:
        record = replace(record, message=shortened(record.message))
    if record.detail is not None:
        record = replace(record, detail=_shorten_detail(record.detail))
    return dumps(_RecordLine(SCHEMA, record)).encode()


def _shorten_detail(detail: Detail) -> Detail:
    """A detail whose overlong texts are shortened."""
    texts = {field.name: getattr(detail, field.name) for field in fields(detail)}
    changes: dict[str, Any] = {
        name: shortened(text, _MOST_DETAIL)
        for name, text in texts.items()
        if isinstance(text, str) and len(text) > _MOST_DETAIL
    }
    return replace(detail, **changes) if changes else detail


def shortened(text: str, most: int = _MOST_TEXT) -> str:
    """A text for a person; of one that is too long, the beginning and the end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"


def write_plan(folder: Path, plan: Plan) -> None:
    """Writes `plan.json`: what the run will do."""
    _write_whole(folder, "plan.json", dumps(_PlanLine(SCHEMA, plan)))


def read_plan(folder: Path) -> Plan:
    """The plan of a run.

    Raises:
      RecordError: there is none, or it cannot be read.
    """
    path = folder / "plan.json"
    try:
        with opened(folder, path.name) as file:
            text = file.read(_MOST_PLAN + 1)
        if len(text) > _MOST_PLAN or text.count(b",") > _MOST_COMMAS:
            most = f"{_MOST_PLAN >> 20} MiB, or than {_MOST_COMMAS:,} values"
            raise RecordError(f"{path}: holds more than {most}, which no plan of kerneltest does")
        return validate_line(_PLAN_LINE, text).plan
    except OSError as error:
        raise RecordError(f"{path}: no readable plan: {error}") from error
    except ValidationError as error:
        raise RecordError(f"{path}: no readable plan: {_first_problem(error)}") from error


def write_end(folder: Path, end: End) -> None:
    """Writes `end.json`: all records of the run are written."""
    _write_whole(folder, "end.json", dumps(_EndLine(SCHEMA, end)))


def read_end(folder: Path) -> End | None:
    """The end of a run; None where it has not ended.

    Raises:
      RecordError: it cannot be read.
    """
    path = folder / "end.json"
    try:
        with opened(folder, path.name) as file:
            return validate_line(_END_LINE, file.read(_MOST_LINE)).end
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        raise RecordError(f"{path}: {_first_problem(error)}") from error


def _write_whole(folder: Path, name: str, line: str) -> None:
    """In one step, so that a reader finds all of it or none."""
    temporary = f"{Path(name).stem}-{os.getpid()}.tmp"
    with opened(folder, temporary, "wb") as file:
        file.write(line.encode() + b"\n")
    (folder / temporary).replace(folder / name)


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
        yield from (line.record for line in _read(shard, RECORD_LINE))


def read_some(folder: Path, numbers: Collection[int]) -> Iterator[tuple[int, Record]]:
    """Single records of a run, each with its number: counted from 0, as `read_records` yields them.

    Raises:
      RecordError: as `read_records`, of the lines that are read.
    """
    number = 0
    for shard in shards(folder):
        for in_shard, line in enumerate(_lines(shard), 1):
            if number in numbers or not line.endswith(b"\n"):  # a line that was cut off has no number
                if (parsed := _parsed(shard, in_shard, line, RECORD_LINE)) is None:
                    continue
                if number in numbers:
                    yield number, parsed.record
            number += 1


def read_shard(folder: Path, shard: str) -> Iterator[Record]:
    """The records of one shard of a run, as `read_records`; none where it is missing."""
    path = folder / f"records-{shard}.jsonl"
    return (line.record for line in (_read(path, RECORD_LINE) if path.exists() else ()))


def read_smallest(folder: Path) -> Iterator[Smallest]:
    """The smallest failing cases of a run, shard by shard.

    Raises:
      RecordError: as `read_records`.
    """
    for shard in sorted([*folder.glob("smallest-*.jsonl"), *folder.glob("smallest-*.jsonl.gz")]):
        yield from (line.smallest for line in _read(shard, SMALLEST_LINE))


def _read(shard: Path, adapter: TypeAdapter[_Line]) -> Iterator[_Line]:
    for number, line in enumerate(_lines(shard), 1):
        if (parsed := _parsed(shard, number, line, adapter)) is not None:
            yield parsed


def _parsed(shard: Path, number: int, line: bytes, adapter: TypeAdapter[_Line]) -> _Line | None:
    """A line of a shard; None for a last one that was cut off."""
    try:
        return validate_line(adapter, line.removesuffix(b"\n"))
    except ValidationError as error:
        if not line.endswith(b"\n") and _is_no_json(error):
            return None
        raise RecordError(f"{shard}, line {number}: {_first_problem(error)}") from error


def validate_line(adapter: TypeAdapter[_Line], line: bytes) -> _Line:
    """Validates a line of this schema, or of the one before it.

    Raises:
      ValidationError: it is neither.
    """
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        if (upgraded := upgrade_line(line)) is None:
            raise
        try:
            return adapter.validate_json(upgraded)
        except ValidationError:
            raise error from None


def _lines(shard: Path) -> Iterator[bytes]:
    """The lines of a shard with their ends, unpacked as they come."""
    try:
        with ExitStack() as stack:
            file: IO[bytes] | gzip.GzipFile = stack.enter_context(opened(shard.parent, shard.name))
            if shard.suffix == ".gz":
                file = stack.enter_context(gzip.open(file, "rb"))
            number = size = 0
            while line := file.readline(_MOST_LINE + 1):
                number, size = number + 1, size + len(line)
                if len(line) > _MOST_LINE:
                    raise RecordError(f"{shard}, line {number}: has more than {_MOST_LINE >> 20} MiB: no record has")
                if size > _MOST_RECORDS:
                    most = f"{_MOST_RECORDS >> 20} MiB"
                    raise RecordError(f"{shard}: holds more than {most}, which no run of kerneltest writes")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(f"{shard}: not a whole gzip file: {error}") from error
    except OSError as error:
        raise RecordError(f"{shard}: cannot be read: {error}") from error


def _is_no_json(error: ValidationError) -> bool:
    return error.error_count() == 1 and error.errors()[0]["type"] == "json_invalid"


def _first_problem(error: ValidationError) -> str:
    """The field and what is wrong with it, on one line; another schema explains all else."""
    if error.error_count() > _MOST_PROBLEMS:
        return f"{error.error_count():,} fields are not as schema {SCHEMA} says"
    problems = error.errors(include_url=False)
    for problem in problems:
        if problem["loc"] == ("schema",):
            found = "none" if problem["type"] == "missing" else ascii(problem["input"])[:40]
            return f"schema {found}, and this version reads schemas {OLDER_SCHEMA} and {SCHEMA}"
    return _field(problems[0]) + problems[0]["msg"].removeprefix("Value error, ")


def _field(problem: Mapping[str, Any]) -> str:
    """`record.evidence.window.values[3]: `; "" where the whole line is meant. Names may come from anywhere."""
    path = "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() and part.isascii() else f"[{part!a}]"
        for part in problem["loc"]
    )
    return f"{path.removeprefix('.')}: " if path else ""
