"""Cases in processes under a tool: as many in one process as is safe, with each error attributed to its case."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kerneltest.core.children import Child
from kerneltest.core.details import Access, Detail, MemoryFault, Race, Raised, Stated, Visit
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.sanitizer.tools import ERRORS, GUARDS, MAX_RECORDS, tool_command

# Errors that compute-sanitizer reports as XML, and the failure of a kernel that they amount to.

_NEAR = 2**20  # bytes: the distance up to which an access is attributed to an array
_MAX_SHOWN = 3  # records kept as evidence, and further errors named in a message
_MAX_LINES = 4  # source lines named in a message
_ACCESSES = {"read": Access.LOAD, "write": Access.STORE, "atomic": Access.ATOMIC}


@dataclass(frozen=True, slots=True)
class PlacedArray:
    """An array of a case on the device."""

    name: str  # `x`, or `output 0`
    address: int  # in bytes
    size: int

    def __str__(self) -> str:
        return f"{self.name} ({self.size:,} bytes)"


@dataclass(frozen=True, slots=True)
class SanitizerError:
    """One record of a tool."""

    verdict: Verdict
    kernel: str  # the name of the kernel on the device; "" if no kernel ran
    what: str  # the error, as a predicate of the kernel
    access: str = ""  # `read`, `write` or `atomic` if the tool says so, else ""
    address: int = 0  # of an access to global memory, in bytes; 0 for other errors
    size: int = 0
    thread: tuple[int, ...] = ()  # the indices along x, y and z; () if the tool does not say
    block: tuple[int, ...] = ()
    count: int = 1
    text: str = ""  # the record, as the tool wrote it


@dataclass(frozen=True, slots=True)
class KernelSite:
    """The kernel of an error in the user's source."""

    kernel: str
    # FILE:LINE of its accesses that do what the error is about; none if the error is about no access
    lines: tuple[str, ...] = ()
    definition: str = ""  # FILE:LINE of the kernel function, or ""

    @property
    def place(self) -> str:
        """The line of the error: that of the only access, else that of the definition."""
        return self.lines[0] if len(self.lines) == 1 else self.definition

    def remark(self, access: str) -> str:
        """The lines in words, as the end of a sentence; "" if none is known."""
        if not self.lines:
            return f" ({self.definition})" if self.definition else ""
        more = f" and {len(self.lines) - _MAX_LINES} more lines" if len(self.lines) > _MAX_LINES else ""
        return f"; the kernel {access}s at {', '.join(self.lines[:_MAX_LINES])}{more}"


def read_errors(file: Path, tool: str) -> tuple[SanitizerError, ...]:
    """Reads the errors that a tool has written to a file, without warnings; none if there is no file."""
    errors = []
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    for part in text.split("<record>")[1:]:
        content, end, _ = part.partition("</record>")  # a process that was killed leaves the last one incomplete
        written = f"<record>{content}{end}"
        try:
            record = ElementTree.fromstring(written)
        except ElementTree.ParseError:
            continue
        if record.findtext("level", "Error") in ("Error", "Fatal"):
            kernel = record.findtext("where/func") or record.findtext("what/source/where/func") or ""
            address = _integer(record.findtext("what/address", ""))
            thread, block = (_indices(record.find(f"who/{each}")) for each in ("threadIdx", "blockIdx"))
            verdict, what, more = _parse(record, tool)
            found = SanitizerError(verdict, kernel, what, address=address, thread=thread, block=block, text=written)
            errors.append(replace(found, **more))
    return tuple(errors)


