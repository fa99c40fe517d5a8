"""Reading and writing a run: plan and records as strict JSON lines in shards, arguments, artifacts."""

import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import RecordError, escape_surrogates
from kerneltest.core.files import open_inside
from kerneltest.records.evidence import Evidence
from kerneltest.records.files import SCHEMA, dumps, first_problem
from kerneltest.records.run_plan import End, Plan
from kerneltest.records.schema import MutationScore, Record, Reproducer

# Compact in-memory records: repeated field values are interned, evidence windows stay on disk.

_MOST = 2**16  # interned values; if all values differ, interning costs more than it saves

# Fields of records; other backends record the same case soon after.
_INTERNED = (
    "item", "pairing", "backend", "dtype", "group", "family", "signature", "target", "case", "message", "compared",
    "tolerance", "special_inputs", "detail", "defined", "undefined", "reused_from", "bound_fraction",
    "ulps", "dims", "dtypes", "statics",
)  # fmt: skip


def intern_records(records: Iterable[Record]) -> Iterator[Record]:
    """Yields equal records in a fraction of the memory; `runs.load_windows` reads evidence windows again."""
    known: dict[Hashable, Any] = {}

    def once(value: Any) -> Any:  # the first of equal values of one type
        if len(known) > _MOST:
            known.clear()
        items = tuple((name, type(item), item) for name, item in value.items()) if isinstance(value, dict) else value
        return known.setdefault((type(value), items), value)

    for record in records:
        changes = {name: once(getattr(record, name)) for name in _INTERNED}
        yield replace(
            record,
            **changes,
            evidence=record.evidence and _without_windows(record.evidence),
            compiler_metrics=record.compiler_metrics or _NO_FACTS,
        )


_NO_FACTS: Mapping[str, Mapping[str, int]] = {}


def _without_windows(evidence: Evidence) -> Evidence:
    if evidence.window is None:
        return evidence
    window = replace(evidence.window, values=(), expected=(), bound=(), wrong="")
    return replace(evidence, window=window, inputs=(), errors=None)


# Artifacts and array arguments that a run saves next to its records.


