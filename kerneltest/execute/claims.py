"""Claims about the outputs of calls, and their judgement: one path for ordinary values and for invariants.

A claim is outputs of a call, the values that are accepted in their place with their bounds, and the check that asked
for them. Outputs within the bounds of the oracle's rounding pass. Others pass if the kernel's formula is right and its
own rounding explains them. In the end the formula itself is compared, without rounding.

Invariants take an `CaseContext` and yield `Variation`s of its plain call. An ordinary case is compared by the
plain call itself.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import attrgetter

import numpy as np

from kerneltest.backends.base import Backend
from kerneltest.core.details import ErrorCause, MismatchCause, Nondeterministic
from kerneltest.core.dtypes import Array, FloatFormat, is_float, widen
from kerneltest.core.failures import DeclarationError, Guard
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.work_budget import oracle_work
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.formula import Formula, Take, whole
from kerneltest.execute.item import Item, Outcome
from kerneltest.judge.compare import Comparison, compare, compare_outputs, first_difference, is_wrong, without_doubted
from kerneltest.judge.formula import (
    BITS_UNSTABLE,
    OwnRounding,
    are_exact,
    follows_formula,
    formula_answer,
    formula_cause,
    formula_explains,
    is_lost,
    own_format,
    own_rounding,
    rounding_cause,
)
from kerneltest.judge.mismatch_evidence import mismatch_evidence
from kerneltest.judge.relations import MismatchContext
from kerneltest.numerics.spread import ErrorShare
from kerneltest.numerics.tracked import calls_linear_algebra
from kerneltest.oracle.expectation import Expectation, ExpectedOutputs, Outputs
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import Signature
from kerneltest.records.evidence import BudgetPart, budget_parts, vacuous_bound_note
from kerneltest.records.journal import Phase
from kerneltest.records.schema import FormulaAnswer, Record
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.batched_interpreter.promoted_kernel import SampleArithmetic, UnroundedRules, WideRules
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import computes_floats, rounds_explicitly

BIT_FOR_BIT = "bit for bit"
WITHOUT_ROUNDING = "without rounding"
_BY_OWN_FORMULA = ", or the rounding of the kernel's own formula"
_BY_BACKEND = MismatchCause(ErrorCause.BACKEND, None)
_BY_OVERFLOW = MismatchCause(ErrorCause.OVERFLOW, None)
_EVALUATIONS = 20  # of the oracle that divide an error bound, about

Expect = Callable[[Outputs, Precision], ExpectedOutputs]


class WrongOutputError(Exception):
    """An output is wrong, and the caller does not want evidence.

    Attributes:
      claim: the number of the claim that does not hold.
      output: the number of the output.
      array: the output in words.
      comparison: of the output with what is accepted.
    """

    def __init__(self, claim: int, output: int, label: str, comparison: Comparison) -> None:
        super().__init__()
        self.claim, self.output, self.comparison = claim, output, comparison
        self.array = f"output {output}" + (f" ({label})" if label else "")

    def differs_from(self, claimed: Sequence[Outputs]) -> Nondeterministic:
        """Returns the detail for a second run that is right, from the outputs of each of its claims."""
        second = claimed[self.claim][self.output] if self.claim < len(claimed) else self.comparison.expected
        return first_difference(self.array, self.comparison.actual, second, self.comparison.wrong)


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """A part of the outputs of a call, and its expected values.

    Attributes:
      label: the call in words, for messages: `first in a batch of two under jax.vmap`; "" for a plain call.
      wanted: returns the expected values: `CaseContext.by_oracle()`, `CaseContext.as_plain_call()`, or a
        function of the part and of the backend's `Precision`.
      take: returns the part of all outputs, with the change of the inputs undone; by default all outputs unchanged.
      gradient_of: for outputs that are gradients, the path of the leaf with respect to which each is one.
      formula: the oracle's values for the part, to which it is held without rounding as well; None to ask only what
        `wanted` asks.
      remark: returns a further line for the message of a finding, or "".
    """

    label: str
    wanted: Expect
    take: Take = whole
    gradient_of: tuple[str, ...] = ()
    formula: Expectation | None = None
    remark: Callable[[], str] = str


@dataclass(frozen=True, slots=True, eq=False)
class Variation:
    """Another call of a kernel.

    Attributes:
      traced: the function to call: `CaseContext.traced`, or a result of its `at` or `once`.
      leaves: the inputs, in the shapes and dtypes that it was traced for.
      checks: parts of its outputs with their expected values.
      transformation: the transformation by which JAX made the function, such as `jax.vmap`. A backend that cannot run
        its result, but runs the plain call, says nothing about the kernel.
    """

    traced: Traced
    leaves: Outputs
    checks: tuple[OutputCheck, ...]
    transformation: str = ""


@dataclass(frozen=True, slots=True)
class CaseContext:
    """The input of an invariant: a case, and its plain call on a backend.

    Attributes:
      pairing, case, backend: of the call to vary. `case.signature` has the lengths, dtypes and static arguments.
      traced: the plain call, traced.
      arguments: the case's array arguments by path.
      expectation: the oracle's values for them, with bounds.
      cache: the cache that the cases of the pairing share.
      seed: the run's seed.
      depth: the run's depth.
    """

    pairing: Pairing
    case: AnyCase
    backend: Backend
    traced: Traced
    arguments: Mapping[str, Array]
    expectation: Expectation
    cache: Cache
    seed: int = 0
    depth: str = "quick"

    @property
    def leaves(self) -> Outputs:
        """The array arguments of the plain call, in the pairing's order and the kernel's dtypes."""
        return tuple(self.arguments[path] for path, _ in self.case.signature.dtypes)

    def once(self, name: str, make: Callable[[], Traced]) -> Traced:
        """Returns another traced function. It is traced and compiled only once for each signature.

        Args:
          name: distinguishes it from other functions that invariants trace for the same signature.
          make: traces the function.
        """
        return self.cache.traces.variation(self.traced, self.case.signature, name, make)

    def at(self, signature: Signature) -> Traced:
        """Returns the kernel traced for another signature.

        Args:
          signature: such as `dataclasses.replace(context.case.signature, statics=...)`.

        Raises:
          Failure: the kernel cannot be traced for it.
        """
        return self.cache.traces.of(self.pairing, signature, self.backend)

    def by_oracle(self, expectation: Expectation | None = None, part: Take = whole) -> Expect:
        """Expects the oracle's values, within their bounds.

        Args:
          expectation: the oracle's values for other arguments; by default those for the case's.
          part: returns the part of the oracle's outputs to compare with; by default all of them.
        """
        chosen = expectation or self.expectation

        def wanted(outputs: Outputs, precision: Precision) -> ExpectedOutputs:
            self.cache.process.enter_phase(Phase.EXPECTING)
            expected = chosen.on(outputs, precision)
            if part is whole:
                return expected
            sets = [
                tuple(o[i] if i < len(o) else v for v, o in zip(chosen.values, expected.alternatives, strict=True))
                for i in range(max(map(len, expected.alternatives), default=0))
            ]
            return replace(
                expected,
                own_error=lambda: part(chosen.own_error()) if chosen.own_error is not tuple else (),
                values=part(chosen.values),
                bounds=part(expected.bounds),
                defined=part(chosen.defined),
                alternatives=tuple(zip(*map(part, sets), strict=True)),
            )

        return wanted

    def as_plain_call(self, part: Take = whole) -> Expect:
        """Expects the outputs of the plain call, bit for bit, on a device; elsewhere the oracle's values and bounds.

        Code for a CPU sums in an order that depends on the whole shape, even if the kernel's own order does not. A
        kernel that is not reproducible has no order of its own.

        Args:
          part: returns the part of the plain call's outputs to compare with; by default all of them.
        """
        if self.backend.tier is not Tier.DEVICE or not self.pairing.reproducible:
            return self.by_oracle(part=part)

        def wanted(outputs: Outputs, precision: Precision) -> ExpectedOutputs:
            self.cache.process.enter_phase(Phase.RUNNING)
            defined = part(self.expectation.defined)
            plain = map(widen, part(self.cache.executables.ready(self.backend, self.traced).run(self.leaves)))
            values = tuple(
                np.where(where, value, np.zeros_like(value)) for value, where in zip(plain, defined, strict=True)
            )
            bounds = tuple(np.where(where, 0.0, np.inf) for where in defined)
            return ExpectedOutputs(values, bounds, bitwise=True, defined=defined)

        return wanted


def case_context(item: Item, case: AnyCase, cache: Cache) -> CaseContext:
    """Returns a case with its plain call on the backend of an item; Failure: the trace or the oracle failed."""
    pairing, backend = item.pairing, item.backend
    traced = cache.traces.of(pairing, case.signature, backend)
    expectation, _ = cache.expectations.of(pairing, case, traced)
    arguments = cache.expectations.arguments(pairing, case)
    return CaseContext(pairing, case, backend, traced, arguments, expectation, cache, item.seed, item.depth)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim that outputs of a call, or a part of them, are among the accepted values that a check asked for."""

    outputs: Outputs
    expected: ExpectedOutputs
    check: OutputCheck
    precision: Precision
    formula: Formula
    tolerance: str  # the error model in words, or `BIT_FOR_BIT`
    signed_zeros: bool  # whether -0 and +0 differ
    # in which the kernel's own formula may explain outputs beyond the bounds; None if it may not
    own_format: FloatFormat | None
    asks_formula: bool  # whether the formula must be right, too
    # returns what NumPy computes where compiled code was seen to differ, or None; None for calls whose findings do not
    # state a cause
    evaluate_apart: Callable[[], Outputs | None] | None = None

    def compare(self, noise: float) -> list[Comparison]:
        """Compares each output; `noise` is the absolute error that the oracle's own rounding may leave in a zero."""
        return compare_outputs(self.outputs, self.expected, signed_zeros=self.signed_zeros, noise=noise)