# Returns the error in words, and further fields of a `SanitizerError`.
def _parse(record: ElementTree.Element, tool: str) -> tuple[Verdict, str, dict[str, Any]]:
    direction, error = record.findtext("what/direction", ""), record.findtext("what/error", "")
    size = _integer(record.findtext("what/size", ""))
    sentence = " ".join(record.findtext("what/text", "is in error").split())
    match tool:
        case "initcheck":
            what = f"reads {size} bytes that were never written" if size else sentence
            return Verdict.UNINITIALISED, what, {"access": "read", "size": size}
        case "racecheck":
            accesses = (record.findtext(f"what/{end}/direction", "access") for end in ("source", "destination"))
            pair = " and ".join(f"a {access.lower()}" for access in accesses)
            count = sum(_integer(each.text or "") for each in record.findall("what/destination/count"))
            what = f"races in shared memory: no barrier orders {pair} by different threads"
            return Verdict.RACE, what, {"count": max(count, 1)}
        case "synccheck":
            return Verdict.RUNTIME_ERROR, f"misuses a barrier: {record.findtext('what/type', '') or sentence}", {}
    if not direction:  # no access: an instruction that the device refused, or a call that failed
        return Verdict.RUNTIME_ERROR, sentence, {}
    verdict = Verdict.RUNTIME_ERROR if "misaligned" in error else Verdict.OUT_OF_BOUNDS
    space = record.findtext("what/space", "").strip("_")
    verb = {"read": "reads", "write": "writes"}.get(direction, f"does an {direction} of")
    where = f" in {space} memory" if space and space != "global" else ""
    return verdict, f"{verb} {size} bytes {error}{where}", {"access": direction, "size": size}


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def _indices(element: ElementTree.Element | None) -> tuple[int, ...]:
    return tuple(_integer(element.findtext(axis, "0")) for axis in "xyz") if element is not None else ()


def failure_of(
    tool: str,
    errors: Sequence[SanitizerError],
    arrays: Sequence[PlacedArray],
    site_of: Callable[[SanitizerError], KernelSite],
) -> Failure:
    """Returns the failure of a case, whose verdict and place are those of its first error."""
    first = errors[0]
    site = site_of(first)
    equal = [error for error in errors if (error.kernel, error.what) == (first.kernel, first.what)]
    count = sum(error.count for error in equal)
    times = "once" if count == 1 else f"{count:,} times"
    found = f"{'at least ' if len(errors) >= MAX_RECORDS else ''}{times}"
    where = f", {describe_address(first, arrays)}" if first.address else ""
    who = f", in thread {first.thread} of block {first.block}" if first.thread else ""
    details = f"{where}{who}; found {found} by {tool}{site.remark(first.access)}"
    others = tuple(sorted({error.what for error in errors} - {first.what})[:_MAX_SHOWN])
    evidence = "\n".join(error.text for error in errors[:_MAX_SHOWN])
    return Failure(first.verdict, _detail(first, site, nearest_array(first, arrays), details, others), evidence)


def _detail(
    error: SanitizerError, site: KernelSite, array: PlacedArray | None, details: str, others: tuple[str, ...]
) -> Detail:
    words = f"{error.what}{details}"
    if error.verdict is Verdict.RACE:
        return Race(site.kernel, "shared memory", "", (), words=words, others=others)
    if error.verdict in (Verdict.OUT_OF_BOUNDS, Verdict.UNINITIALISED):
        visit = Visit(_ACCESSES.get(error.access, Access.LOAD), error.block, site.place)
        buffer = array.name if array is not None else "unknown memory"
        element = f"byte {error.address - array.address:,}" if array is not None else ""
        return MemoryFault(site.kernel, visit, buffer, element, words=words, others=others)
    lines = "".join(f"\nkernel {site.kernel}: {other}" for other in others)
    what = error.what.replace("{", "{{").replace("}", "}}")
    return Stated(f"kernel {{kernel}}: {what}{{details}}", {"kernel": site.kernel, "details": f"{details}{lines}"})


def describe_address(error: SanitizerError, arrays: Sequence[PlacedArray]) -> str:
    """Describes the address of an access, relative to the nearest array if one is near."""
    array = nearest_array(error, arrays)
    if array is None:
        return f"at {error.address:#x}, which is near no input and no output"
    offset = error.address - array.address
    if offset < 0:
        return f"{-offset:,} bytes before the start of {array}"
    if offset >= array.size:
        past = offset - array.size
        return f"{past:,} bytes past the end of {array}" if past else f"at the end of {array}"
    over = offset + error.size - array.size
    return f"across the end of {array}, by {over:,} bytes" if over > 0 else f"at byte {offset:,} of {array}"


def nearest_array(error: SanitizerError, arrays: Sequence[PlacedArray]) -> PlacedArray | None:
    """Returns the array that is nearest to an access; None if none is near."""
    nearest = min(arrays, key=lambda array: _distance(error.address, array), default=None)
    return nearest if nearest is not None and _distance(error.address, nearest) <= _NEAR else None


def _distance(address: int, array: PlacedArray) -> int:
    return max(array.address - address, address - (array.address + array.size), 0)


