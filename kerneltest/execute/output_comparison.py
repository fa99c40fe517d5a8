"""The comparison of the outputs of a case with their expected values, and the record that results from it."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from kerneltest.core.details import MismatchCause, Stated, WrongDtype
from kerneltest.core.dtypes import Array, DType, ShapeDtype, is_float, parse_dtype
from kerneltest.core.failures import Failure, Guard
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.error_models import Tolerance
from kerneltest.declare.pairing import ANY_DTYPE, Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.judge.compare import Comparison, compare
from kerneltest.judge.mismatch_evidence import mismatch_record
from kerneltest.numerics.spread import ErrorShare
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.records.evidence import BudgetPart, budget_parts, vacuous_bound_note
from kerneltest.records.journal import Phase
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import Traced

BIT_FOR_BIT = "bit for bit"


class WrongOutputError(Exception):
    """An output is wrong, and the caller does not want evidence."""


@dataclass(frozen=True, slots=True)
class CallOutputs:
    """Outputs with their expected values. All sequences have one entry for each output.

    Attributes:
      outputs: the kernel's outputs.
      values: the expected values: float64, int64 or bool, in the outputs' shapes.
      bounds: the absolute error allowed of each element; 0 admits only the rounded value.
      signed_zeros: whether -0 and +0 differ.
      tolerance: the error model in words, or `BIT_FOR_BIT`.
      label: the call that gave the outputs, in words; "" for a plain call.
      gradient_of: the leaf with respect to which each output is a gradient; () for outputs that are not gradients.
      alternatives: arrays whose integers and booleans are as right as `values`; () if there are none.
      defined: True for the elements whose value the oracle defines; () if it defines all.
      error_shares: returns the error budget of the output of a number, the largest share first; () if it is unknown.
      cause: of wrong values; None if it is unknown.
    """

    outputs: Sequence[Array]
    values: Sequence[Array]
    bounds: Sequence[Array]
    signed_zeros: bool
    tolerance: str
    label: str = ""
    gradient_of: tuple[str, ...] = ()
    defined: Sequence[Array] = ()
    alternatives: Sequence[Sequence[Array]] = ()
    error_shares: Callable[[int], tuple[ErrorShare, ...]] = lambda output: ()
    cause: MismatchCause | None = None

    @property
    def element_counts(self) -> tuple[int, int]:
        """Number of elements whose value the oracle defines, and number of the others."""
        total = sum(output.size for output in self.outputs)
        undefined = sum(int((~where).sum()) for where in self.defined)
        return total - undefined, undefined

    def compare(self, noise: float) -> list[Comparison]:
        """Compares each output; `noise` is the absolute error that the oracle's own rounding may leave in a zero."""
        alternatives = self.alternatives or [()] * len(self.outputs)
        return [
            compare(actual, value, bound, signed_zeros=self.signed_zeros, noise=noise, alternatives=others)
            for actual, value, bound, others in zip(self.outputs, self.values, self.bounds, alternatives, strict=True)
        ]


def format_tolerance(tolerance: Tolerance, note: str) -> str:
    """Returns an error model in words, with a note about its limits if there is one."""
    return f"{tolerance}: {note}" if note else str(tolerance)


