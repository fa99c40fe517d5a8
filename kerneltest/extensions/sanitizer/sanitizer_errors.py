"""Errors that compute-sanitizer reports as XML, and the failure of a kernel that they amount to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from kerneltest.core.details import Access, Detail, MemoryFault, Race, Stated, Visit
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.sanitizer.sanitizer_tools import MAX_RECORDS

_NEAR = 2**20  # bytes: the distance up to which an access is attributed to an array
_MAX_SHOWN = 3  # records kept as evidence, and further errors named in a message
_MAX_LINES = 4  # source lines named in a message
_ACCESSES = {"read": Access.LOAD, "write": Access.STORE, "atomic": Access.ATOMIC}


@dataclass(frozen=True, slots=True)
class PlacedArray:
    """An array of a case on the device.

    Attributes:
      name: `x`, or `output 0`.
      address, size: in bytes.
    """

    name: str
    address: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} ({self.size:,} bytes)"


@dataclass(frozen=True, slots=True)
class SanitizerError:
    """One record of a tool.

    Attributes:
      verdict: of a case with this error.
      kernel: the name of the kernel on the device; "" if no kernel ran.
      what: the error, as a predicate of the kernel.
      access: `read`, `write` or `atomic` if the tool says so, else "".
      address, size: of an access to global memory, in bytes; 0 for other errors.
      thread, block: the indices along x, y and z; () if the tool does not say.
      count: the number of occurrences.
      text: the record, as the tool wrote it.
    """

    verdict: Verdict
    kernel: str
    what: str
    access: str = ""
    address: int = 0
    size: int = 0
    thread: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    count: int = 1
    text: str = ""


@dataclass(frozen=True, slots=True)
class KernelSite:
    """The kernel of an error in the user's source.

    Attributes:
      kernel: the name of the kernel function.
      lines: FILE:LINE of its accesses that do what the error is about; none if the error is about no access.
      definition: FILE:LINE of the kernel function, or "".
    """

    kernel: str
    lines: tuple[str, ...] = ()
    definition: str = ""

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
    if not file.exists():
        return ()
    return tuple(_parse_records(file.read_text(encoding="utf-8", errors="replace"), tool))


def _parse_records(text: str, tool: str) -> Iterator[SanitizerError]:
    for part in text.split("<record>")[1:]:
        content, end, _ = part.partition("</record>")  # a process that was killed leaves the last one incomplete
        written = f"<record>{content}{end}"
        try:
            record = ElementTree.fromstring(written)
        except ElementTree.ParseError:
            continue
        if record.findtext("level", "Error") in ("Error", "Fatal"):
            yield _PARSERS[tool](record, written)


def _parse_memcheck(record: ElementTree.Element, text: str) -> SanitizerError:
    direction, error = record.findtext("what/direction", ""), record.findtext("what/error", "")
    size = _integer(record.findtext("what/size", ""))
    if not direction:  # no access: an instruction that the device refused, or a call that failed
        return _error(record, text, Verdict.RUNTIME_ERROR, _sentence(record))
    verdict = Verdict.RUNTIME_ERROR if "misaligned" in error else Verdict.OUT_OF_BOUNDS
    space = record.findtext("what/space", "").strip("_")
    verb = {"read": "reads", "write": "writes"}.get(direction, f"does an {direction} of")
    where = f" in {space} memory" if space and space != "global" else ""
    return _error(record, text, verdict, f"{verb} {size} bytes {error}{where}", access=direction, size=size)


def _parse_initcheck(record: ElementTree.Element, text: str) -> SanitizerError:
    size = _integer(record.findtext("what/size", ""))
    what = f"reads {size} bytes that were never written" if size else _sentence(record)
    return _error(record, text, Verdict.UNINITIALISED, what, access="read", size=size)


def _parse_racecheck(record: ElementTree.Element, text: str) -> SanitizerError:
    accesses = (record.findtext(f"what/{each}/direction", "access").lower() for each in ("source", "destination"))
    first, second = (f"a {each}" for each in accesses)
    what = f"races in shared memory: no barrier orders {first} and {second} by different threads"
    count = sum(_integer(each.text or "") for each in record.findall("what/destination/count"))
    return _error(record, text, Verdict.RACE, what, count=max(count, 1))


def _parse_synccheck(record: ElementTree.Element, text: str) -> SanitizerError:
    kind = record.findtext("what/type", "")
    return _error(record, text, Verdict.RUNTIME_ERROR, f"misuses a barrier: {kind or _sentence(record)}")


_PARSERS: dict[str, Callable[[ElementTree.Element, str], SanitizerError]] = {
    "memcheck": _parse_memcheck,
    "initcheck": _parse_initcheck,
    "racecheck": _parse_racecheck,
    "synccheck": _parse_synccheck,
}


def _error(
    record: ElementTree.Element,
    text: str,
    verdict: Verdict,
    what: str,
    *,
    access: str = "",
    size: int = 0,
    count: int = 1,
) -> SanitizerError:
    kernel = record.findtext("where/func") or record.findtext("what/source/where/func") or ""
    address = _integer(record.findtext("what/address", ""))
    thread, block = (_indices(record.find(f"who/{each}")) for each in ("threadIdx", "blockIdx"))
    return SanitizerError(verdict, kernel, what, access, address, size, thread, block, count, text)


def _sentence(record: ElementTree.Element) -> str:
    return " ".join(record.findtext("what/text", "is in error").split())


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
    """Returns the failure of a case, whose verdict and place are those of its first error.

    Args:
      tool: that found the errors.
      errors: of the case, at least one.
      arrays: of the case.
      site_of: returns the kernel of an error.
    """
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
