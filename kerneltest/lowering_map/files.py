"""Maps as JSON files."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, TypeAdapter, ValidationError

from kerneltest.lowering_map.map import LoweringMap, MapError


def read(path: Path) -> LoweringMap:
    """Reads a map.

    Raises:
      MapError: there is none, or it is corrupt, or of another schema.
    """
    try:
        return loads(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise MapError(f"{path}: no readable map: {error}") from error


def loads(text: str, source: str) -> LoweringMap:
    """A map from its JSON.

    Raises:
      MapError: it is corrupt, or of another schema; names the `source`.
    """
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise MapError(f"{source}: no readable map: {place}{first['msg']}") from error


def dumps(lowering_map: LoweringMap) -> str:
    """The JSON of a map, one result a line so that two maps can be compared by diff."""
    header = asdict(lowering_map)
    results = ",\n".join(json.dumps(result, separators=(",", ":")) for result in header.pop("results"))
    return json.dumps(header)[:-1] + ', "results": [\n' + results + "\n]}\n"


def save(path: Path, maps: Sequence[LoweringMap]) -> None:
    """Writes one map to a file, or any number to a folder, as `jax-VERSION.json` or `compiled-VERSION.json`."""
    if len(maps) == 1 and not path.is_dir():
        path.write_text(dumps(maps[0]), encoding="utf-8")
        return
    path.mkdir(parents=True, exist_ok=True)
    for each in maps:
        name = f"{'compiled' if each.triton else 'jax'}-{each.jax}.json"
        (path / name).write_text(dumps(each), encoding="utf-8")


def _consistent(lowering_map: LoweringMap) -> LoweringMap:
    results = lowering_map.results
    if unknown := {target for result in results for target in result.targets} - set(lowering_map.targets):
        raise ValueError(f"targets {sorted(unknown)} are not among the map's")
    if not results or sum(len(each.dtypes) * len(each.targets) for each in results) != len(lowering_map.cells):
        raise ValueError("it has no cells, or one cell twice")
    return lowering_map


_ADAPTER = TypeAdapter(Annotated[LoweringMap, AfterValidator(_consistent)])
