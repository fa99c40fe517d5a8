"""Whose bug it is, told by where the tiers split on one case and the same bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping

from kerneltest.core.tiers import Tier
from kerneltest.core.verdicts import Kind, Verdict
from kerneltest.records.schema import Record

_WRONG = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)

Case = tuple[str, str]
Verdicts = Mapping[str, tuple[Tier, Verdict]]


def suspects(records: Iterable[Record]) -> dict[tuple[Case, str], str]:
    """By (pairing, case) and backend, what each finding says beside the other tiers' verdicts, "" if nothing."""
    verdicts: dict[Case, dict[str, tuple[Tier, Verdict]]] = {}
    for record in records:
        if record.case:
            verdicts.setdefault((record.pairing, record.case), {})[record.backend] = record.tier, record.verdict
    return {
        (case, backend): suspect(backend, by_backend)
        for case, by_backend in verdicts.items()
        for backend, (_, verdict) in by_backend.items()
        if verdict in _WRONG or verdict.kind is Kind.MEMORY
    }


def lowering_bugs(records: Iterable[Record]) -> Counter[str]:
    """What is suspected of a lowering, with how many cases show it."""
    return Counter(text for text in suspects(records).values() if text.startswith("the lowering for"))


def suspect(backend: str, verdicts: Verdicts) -> str:
    """What a wrong value on `backend` says beside the tiers and verdicts of all backends on the same case."""
    passed = {tier for tier, verdict in verdicts.values() if verdict is Verdict.PASS}
    simulated = {verdict for tier, verdict in verdicts.values() if tier is Tier.SIMULATE}
    interpreted = verdicts.get("interpret", (Tier.INTERPRET, None))[1] is Verdict.PASS
    tier, mine = verdicts[backend]
    if tier is Tier.SIMULATE and interpreted:
        if mine.kind is Kind.MEMORY:
            return "the kernel; interpret mode cannot see it"
        return f"the lowering for {backend.partition(':')[2]}: interpret mode agrees with the oracle"
    if mine not in _WRONG:
        return ""
    if tier is Tier.DEVICE and Tier.SIMULATE in passed:
        return "the compiler or the device: the lowered code, simulated, agrees with the oracle"
    if tier is Tier.DEVICE and interpreted and not simulated:
        return "the lowering or what comes after it: interpret mode agrees with the oracle"
    if backend == "interpret" and simulated == {Verdict.PASS}:
        return "the interpreter: the lowered code, simulated, agrees with the oracle"
    if len(verdicts) > 1 and all(verdict in _WRONG for _, verdict in verdicts.values()):
        return "the kernel, or the oracle: every backend that ran it disagrees"
    return ""
