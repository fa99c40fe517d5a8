"""Journal of a process: what it is doing, in a file that outlives it.

It shows which case to blame when the process dies, and which case has been running for too long.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from io import FileIO
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from kerneltest.core.files import open_inside
from kerneltest.records.files import dumps

_MOST_BYTES = 2**16
_PHASE = 32  # bytes reserved for the phase and the concurrent compilations, which are rewritten by themselves


class Phase(StrEnum):
    """A step of a case. Its value completes the sentence "the process died while"."""

    STARTING = "starting"
    PLANNING = "planning the cases"
    FILLING = "filling the arguments"
    TRACING = "tracing the kernel"
    COMPILING = "compiling the kernel"
    EXPECTING = "evaluating the oracle"
    RUNNING = "running the kernel"
    JUDGING = "judging its outputs"


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of a process, or the last one before it died."""

    item: str  # the item that it runs
    # case, family, signature: of the case; "" before the first case
    case: str = ""
    family: str = ""
    signature: str = ""
    phase: Phase = Phase.STARTING  # the case's current step
    concurrent_compiles: int = 0  # number of compilations of other cases going on in the same process
    shard: str = ""  # the process's name within the run, such as `main` or `gw0`

    __pydantic_config__ = ConfigDict(extra="forbid")

    def __str__(self) -> str:
        if not self.case:
            step = "" if self.phase is Phase.STARTING else f"{self.phase} of "
            return f"{step}{self.item}, before its first case"
        beside = f", with {self.concurrent_compiles} other compilations under way," if self.concurrent_compiles else ""
        return f"{self.phase} for case {self.case} ({self.family}, {self.signature}){beside} of {self.item}"


_DOING = TypeAdapter(Activity)


class Journal:
    """The journal of this process, mirrored in a file if a folder is given."""

    def __init__(self, folder: Path | None = None, shard: str = "main") -> None:
        self.folder, self.shard = folder, shard
        self.activity: Activity | None = None  # None between items
        self.changed = time.monotonic()  # when the activity last changed
        self.spent: defaultdict[str, float] = defaultdict(float)  # seconds in each phase so far
        self.counts: Counter[str] = Counter()  # of traces, compilations and oracle evaluations so far
        self._file: FileIO | None = None

    @property
    def phase(self) -> Phase:
        return self.activity.phase if self.activity is not None else Phase.STARTING

    def start(self, item: str, case: str = "", family: str = "", signature: str = "", beside: int = 0) -> None:
        """Begins an item or a case, while `beside` compilations of other cases go on."""
        self._count()
        self.activity = Activity(item, case, family, signature, Phase.STARTING, beside, self.shard)
        self._write(_step(self.activity) + dumps(self.activity).encode() + b"\n")

    def enter_phase(self, phase: Phase, beside: int = 0) -> None:
        """Enters the next step, while `beside` compilations of other cases go on."""
        self._count()
        if self.activity is not None and (phase, beside) != (self.activity.phase, self.activity.concurrent_compiles):
            self.activity = replace(self.activity, phase=phase, concurrent_compiles=beside)
            self._write(_step(self.activity))

    def stop(self) -> None:
        self._count()
        self.activity = None
        if self._file is not None:
            self._file.truncate(0)

    def write_timings(self) -> None:
        """Writes the seconds of each phase and the counts to a file in the run's folder."""
        if self.folder is not None:
            seconds = {phase.name.lower(): round(self.spent[phase], 3) for phase in Phase}
            text = dumps({"seconds": seconds, "counts": dict(sorted(self.counts.items()))})
            with open_inside(self.folder, f"costs-{self.shard}.json", "wb") as file:
                file.write(text.encode() + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            Path(str(self._file.name)).unlink(missing_ok=True)
            self._file = None

    def _count(self) -> None:
        now = time.monotonic()
        if self.activity is not None:
            self.spent[self.activity.phase] += now - self.changed
        self.changed = now

    def _write(self, text: bytes) -> None:
        """Overwrites the beginning of the file. It writes as little as possible, since this happens at every step."""
        if self.folder is None:
            return
        try:
            if self._file is None:
                self._file = FileIO(self.folder / f"running-{self.shard}.txt", "w")
            os.pwrite(self._file.fileno(), text, 0)
        except OSError:  # a full disk also fails the records, which report it
            self.folder = None


def _step(doing: Activity) -> bytes:
    return f"{doing.concurrent_compiles} {doing.phase}".ljust(_PHASE).encode() + b"\n"


def write_orphaned(folder: Path, activity: Activity) -> None:
    """Writes the journal that a process which died elsewhere has left."""
    with open_inside(folder, f"running-{activity.shard}.txt", "wb") as file:
        file.write(_step(activity) + dumps(activity).encode() + b"\n")


def read_orphaned(folder: Path) -> Iterator[Activity]:
    """Yields the last activity of each process that died, or of each running process, ordered by name."""
    for path in sorted(folder.glob("running-*.txt")):
        try:
            with open_inside(folder, path.name) as file:
                lines = file.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")
            if len(lines) > 2:  # further lines are remains of a longer case
                step, rest, *_ = lines
                beside, _, phase = step.partition(" ")
                yield replace(_DOING.validate_json(rest), phase=Phase(phase.strip()), concurrent_compiles=int(beside))
        except (OSError, ValueError):
            continue  # cut off in the middle of a write
