"""Wrong values on an interpreter, judged again on the simulated code: the kernel's fault or the interpreter's.

An interpreter is believed against a kernel only if the kernel's lowered code is wrong, too, on the same bytes and by
the same bounds. A read out of bounds, a race and memory that is never written are faults of the simulation itself, so
what only an interpreter shows of them stays a finding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.backends.base import Executable, Outputs
from kerneltest.core.details import Contradicted, ErrorCause, Mismatch, first_line
from kerneltest.core.dtypes import Array, is_float
from kerneltest.core.failures import Guard
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.batching import Prepare
from kerneltest.execute.claims import CaseContext, WrongOutputError
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.xfails import apply_xfails
from kerneltest.judge.formula import MOST_UNSTABLE, rounding_cause
from kerneltest.judge.mismatch_evidence import find_nan_dropping
from kerneltest.trace.tracing import Traced

_VALUES = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)


@dataclass(frozen=True, slots=True)
class _HeldToInterpreter:
    """The simulated code of a kernel, with the precision of the interpreter by which its outputs are judged."""

    simulated: Executable
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> Outputs:
        return self.simulated.run(leaves)


def overrule_interpreter(
    item: Item, context: CaseContext, outcome: Outcome, judge_on: Callable[[Prepare], Outcome]
) -> Outcome:
    """Returns a pass with a remark if only the interpreter of an item has wrong values; else the outcome itself.

    Args:
      item, context: the case.
      outcome: on the interpreter.
      judge_on: judges the case, without evidence, on the executables that a function prepares.
    """
    record, arbiter, ready = outcome.record, item.arbiter, context.cache.executables.ready
    if arbiter is None or record.verdict not in _VALUES:
        return outcome
    place = item.place(context.case)
    is_declared = not apply_xfails(item.pairing.xfail, record.verdict, place, str(context.case.signature))[0].is_finding
    if is_declared or _is_own_rounding(outcome):
        return outcome

    def prepare(traced: Traced) -> Executable:
        return _HeldToInterpreter(ready(arbiter, traced), ready(item.backend, traced).precision)

    def judge() -> Outcome:
        try:
            return outcome if _is_right_by_accident(context, outcome) else judge_on(prepare)
        except WrongOutputError:
            return outcome

    judged = Guard(context.cache.process.internal_failures).collect("running the lowered code", judge, outcome)
    if judged.record.verdict is not Verdict.PASS or not judged.record.compared:
        return outcome
    said = f"ends as {record.verdict}: {first_line(record.message)}"
    detail = Contradicted(said, f"{arbiter.id}, which runs the lowered code", item.backend.id)
    return replace(judged, record=replace(judged.record, detail=detail, message=detail.text()))


# Whether the kernel's own rounding explains the wrong values, or they are off by little. The lowered code, which may
# add in another order, is then right by chance.
def _is_own_rounding(outcome: Outcome) -> bool:
    detail, found = outcome.record.detail, outcome.comparison
    stated = detail.cause if isinstance(detail, Mismatch) else None
    if stated is not None and stated.what in (ErrorCause.UNSTABLE, ErrorCause.OVERFLOW):
        return True
    cause = rounding_cause([found], None) if found is not None else None
    return cause is not None and cause.size is not None and cause.size <= MOST_UNSTABLE


# Whether the lowered code is right only because it is known to differ from JAX: it gives zeros of the other sign, and
# its maximum and minimum drop NaN.
def _is_right_by_accident(context: CaseContext, outcome: Outcome) -> bool:
    found, output = outcome.comparison, outcome.record.shown.output
    if found is None or output is None or not is_float(found.actual.dtype):
        return False
    if (found.wrong & (found.actual == 0) & (found.expected == 0)).any():
        return True
    where, signature = found.wrong & np.isnan(found.actual) & ~np.isnan(found.expected), context.case.signature
    return bool(where.any() and find_nan_dropping(context.pairing, signature, context.arguments, output, where))
