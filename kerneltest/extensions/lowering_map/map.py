"""What one JAX lowers: a map whose cells are primitives with a dtype on a target."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, with_config

from kerneltest.core.targets import TPUS

_STRICT = ConfigDict(strict=True, extra="forbid")


class MapError(ValueError):
    """A map that cannot be measured, read or compared; says why."""


class LoweringOutcome(StrEnum):
    """What became of a cell, from good to bad.

    Attributes:
      meaning: in the words of the reports.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    COMPILES = "compiles", "it lowers, and a compiler takes it: the `triton` package for GPUs, libtpu for TPUs"
    LOWERS = "lowers", "Triton IR comes out for a GPU, a Mosaic module for a TPU"
    ERROR = "error", "it has a rule in JAX's lowering, which refuses this use; or the compiler refuses what comes out"
    UNIMPLEMENTED = "unimplemented", "JAX's lowering has no rule for it, or for a primitive it is made of"
    ABSENT = "absent", "this JAX has no such function"

    @property
    def is_lowered(self) -> bool:
        return self in (LoweringOutcome.COMPILES, LoweringOutcome.LOWERS)


class Cell(NamedTuple):
    """What is asked for: one primitive with one dtype on one target."""

    primitive: str
    dtype: str
    target: str


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class Result:
    """Cells of one primitive that share outcome and message: every dtype with every target.

    Attributes:
      primitive: as JAX calls it, with a variant in brackets.
      group: the heading that it stands under.
      outcome: of each of the cells.
      message: JAX's or the compiler's, cut short; "" for what lowers.
      dtypes, targets: of the cells.
    """

    primitive: str
    group: str
    outcome: LoweringOutcome
    message: str
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]


@with_config(_STRICT)
@dataclass(frozen=True)
class LoweringMap:
    """What one JAX lowers.

    Attributes:
      schema: the version of this description, as files hold it.
      jax, jaxlib, python: versions.
      triton, libtpu: the versions that compiled for GPUs and for TPUs; "" if nothing was compiled.
      targets: those asked for.
      results: in the order of the probes.
    """

    schema: Literal[2]
    jax: str
    jaxlib: str
    python: str
    triton: str
    targets: tuple[str, ...]
    results: tuple[Result, ...]
    libtpu: str = ""  # maps that are older than it have none

    @property
    def title(self) -> str:
        """`JAX 0.12.0`, and the versions of Triton and libtpu if they compiled."""
        return ", ".join([f"JAX {self.jax}", *self.compilers])

    @property
    def compilers(self) -> tuple[str, ...]:
        """Those that compiled, with their versions."""
        versions = {"Triton": self.triton, "libtpu": self.libtpu}
        return tuple(f"{name} {version}" for name, version in versions.items() if version)

    @property
    def kinds(self) -> Mapping[str, tuple[str, ...]]:
        """The targets that are GPUs and those that are TPUs, without a kind that has none."""
        kinds: dict[str, list[str]] = {}
        for target in self.targets:
            kinds.setdefault("TPUs" if target in TPUS else "GPUs", []).append(target)
        return {kind: tuple(targets) for kind, targets in kinds.items()}

    @property
    def version(self) -> tuple[int, ...]:
        """JAX's, to sort by."""
        return tuple(int(number) for number in re.findall(r"\d+", self.jax))

    @cached_property
    def cells(self) -> Mapping[Cell, Result]:
        """The result of each cell."""
        return {
            Cell(result.primitive, dtype, target): result
            for result in self.results
            for dtype in result.dtypes
            for target in result.targets
        }

    @cached_property
    def by_dtype(self) -> Mapping[tuple[str, str], Mapping[str, Result]]:
        """For each primitive and target, the result of each dtype."""
        results: dict[tuple[str, str], dict[str, Result]] = {}
        for (primitive, dtype, target), result in self.cells.items():
            results.setdefault((primitive, target), {})[dtype] = result
        return results

    @cached_property
    def groups(self) -> Mapping[str, str]:
        """The group of each primitive, in order."""
        return {result.primitive: result.group for result in self.results}

    @property
    def counts(self) -> Mapping[LoweringOutcome, int]:
        """How many cells have each outcome, without those that none has."""
        return self.counts_on(self.targets)

    def counts_on(self, targets: Sequence[str]) -> Mapping[LoweringOutcome, int]:
        """`counts` of the cells of some targets."""
        counter = Counter(result.outcome for cell, result in self.cells.items() if cell.target in targets)
        return {outcome: counter[outcome] for outcome in LoweringOutcome if counter[outcome]}

    @property
    def agreeing_targets(self) -> tuple[tuple[str, ...], ...]:
        """The targets, together where every cell has the same outcome."""
        together: dict[frozenset[tuple[str, str, str]], list[str]] = {}
        for target in self.targets:
            outcomes = frozenset(
                (cell.primitive, cell.dtype, result.outcome)
                for cell, result in self.cells.items()
                if cell.target == target
            )
            together.setdefault(outcomes, []).append(target)
        return tuple(map(tuple, together.values()))


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
        name = f"{'compiled' if each.compilers else 'jax'}-{each.jax}.json"
        (path / name).write_text(dumps(each), encoding="utf-8")


def _consistent(lowering_map: LoweringMap) -> LoweringMap:
    results = lowering_map.results
    if unknown := {target for result in results for target in result.targets} - set(lowering_map.targets):
        raise ValueError(f"targets {sorted(unknown)} are not among the map's")
    if not results or sum(len(each.dtypes) * len(each.targets) for each in results) != len(lowering_map.cells):
        raise ValueError("it has no cells, or one cell twice")
    return lowering_map


_ADAPTER = TypeAdapter(Annotated[LoweringMap, AfterValidator(_consistent)])
