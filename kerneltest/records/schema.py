"""The verdict of a case as written to disk: strict JSON lines with a versioned schema, arrays beside them."""

import gzip
import json
import math
import shlex
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array, dtype

SCHEMA = 4
MOST = 2**30  # bytes of a shard, once unpacked

Cell = tuple[str, str, str, str]


class RecordError(ValueError):
    """A record or a plan that cannot be read; names the file and the line."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an output or of an argument: some rows and columns of its last two axes, the other axes fixed.

    Attributes:
      name: the argument's path, "" for an output.
      dtype, shape: of the whole array.
      origin: index of the first element shown.
      extent: rows and columns shown; one row for an array of one axis.
      tiles: the kernel's block lengths along these two axes, in elements; 0 for none.
      values: row by row, to seven digits.
      expected, bound: likewise, for an output.
      wrong: "1" for each wrong element and "0" for a right one, for an output.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    extent: tuple[int, int]
    tiles: tuple[int, int]
    values: tuple[float | int | bool, ...]
    expected: tuple[float | int | bool, ...] = ()
    bound: tuple[float, ...] = ()
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows a finding.

    Attributes:
      output: which output, counted from 0.
      index: the worst element.
      tile: the tile it lies in, as `m=1 n=0`.
      wrong_tiles: how many tiles hold a wrong element, and how many there are.
      pattern: where the wrong elements lie, in words.
      actual, expected, bound: at that element.
      arguments: an excerpt of each array argument, as text.
      file: where the arguments are saved, relative to the run's folder; "" if they are not.
      diagnosis: what the wrong elements look like, in words.
      script: a script that shows the finding again, relative to the run's folder; "" if there is none.
      window: the output around the worst element; pytest keeps the first of each verdict and family of an item.
      inputs: the arguments around it.
      stderr: what a compiler that died wrote last.
    """

    output: int = 0
    index: tuple[int, ...] = ()
    tile: str = ""
    wrong_tiles: tuple[int, int] = (0, 0)
    pattern: str = ""
    actual: float | int | bool | None = None
    expected: float | int | bool | None = None
    bound: float = 0.0
    arguments: Mapping[str, str] | None = None
    file: str = ""
    diagnosis: str = ""
    script: str = ""
    window: Window | None = None
    inputs: tuple[Window, ...] = ()
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One case on one backend, or one cell that could not be served at all.

    Attributes:
      item: what selects it in pytest.
      pairing, backend, dtype, group, family: the cell it belongs to.
      signature, target: of the case; "*" and "" for a whole cell.
      case: the case's id; "" for a whole cell.
      verdict: one of `kerneltest.core.verdicts.MEANING`.
      message: for a person.
      compared, wrong: elements; kernels where a tier gives no values.
      used: the largest error as a fraction of its bound; None if no element had a bound.
      ulps: finite floats by distance in units in the last place, as `judge.ulp_histogram` counts them.
      tolerance: the error model, or `bit for bit`.
      seconds: to run and judge the case, without compiling.
      evidence: for findings.
      facts: by kernel, what its compiler tells.
      advice: what in those facts its author may want to change.
      files: artifacts kept, relative to the run's folder.
    """

    item: str
    pairing: str
    backend: str
    dtype: str
    group: str
    family: str
    signature: str
    target: str
    case: str
    verdict: str
    message: str = ""
    compared: int = 0
    wrong: int = 0
    used: float | None = None
    tolerance: str = ""
    seconds: float = 0.0
    evidence: Evidence | None = None
    facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ulps: tuple[int, ...] = ()

    @property
    def cell(self) -> Cell:
        return self.pairing, self.backend, self.dtype, self.family


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """What one pytest item will do.

    Attributes:
      item: its node id.
      pairing, backend, dtype, group: its parts.
      families: cases by family.
    """

    item: str
    pairing: str
    backend: str
    dtype: str
    group: str
    families: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a function and of those in its file that it names.

    Attributes:
      file: relative to the folder that pytest ran in, where it lies below.
      parts: number of the first line, and text, in the file's order; none where Python has no source.
    """

    file: str
    parts: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A pairing as it is declared.

    Attributes:
      declaration: arguments, dims and semantics by name, in words.
      kernel, oracle: their sources.
    """

    declaration: Mapping[str, str]
    kernel: Source
    oracle: Source


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's plan, written before anything is run.

    Attributes:
      items: in order.
      seed, depth: of the run.
      fuzz: how many cases were drawn for each pairing and dtype.
      started: when, in UTC, as ISO 8601 writes it; "" if unknown. It orders the runs of a report.
      pairings: how each pairing is declared.
      environment: versions and devices.
      unavailable: backend to reason.
      limitations: pairing to its declared limitations, as text.
    """

    items: tuple[PlannedItem, ...]
    seed: int
    depth: str
    environment: Mapping[str, Any]
    unavailable: Mapping[str, str]
    limitations: Mapping[str, tuple[str, ...]]
    fuzz: int = 0
    started: str = ""
    pairings: Mapping[str, Declared] = field(default_factory=dict)


