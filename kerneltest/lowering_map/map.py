"""What one JAX lowers: a map whose cells are primitives with a dtype on a target."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal, NamedTuple, Self

from pydantic import ConfigDict, with_config

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

    COMPILES = "compiles", "Triton IR comes out, and the `triton` package compiles it"
    LOWERS = "lowers", "Triton IR comes out"
    ERROR = "error", "it has a rule in JAX's lowering, which refuses this use; or the compiler refuses the IR"
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
      triton: the version that compiled; "" if nothing was compiled.
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

    @property
    def title(self) -> str:
        """`JAX 0.12.0`, and the version of Triton if it compiled."""
        return f"JAX {self.jax}" + (f", Triton {self.triton}" if self.triton else "")

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
        counter = Counter(result.outcome for result in self.cells.values())
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