def judge_outputs(
    item: Item,
    case: AnyCase,
    arguments: Mapping[str, Array],
    calls: Iterable[CallOutputs],
    cache: Cache,
    *,
    with_evidence: bool = True,
) -> Outcome:
    """Compares the outputs of a case.

    Args:
      item, case: whose outputs they are.
      arguments: the case's array arguments by path.
      calls: the outputs of each call with their expected values, made one at a time.
      cache: the cache of the pairing.
      with_evidence: whether to collect evidence of a wrong output, which takes longer than everything else.

    Returns:
      A pass with the number of elements compared, or the finding of the first wrong output.

    Raises:
      WrongOutputError: an output is wrong, without `with_evidence`.
    """
    record = item.record(case=case, verdict=Verdict.PASS)
    noise = cache.noise(case, arguments)
    why_not = ""
    unlimited = Guard(cache.process.internal_failures)

    def budget(claim: CallOutputs, number: int, guard: Guard) -> tuple[BudgetPart, ...]:
        cache.enter_phase(Phase.EXPECTING)  # evaluates the oracle again
        return guard.collect("dividing the error bound", lambda: budget_parts(claim.error_shares(number)), ())

    for claim in calls:
        cache.enter_phase(Phase.JUDGING)
        comparisons = claim.compare(noise)
        defined, undefined = claim.element_counts
        record = _add_comparisons(record, comparisons)
        record = replace(
            record,
            tolerance=claim.tolerance,
            defined=record.defined + defined,
            undefined=record.undefined + undefined,
        )
        for number, comparison in enumerate(comparisons):
            if comparison.verdict.is_finding:
                if not with_evidence:
                    raise WrongOutputError
                with cache.guard_evidence() as guard:
                    finding = mismatch_record(
                        record,
                        item.pairing,
                        case.signature,
                        arguments,
                        number,
                        comparison,
                        depth=item.depth,
                        structural=case.family.structural,
                        guard=guard,
                        models_operands=claim.tolerance == BIT_FOR_BIT
                        or getattr(item.pairing.tolerance, "models_operands", False),
                        call=claim.label,
                        cause=claim.cause,
                        gradient_of=claim.gradient_of[number] if claim.gradient_of else "",
                    )
                    finding = replace(finding, error_budget=budget(claim, number, guard))
                return Outcome(finding, arguments, comparison=comparison)
        used, number = max(
            ((c.bound_fraction, i) for i, c in enumerate(comparisons) if c.bound_fraction is not None), default=(0.0, 0)
        )
        if cache.exceeds_earlier_use(item.backend, case.family.name, used):
            record = replace(record, error_budget=budget(claim, number, unlimited))
        too_wide = [i for i, each in enumerate(comparisons) if each.vacuous or np.isinf(each.bound).any()]
        if too_wide and not record.compared:
            record = replace(record, error_budget=budget(claim, too_wide[0], unlimited))
            note = functools.partial(_vacuous_bound_note, claim, too_wide[0])
            why_not = unlimited.collect("explaining a bound", note, "")
    if record.undefined and not record.defined:
        why_not = "nothing was compared: the oracle leaves all elements undefined"
    return Outcome(record if record.compared else replace(record, message=why_not))


def _vacuous_bound_note(claim: CallOutputs, number: int) -> str:
    return vacuous_bound_note(claim.error_shares(number), claim.tolerance)


def _add_comparisons(record: Record, comparisons: Sequence[Comparison]) -> Record:
    """Returns a record with the counts, the bound fraction and the ulps of comparisons added to its own."""
    used = [u for u in (record.bound_fraction, *(c.bound_fraction for c in comparisons)) if u is not None]
    ulps = zip_longest(record.ulps, *(c.ulps for c in comparisons), fillvalue=0)
    return replace(
        record,
        compared=record.compared + sum(c.compared for c in comparisons),
        bound_fraction=max(used, default=None),
        ulps=tuple(map(sum, ulps)),
    )


# The dtypes of a kernel's outputs: what the declaration says of them or, if it says nothing, what cannot be right.
#
# An output may be wider than the inputs, as an accumulator is, or of another kind, as indices, masks and quantised
# numbers are. Without `returns=`, only two things are findings: 16-bit floats from float32 data although no argument
# names that dtype, and a float dtype that depends on a length.

_HALF, _SINGLE, _DOUBLE = 2, 4, 8  # bytes