def dumps(value: Any) -> str:
    """Strict JSON on one line: a NaN or an infinity becomes `{"float": "nan"}`, never a bare word, never null."""
    return json.dumps(_encoded(value), allow_nan=False, separators=(",", ":"), ensure_ascii=True)


def loads(text: str) -> Any:
    """The inverse of `dumps`; rejects bare NaN and Infinity."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    def decode(value: dict[str, Any]) -> Any:
        return float(value["float"]) if value.keys() == {"float"} else value

    return json.loads(text, object_hook=decode, parse_constant=refuse)


def _encoded(value: Any) -> Any:
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no place in a record")


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


def save_artifacts(folder: Path, case: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Saves the texts of an artifact under `artifacts/`; returns their paths within the folder."""
    (folder / "artifacts" / case).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "artifacts" / case / name).write_text(text, encoding="utf-8")
    return tuple(f"artifacts/{case}/{name}" for name in files)


def save_arguments(folder: Path, case: str, arguments: Mapping[str, Array]) -> str:
    """Saves a case's array arguments under `cases/`; returns the path within the folder."""
    (folder / "cases").mkdir(exist_ok=True)
    raw = {f"{value.dtype.name}:{path}": _bits(value) for path, value in arguments.items()}
    np.savez_compressed(folder / "cases" / f"{case}.npz", **raw)  # type: ignore[arg-type]
    return f"cases/{case}.npz"


def load_arguments(path: Path) -> dict[str, Array]:
    """The array arguments saved by `save_arguments`, by name."""
    with np.load(path, allow_pickle=False) as saved:
        pairs = [(key.split(":", 1), saved[key]) for key in saved.files]
    return {name: value.view(dtype(kind)).reshape(value.shape) for (kind, name), value in pairs}


def repro_command(folder: str, case: str, backend: str) -> str:
    """The command that judges a finding's saved inputs again."""
    return shlex.join(["kerneltest", "repro", folder, case, "--backend", backend])


def _bits(value: Array) -> Array:
    return value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])


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
        data["items"] = tuple(PlannedItem(**item) for item in data["items"])
        data["limitations"] = {name: tuple(texts) for name, texts in data["limitations"].items()}
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
                if number == len(lines) and not isinstance(error, RecordError):
                    break  # the process was killed while it wrote this line
                raise RecordError(f"{shard}, line {number}: {error}") from error


def _record(data: dict[str, Any]) -> Record:
    evidence = data.get("evidence")
    if evidence is not None:
        for name in ("index", "wrong_tiles"):
            evidence[name] = tuple(evidence[name])
        evidence["window"] = _window(evidence["window"]) if evidence["window"] is not None else None
        evidence["inputs"] = tuple(map(_window, evidence["inputs"]))
        evidence = Evidence(**evidence)
    for name in ("advice", "files", "ulps"):
        data[name] = tuple(data[name])
    known = {each.name for each in fields(Record)}
    if unknown := data.keys() - known:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    return Record(**{**data, "evidence": evidence})


def _window(data: dict[str, Any]) -> Window:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    found = Window(**given)
    count = found.extent[0] * found.extent[1]
    lengths = {len(each) for each in (found.values, found.expected, found.bound, found.wrong) if each}
    if len(found.extent) != 2 or len(found.tiles) != 2 or lengths - {count} or len(found.origin) != len(found.shape):
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
