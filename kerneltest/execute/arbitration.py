"""Wrong values on an interpreter, judged again on the simulated code: the kernel's fault or the interpreter's.

A case passes although an interpreter has wrong values if the kernel's lowered code is right, on the same bytes and by
the same bounds. It stays a finding if the lowered code has a fault, such as a read out of bounds or a race; if the
kernel's own rounding explains the values; or if a known difference of lowered code changes an output when NumPy
evaluates the kernel, or NumPy cannot.

Without a simulator in the run, NumPy judges kernels with atomic updates: Pallas' interpreter loses all but one of those
of an element.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.backends.base import Backend, Executable, Outputs
from kerneltest.core.details import OF_KERNEL, Contradicted, first_line
from kerneltest.core.dtypes import Array, is_float, widen
from kerneltest.core.failures import Failure, Guard
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.batching import Prepare
from kerneltest.execute.claims import CaseContext, WrongOutputError
from kerneltest.execute.item import Item, Outcome, apply_xfails
from kerneltest.judge.formula import MOST_UNSTABLE, rounding_cause
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules, LoweredRules
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import iter_equations, primitive_name
from kerneltest.triage.symptoms import cause_of

_VALUES = (Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH)


@dataclass(frozen=True, slots=True)
class _HeldToInterpreter:
    """The simulated code of a kernel, with the precision of the interpreter by which its outputs are judged."""

    simulated: Executable
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> Outputs:
        return self.simulated.run(leaves)


@dataclass(frozen=True, slots=True)
class _CountedUpdates:
    """A kernel in NumPy, with each of its atomic updates."""

    traced: Traced
    precision: Precision

    def run(self, leaves: Sequence[Array]) -> Outputs:
        kernel = BatchedKernel(self.traced, KernelRules(counts_all_updates=True))
        return tuple(output[0] for output in kernel([leaf[None] for leaf in leaves]))


def overrule_interpreter(
    item: Item, context: CaseContext, outcome: Outcome, judge_on: Callable[[Prepare], Outcome]
) -> Outcome:
    """Returns a pass with a remark if only the interpreter of an item has wrong values; else the outcome itself.

    `judge_on` judges the case, without evidence, on the executables that a function prepares.
    """
    record, arbiter, ready = outcome.record, item.arbiter, context.cache.executables.ready
    if record.verdict not in _VALUES or (arbiter is None and not _loses_updates(item.backend, context.traced)):
        return outcome
    place = item.place(context.case)
    is_declared = not apply_xfails(item.pairing.xfail, record.verdict, place, str(context.case.signature))[0].is_finding
    if is_declared or _is_own_rounding(outcome):
        return outcome

    def prepare(traced: Traced) -> Executable:
        precision = ready(item.backend, traced).precision
        if arbiter is None:
            return _CountedUpdates(traced, precision)
        return _HeldToInterpreter(ready(arbiter, traced), precision)

    def judge() -> Outcome:
        try:
            judged = judge_on(prepare)
        except (WrongOutputError, UnknownError, Failure):  # the arbiter may be unable to run the kernel
            return outcome
        return outcome if arbiter is not None and _may_be_right_by_accident(outcome) else judged

    judged = Guard(context.cache.process.internal_failures).collect("running the lowered code", judge, outcome)
    if judged.record.verdict is not Verdict.PASS or not judged.record.compared:
        return outcome
    said = f"ends as {record.verdict}: {first_line(record.message)}"
    judge_name = f"{arbiter.id}, which runs the lowered code" if arbiter else "NumPy, which counts each atomic update"
    detail = Contradicted(said, judge_name, item.backend.id)
    return replace(judged, record=replace(judged.record, detail=detail, message=detail.text()))


def _loses_updates(backend: Backend, traced: Traced) -> bool:
    equations = (equation for equation, _ in iter_equations(traced.jaxpr.jaxpr))
    return backend.tier is Tier.INTERPRET and any(primitive_name(each) == "atomic_rmw" for each in equations)


# Whether the kernel's own rounding explains the wrong values, or they are off by little. The lowered code, which may
# add in another order, is then right by chance.
def _is_own_rounding(outcome: Outcome) -> bool:
    stated, found = cause_of(outcome.record.detail), outcome.comparison
    if stated is not None and stated.what in OF_KERNEL:
        return True
    if found is None or not is_float(found.actual.dtype):
        return False
    cause = rounding_cause([found], None)
    return cause is not None and cause.size is not None and cause.size <= MOST_UNSTABLE


# Whether the lowered code may be right by accident: its known differences change outputs of the wrong call, or NumPy
# cannot show that they do not.
def _may_be_right_by_accident(outcome: Outcome) -> bool:
    if outcome.wrong_call is None:
        return True
    traced, leaves = outcome.wrong_call
    rows = [leaf[None] for leaf in leaves]
    rule_sets = KernelRules(counts_all_updates=True), LoweredRules()
    with suppress(UnknownError):
        plain, lowered = (BatchedKernel(traced, rules)(rows) for rules in rule_sets)
        return any(_bytes(one) != _bytes(other) for one, other in zip(plain, lowered, strict=True))
    return True


# The bytes of an array, in which all NaN are equal.
def _bytes(array: Array) -> bytes:
    return (np.where(np.isnan(array), np.nan, widen(array)) if is_float(array.dtype) else array).tobytes()
