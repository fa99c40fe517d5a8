"""Whose bug it is, judged by where the tiers split on one case and the same bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Kind, Verdict
from kerneltest.records.schema import Record

_WRONG = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)
_LOWERING = "the lowering for"

FindingKey = tuple[str, str, str]  # pairing, case, backend


def attributions(records: Iterable[Record]) -> Mapping[FindingKey, str]:
    """What is to blame for each wrong value and memory error; "" where the tiers do not say."""
    by_case: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        if record.case:
            by_case.setdefault((record.pairing, record.case), {})[record.backend] = record
    return {
        (record.pairing, record.case, record.backend): attribution(record, list(alike.values()))
        for alike in by_case.values()
        for record in alike.values()
        if record.verdict in _WRONG or record.verdict.kind is Kind.MEMORY
    }


def lowering_bugs(records: Iterable[Record]) -> Counter[str]:
    """What is suspected of a lowering, with how many cases show it."""
    return Counter(text for text in attributions(records).values() if text.startswith(_LOWERING))


def attribution(record: Record, alike: Sequence[Record]) -> str:
    """What is to blame for a finding, or "".

    Args:
      record: of the finding.
      alike: the records of the same case on all backends, this one included.
    """
    passed = {each.tier for each in alike if each.verdict is Verdict.PASS}
    simulated = {each.verdict for each in alike if each.tier is Tier.SIMULATE}
    interpreted = {each.verdict for each in alike if each.tier is Tier.INTERPRET} == {Verdict.PASS}
    if record.tier is Tier.SIMULATE and interpreted:
        if record.verdict.kind is Kind.MEMORY:
            return "the kernel; interpret mode cannot see it"
        target = record.backend.removeprefix(f"{record.tier}:")
        return f"{_LOWERING} {target}: interpret mode agrees with the oracle"
    if record.verdict not in _WRONG:
        return ""
    if record.tier is Tier.DEVICE and Tier.SIMULATE in passed:
        return "the compiler or the device: the lowered code, simulated, agrees with the oracle"
    if record.tier is Tier.DEVICE and interpreted and not simulated:
        return "the lowering or what comes after it: interpret mode agrees with the oracle"
    if record.tier is Tier.INTERPRET and simulated == {Verdict.PASS}:
        return "the interpreter: the lowered code, simulated, agrees with the oracle"
    if len(alike) > 1 and all(each.verdict in _WRONG for each in alike):
        return "the kernel, or the oracle: every backend that ran it disagrees"
    return ""