def plain_claim(
    context: CaseContext,
    outputs: Outputs,
    precision: Precision,
    *,
    bitwise: bool,
    evaluate_apart: Callable[[], Outputs | None],
) -> Claim:
    """Returns the claim that the outputs of the plain call are the oracle's, on a backend of some precision.

    If `bitwise`, they must be equal bit for bit, but for the sign of zeros.
    """
    pairing, case, cache, traced = context.pairing, context.case, context.cache, context.traced

    def coming() -> Iterator[tuple[str, Callable[[], Sequence[Array]]]]:
        for other in cache.batch.later(case) if not traced.calls_back() else ():  # a batch then calls in another order
            if other.id in cache.expectations.cases or other.id in cache.expectations.filled:
                yield other.id, functools.partial(cache.expectations.inputs, pairing, other)

    formula = Formula(
        cache.formulas,
        traced,
        case.id,
        context.leaves,
        context.expectation,
        trace_wide=_wide_tracer(context),
        coming=coming,
    )
    check = OutputCheck("", context.by_oracle(), formula=context.expectation)
    expected = check.wanted(outputs, precision)
    claim = _make_claim(pairing, check, outputs, expected, precision, formula, bitwise=bitwise)
    return replace(claim, signed_zeros=pairing.signed_zeros, evaluate_apart=evaluate_apart)


