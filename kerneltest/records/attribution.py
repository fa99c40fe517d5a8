"""Whose bug it is, told by where the tiers split on one case and the same bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping

from kerneltest.records.schema import Record
from kerneltest.core.verdicts import PASS

_WRONG = frozenset({"mismatch", "special_mismatch"})
_MEMORY = frozenset({"out_of_bounds", "race", "unwritten", "uninitialised"})
_DEVICES = frozenset({"cuda", "rocm"})

Case = tuple[str, str]


def suspects(records: Iterable[Record]) -> dict[tuple[Case, str], str]:
    """By (pairing, case) and backend, what each finding says beside the other tiers' verdicts, "" if nothing."""
    verdicts: dict[Case, dict[str, str]] = {}
    for record in records:
        if record.case:
            verdicts.setdefault((record.pairing, record.case), {})[record.backend] = record.verdict
    return {
        (case, backend): suspect(backend, found)
        for case, found in verdicts.items()
        for backend, verdict in found.items()
        if verdict in _WRONG | _MEMORY
    }


def lowering_bugs(records: Iterable[Record]) -> Counter[str]:
    """What is suspected of a lowering, with how many cases show it."""
    return Counter(text for text in suspects(records).values() if text.startswith("the lowering for"))


def suspect(backend: str, verdicts: Mapping[str, str]) -> str:
    """What a wrong value on `backend` says beside the verdicts of all backends on the same case."""
    interpreted = verdicts.get("interpret", "")
    simulated = {name: verdict for name, verdict in verdicts.items() if name.startswith("simulate:")}
    mine = verdicts[backend]
    if backend in simulated:
        if mine in _MEMORY and interpreted == PASS:
            return "the kernel; interpret mode cannot see it"
        if mine in _WRONG and interpreted == PASS:
            return f"the lowering for {backend.partition(':')[2]}: interpret mode agrees with the oracle"
    if backend in _DEVICES and mine in _WRONG:
        if PASS in simulated.values():
            return "the compiler or the device: the lowered code, simulated, agrees with the oracle"
        if interpreted == PASS and not simulated:
            return "the lowering or what comes after it: interpret mode agrees with the oracle"
    if backend == "interpret" and mine in _WRONG and simulated and set(simulated.values()) == {PASS}:
        return "the interpreter: the lowered code, simulated, agrees with the oracle"
    if mine in _WRONG and len(verdicts) > 1 and all(verdict in _WRONG for verdict in verdicts.values()):
        return "the kernel, or the oracle: every backend that ran it disagrees"
    return ""
