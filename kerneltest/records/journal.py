"""What a process is doing, in a file that outlives it: whom to blame when it dies, and who went on for too long."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from io import FileIO
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from kerneltest.records.files import opened
from kerneltest.records.strict_json import dumps

_MOST_BYTES = 2**16
_PHASE = 32  # bytes for the phase and what goes on beside it: these change often, and alone


class Phase(StrEnum):
    """A step of a case, as it ends the sentence that begins with "the process died while"."""

    STARTING = "starting"
    FILLING = "filling the arguments"
    TRACING = "tracing the kernel"
    COMPILING = "compiling the kernel"
    EXPECTING = "evaluating the oracle"
    RUNNING = "running the kernel"
    JUDGING = "judging its outputs"


@dataclass(frozen=True, slots=True)
class Doing:
    """What a process is doing, or was when it died.

    Attributes:
      item: that it runs.
      case, family, signature: of the case; "" before the first.
      phase: the step of it.
      beside: how many compilations of other cases went on in the same process.
      shard: the name of the process among those of the run: `main`, `gw0`.
    """

    item: str
    case: str = ""
    family: str = ""
    signature: str = ""
    phase: Phase = Phase.STARTING
    beside: int = 0
    shard: str = ""

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __str__(self) -> str:
        if not self.case:
            return f"{self.item}, before its first case"
        beside = f", with {self.beside} other compilations beside it," if self.beside else ""
        return f"{self.phase} for case {self.case} ({self.family}, {self.signature}){beside} of {self.item}"


_DOING = TypeAdapter(Doing)


class Journal:
    """What this process is doing now; kept in a file as well where a folder is given.

    Attributes:
      doing: what it is; None between items.
      changed: when that last changed, in seconds of the monotonic clock.
      spent: seconds in each phase so far.
      counts: how often it did what costs: traces, compilations, evaluations of an oracle.
    """

    def __init__(self, folder: Path | None = None, shard: str = "main") -> None:
        self.folder, self.shard = folder, shard
        self.doing: Doing | None = None
        self.changed = time.monotonic()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self._file: FileIO | None = None

    def start(self, item: str, case: str = "", family: str = "", signature: str = "", beside: int = 0) -> None:
        """Begins an item, or a case of it, while compilations of other cases go on beside it."""
        self._count()
        self.doing = Doing(item, case, family, signature, Phase.STARTING, beside, self.shard)
        self._write(_step(self.doing) + dumps(self.doing).encode() + b"\n")

    def turn_to(self, phase: Phase, beside: int = 0) -> None:
        """Goes on with the next step, while compilations of other cases go on beside it."""
        self._count()
        if self.doing is not None and (phase, beside) != (self.doing.phase, self.doing.beside):
            self.doing = replace(self.doing, phase=phase, beside=beside)
            self._write(_step(self.doing))

    def stop(self) -> None:
        """Ends the item."""
        self._count()
        self.doing = None
        if self._file is not None:
            self._file.truncate(0)

    def leave_costs(self) -> None:
        """Writes the seconds of each phase, and the counts, to a file of the run."""
        if self.folder is not None:
            seconds = {phase.name.lower(): round(self.spent[phase], 3) for phase in Phase}
            text = dumps({"seconds": seconds, "counts": dict(sorted(self.counts.items()))})
            with opened(self.folder, f"costs-{self.shard}.json", "wb") as file:
                file.write(text.encode() + b"\n")

    def close(self) -> None:
        """Ends the process's journal: it did not die."""
        if self._file is not None:
            self._file.close()
            Path(str(self._file.name)).unlink(missing_ok=True)
            self._file = None

    def _count(self) -> None:
        now = time.monotonic()
        if self.doing is not None:
            self.spent[self.doing.phase] += now - self.changed
        self.changed = now

    def _write(self, text: bytes) -> None:
        """Writes over the beginning of the file: as little as will do, since this happens at every step."""
        if self.folder is None:
            return
        try:
            if self._file is None:
                self._file = FileIO(self.folder / f"running-{self.shard}.txt", "w")
            os.pwrite(self._file.fileno(), text, 0)
        except OSError:  # a full disk is told by the records, which matter more
            self.folder = None


def _step(doing: Doing) -> bytes:
    return f"{doing.beside} {doing.phase}".ljust(_PHASE).encode() + b"\n"


def left_running(folder: Path) -> Iterator[Doing]:
    """What the processes of a run were doing when they died, by name; or are doing, where the run goes on."""
    for path in sorted(folder.glob("running-*.txt")):
        try:
            with opened(folder, path.name) as file:
                lines = file.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")
            if len(lines) > 2:  # what follows is left of a longer case
                step, rest, *_ = lines
                beside, _, phase = step.partition(" ")
                yield replace(_DOING.validate_json(rest), phase=Phase(phase.strip()), beside=int(beside))
        except (OSError, ValueError):
            continue  # it was cut off while it was written