def claims_of(
    context: CaseContext, variations: Mapping[int, Variation], outputs: Outputs, precision: Precision
) -> Iterator[Claim]:
    """Yields what the first of some variations of the plain call claims, one check after another.

    The variations have their numbers in the invariant, and call one function: its formula is evaluated for all at once.
    DeclarationError: a check expects values of other shapes.
    """
    variation = next(iter(variations.values()))
    asked = [
        (number, i, f"{context.case.id} {number}.{i} {Fingerprint.of(*each.leaves).text}")
        for number, each in variations.items()
        for i in range(len(each.checks))
    ]

    def coming(place: int) -> Iterator[tuple[str, Callable[[], Outputs]]]:
        for number, i, key in asked[place + 1 :] if not variation.traced.calls_back() else ():
            if variations[number].checks[i].formula is not None:
                yield key, functools.partial(attrgetter("leaves"), variations[number])

    for i, check in enumerate(variation.checks):
        part = check.take(outputs)
        expected = check.wanted(part, precision)
        shapes, values, bounds = ([np.shape(x) for x in arrays] for arrays in (part, expected.values, expected.bounds))
        if shapes != values or shapes != bounds:
            raise DeclarationError(
                f"the check {check.label!r} has outputs of shapes {shapes}, expected values of shapes {values} and "
                f"bounds of shapes {bounds}, which must be equal"
            )
        formula = Formula(
            context.cache.formulas,
            variation.traced,
            asked[i][2],
            variation.leaves,
            check.formula or Expectation(expected.values, None, None),
            check.take,
            trace_wide=_wide_tracer(context) if check.formula is None else None,
            rewrites=context.traced,
            coming=functools.partial(coming, i),
        )
        yield _make_claim(context.pairing, check, part, expected, precision, formula, bitwise=expected.bitwise)


def _wide_tracer(context: CaseContext) -> Callable[[], Traced | None]:
    wide, signature = context.cache.traces.wide, context.case.signature
    return functools.partial(wide, context.pairing, signature, context.backend, context.traced)