_MODULE = "kerneltest.extensions.sanitizer.child"
_START_SECONDS = 120.0  # for a process to import JAX and to find the device
_CASE_SECONDS = 300.0  # a tool makes a case many times slower
_EXIT_SECONDS = 60.0  # for a tool to write its errors
_ZONE = 2**16  # bytes of each guard zone
# Each array is a separate allocation, so that a tool sees its ends and whether it was written.
_ENVIRONMENT = {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

Reply = Mapping[str, Any]  # a line of JSON by the child


@dataclass(frozen=True, slots=True)
class ExportedCase:
    """A case to run."""

    id: str
    folder: Path
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GuardZoneWrite:
    """A guard zone that was written to."""

    array: PlacedArray
    side: str  # `before` or `after` the array
    count: int
    first: int  # the distance of the nearest from the array
    last: int  # and that of the farthest


@dataclass(frozen=True, slots=True)
class SanitizedCase:
    """The result of a case."""

    errors: tuple[SanitizerError, ...] = ()  # of the tool, in order
    arrays: tuple[PlacedArray, ...] = ()
    zone_writes: tuple[GuardZoneWrite, ...] = ()
    unguarded: tuple[int, ...] = ()  # the outputs that XLA did not put between guard zones
    failure: Failure | None = None  # the end of the process, or the exception that the kernel raised; None if it ran


@dataclass(frozen=True, slots=True)
class ToolSetup:
    """The tool and the device on which it runs cases."""

    tool: str  # a key of `TOOLS`
    platform: str  # `cuda` or `rocm`
    device: int = 0  # its number among JAX's devices of the platform
    x64: bool = False


def run_cases(
    setup: ToolSetup,
    cases: Sequence[ExportedCase],
    concerns: Callable[[ExportedCase, SanitizerError], bool],
    begin: Callable[[ExportedCase], None],
) -> dict[str, SanitizedCase]:
    """Runs cases under a tool and returns their results by id; raises a Failure if no process can use the device.

    A tool writes its errors when its process ends, and they name a kernel but no case. So cases share a process as long
    as it reports no error. If it does, the cases whose kernels an error `concerns` run again, each in a separate
    process. A case whose process died runs again before it is blamed, because a tool may crash by itself.
    """
    results: dict[str, SanitizedCase] = {}
    died_once: set[str] = set()
    pending, separately = list(cases), False
    while pending:
        replies, failure, errors = _run_process(setup, pending[:1] if separately else pending, begin)
        done = pending[: len(replies)]
        if failure is not None and failure.verdict is Verdict.CRASH and done[-1].id not in died_once:
            died_once.add(done.pop().id)
            replies.pop()
            failure = None
        is_clean = not any(concerns(case, error) for case in done for error in errors)
        if is_clean or len(done) <= 1 or (setup.tool == "memcheck" and failure is not None):
            # An error of memcheck ends the process's use of the device, so it is that of the last case.
            for case, reply in zip(done, replies, strict=True):
                results[case.id] = _result(case, reply, *((errors, failure) if case is done[-1] else ((), None)))
            pending = pending[len(done) :]
        else:
            separately = True
    return results


# Up to the first case that fails: a reply for each, the failure of the last one, and the errors of all.
def _run_process(
    setup: ToolSetup, cases: Sequence[ExportedCase], begin: Callable[[ExportedCase], None]
) -> tuple[list[Reply], Failure | None, tuple[SanitizerError, ...]]:
    replies: list[Reply] = []
    failure: Failure | None = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = Child(
            _MODULE, f"the process under {setup.tool}", under=tool_command(setup.tool, folder), environment=_ENVIRONMENT
        )
        try:
            begin(cases[0])
            _initialise(child, setup)
            for case in cases:
                begin(case)
                reply: Reply = {}
                try:
                    reply = child.ask({"folder": str(case.folder)}, _CASE_SECONDS)
                except Failure as ended:
                    failure = ended
                replies.append(reply)
                if "error" in reply:
                    kind, text = reply["error"]
                    line = (text.splitlines() or [""])[0]
                    detail = Raised("the kernel", kind, line, phase=f"under {setup.tool}")
                    failure = Failure(Verdict.RUNTIME_ERROR, detail, reply["stderr"])
                if failure is not None:
                    break
        finally:
            child.close(_EXIT_SECONDS)
        return replies, failure, read_errors(folder / ERRORS, setup.tool)


def _initialise(child: Child, setup: ToolSetup) -> None:
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
