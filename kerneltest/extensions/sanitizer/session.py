"""Cases in processes under a tool: as many in one as is safe, and each error told of the case that made it."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneltest.backends.workers import Worker
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.sanitizer.errors import Error, Placed, errors_in
from kerneltest.extensions.sanitizer.tools import ERRORS, GUARDS, command

_MODULE = "kerneltest.extensions.sanitizer.child"
_STARTING = 120.0  # seconds for a process to import JAX and to find the device
_RUNNING = 300.0  # for a case, which a tool makes many times slower
_LEAVING = 60.0  # for a tool to write what it found
_ZONE = 2**16  # bytes of a guard zone on each side
# Each array is an allocation of its own, so that a tool sees its ends and what nobody has written.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True, slots=True)
class Job:
    """A case to run.

    Attributes:
      id: of the case.
      folder: where it was written.
      inputs: the names of its inputs.
    """

    id: str
    folder: Path
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """A guard zone that was written to.

    Attributes:
      array: beside which it lies.
      side: `before` or `after` that.
      count: how many of its bytes.
      first, last: the nearest and the farthest of them, counted away from the array.
    """

    array: Placed
    side: str
    count: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a case.

    Attributes:
      errors: of the tool, in the order in which it found them.
      arrays: where inputs and outputs lay.
      changed: guard zones that were written to.
      elsewhere: outputs that XLA did not put between guard zones.
      failure: how the process ended, or what running the kernel raised; None where it ran.
    """

    errors: tuple[Error, ...] = ()
    arrays: tuple[Placed, ...] = ()
    changed: tuple[Changed, ...] = ()
    elsewhere: tuple[int, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where cases run.

    Attributes:
      tool: under which.
      platform: `cuda` or `rocm`.
      device: its number among JAX's devices of the platform.
      x64: JAX's setting.
    """

    tool: str
    platform: str
    device: int = 0
    x64: bool = False


@dataclass(slots=True)
class _Ran:
    """What came of one process: an answer for each case, how the last failed if it did, and all errors together."""

    answers: list[Any] = field(default_factory=list)
    failure: Failure | None = None
    errors: tuple[Error, ...] = ()


def examine(
    place: Place, jobs: Sequence[Job], accuses: Callable[[Job, Error], bool], begin: Callable[[Job], None]
) -> dict[str, Seen]:
    """Runs cases under a tool, and says what came of each, by its id.

    A tool writes its errors when its process ends, and they name a kernel but no case. So cases share a process as long
    as it finds nothing; where it finds something, those that could have done it are run again, each alone. A case whose
    process died is run again before it is blamed: a tool may die by itself.

    Args:
      place: where to run them.
      jobs: the cases.
      accuses: whether an error is about a case's kernel.
      begin: is told of each case before it runs.

    Raises:
      Failure: `unavailable`, where no process under the tool can use the device.
    """
    seen: dict[str, Seen] = {}
    suspects: set[str] = set()
    waiting, alone = list(jobs), False
    while waiting:
        ran = _ran(place, waiting[:1] if alone else waiting, begin)
        tried = waiting[: len(ran.answers)]
        if ran.failure is not None and ran.failure.verdict is Verdict.CRASH and tried[-1].id not in suspects:
            suspects.add(tried.pop().id)
            ran.answers.pop()
            ran.failure = None
        clear = not any(accuses(job, error) for job in tried for error in ran.errors)
        if clear or len(tried) <= 1 or (place.tool == "memcheck" and ran.failure is not None):
            # What memcheck finds ends the process's use of the device: those before have done nothing.
            for job, answer in zip(tried, ran.answers, strict=True):
                last = job is tried[-1]
                seen[job.id] = _seen(job, answer, ran.errors if last else (), ran.failure if last else None)
            waiting = waiting[len(tried) :]
        else:
            alone = True
    return seen


def _ran(place: Place, jobs: Sequence[Job], begin: Callable[[Job], None]) -> _Ran:
    """Runs cases in one process, up to the first that fails."""
    ran = _Ran()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        child = Worker(_MODULE, f"the process under {place.tool}", command(place.tool, folder), _ENVIRONMENT)
        try:
            begin(jobs[0])
            _greet(child, place)
            for job in jobs:
                begin(job)
                try:
                    answer = child.ask({"folder": str(job.folder)}, _RUNNING)
                except Failure as failure:
                    answer, ran.failure = {}, failure
                ran.answers.append(answer)
                if "error" in answer:
                    told = f"{place.tool}: the kernel raised {answer['error'].splitlines()[0]}"
                    ran.failure = Failure(Verdict.RUNTIME_ERROR, told, answer["stderr"])
                if ran.failure is not None:
                    break
        finally:
            child.close(_LEAVING)
        if place.tool != GUARDS:
            ran.errors = errors_in(folder / ERRORS, place.tool)
    return ran


def _greet(child: Worker, place: Place) -> None:
    zone = _ZONE if place.tool == GUARDS else 0
    settings = {"platform": place.platform, "device": place.device, "x64": place.x64, "zone": zone}
    try:
        answer = child.ask(settings, _STARTING)
    except Failure as failure:
        raise Failure(Verdict.UNAVAILABLE, f"no process under {place.tool} starts here: {failure}") from failure
    if "error" in answer:
        raise Failure(Verdict.UNAVAILABLE, f"a process under {place.tool} cannot use the device: {answer['error']}")


def _seen(job: Job, answer: Any, errors: tuple[Error, ...], failure: Failure | None) -> Seen:
    names = {("input", i): name for i, name in enumerate(job.inputs)}

    def name(what: str, number: int) -> str:
        return names.get((what, number), f"{what} {number}")

    arrays = tuple(Placed(name(what, number), *where) for what, number, *where in answer.get("arrays", ()))
    by_name = {array.name: array for array in arrays}
    changed = tuple(Changed(by_name[name(what, number)], *zone) for what, number, *zone in answer.get("changed", ()))
    return Seen(errors, arrays, changed, tuple(answer.get("elsewhere", ())), failure)