def _make_claim(
    pairing: Pairing,
    check: OutputCheck,
    outputs: Outputs,
    expected: ExpectedOutputs,
    precision: Precision,
    formula: Formula,
    *,
    bitwise: bool,
) -> Claim:
    tolerance = pairing.tolerance
    return Claim(
        outputs,
        expected,
        check,
        precision,
        formula,
        BIT_FOR_BIT if bitwise else ": ".join(filter(None, (str(tolerance), expected.note))),
        bitwise or pairing.signed_zeros,
        own_format=None if bitwise else own_format(tolerance, formula.traced),
        asks_formula=not bitwise and check.formula is not None and getattr(tolerance, "asks_formula", False),
    )


# The judgement of claims, one after another, and the record that results from it.


@dataclass(slots=True)
class _Judge:
    context: CaseContext
    record: Record
    with_evidence: bool
    noise: float
    guard: Guard  # for work outside findings, without a time limit
    claimed: list[Outputs]  # the outputs of each claim so far

    def judge(self, claim: Claim) -> Outcome | None:
        """Adds a claim to the record; if it does not hold, returns the finding, or raises without `with_evidence`."""
        before = self.record
        self.claimed.append(claim.outputs)
        self.context.cache.process.enter_phase(Phase.JUDGING)
        comparisons, doubted = self._without_doubted(claim.compare(self.noise), claim.expected)
        if doubted:
            bounds = tuple(each.bound for each in comparisons)
            claim = replace(claim, expected=replace(claim.expected, bounds=bounds))
            self.record = before = replace(before, doubted=before.doubted + doubted)
        cause = None
        if is_wrong(comparisons):
            claim, comparisons, cause = self._explain(claim, comparisons)
        self._add(claim.expected, comparisons, claim.tolerance)
        if is_wrong(comparisons):
            return self._finding(claim, comparisons, claim.check.label, cause, claim.expected.shares)
        self._note_use(claim, comparisons)
        if not claim.asks_formula:
            return None
        answer, found = claim.formula.ask()
        found, by_formula = self._without_doubted(found, claim.formula.oracle)
        if by_formula and not is_wrong(found):
            answer, found = formula_answer(found), []
        if found and not follows_formula(comparisons, found):
            claim.formula.check_repeated(found, claim.outputs)
            answer, found = FormulaAnswer(unanswered="its results are not those of its formula without rounding"), ()
        if found:
            self.record = before
            self._add(claim.expected, found, WITHOUT_ROUNDING)
        more = max(by_formula - doubted, 0)  # of the same elements
        self.record = replace(self.record, doubted=self.record.doubted + more)
        if answer.unanswered and are_exact(comparisons):
            return None  # as copies and integers, of which a formula says no more
        self.record = replace(self.record, formula=self.record.formula or answer)
        label = f"{claim.check.label} {WITHOUT_ROUNDING}".lstrip()
        if not found:
            return None
        cause = claim.formula.rounded_constants() if self.with_evidence else None
        cause = cause or formula_cause(found, claim.formula.oracle.formula)
        return self._finding(claim, found, label, cause, lambda output: ())

    # The oracle is asked as in its own phase, so that what it raises is blamed on it.
    def _without_doubted(
        self, comparisons: Sequence[Comparison], oracle: ExpectedOutputs | Expectation
    ) -> tuple[Sequence[Comparison], int]:
        def own_error() -> Sequence[Array]:
            with self.context.cache.process.in_phase(Phase.EXPECTING):
                return oracle.own_error()

        return without_doubted(comparisons, own_error, self.noise)

    # The claim with bounds that the kernel's own rounding explains, or the same claim with the cause of its wrong
    # outputs.
    def _explain(
        self, claim: Claim, comparisons: Sequence[Comparison]
    ) -> tuple[Claim, Sequence[Comparison], MismatchCause | None]:
        states_cause = self.with_evidence and claim.evaluate_apart is not None  # the cause is evidence, too
        if claim.own_format is None and not states_cause:
            return claim, comparisons, None
        formula, own = self._without_doubted(claim.formula.evidence(), claim.formula.oracle)[0], None
        if claim.own_format is not None and formula and not is_wrong(formula):
            loose = claim.check.wanted(claim.outputs, claim.precision.never_exact()).bounds
            arithmetic = SampleArithmetic(claim.own_format, claim.precision)
            own = own_rounding(
                claim.formula.own_samples,
                arithmetic,
                comparisons,
                loose,
                sampled=claim.expected.sampled,
                normwise=calls_linear_algebra(self.context.pairing.oracle),
                literals=[
                    (f.bound <= np.maximum(c.bound, most)) & claim.formula.rounds_literals(c.actual.dtype)
                    for f, c, most in zip(formula, comparisons, loose, strict=True)
                ],
                coarse=lambda: claim.check.wanted(claim.outputs, claim.precision.losing(BITS_UNSTABLE)).alternatives,
                overflows=claim.formula.overflows_own_dtypes,
            )
        if own is not None:
            self.context.cache.process.enter_phase(Phase.JUDGING)
            expected = replace(claim.expected, bounds=own.admitted)
            admitting = replace(claim, expected=expected, tolerance=f"{claim.tolerance}{_BY_OWN_FORMULA}")
            if not is_wrong(admitted := admitting.compare(self.noise)):
                return admitting, admitted, None
        if claim.evaluate_apart is None or not states_cause:
            return claim, comparisons, None
        evaluated = claim.evaluate_apart()
        if evaluated is not None and not is_wrong(replace(claim, outputs=evaluated).compare(self.noise)):
            return claim, comparisons, _BY_BACKEND
        return claim, comparisons, _find_cause(claim.formula, comparisons, formula, own)

    def _add(self, expected: ExpectedOutputs, comparisons: Sequence[Comparison], tolerance: str) -> None:
        record = self.record
        used = [u for u in (record.bound_fraction, *(c.bound_fraction for c in comparisons)) if u is not None]
        ulps = zip_longest(record.ulps, *(c.ulps for c in comparisons), fillvalue=0)
        undefined = sum(int((~where).sum()) for where in expected.defined)
        total = sum(c.actual.size for c in comparisons)
        self.record = replace(
            record,
            compared=record.compared + sum(c.compared for c in comparisons),
            bound_fraction=max(used, default=None),
            ulps=tuple(map(sum, ulps)),
            tolerance=tolerance,
            defined=record.defined + total - undefined,
            undefined=record.undefined + undefined,
        )

    def _finding(
        self,
        claim: Claim,
        comparisons: Sequence[Comparison],
        label: str,
        cause: MismatchCause | None,
        shares: Callable[[int], tuple[ErrorShare, ...]],
    ) -> Outcome:
        context, pairing = self.context, self.context.pairing
        number, comparison = next((i, each) for i, each in enumerate(comparisons) if each.wrong.any())
        if not self.with_evidence:
            raise WrongOutputError(len(self.claimed) - 1, number, label, comparison)
        context.cache.process.enter_phase(Phase.JUDGING)
        exact = self.record.tolerance == BIT_FOR_BIT or getattr(pairing.tolerance, "models_operands", False)
        # Equal outputs have equal evidence, whatever the backend.
        arrays = comparison.actual, comparison.expected, comparison.bound, comparison.wrong, comparison.special
        key = pairing, context.case.id, len(self.claimed), label, number, cause, exact, Fingerprint.of(*arrays)
        known = context.cache.evidence.known
        shown = replace(comparison, by_bound=cause is not None and cause.what is ErrorCause.ROUNDING)
        with context.cache.evidence.guard() as guard:
            if key not in known:
                expecting = functools.partial(context.cache.process.in_phase, Phase.EXPECTING)
                case_of = pairing, context.case.signature, context.arguments
                known[key] = mismatch_evidence(
                    MismatchContext(*case_of, number, shown, (), guard.budget, expecting),
                    depth=context.depth,
                    structural=context.case.family.structural,
                    models_operands=exact,
                    guard=guard,
                    call=label,
                    cause=cause,
                    gradient_of=claim.check.gradient_of[number] if claim.check.gradient_of else "",
                )
            detail, evidence = known[key]
            if remark := guard.collect("remarking on a check", claim.check.remark, ""):
                detail = replace(detail, remarks=(*detail.remarks, remark))
            finding = replace(self.record, verdict=comparison.verdict, message=detail.text(), detail=detail)
            budget = self._budget(shares, number, guard)
            finding = replace(finding, wrong=detail.wrong, evidence=evidence, error_budget=budget)
        wrong_call = claim.formula.traced, claim.formula.leaves
        return Outcome(finding, context.arguments, comparison=comparison, wrong_call=wrong_call)

    # Adds the error budget of an output that uses much of its bound, or whose bound is too wide to compare any.
    def _note_use(self, claim: Claim, comparisons: Sequence[Comparison]) -> None:
        context, shares = self.context, claim.expected.shares
        fractions = ((c.bound_fraction, i) for i, c in enumerate(comparisons) if c.bound_fraction is not None)
        used, number = max(fractions, default=(0.0, 0))
        if context.cache.evidence.exceeds_earlier_use(context.backend, context.case.family.name, used):
            self.record = replace(self.record, error_budget=self._budget(shares, number, self.guard))
        too_wide = [i for i, each in enumerate(comparisons) if each.vacuous or np.isinf(each.bound).any()]
        if too_wide and not self.record.compared:
            number = too_wide[0]
            budget = self._budget(shares, number, self.guard)
            message = self.guard.collect(
                "explaining a bound", lambda: vacuous_bound_note(shares(number), claim.tolerance), ""
            )
            self.record = replace(self.record, error_budget=budget, message=message)

    def _budget(
        self, shares: Callable[[int], tuple[ErrorShare, ...]], number: int, guard: Guard
    ) -> tuple[BudgetPart, ...]:
        self.context.cache.process.enter_phase(Phase.EXPECTING)  # evaluates the oracle again
        parts: tuple[BudgetPart, ...] = guard.collect("dividing a bound", lambda: budget_parts(shares(number)), ())
        guard.budget.spend(_EVALUATIONS * oracle_work(self.context.case.signature.volume))
        return parts


