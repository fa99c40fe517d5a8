"""The groups of ordinary cases: values compared with the oracle, signatures only compiled, and calls to be rejected."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from kerneltest.backends.base import Artifact, Backend, BatchExecutable
from kerneltest.core.details import NoPallasCall, Stated
from kerneltest.core.dtypes import float_format, is_float
from kerneltest.core.failures import Failure, format_exception
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.precision import Precision
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.declare.arguments import Argument, ArrayArgument, Optional, Static
from kerneltest.declare.dims import Dim
from kerneltest.declare.outcomes import Rejection
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.applicability import reaches_kernel, trace_if_possible
from kerneltest.execute.arbitration import overrule_interpreter
from kerneltest.execute.batching import (
    Prepare,
    check_repeated,
    checked_executable,
    evaluate_apart,
    expect_batch,
    fill_coming,
    judge_on_either,
    may_queue,
    run_batched,
    run_on_fast_path,
    unchecked_executable,
)
from kerneltest.execute.cache import Cache
from kerneltest.execute.claims import Claim, case_context, judge_claims, plain_claim
from kerneltest.execute.expectations import REPEATED
from kerneltest.execute.item import Group, Item, Outcome, quarantine_reason
from kerneltest.execute.kernel_numbers import sum_formats
from kerneltest.execute.time_budget import new_coverage
from kerneltest.execute.verdict_key import function_fingerprint, kernel_fingerprint, value_fingerprint
from kerneltest.judge.result_dtypes import check_result_dtypes, undeclared_narrow_dtype
from kerneltest.oracle.expectation import Outputs
from kerneltest.plan import DEPTHS
from kerneltest.plan.cases import Case, value_cases
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import marker_family
from kerneltest.plan.format_limits import excessive_work, long_signatures, sum_signatures
from kerneltest.plan.signatures import Signature, signature_dtypes, signatures
from kerneltest.records.journal import Phase
from kerneltest.records.schema import ExpectedValues
from kerneltest.trace.cost_model import estimate_work
from kerneltest.trace.site_states import DimLengths, grids_by_place
from kerneltest.trace.tracing import Traced, trace

_COARSE = 0.1  # relative error that a useful bound does not admit
_LONGER = 4  # times the longest planned length, at which more programs may run
_SECONDS = {"quick": 0.2, "standard": 0.5, "deep": 2.0}  # estimated for one run of a long signature, at most


def judge_values(item: Item, case: AnyCase, cache: Cache) -> Outcome:
    """Runs a case and compares its outputs with the oracle's; runs the families in `REPEATED` twice.

    Raises:
      Failure: the outputs could not be compared, or the two runs differ (`nondeterministic`) in a pairing that is
        declared to be reproducible, as it is by default.
    """
    pairing, backend = item.pairing, item.backend
    if reason := _work_problem(pairing, item.depth, case, cache):
        raise Failure(Verdict.UNAVAILABLE, reason)
    traced = cache.traces.of(pairing, case.signature, backend)
    check_result_dtypes(
        pairing, case.signature, traced, item.depth, lambda other: cache.traces.of(pairing, other, backend)
    )
    expect_batch(item.name, pairing, case, cache, traced)
    expectation, bitwise = cache.expectations.of(pairing, case, traced)
    context, passing = case_context(item, case, cache), item.record(Verdict.PASS, case=case)
    narrow = undeclared_narrow_dtype(pairing, case.signature, traced, expectation.values)

    def judge(outputs: Outputs, precision: Precision, *, with_evidence: bool = True) -> Outcome:
        apart = functools.partial(evaluate_apart, context)
        claim = plain_claim(context, outputs, precision, bitwise=bitwise, evaluate_apart=apart)
        outcome = judge_claims(context, passing, [claim], with_evidence=with_evidence)
        calls, lengths = (call.equation for call in traced.calls), _dim_lengths(pairing, case.signature, item.depth)
        static, single = traced.sites.remarks(calls, lengths, claim.formula.is_refused)
        expected = replace(_expected_values(claim), narrow=narrow, static=static, single=single)
        return replace(outcome, record=replace(outcome.record, expected=expected))

    def judge_on_fast_path() -> Outcome:
        fast = checked_executable(context)
        runs = run_on_fast_path(item.name, context, fast)
        first, *_ = [judge(outputs, fast.precision, with_evidence=False) for outputs in runs]
        return first

    unchecked = functools.partial(unchecked_executable, cache.executables.fast_path(backend))

    def judge_prepared() -> Outcome:
        executable = cache.executables.ready(backend, traced)
        key = id(executable), case.id  # targets whose code is equal share an executable
        _, passed = cache.passes.get(key, (None, None))
        if passed is not None and passed.backend != backend.id:
            cache.process.journal.counts[f"reused for {backend.id}"] += 1
            is_largest = cache.evidence.exceeds_earlier_use(backend, case.family.name, passed.bound_fraction or 0.0)
            budget = passed.error_budget if is_largest or not passed.compared else ()
            return Outcome(replace(passed, item=item.name, backend=backend.id, error_budget=budget))
        if may_queue(backend, cache) and isinstance(executable, BatchExecutable):
            outputs = run_batched(item.name, context, executable)
        else:
            if cache.process.budget is None:
                fill_coming(item.name, context)  # whose formula is then evaluated with that of this case
            outputs = executable.run(context.leaves)
        again = executable.run(context.leaves) if case.family.name in REPEATED else None
        if again is not None and pairing.reproducible:
            check_repeated(outputs, again, expectation.defined)
        outcome = judge(outputs, executable.precision)
        if outcome.record.verdict.is_finding:
            prepare_next(item, case, cache)
        if again is not None and not pairing.reproducible and outcome.record.verdict is Verdict.PASS:
            outcome = replace(judge(again, executable.precision), claimed=outcome.claimed)
        if outcome.record.verdict is Verdict.PASS:
            cache.passes[key] = executable, outcome.record
        return outcome

    def judge_on(prepare: Prepare, *, with_evidence: bool = False) -> Outcome:
        executable = prepare(traced)
        return judge(executable.run(context.leaves), executable.precision, with_evidence=with_evidence)

    evaluated = functools.partial(judge_on, unchecked, with_evidence=True)
    run_again = lambda: unchecked(traced).run(context.leaves)  # noqa: E731
    outcome = judge_on_either(context, judge_on_fast_path, judge_prepared, run_again, evaluated)
    return _note_missing_call(overrule_interpreter(item, context, outcome, judge_on), case, traced)


# What the oracle expects of a call, for the record.
def _expected_values(claim: Claim) -> ExpectedValues:
    finite, least, greatest, visible, coarse = 0, np.inf, -np.inf, np.inf, 0
    expected = claim.expected
    for output, value, bound, where in zip(
        claim.outputs, expected.values, expected.bounds, expected.defined, strict=True
    ):
        compared = np.isfinite(value) & where
        if not compared.any():
            continue
        size = np.abs(value[compared], dtype=np.float64)
        finite += size.size
        least, greatest = min(least, float(value[compared].min())), max(greatest, float(value[compared].max()))
        with np.errstate(all="ignore"):
            relative = bound[compared] / size
        visible = min(visible, float(np.nanmin(relative, initial=np.inf)))
        if is_float(output.dtype):  # smaller values may vanish
            coarse += int(((relative > _COARSE) & (size >= float_format(output.dtype).smallest_normal)).sum())
    return ExpectedValues(finite, least, greatest, visible, coarse) if finite else ExpectedValues(0)


@functools.lru_cache(maxsize=256)
def _dim_lengths(pairing: Pairing, signature: Signature, depth: str) -> Mapping[str, DimLengths]:
    planned = [dict(each.dims) for each in signatures(pairing, depth)]
    by_dim = {name: sorted({lengths[name] for lengths in planned}) for name, _ in signature.dims}

    def longer_grids(name: str, block: int) -> Mapping[str, Sequence[object]]:
        dim, planned = pairing.dims[name], max(by_dim[name])
        if block:
            return _grids_of(pairing, signature.with_length(name, Dim(multiple_of=dim.multiple_of).fit(block + 1)))
        length = dim.fit(_LONGER * planned)
        longer = signature.resized(pairing, {name: length}) if length > planned else None
        return _grids_of(pairing, longer) if longer is not None else {}

    return {name: DimLengths(own, by_dim[name], functools.partial(longer_grids, name)) for name, own in signature.dims}


@functools.lru_cache(maxsize=64)  # each case of a signature may ask
def _grids_of(pairing: Pairing, signature: Signature) -> Mapping[str, Sequence[object]]:
    traced = trace_if_possible(pairing, signature)
    return grids_by_place(call.equation for call in traced.calls) if traced is not None else {}


# A pass of a signature that reaches no Pallas call is marked as such.
def _note_missing_call(outcome: Outcome, case: AnyCase, traced: Traced) -> Outcome:
    if reaches_kernel(traced) or outcome.record.verdict is not Verdict.PASS:
        return outcome
    detail = NoPallasCall(str(case.signature))
    return replace(outcome, record=replace(outcome.record, detail=detail, message=detail.text()))


# The reason why an oracle would take too long for a long signature, or "".
def _work_problem(pairing: Pairing, depth: str, case: AnyCase, cache: Cache) -> str:
    if case.signature not in affordable_long_signatures(pairing, depth):
        return ""
    cache.process.enter_phase(Phase.EXPECTING)
    return excessive_work(pairing, case.signature)


@functools.lru_cache(maxsize=256)
def affordable_long_signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """Returns the long signatures of a pairing, those past a number format's limit, that run fast enough.

    Those of shallower plans come first.
    """

    def affordable(signature: Signature) -> bool:
        if depth == "quick" and excessive_work(pairing, signature):
            return False  # one signature is planned, so a shorter one is better than none
        return _runs_in_time(pairing, depth, signature)

    shallower = DEPTHS[: DEPTHS.index(depth)][-1:]
    known = (signature for each in shallower for signature in affordable_long_signatures(pairing, each))
    return tuple(dict.fromkeys([*known, *long_signatures(pairing, depth, affordable)]))


def _runs_in_time(pairing: Pairing, depth: str, signature: Signature) -> bool:
    traced = trace_if_possible(pairing, signature)
    return traced is None or estimate_work(traced).seconds <= _SECONDS[depth]


@functools.lru_cache(maxsize=256)
def _affordable_sums(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    in_time = functools.partial(_runs_in_time, pairing, depth)
    return sum_signatures(pairing, depth, functools.partial(sum_formats, pairing), in_time)


# By group, the signatures of a pairing that only some of its families fill.
_LONG: dict[str, Callable[[Pairing, str], tuple[Signature, ...]]] = {
    GroupName.STRUCTURAL: affordable_long_signatures,
    GroupName.SPECIAL: _affordable_sums,
}


def lowered_signatures(pairing: Pairing, depth: str) -> tuple[Signature, ...]:
    """Returns the signatures of a pairing that backends of the lowering tier lower."""
    return *signatures(pairing, depth), *affordable_long_signatures(pairing, depth)


class ValueGroup(Group):
    """A group of families of values, which are compared with the oracle's: one of `plan.families.GROUPS`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Returns the planned cases. A costly backend gets only those that add a family, a target or a signature."""
        costly = item.backend.costly
        long = _LONG[self.name](item.pairing, item.depth) if self.name in _LONG and not costly else ()
        planned = _value_cases(item.pairing, item.pairing_id, item.dtype, self.name, item.seed, item.depth, long)
        return _skip_covered(planned) if costly else iter(planned)

    def prepare(self, item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
        prepare_ahead(item, planned, cache)

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        if reason := _work_problem(item.pairing, item.depth, case, cache):
            return Fingerprint.of(kernel_fingerprint(item.pairing, case.signature, item.backend, cache), reason)
        return value_fingerprint(item.pairing, case, item.backend, cache)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        return judge_values(item, case, cache)


class SignatureGroup(Group):
    """Signatures on backends that run nothing: each lowers and compiles, or fails to."""

    name = GroupName.SIGNATURES
    shows_inputs = False
    _family = marker_family("signature", name)

    def applies_to(self, backend: Backend) -> bool:
        return not backend.tier.gives_values

    def cases(self, item: Item) -> Iterator[AnyCase]:
        planned = lowered_signatures if item.backend.tier is Tier.LOWER else signatures
        return item.cases_at(planned(item.pairing, item.depth), self._family)

    def prepare(self, item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
        prepare_ahead(item, planned, cache)

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        return kernel_fingerprint(item.pairing, case.signature, item.backend, cache)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        traced = cache.traces.of(item.pairing, case.signature, item.backend)
        if not reaches_kernel(traced):
            raise Failure(Verdict.UNAVAILABLE, NoPallasCall(str(case.signature)))
        artifact = cache.executables.wait(item.backend, traced)
        assert isinstance(artifact, Artifact)
        record = item.record(Verdict.PASS, case=case, compared=artifact.kernels)
        record = replace(record, compiler_metrics=artifact.facts, advice=artifact.advice)
        return Outcome(record, files=artifact.files)


@functools.lru_cache(maxsize=32)  # the groups and dtypes of a pairing, for all backends in turn
def _value_cases(
    pairing: Pairing, pairing_id: str, dtype: str, group: str, seed: int, depth: str, long: tuple[Signature, ...]
) -> tuple[Case, ...]:
    return tuple(value_cases(pairing, pairing_id, dtype, group, seed, depth, long=long))


# The cases that cover something no earlier case covers.
def _skip_covered(planned: Iterable[Case]) -> Iterator[Case]:
    seen: set[object] = set()
    for case in planned:
        if not (covered := new_coverage(case)) <= seen:
            seen |= covered
            yield case


# The group of declared rejections: a call that must raise is traced and prepared, but never run.


class RejectionGroup(Group):
    """The group of calls that a kernel must reject."""

    name = GroupName.REJECTIONS
    shows_inputs = False

    def applies_to(self, backend: Backend) -> bool:
        return True

    def cases(self, item: Item) -> Iterator[AnyCase]:
        """Returns one case for each rejection, in the first dtype of the pairing."""
        pairing = item.pairing
        if pairing.rejects and item.dtype == signature_dtypes(pairing, item.depth)[0]:
            base = next(signature for signature in signatures(pairing, item.depth) if signature.dtype == item.dtype)
            for rejection in pairing.rejects:
                family = marker_family(f"rejects_{rejection.name}", self.name)
                yield item.case(_rejected_signature(pairing, base, rejection), family)

    def fingerprint(self, item: Item, case: AnyCase, cache: Cache) -> Fingerprint:
        rejection = _rejection(item, case)
        cache.process.enter_phase(Phase.TRACING)
        try:
            rejected = trace(_with_rejected_arguments(item.pairing, rejection), case.signature, item.backend.platform)
        except Failure as failure:
            error = failure.__cause__ or failure
            return Fingerprint.of("rejected", type(error), format_exception(error))
        return function_fingerprint(rejected, cache)

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        """Passes a case that raises the declared exception; `runtime_error` for another one, `xpass` for none."""
        rejection = _rejection(item, case)
        rejected, expected = _with_rejected_arguments(item.pairing, rejection), rejection.expected
        try:
            item.backend.prepare(trace(rejected, case.signature, item.backend.platform))
        except Failure as raised:
            if rejection.matches(raised):
                return Outcome(item.record(Verdict.PASS, case=case, compared=1))
            error = format_exception(raised.__cause__ or raised)
            detail = Stated("expected {expected}, got {error}", {"expected": expected, "error": error})
            raise Failure(Verdict.RUNTIME_ERROR, detail) from raised
        raise Failure(Verdict.XPASS, Stated("expected {expected}, but nothing was raised", {"expected": expected}))


def _rejection(item: Item, case: AnyCase) -> Rejection:
    return next(reject for reject in item.pairing.rejects if f"rejects_{reject.name}" == case.family.name)


def _with_rejected_arguments(pairing: Pairing, rejection: Rejection) -> Pairing:
    changed: dict[str, Argument] = {}
    for name, value in rejection.arguments.items():
        if not isinstance(value, ArrayArgument):
            changed[name] = Static(((str(value), value),), named=False)
        else:
            changed[name] = Optional(value) if name in pairing.optionals else value
    return replace(pairing, arguments={**pairing.arguments, **changed}, rejects=())


def _rejected_signature(pairing: Pairing, base: Signature, rejection: Rejection) -> Signature:
    leaves = _with_rejected_arguments(pairing, rejection).leaves
    names = dict(base.dtypes)
    return replace(
        base,
        dims=tuple((name, rejection.dims.get(name, length)) for name, length in base.dims),
        dtypes=tuple(
            (path, leaf.dtypes[0] if path in rejection.arguments else names[path])
            for path, leaf in leaves.items()
            if path in rejection.arguments or path in names
        ),
        statics=tuple(
            (name, option if name in pairing.optionals else str(rejection.arguments.get(name, option)))
            for name, option in base.statics
        ),
    )


# Compilations that are started before a case needs them.


def prepare_ahead(item: Item, planned: Sequence[AnyCase], cache: Cache) -> None:
    """Starts concurrent compilations of the first signature, and of every other one that needs a compiler."""
    cache.batch.cases.clear()
    for case in planned:
        cache.batch.cases.setdefault(case.signature, []).append(case)
    begun: set[Signature] = set()
    fast_path = cache.executables.fast_path
    for case in planned if cache.process.compiles_ahead else ():
        if case.signature in begun or quarantine_reason(item, case):
            continue
        begun.add(case.signature)
        cache.process.begin_case(item.name, case)
        with suppress(Failure):  # reported when the case is judged
            traced = cache.traces.of(item.pairing, case.signature, item.backend)
            cache.process.enter_phase(Phase.COMPILING)
            first = case.signature == planned[0].signature
            if first or item.depth == "deep" or not ((path := fast_path(item.backend)) and path.covers(traced)):
                cache.executables.prepare(item.backend, traced)
        if (budget := cache.process.budget) is not None and not budget.note_prepared(case.signature):
            break


def prepare_next(item: Item, case: AnyCase, cache: Cache) -> None:
    """Starts to compile the signature after that of a wrong case, which is probably wrong, too."""
    if not cache.process.compiles_ahead or cache.process.budget is not None:
        return
    if case not in cache.batch.cases.get(case.signature, ()):  # drawn, not planned
        return
    left = itertools.islice(itertools.dropwhile(case.signature.__ne__, cache.batch.cases), 1, None)
    later = next((cache.batch.cases[each][0] for each in left), None)
    if later is None or quarantine_reason(item, later):
        return
    cache.process.begin_case(item.name, later)
    with suppress(Exception):  # raised again when the case is judged
        traced = cache.traces.of(item.pairing, later.signature, item.backend)
        cache.process.enter_phase(Phase.COMPILING)
        cache.executables.prepare(item.backend, traced)
    cache.process.begin_case(item.name, case)