def check_result_dtypes(
    pairing: Pairing, signature: Signature, traced: Traced, depth: str, trace: Callable[[Signature], Traced]
) -> None:
    """Checks the dtypes of a kernel's outputs for one signature.

    Args:
      pairing: the kernel's.
      signature: of the case.
      traced: the kernel, traced for it.
      depth: of the run.
      trace: traces the kernel for another signature.

    Raises:
      Failure: `mismatch`; an output has another dtype than it should have. `oracle_error`; `returns=` does not fit.
    """
    if pairing.returns:
        for number, wanted in enumerate(_declared(pairing, signature, traced)):
            found = traced.outputs[number].dtype
            if wanted not in (ANY_DTYPE, str(found)):
                raise _failure(number, str(found), f"returns= declares {wanted}")
        return
    for number, output in enumerate(traced.outputs):
        if _loses_precision(pairing, signature, traced, output):
            why = "all data is float32 or wider; if this is meant, declare it with returns="
            raise _failure(number, str(output.dtype), why)
    first = next((each for each in signatures(pairing, depth) if _alike(each, signature)), signature)
    if first == signature:
        return
    try:
        outputs = trace(first).outputs
    except Failure:
        return  # its own cases report that
    for number, (here, there) in enumerate(zip(traced.outputs, outputs, strict=False)):
        if here.dtype != there.dtype and is_float(here.dtype) and is_float(there.dtype):
            raise _failure(number, str(here.dtype), f"it is {there.dtype} for {first}, where only lengths differ")


def _failure(output: int, found: str, why: str) -> Failure:
    return Failure(Verdict.MISMATCH, WrongDtype(output, found, why))


def _declared(pairing: Pairing, signature: Signature, traced: Traced) -> Iterator[str]:
    """Yields the declared dtype of each output."""
    returns, count = pairing.returns, len(traced.outputs)
    if len(returns) not in (1, count):
        sentence = "returns= declares {declared} outputs, and the kernel returns {count}"
        raise Failure(Verdict.ORACLE_ERROR, Stated(sentence, {"declared": len(returns), "count": count}))
    dtypes = {**dict(signature.statics), **dict(signature.dtypes)}
    for each in returns * count if len(returns) == 1 else returns:
        yield each if each == ANY_DTYPE else str(parse_dtype(dtypes.get(each, each)))


def _alike(one: Signature, other: Signature) -> bool:
    return one.dtypes == other.dtypes and one.statics == other.statics


def _loses_precision(pairing: Pairing, signature: Signature, traced: Traced, output: ShapeDtype) -> bool:
    """Returns whether all data is float32 or wider, the output has 16 bits, and no argument names its dtype."""
    if not is_float(output.dtype) or output.dtype.itemsize != _HALF:
        return False
    leaves = signature.leaves(pairing).values()
    data = [each.dtype for leaf, each in zip(leaves, traced.inputs, strict=True) if leaf.kind.is_data]
    if not data or not all(is_float(dtype) and dtype.itemsize >= _SINGLE for dtype in data):
        return False
    return not _is_named(pairing, signature, output.dtype)


def _is_named(pairing: Pairing, signature: Signature, dtype: DType) -> bool:
    """Returns whether a static argument, or the default of a parameter of the kernel, names a dtype."""
    defaults = [each.default for each in inspect.signature(pairing.kernel).parameters.values()]
    named = [*pairing.option_values(dict(signature.statics)).values(), *dict(signature.statics).values(), *defaults]
    return any(str(dtype) in repr(each) for each in named)


def undeclared_narrow_dtype(pairing: Pairing, signature: Signature, traced: Traced, values: Sequence[Array]) -> str:
    """Returns the first dtype below float64 in which an oracle of float64 data returned an output; "" if none.

    Such a cast rounds the expected values, and a cast to float32 is in no bound. A dtype that `returns=`, a static
    argument or a default names is meant.

    Args:
      pairing: the pairing.
      signature: of the case.
      traced: the kernel, traced for it.
      values: what the oracle returned.
    """
    if not any(is_float(each.dtype) for each in traced.inputs):
        return ""
    declared = [*_declared(pairing, signature, traced)] if pairing.returns else [""] * len(values)
    for value, wanted in zip(values, declared, strict=True):
        dtype = value.dtype
        narrow = is_float(dtype) and dtype.itemsize < _DOUBLE and str(dtype) != wanted
        if narrow and not _is_named(pairing, signature, dtype):
            return str(dtype)
    return ""
