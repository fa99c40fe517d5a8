"""Cases in processes under a tool: as many in one process as is safe, with each error attributed to its case."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneltest.backends.workers import Worker
from kerneltest.core.details import Raised
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.sanitizer.sanitizer_errors import PlacedArray, SanitizerError, read_errors
from kerneltest.extensions.sanitizer.sanitizer_tools import ERRORS, GUARDS, tool_command

_MODULE = "kerneltest.extensions.sanitizer.sanitizer_child"
_START_SECONDS = 120.0  # for a process to import JAX and to find the device
_CASE_SECONDS = 300.0  # a tool makes a case many times slower
_EXIT_SECONDS = 60.0  # for a tool to write its errors
_ZONE = 2**16  # bytes of each guard zone
# Each array is a separate allocation, so that a tool sees its ends and whether it was written.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

Reply = Mapping[str, Any]  # a line of JSON by the child


@dataclass(frozen=True, slots=True)
class ExportedCase:
    """A case to run.

    Attributes:
      id: of the case.
      folder: to which it was exported.
      inputs: the names of its inputs.
    """

    id: str
    folder: Path
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GuardZoneWrite:
    """A guard zone that was written to.

    Attributes:
      array: the array next to it.
      side: `before` or `after` the array.
      count: the number of bytes that were written.
      first, last: the nearest and the farthest of them, as distances from the array.
    """

    array: PlacedArray
    side: str
    count: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SanitizedCase:
    """The result of a case.

    Attributes:
      errors: of the tool, in order.
      arrays: the inputs and outputs on the device.
      zone_writes: the guard zones that were written to.
      unguarded: the outputs that XLA did not put between guard zones.
      failure: the end of the process, or the exception that the kernel raised; None if it ran.
    """

    errors: tuple[SanitizerError, ...] = ()
    arrays: tuple[PlacedArray, ...] = ()
    zone_writes: tuple[GuardZoneWrite, ...] = ()
    unguarded: tuple[int, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ToolSetup:
    """The tool and the device on which it runs cases.

    Attributes:
      tool: a key of `TOOLS`.
      platform: `cuda` or `rocm`.
      device: its number among JAX's devices of the platform.
      x64: JAX's setting.
    """

    tool: str
    platform: str
    device: int = 0
    x64: bool = False


@dataclass(slots=True)
class _ProcessResult:
    """The result of one process: a reply for each case, the failure of the last one, and the errors of all."""

    replies: list[Reply] = field(default_factory=list)
    failure: Failure | None = None
    errors: tuple[SanitizerError, ...] = ()


def run_cases(
    setup: ToolSetup,
    cases: Sequence[ExportedCase],
    concerns: Callable[[ExportedCase, SanitizerError], bool],
    begin: Callable[[ExportedCase], None],
) -> dict[str, SanitizedCase]:
    """Runs cases under a tool and returns their results by id.

    A tool writes its errors when its process ends, and they name a kernel but no case. So cases share a process as long
    as it reports no error. If it does, the cases that may have caused it run again, each in a separate process. A case
    whose process died runs again before it is blamed, because a tool may crash by itself.

    Args:
      setup: the tool and the device.
      cases: to run.
      concerns: whether an error is in a case's kernel.
      begin: is called with each case before it runs.

    Raises:
      Failure: `unavailable`, if no process under the tool can use the device.
    """
    results: dict[str, SanitizedCase] = {}
    died_once: set[str] = set()
    pending, separately = list(cases), False
    while pending:
        process = _run_process(setup, pending[:1] if separately else pending, begin)
        done = pending[: len(process.replies)]
        if process.failure is not None and process.failure.verdict is Verdict.CRASH and done[-1].id not in died_once:
            died_once.add(done.pop().id)
            process.replies.pop()
            process.failure = None
        is_clean = not any(concerns(case, error) for case in done for error in process.errors)
        if is_clean or len(done) <= 1 or (setup.tool == "memcheck" and process.failure is not None):
            # An error of memcheck ends the process's use of the device, so it is that of the last case.
            for case, reply in zip(done, process.replies, strict=True):
                last = case is done[-1]
                results[case.id] = _result(
                    case, reply, process.errors if last else (), process.failure if last else None
                )
            pending = pending[len(done) :]
        else:
            separately = True
    return results


def _run_process(
    setup: ToolSetup, cases: Sequence[ExportedCase], begin: Callable[[ExportedCase], None]
) -> _ProcessResult:
    """Runs cases in one process, up to the first that fails."""
    result = _ProcessResult()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = Worker(_MODULE, f"the process under {setup.tool}", tool_command(setup.tool, folder), _ENVIRONMENT)
        try:
            begin(cases[0])
            _initialise(child, setup)
            for case in cases:
                begin(case)
                reply: Reply = {}
                try:
                    reply = child.ask({"folder": str(case.folder)}, _CASE_SECONDS)
                except Failure as failure:
                    result.failure = failure
                result.replies.append(reply)
                if "error" in reply:
                    kind, text = reply["error"]
                    line = (text.splitlines() or [""])[0]
                    detail = Raised("the kernel", kind, line, phase=f"under {setup.tool}")
                    result.failure = Failure(Verdict.RUNTIME_ERROR, detail, reply["stderr"])
                if result.failure is not None:
                    break
        finally:
            child.close(_EXIT_SECONDS)
        if setup.tool != GUARDS:
            result.errors = read_errors(folder / ERRORS, setup.tool)
    return result


def _initialise(child: Worker, setup: ToolSetup) -> None:
    zone = _ZONE if setup.tool == GUARDS else 0
    settings = {"platform": setup.platform, "device": setup.device, "x64": setup.x64, "zone": zone}
    try:
        reply = child.ask(settings, _START_SECONDS)
    except Failure as failure:
        raise Failure(Verdict.UNAVAILABLE, f"no process under {setup.tool} starts: {failure}") from failure
    if "error" in reply:
        kind, text = reply["error"]
        raise Failure(Verdict.UNAVAILABLE, f"a process under {setup.tool} cannot use the device: {kind}: {text}")


def _result(
    case: ExportedCase, reply: Reply, errors: tuple[SanitizerError, ...], failure: Failure | None
) -> SanitizedCase:
    names = {("input", i): name for i, name in enumerate(case.inputs)}

    def name(role: str, number: int) -> str:
        return names.get((role, number), f"{role} {number}")

    arrays = tuple(PlacedArray(name(role, number), *where) for role, number, *where in reply.get("arrays", ()))
    by_name = {array.name: array for array in arrays}
    writes = tuple(
        GuardZoneWrite(by_name[name(role, number)], *zone) for role, number, *zone in reply.get("zone_writes", ())
    )
    return SanitizedCase(errors, arrays, writes, tuple(reply.get("unguarded", ())), failure)