def judge_claims(context: CaseContext, record: Record, claims: Iterable[Claim], *, with_evidence: bool) -> Outcome:
    """Judges the claims about the outputs of a case, made one at a time: the record of a pass, or the first finding.

    Evidence takes longer than everything else; without it, a wrong output raises a WrongOutputError.
    """
    noise = context.cache.expectations.noise(context.case, context.arguments)
    guard = Guard(context.cache.process.internal_failures)
    judge = _Judge(context, record, with_evidence, noise, guard, [])
    for claim in claims:
        if (finding := judge.judge(claim)) is not None:
            return finding
    record, message = judge.record, judge.record.message
    if record.undefined and not record.defined:
        message = "nothing was compared: the oracle leaves all elements undefined"
    return Outcome(replace(record, message="" if record.compared else message), claimed=judge.claimed)


# Whether NumPy computes what is expected in the kernel's own dtypes.
def _is_right_in_numpy(formula: Formula, outputs: Sequence[Comparison]) -> bool:
    try:
        evaluated = BatchedKernel(formula.traced, KernelRules())([leaf[None] for leaf in formula.leaves])
    except UnknownError:
        return False
    own = formula.take(tuple(output[0] for output in evaluated))
    pairs = zip(own, outputs, strict=True)
    return not is_wrong(compare(value, each.expected, each.bound, signed_zeros=False) for value, each in pairs)


