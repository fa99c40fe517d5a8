"""What compute-sanitizer writes of errors, as XML, and what that says of a kernel."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.sanitizer.tools import MOST_RECORDS

_NEAR = 2**20  # bytes: an access farther from an array says nothing of that
_SHOWN = 3  # records kept as evidence
_RECORD = re.compile(r"<record>.*?</record>", re.DOTALL)  # a process that was ended leaves the last one torn


@dataclass(frozen=True, slots=True)
class Placed:
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
class Error:
    """One record of a tool.

    Attributes:
      verdict: what it comes to.
      kernel: the name of the kernel on the device; "" where no kernel ran.
      what: what the kernel did, in words that follow its name.
      access: `read` or `write` where that is known, which a line of the kernel must do; else "".
      address, size: of an access to global memory, in bytes; 0 where there is none.
      thread, block: where it happened, `(0, 0, 0)`; "" where that is not told.
      count: for how many it stands.
      text: as the tool wrote it.
    """

    verdict: Verdict
    kernel: str
    what: str
    access: str = ""
    address: int = 0
    size: int = 0
    thread: str = ""
    block: str = ""
    count: int = 1
    text: str = ""


def errors_in(file: Path, tool: str) -> tuple[Error, ...]:
    """The errors that a tool has written to a file; none where there is no file, or where it only warns."""
    if not file.exists():
        return ()
    return tuple(_errors(file.read_text(encoding="utf-8", errors="replace"), tool))


def _errors(text: str, tool: str) -> Iterator[Error]:
    for written in _RECORD.findall(text):
        try:
            record = ElementTree.fromstring(written)
        except ElementTree.ParseError:
            continue
        if record.findtext("level", "Error") in ("Error", "Fatal"):
            yield _READ[tool](record, written)


def _memcheck(record: ElementTree.Element, text: str) -> Error:
    direction, error = record.findtext("what/direction", ""), record.findtext("what/error", "")
    size = _number(record.findtext("what/size", ""))
    if not direction:  # no access: an instruction that the device refused, or a call that failed
        return _error(record, text, Verdict.RUNTIME_ERROR, _sentence(record))
    verdict = Verdict.RUNTIME_ERROR if "misaligned" in error else Verdict.OUT_OF_BOUNDS
    space = record.findtext("what/space", "").strip("_")
    verb = {"read": "reads", "write": "writes"}.get(direction, f"does an {direction} of")
    where = f" in {space} memory" if space and space != "global" else ""
    what = f"{verb} {size} bytes {error}{where}"
    return _error(record, text, verdict, what, access=direction if direction in ("read", "write") else "", size=size)


def _initcheck(record: ElementTree.Element, text: str) -> Error:
    size = _number(record.findtext("what/size", ""))
    what = f"reads {size} bytes that nobody wrote" if size else _sentence(record)
    return _error(record, text, Verdict.UNINITIALISED, what, access="read", size=size)


def _racecheck(record: ElementTree.Element, text: str) -> Error:
    accesses = [
        record.findtext(f"what/{each}/direction", "access").lower() for each in ("source", "destination")
    ]  # fmt: skip
    first, second = (f"a {each}" for each in accesses)
    what = f"races in shared memory: {first} and {second} by threads that no barrier keeps apart"
    count = sum(_number(each.text or "") for each in record.findall("what/destination/count"))
    return _error(record, text, Verdict.RACE, what, count=max(count, 1))


def _synccheck(record: ElementTree.Element, text: str) -> Error:
    kind = record.findtext("what/type", "")
    return _error(record, text, Verdict.RUNTIME_ERROR, f"uses a barrier wrongly: {kind or _sentence(record)}")


_READ: dict[str, Callable[[ElementTree.Element, str], Error]] = {
    "memcheck": _memcheck,
    "initcheck": _initcheck,
    "racecheck": _racecheck,
    "synccheck": _synccheck,
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
) -> Error:
    kernel = record.findtext("where/func") or record.findtext("what/source/where/func") or ""
    address = _number(record.findtext("what/address", ""))
    thread, block = (_triple(record.find(f"who/{each}")) for each in ("threadIdx", "blockIdx"))
    return Error(verdict, kernel, what, access, address, size, thread, block, count, text)


def _sentence(record: ElementTree.Element) -> str:
    return " ".join(record.findtext("what/text", "is in error").split())


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def _triple(element: ElementTree.Element | None) -> str:
    return f"({', '.join(element.findtext(axis, '0') for axis in 'xyz')})" if element is not None else ""


def failure_of(
    tool: str, errors: Sequence[Error], arrays: Sequence[Placed], described: Callable[[Error], str]
) -> Failure:
    """The verdict of a case and its words, from the first of its errors.

    Args:
      tool: that found them.
      errors: of the case, at least one.
      arrays: of the case.
      described: the kernel of an error and its line, as a message names them.
    """
    first = errors[0]
    alike = [error for error in errors if (error.kernel, error.what) == (first.kernel, first.what)]
    count = sum(error.count for error in alike)
    times = "once" if count == 1 else f"{count:,} times"
    found = f"found at least {times}" if len(errors) >= MOST_RECORDS else f"found {times}"
    where = f", {nearest(first, arrays)}" if first.address else ""
    who = f" (thread {first.thread} of block {first.block})" if first.thread else ""
    others = sorted({error.what for error in errors} - {first.what})
    lines = [f"{tool}: {described(first)} {first.what}{where}{who}; {found}"]
    lines += [f"and it {what}" for what in others[:_SHOWN]]
    evidence = "\n".join(error.text for error in errors[:_SHOWN])
    return Failure(first.verdict, "\n".join(lines), evidence)


def nearest(error: Error, arrays: Sequence[Placed]) -> str:
    """Where an access lies, in words: beside the nearest array, if it is near one."""
    near = min(arrays, key=lambda array: _distance(error.address, array), default=None)
    if near is None or _distance(error.address, near) > _NEAR:
        return f"at {error.address:#x}, which is near no input and no output"
    offset = error.address - near.address
    if offset < 0:
        return f"{-offset:,} bytes before the start of {near}"
    if offset >= near.size:
        past = offset - near.size
        return f"{past:,} bytes past the end of {near}" if past else f"at the end of {near}"
    over = offset + error.size - near.size
    return f"across the end of {near}, by {over:,} bytes" if over > 0 else f"at byte {offset:,} of {near}"


def _distance(address: int, array: Placed) -> int:
    return max(array.address - address, address - (array.address + array.size), 0)
