"""The files that `kerneltest mutate --json` and `kerneltest coverage --json` write, read again."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class StoredSite:
    """A place of a kernel with several states, those that cases exercise, and those that they do not."""

    place: str
    what: str
    seen: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredCoverage:
    """The coverage of a pairing by its planned cases.

    Attributes:
      pairing: its node id.
      cases: number of cases that were evaluated.
      exercised, states: numbers of states.
      sites: the places of the kernel.
      problem: why it was not measured; "" if it was.
    """

    pairing: str
    cases: int = 0
    exercised: int = 0
    states: int = 0
    sites: tuple[StoredSite, ...] = field(default=())
    problem: str = ""


def read_results(path: Path, kind: type[_Result]) -> list[_Result]:
    """Reads the results in a file.

    Raises:
      ValueError: the file cannot be read, or has other contents.
    """
    try:
        found: list[_Result] = TypeAdapter(list[kind]).validate_json(path.read_bytes())  # type: ignore[valid-type]
    except (OSError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.strerror
        raise ValueError(f"{path}: {reason}") from error
    return found
