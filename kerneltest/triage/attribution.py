"""Whose bug it is, judged by where the tiers split on one case and the same bytes."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from kerneltest.core.dtypes import dtype_named, float_format, is_float
from kerneltest.core.precision import FLOAT32
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Kind, Verdict
from kerneltest.records.schema import Evidence, Record

_WRONG = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)
_LOWERING = "the lowering for"
_MAXIMUM = "maximum drops NaN there, a known bug: docs/upstream/triton_maximum_drops_nan.py"
_KNOW_TF32 = ("rounding", "dot", "bit for bit")  # error models that know how a backend rounds operands
_BUCKETS = 16  # of a record's `ulps`; the last has no end

FindingKey = tuple[str, str, str]  # pairing, case, backend


def attributions(records: Sequence[Record]) -> Mapping[FindingKey, str]:
    """What is to blame for each wrong value and memory error; "" where the tiers do not say."""
    blamed = {(record.pairing, record.case) for record in records if record.case and _is_blamed(record)}
    by_case: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        if (record.pairing, record.case) in blamed:
            by_case.setdefault((record.pairing, record.case), {})[record.backend] = record
    return {
        (record.pairing, record.case, record.backend): attribution(record, list(alike.values()))
        for alike in by_case.values()
        for record in alike.values()
        if _is_blamed(record)
    }


def _is_blamed(record: Record) -> bool:
    """Whether something is to blame for how a case ended."""
    return record.verdict in _WRONG or record.verdict.kind is Kind.MEMORY


def lowering_bugs(records: Sequence[Record]) -> Counter[str]:
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
        return _of_lowering(record, [each for each in alike if each.tier is Tier.INTERPRET])
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


def _of_lowering(record: Record, interpreted: Sequence[Record]) -> str:
    """What is to blame where interpret mode agrees with the oracle and the lowered code does not; "" where rounding
    may explain it."""
    evidence = record.evidence
    if evidence is None or not _apart(record, evidence, interpreted):
        return ""
    target = record.backend.removeprefix(f"{record.tier}:")
    if "maximum" in evidence.otherwise and _is_nan(evidence.expected) and not _is_nan(evidence.actual):
        return f"{_LOWERING} {target}: {_MAXIMUM}"
    formats = [each for each in evidence.otherwise if each not in ("maximum", "TF32")]
    if formats:
        return f"the kernel, it seems: it computes in {' and '.join(formats)}, where XLA on a CPU may keep float32"
    if "TF32" in evidence.otherwise and not record.tolerance.startswith(_KNOW_TF32):
        return f"TF32 operands of its products, it seems, of which {record.tolerance} knows nothing"
    return f"{_LOWERING} {target}: interpret mode agrees with the oracle"


def _apart(record: Record, evidence: Evidence, interpreted: Sequence[Record]) -> bool:
    """Whether the worst value differs from the interpreted one by more than the simulating backend's bound."""
    if evidence.actual is None or evidence.expected is None:
        return False
    actual, expected = float(evidence.actual), float(evidence.expected)
    if not (math.isfinite(actual) and math.isfinite(expected)):
        return True
    dtype = dtype_named(evidence.window.dtype if evidence.window else record.dtype)
    spacing = float(float_format(dtype).ulp(np.asarray(expected))) if is_float(dtype) else 1.0
    last = max((len(each.ulps) for each in interpreted), default=0)
    near = math.inf if last >= _BUCKETS else spacing * (2.0 ** (last - 1) if last > 1 else 0.5)
    return abs(actual - expected) > max(evidence.bound + near, FLOAT32.smallest_normal)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