# The cause of wrong outputs; None if it is unknown.
def _find_cause(
    formula: Formula, outputs: Sequence[Comparison], found: Sequence[Comparison], own: OwnRounding | None
) -> MismatchCause | None:
    if is_wrong(found):
        if not formula_explains(outputs, found):
            return None
        if formula.makes_nan(outputs):
            return MismatchCause(ErrorCause.SPECIAL, None)
        if formula.overflows_own_dtypes() and formula.is_right_by(WideRules):
            return _BY_OVERFLOW
        if not (rounds_explicitly(formula.traced.jaxpr.jaxpr) and formula.is_right_by(UnroundedRules)):
            return formula.rounded_constants() or formula_cause(found, formula.oracle.formula)
    elif not found:
        return None
    elif not computes_floats(formula.traced.jaxpr.jaxpr):
        return _BY_BACKEND
    cause = rounding_cause(outputs, own)
    by_rounding = cause is not None and cause.what is ErrorCause.ROUNDING
    of_integers = not any(each.wrong.any() for each in outputs if is_float(each.actual.dtype))
    if by_rounding and of_integers and _is_right_in_numpy(formula, outputs):
        return _BY_BACKEND
    if own is not None and not by_rounding:  # an unstable formula loses nothing without rounding
        cause = formula.rounded_constants() or cause
        pairs = zip(outputs, own.exact, found, strict=True)
        outputs = [replace(each, actual=exact, expected=wide.got) for each, exact, wide in pairs]
    is_due = cause is not None and any(map(is_lost, outputs)) and formula.overflows_own_dtypes()
    return _BY_OVERFLOW if is_due else cause
