"""Adapter for records of schema 10, whose messages are all that they say of a failure.

It is the only place where messages are parsed. A record of schema 10 is a line of JSON; so is what it becomes.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kerneltest.core.details import (
    Access,
    InputModified,
    MemoryFault,
    Mismatch,
    NotBuilt,
    Race,
    Stage,
    Stated,
    Unavailable,
    Undefined,
    Visit,
)
from kerneltest.core.details.base import BaseDetail, without_numbers
from kerneltest.core.verdicts import Verdict, VerdictKind
from kerneltest.records.evidence import FillExtent, Pattern, PatternKind, SpecialInput, SpecialValue
from kerneltest.records.strict_json import dumps

OLDER_SCHEMA: Final = 10

_LINE = re.compile(r"[^\s(),;]{1,300}\.py:\d+")
_PLACE = re.compile(r" ?\([^\s()]{1,300}\.py:\d+\)$")
_ERROR = re.compile(r"^(?:kernel \S+: )?(?:primitive (\S+): )?(\w+(?:Error|Exception)): ")
_ACCESS = re.compile(r"\b(load|store|atomic) at ([^\s\[]+)")
_GRADIENT = re.compile(r"\bby ([\w.]+): ")
_WRONG = re.compile(r"(\d+) of (\d+) elements wrong")
_SPECIAL = re.compile(r"(a row of )?(\S+) holds (nothing but )?(.+)")
_PATTERNS: tuple[tuple[re.Pattern[str], PatternKind], ...] = (
    (re.compile(r"only past the last full block of (?P<axis>.+) \(from (?P<number>\d+) on\)"),
     PatternKind.PAST_THE_LAST_FULL_BLOCK),
    (re.compile(r"holds what belongs (?P<number>\d+) blocks? of (?P<axis>.+) further (?P<way>on|back)"),
     PatternKind.SHIFTED),
    (re.compile(r"only in block (?P<number>\d+) of (?P<axis>.+) \((?P<blocks>\d+) blocks\)"), PatternKind.ONE_BLOCK),
    (re.compile(r"only where (?P<axis>.+) is (?P<number>\d+)"), PatternKind.ONE_INDEX),
    (re.compile(r"every element"), PatternKind.EVERYWHERE),
)  # fmt: skip
_LEFT_OUT = "left out: "
_LONGEST = 1000  # characters of a message that are searched
_RENAMED = {
    "used": "bound_fraction",
    "asked": "defined",
    "unasked": "undefined",
    "facts": "compiler_metrics",
    "budget": "error_budget",
    "kept": "reused_from",
}
_REPRODUCER = {"unusual": "nontrivial", "tries": "attempts", "birth": "fault", "cut": "reduced_script"}
_FAULT = {"certain": "confirmed", "others": "alternatives"}


def upgrade_line(line: bytes) -> bytes | None:
    """Returns a line of schema 10 as one of the next schema; None if it is not of schema 10."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("schema") != OLDER_SCHEMA:
        return None
    try:
        if "record" in content:
            _upgrade_record(content["record"])
        if "smallest" in content:
            _upgrade_reproducer(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # it is no record: what is wrong with it is said of the line as it is
    return dumps({**content, "schema": OLDER_SCHEMA + 1}).encode()


def _upgrade_reproducer(content: dict[str, Any]) -> None:
    found = content["smallest"] = _rename(content["smallest"], _REPRODUCER)
    _upgrade_record(found["record"])
    if found.get("fault") is not None:
        found["fault"] = _rename(found["fault"], _FAULT)


def _rename(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in fields.items()}


def _upgrade_record(record: dict[str, Any]) -> None:
    for old, new in _RENAMED.items():
        if old in record:
            record[new] = record.pop(old)
    found = [_special_input(words) for words in record.pop("holds", [])]
    record["special_inputs"] = [each for each in found if each is not None]
    evidence = record.get("evidence")
    pattern = evidence.pop("pattern", "") if isinstance(evidence, dict) else ""
    if isinstance(evidence, dict):
        evidence["pattern"] = _pattern(pattern)
    verdict = Verdict(record["verdict"])
    if record.get("case") and (verdict.is_finding or verdict is Verdict.UNAVAILABLE):
        record["detail"] = _detail(verdict, record, pattern)


def _special_input(words: str) -> SpecialInput | None:
    match = _SPECIAL.fullmatch(words)
    if match is None or match[4] not in list(SpecialValue):
        return None
    part = FillExtent.ROW if match[1] else FillExtent.ALL if match[3] else FillExtent.SOME
    return SpecialInput(match[2], SpecialValue(match[4]), part)


def _pattern(words: str) -> Pattern | None:
    for form, kind in _PATTERNS:
        if match := form.fullmatch(words):
            found = match.groupdict()
            number = int(found.get("number", 0)) * (-1 if found.get("way") == "back" else 1)
            return Pattern(kind, found.get("axis", ""), number, int(found.get("blocks", 0)))
    return None


def _detail(verdict: Verdict, record: Mapping[str, Any], pattern: str) -> BaseDetail:
    message: str = record.get("message", "")
    first = message.partition("\n")[0]
    line = _LINE.search(first[:_LONGEST])
    source = line[0] if line else ""
    if verdict is Verdict.UNAVAILABLE:
        return Unavailable(message.removeprefix(_LEFT_OUT), left_out=message.startswith(_LEFT_OUT))
    if verdict in (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH):
        return _mismatch(first, record, pattern)
    if verdict is Verdict.INPUT_MODIFIED:
        return InputModified(0)
    if verdict.kind is VerdictKind.BUILD:
        return _not_built(message, record["tier"] == "device", source)
    if verdict.kind is VerdictKind.MEMORY:
        return _memory_fault(verdict, first, source)
    return Stated(without_numbers(first).replace("{", "{{").replace("}", "}}"), source=source)


def _mismatch(first: str, record: Mapping[str, Any], pattern: str) -> Mismatch:
    evidence = record.get("evidence") or {}
    count, gradient = _WRONG.search(first[:_LONGEST]), _GRADIENT.search(first)
    return Mismatch(
        call=first[: count.start()].rpartition(": ")[0] if count else "",
        output=evidence.get("output", 0),
        gradient_of=gradient[1] if gradient and record["family"] == "gradient" else "",
        wrong=int(count[1]) if count else 0,
        total=int(count[2]) if count else 0,
        pattern=pattern,
        index=tuple(evidence.get("index", ())),
        block=evidence.get("block", ""),
        comparison="",
    )


def _not_built(message: str, on_device: bool, source: str) -> NotBuilt:
    lines = message.rstrip().split("\n")
    said = _PLACE.sub("", lines[0 if on_device else -1])
    error = _ERROR.search(said)
    said = _ERROR.sub("", said)
    stage = Stage.COMPILE if on_device else Stage.LOWER
    meaning = _PLACE.sub("", lines[0]) if len(lines) > 1 and not on_device else ""
    return NotBuilt(stage, "", error[2] if error else "", said, meaning=meaning, source=source)


def _memory_fault(verdict: Verdict, first: str, source: str) -> BaseDetail:
    access = _ACCESS.search(first)
    if verdict in (Verdict.UNWRITTEN, Verdict.UNINITIALISED):
        return Undefined("output 0", verdict is Verdict.UNWRITTEN, 0, 0, "")
    visit = Visit(Access(access[1]) if access else Access.LOAD, place=source)
    buffer = access[2] if access else ""
    if verdict is Verdict.RACE:
        return Race("", buffer, "", (visit,), first)
    return MemoryFault("", visit, buffer, "", first)
