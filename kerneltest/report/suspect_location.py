"""The line of source that a suspect is shown at, for tools that annotate code."""

from dataclasses import dataclass
from pathlib import Path

from kerneltest.records.run_plan import PairingSummary
from kerneltest.triage.suspect import Suspect

_MOST_LINE = 2**31  # of a file; records are untrusted


@dataclass(frozen=True, slots=True)
class SuspectLocation:
    """A line of source.

    Attributes:
      file: relative to the repository's root if it lies below, else absolute; with forward slashes.
      line: counted from 1; 0 for the whole file.
    """

    file: str
    line: int = 0

    @property
    def is_inside(self) -> bool:
        """True if the file belongs to the repository."""
        return not Path(self.file).is_absolute()


def locate_suspect(suspect: Suspect, declared: PairingSummary | None) -> SuspectLocation:
    """Returns the line of a kernel that a suspect is about.

    That is the root cause, else the line that its failures name, else the kernel's definition. A kernel without source
    has the file of its pairing.

    Args:
      suspect: the suspect.
      declared: its pairing, as the plan has it; None if no plan does.
    """
    fault = suspect.fault
    for place in (fault.place if fault is not None else "", *suspect.lines):
        if (found := parse_place(place)) is not None:
            return found
    if declared is not None and (definition := kernel_definition(declared)) is not None:
        return _in_repository(declared.kernel.file, definition[1])
    return _in_repository(suspect.pairing.partition("::")[0])


def parse_place(place: str) -> SuspectLocation | None:
    """Returns FILE:LINE as a location; None if it is none."""
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal() or not 0 < len(line) <= len(str(_MOST_LINE)) or not 0 < int(line) < _MOST_LINE:
        return None
    return _in_repository(file, int(line))


def kernel_definition(declared: PairingSummary) -> tuple[str, int] | None:
    """Returns the name of a pairing's kernel and the line of its definition; None if it has no source."""
    for line, text in declared.kernel.parts:
        for offset, words in enumerate(text.splitlines()):
            if words.lstrip().startswith("def "):
                return words.lstrip().removeprefix("def ").partition("(")[0], line + offset
    return None


def _in_repository(file: str, line: int = 0) -> SuspectLocation:
    """Returns a location whose file is relative to the nearest folder with a `.git`, else to the current one."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    path = here / file
    return SuspectLocation((path.relative_to(root) if path.is_relative_to(root) else path).as_posix(), line)
