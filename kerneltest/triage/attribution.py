"""Attribution: whose bug a finding is, from where the tiers split on one case and the same bytes."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from kerneltest.core.details import OF_KERNEL
from kerneltest.core.dtypes import float_format, is_float, parse_dtype
from kerneltest.core.ids import BackendId
from kerneltest.core.precision import FLOAT32
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict, VerdictKind
from kerneltest.records.evidence import EXTREMES, Evidence
from kerneltest.records.schema import Record
from kerneltest.triage.symptoms import cause_of

_WRONG = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)
_BUCKETS = 16  # of a record's `ulps`; the last one is open
_DROPS_NAN = "jnp.{0} drops NaN there, as Triton's {0} does: https://github.com/triton-lang/triton/issues/10291"


class Blame(Enum):
    """A culprit, in words with a placeholder for the target or the formats concerned."""

    KERNEL_MEMORY = "the kernel; interpret mode cannot see it"
    KERNEL_FORMAT = "probably the kernel: it computes in {}, where XLA on a CPU may keep float32"
    KERNEL_OR_ORACLE = "the kernel, or the oracle: every backend that ran it disagrees"
    INTERPRETER = "the interpreter: the lowered code, simulated, agrees with the oracle"
    LOWERING = "the lowering for {}: interpret mode agrees with the oracle"
    DROPPED_NAN = "the lowering for {}"
    LOWERING_OR_LATER = "the lowering or a later stage: interpret mode agrees with the oracle"
    DEVICE = "the compiler or the device: the lowered code, simulated, agrees with the oracle"
    TF32 = "probably TF32 operands of its products, which {} does not model"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The attribution of a finding."""

    blame: Blame
    subject: str = ""  # the target, the formats or the error model that it is about

    def text(self) -> str:
        return self.blame.value.format(self.subject)


FindingKey = tuple[str, str, str]  # pairing, case, backend


def attributions(records: Sequence[Record]) -> Mapping[FindingKey, Attribution]:
    """Returns who is to blame for each wrong value and memory fault for which the tiers tell."""
    blamed = {(record.pairing, record.case) for record in records if record.case and _is_attributable(record)}
    by_case: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        if (record.pairing, record.case) in blamed:
            by_case.setdefault((record.pairing, record.case), {})[record.backend] = record
    # A kernel that reads out of bounds gets other values there than in interpret mode.
    overruns = {(record.pairing, record.backend) for record in records if record.verdict.kind is VerdictKind.MEMORY}
    found: dict[FindingKey, Attribution] = {}
    for (pairing, case), same_case in by_case.items():
        for backend, record in same_case.items():
            cause = attribution(record, list(same_case.values())) if _is_attributable(record) else None
            if cause is not None and cause.blame is Blame.LOWERING and (pairing, backend) in overruns:
                cause = Attribution(Blame.KERNEL_MEMORY)
            if cause is not None:
                found[pairing, case, backend] = cause
    return found


def _is_attributable(record: Record) -> bool:
    return record.verdict in _WRONG or record.verdict.kind is VerdictKind.MEMORY


def lowering_bugs(records: Sequence[Record]) -> Counter[Attribution]:
    """Returns the suspected bugs of lowerings, with how many cases show each."""
    found = attributions(records).values()
    return Counter(each for each in found if each.blame in (Blame.LOWERING, Blame.DROPPED_NAN))


def attribution(record: Record, same_case: Sequence[Record]) -> Attribution | None:
    """Returns who is to blame for a finding, from all records of its case; None if the tiers do not tell."""
    passed = {each.tier for each in same_case if each.verdict is Verdict.PASS}
    simulated = {each.verdict for each in same_case if each.tier is Tier.SIMULATE}
    interpreted = {each.verdict for each in same_case if each.tier is Tier.INTERPRET} == {Verdict.PASS}
    if record.tier is Tier.SIMULATE and interpreted:
        if record.verdict.kind is VerdictKind.MEMORY:
            return Attribution(Blame.KERNEL_MEMORY)
        return _of_lowering(record, [each for each in same_case if each.tier is Tier.INTERPRET])
    if record.verdict not in _WRONG:
        return None
    if record.tier is Tier.DEVICE and Tier.SIMULATE in passed:
        return Attribution(Blame.DEVICE)
    if record.tier is Tier.DEVICE and interpreted and not simulated:
        return Attribution(Blame.LOWERING_OR_LATER)
    if record.tier is Tier.INTERPRET and simulated == {Verdict.PASS}:
        return Attribution(Blame.INTERPRETER)
    if len(same_case) > 1 and all(each.verdict in _WRONG for each in same_case):
        return Attribution(Blame.KERNEL_OR_ORACLE)
    return None


def _of_lowering(record: Record, interpreted: Sequence[Record]) -> Attribution | None:
    # None where rounding may explain it, or experiments showed that the kernel's own formula and dtypes do.
    cause = cause_of(record.detail)
    if (cause is not None and cause.what in OF_KERNEL) or not _is_apart(record, record.shown, interpreted):
        return None
    target = BackendId.parse(record.backend).target or record.backend
    if bug := dropped_nan(record):
        return Attribution(Blame.DROPPED_NAN, f"{target}: {bug}")
    formats = [each for each in record.shown.otherwise if each not in (*EXTREMES, "TF32")]
    if formats:
        return Attribution(Blame.KERNEL_FORMAT, " and ".join(formats))
    if "TF32" in record.shown.otherwise:
        return Attribution(Blame.TF32, record.tolerance)
    return Attribution(Blame.LOWERING, target)


def dropped_nan(record: Record) -> str:
    """Returns the known bug that explains numbers in place of NaN, as an experiment showed; or ""."""
    evidence = record.shown
    name = next((each for each in EXTREMES if each in evidence.otherwise), "")
    return _DROPS_NAN.format(name) if name and _is_nan(evidence.expected) and not _is_nan(evidence.actual) else ""


def _is_apart(record: Record, evidence: Evidence, interpreted: Sequence[Record]) -> bool:
    # By more than the bound of the simulating backend.
    if evidence.actual is None or evidence.expected is None:
        return False
    actual, expected = float(evidence.actual), float(evidence.expected)
    if not (math.isfinite(actual) and math.isfinite(expected)):
        return True
    dtype = parse_dtype(evidence.window.dtype if evidence.window else record.dtype)
    spacing = float(float_format(dtype).ulp(np.asarray(expected))) if is_float(dtype) else 1.0
    last = max((len(each.ulps) for each in interpreted), default=0)
    near = math.inf if last >= _BUCKETS else spacing * (2.0 ** (last - 1) if last > 1 else 0.5)
    return abs(actual - expected) > max(evidence.bound + near, FLOAT32.smallest_normal)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