def save_artifacts(folder: Path, case: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Saves an artifact's files under `artifacts/` and returns their paths within the folder."""
    paths = {f"artifacts/{case}/{name}": text for name, text in files.items()}
    for path, text in paths.items():
        with open_inside(folder, path, "wb") as file:
            file.write(escape_surrogates(text).encode())
    return tuple(paths)


def save_arguments(folder: Path, case: str, arguments: Mapping[str, Array]) -> str:
    """Saves a case's array arguments under `cases/` and returns the path within the folder."""
    # Stored as unsigned integers under dtype and leaf, since NumPy's format lacks bfloat16.
    raw = {f"{v.dtype.name}:{leaf}": v.view(f"u{v.dtype.itemsize}") for leaf, v in arguments.items()}
    path = f"cases/{case}.npz"
    with open_inside(folder, path, "wb") as file:
        np.savez_compressed(file, **raw)  # type: ignore[arg-type]
    return path


def load_arguments(folder: Path, name: str, most: int = 2**30) -> dict[str, Array]:
    """Loads the array arguments that `save_arguments` saved, by leaf, up to `most` bytes; raises a RecordError."""
    arguments: dict[str, Array] = {}
    try:
        with open_inside(folder, name) as file, zipfile.ZipFile(file) as saved:
            for entry in saved.infolist():
                dtype, leaf = entry.filename.removesuffix(".npy").split(":", 1)
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{leaf} is compressed in a way that NumPy does not use")
                with saved.open(entry) as packed:
                    bits = _array(packed, most - sum(value.nbytes for value in arguments.values()))
                arguments[leaf] = bits.view(parse_dtype(dtype)).reshape(bits.shape)
    except Exception as error:  # a damaged file raises all kinds
        raise RecordError(f"{name}: the inputs cannot be read: {error}") from error
    return arguments


def _array(file: IO[bytes], most: int) -> Array:
    """Reads an array of unsigned integers in NumPy's format; checks its size before allocating it."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is in another version of NumPy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind != "u" or not 0 <= size <= most:
        raise ValueError(f"an array of {dtype} of shape {shape} is not what was saved")
    return np.frombuffer(bytearray(file.read(size)), dtype).reshape(shape, order="F" if fortran else "C")


# Limits of readers; no run writes as much.
_MOST_PLAN = 2**24  # bytes
_MOST_COMMAS = 2**20  # values of a plan: each takes two bytes there, but 400 in an error
_MOST_LINE = 2**21  # bytes of one record
_MOST_RECORDS = 5 * 2**29  # bytes of an unpacked shard: more than a million cases
_MOST_TEXT = 20_000  # characters of a message
_MOST_DETAIL = 4_000  # characters of a text in a detail, most of which the message has as well


# No value is converted to the declared type; unknown fields, bare NaNs and infinities are errors.
_STRICT_LINES = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def _lines_of(name: str, kind: type) -> TypeAdapter[Any]:
    """Returns the parser of lines `{"schema": N, NAME: ...}`."""
    settings = {"__pydantic_config__": _STRICT_LINES}
    return TypeAdapter(
        make_dataclass(f"_{name.title()}Line", [("schema", Literal[SCHEMA]), (name, kind)], namespace=settings)
    )


RECORD_LINE, PLAN_LINE, END_LINE = _lines_of("record", Record), _lines_of("plan", Plan), _lines_of("end", End)
REPRODUCER_LINE, MUTANTS_LINE = _lines_of("smallest", Reproducer), _lines_of("mutants", MutationScore)


class RecordWriter:
    """Appends records to one shard of a run's folder and flushes each."""

    def __init__(self, folder: Path, shard: str) -> None:
        self.folder, self.shard = folder, shard
        self._file = open_inside(folder, f"records-{shard}.jsonl", "ab")

    def write(self, record: Record) -> None:
        self._file.write(line_of(record) + b"\n")
        self._file.flush()

    def copy(self, lines: bytes) -> None:
        self._file.write(lines)
        self._file.flush()

    def write_reproducer(self, smallest: Reproducer) -> None:
        record = replace(smallest.record, message=shorten(smallest.record.message))
        self._append("smallest", dumps({"schema": SCHEMA, "smallest": replace(smallest, record=record)}))

    def write_score(self, score: MutationScore) -> None:
        self._append("mutants", dumps({"schema": SCHEMA, "mutants": score}))

    def _append(self, kind: str, line: str) -> None:
        with open_inside(self.folder, f"{kind}-{self.shard}.jsonl", "ab") as file:
            file.write(line.encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def line_of(record: Record) -> bytes:
    """Returns a record as a line without its newline; overlong texts are shortened."""
    if record.evidence is not None:
        record = replace(record, evidence=replace(record.evidence, stderr=shorten(record.evidence.stderr)))
    if len(record.message) > _MOST_TEXT:
        record = replace(record, message=shorten(record.message))
    if (detail := record.detail) is not None:
        texts = {field.name: getattr(detail, field.name) for field in fields(detail)}
        changes: Any = {name: shorten(text, _MOST_DETAIL) for name, text in texts.items() if isinstance(text, str)}
        record = replace(record, detail=replace(detail, **changes))
    return dumps({"schema": SCHEMA, "record": record}).encode()


def shorten(text: str, most: int = _MOST_TEXT) -> str:
    """Shortens a text of more than `most` characters to its beginning and end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"


def write_plan(folder: Path, plan: Plan) -> None:
    """Writes a run's plan, `plan.json`."""
    _write_whole(folder, "plan.json", dumps({"schema": SCHEMA, "plan": plan}))


def read_plan(folder: Path) -> Plan:
    """Reads the plan of a run; raises a RecordError if there is none, or it cannot be read."""
    path = folder / "plan.json"
    try:
        with open_inside(folder, path.name) as file:
            text = file.read(_MOST_PLAN + 1)
        if len(text) > _MOST_PLAN or text.count(b",") > _MOST_COMMAS:
            most = f"{_MOST_PLAN >> 20} MiB, or than {_MOST_COMMAS:,} values"
            raise RecordError(f"{path}: exceeds {most}, more than any plan of kerneltest")
        plan: Plan = PLAN_LINE.validate_json(text).plan
        return plan
    except OSError as error:
        raise RecordError(f"{path}: the plan cannot be read: {error}") from error
    except ValidationError as error:
        raise RecordError(f"{path}: the plan cannot be read: {first_problem(error)}") from error


def write_end(folder: Path, end: End) -> None:
    """Writes `end.json`, which marks all records as written."""
    _write_whole(folder, "end.json", dumps({"schema": SCHEMA, "end": end}))


def read_end(folder: Path) -> End | None:
    """Reads the end of a run, None if it has not ended; raises a RecordError."""
    path = folder / "end.json"
    try:
        with open_inside(folder, path.name) as file:
            end: End = END_LINE.validate_json(file.read(_MOST_LINE)).end
            return end
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        raise RecordError(f"{path}: {first_problem(error)}") from error


def _write_whole(folder: Path, name: str, line: str) -> None:
    """Writes a file atomically."""
    temporary = f"{Path(name).stem}-{os.getpid()}.tmp"
    with open_inside(folder, temporary, "wb") as file:
        file.write(line.encode() + b"\n")
    (folder / temporary).replace(folder / name)


def shard_files(folder: Path, kind: str = "records") -> list[Path]:
    """Returns the files that hold a run's records, or its lines of another kind, ordered by name."""
    return sorted([*folder.glob(f"{kind}-*.jsonl"), *folder.glob(f"{kind}-*.jsonl.gz")])


def read_records(folder: Path) -> Iterator[Record]:
    """Yields the records of a run by shard, also gzipped, but a truncated last line. RecordError for a corrupt line."""
    for shard in shard_files(folder):
        yield from (line.record for line in _read(shard, RECORD_LINE))


def read_some(folder: Path, numbers: Collection[int]) -> Iterator[tuple[int, Record]]:
    """Yields some records of a run with their numbers, counted from 0, as `read_records` does."""
    number = 0
    for shard in shard_files(folder):
        for in_shard, line in enumerate(_lines(shard), 1):
            if number in numbers or not line.endswith(b"\n"):  # a truncated line has no number
                if (parsed := _parse_line(shard, in_shard, line, RECORD_LINE)) is None:
                    continue
                if number in numbers:
                    yield number, parsed.record
            number += 1


def read_shard(path: Path) -> Iterator[Record]:
    """Yields the records of one shard, as `read_records` does; none if the shard is missing."""
    return (line.record for line in (_read(path, RECORD_LINE) if path.exists() else ()))


def read_reproducers(folder: Path) -> Iterator[Reproducer]:
    """Yields the reproducers of a run, shard by shard; raises as `read_records`."""
    for shard in shard_files(folder, "smallest"):
        yield from (line.smallest for line in _read(shard, REPRODUCER_LINE))


def read_scores(folder: Path) -> Iterator[MutationScore]:
    """Yields the mutation scores of a run, as `read_reproducers` does; a pairing may have several, the last counts."""
    for shard in shard_files(folder, "mutants"):
        yield from (line.mutants for line in _read(shard, MUTANTS_LINE))


def _read(shard: Path, adapter: TypeAdapter[Any]) -> Iterator[Any]:
    for number, line in enumerate(_lines(shard), 1):
        if (parsed := _parse_line(shard, number, line, adapter)) is not None:
            yield parsed


def _parse_line(shard: Path, number: int, line: bytes, adapter: TypeAdapter[Any]) -> Any | None:
    """Parses a line of a shard; returns None for a truncated last line."""
    try:
        return adapter.validate_json(line.removesuffix(b"\n"))
    except ValidationError as error:
        if not line.endswith(b"\n") and error.error_count() == 1 and error.errors()[0]["type"] == "json_invalid":
            return None
        raise RecordError(f"{shard}, line {number}: {first_problem(error)}") from error


def _lines(shard: Path) -> Iterator[bytes]:
    """Yields the lines of a shard with their newlines; the last may lack it, as its process may still be writing it."""
    try:
        with ExitStack() as stack:
            file: IO[bytes] | gzip.GzipFile = stack.enter_context(open_inside(shard.parent, shard.name))
            if shard.suffix == ".gz":
                file = stack.enter_context(gzip.open(file, "rb"))
            number = size = 0
            while line := file.readline(_MOST_LINE + 1):
                number, size = number + 1, size + len(line)
                if len(line) > _MOST_LINE:
                    raise RecordError(f"{shard}, line {number}: exceeds {_MOST_LINE >> 20} MiB, more than any record")
                if size > _MOST_RECORDS:
                    most = f"{_MOST_RECORDS >> 20} MiB"
                    raise RecordError(f"{shard}: exceeds {most}, more than any run of kerneltest writes")
                yield line
                if not line.endswith(b"\n"):
                    return  # the rest, if it has been written since, would look like a line of its own
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(f"{shard}: damaged gzip file: {error}") from error
    except OSError as error:
        raise RecordError(f"{shard}: cannot be read: {error}") from error
