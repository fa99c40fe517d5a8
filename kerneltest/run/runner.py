"""Run and judge the cases of one item, one after another."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from kerneltest.backends import Artifact, Backend, BackendError, Executable
from kerneltest.plan.drawn import FUZZ, AnyCase, DrawnCase
from kerneltest.core.dtypes import Array, widen
from kerneltest.judge.evidence import mismatch
from kerneltest.plan.families import NO_VALUES
from kerneltest.run.invariants import INVARIANTS, Asked, CannotVaryError, variations
from kerneltest.run.item import Item, Outcome, record_of
from kerneltest.judge.compare import Comparison, compare
from kerneltest.run.xfails import outlived, quarantined, settle
from kerneltest.run.cache import Memory
from kerneltest.oracle.expectation import Expectation, OracleError
from kerneltest.plan.cases import Case
from kerneltest.plan.signatures import signatures
from kerneltest.records.schema import Evidence, Record
from kerneltest.run.refusals import ERRORS
from kerneltest.run.refusals import judged as refused
from kerneltest.declare.bounds import Precision
from kerneltest.jaxprs.trace import Traced, TraceError
from kerneltest.core.verdicts import NO_FINDING


def run(item: Item, memory: Memory, only: str = "") -> Iterator[Outcome]:
    """Every case of an item, in the plan's order; one record a cell where the backend cannot serve it.

    Args:
      item: what to run.
      memory: what it shares with other items.
      only: the id of the one case to run.
    """
    backend, pairing = item.backend, item.pairing
    planned = [case for case in item.cases() if only in ("", case.id)]
    if not planned:
        return
    memory.turn_to(pairing, item.dtype)
    # What must be refused tells nothing of whom the kernel is for.
    asked = signatures(pairing, item.depth)[:1] if item.group == ERRORS else (case.signature for case in planned)
    reason = unserved(backend, (memory.traced(pairing, signature) for signature in asked))
    if reason:
        for family in item.families():
            yield Outcome(record_of(item, family, "unavailable", reason))
        return
    for case in planned if item.group not in (INVARIANTS, ERRORS) else ():
        traced = memory.traced(pairing, case.signature)
        away = quarantined(pairing.limitations, backend.id, item.dtype, case.family.name, str(case.signature))
        if isinstance(traced, Traced) and not away:
            memory.preparing(backend, traced)
    ended: dict[str, list[tuple[str, str]]] = {}
    if item.group == FUZZ:
        from kerneltest.run.fuzz import judge_all

        yield from judge_all(item, [case for case in planned if isinstance(case, DrawnCase)], memory)
        return
    for case in planned:
        outcome = judged(item, case, memory)
        ended.setdefault(case.family.name, []).append((str(case.signature), outcome.record.verdict))
        yield outcome
    for family, verdicts in ended.items():
        reason = outlived(pairing.limitations, verdicts, backend.id, item.dtype, family)
        if reason and not only:
            yield Outcome(record_of(item, family, "unexpected_pass", reason))


def unserved(backend: Backend, traces: Iterable[Traced | TraceError]) -> str:
    """Why a backend cannot serve a kernel with these signatures, or "". Takes none where the machine lacks it."""
    reasons = (backend.refuses(traced) for traced in traces if isinstance(traced, Traced))
    return backend.unavailable() or next(filter(None, reasons), "")


def judged(item: Item, case: AnyCase, memory: Memory) -> Outcome:
    """Runs one case, planned or drawn, and judges it in the light of declared limitations."""
    started = time.perf_counter()
    outcome = _settled(item, case, _run_case(item, case, memory))
    return replace(outcome, record=replace(outcome.record, seconds=time.perf_counter() - started))


def _run_case(item: Item, case: AnyCase, memory: Memory) -> Outcome:
    reason = quarantined(item.pairing.limitations, item.backend.id, item.dtype, case.family.name, str(case.signature))
    if reason:
        return Outcome(record_of(item, case, "expected", reason))
    if item.group == ERRORS:
        assert isinstance(case, Case)
        verdict, message = refused(item.pairing, case, item.backend)
        return Outcome(replace(record_of(item, case, verdict, message), compared=1))
    traced = memory.traced(item.pairing, case.signature)
    if isinstance(traced, TraceError):
        filled = None if item.group == NO_VALUES else case.fill(item.pairing)
        return Outcome(record_of(item, case, "runtime_error", str(traced)), filled)
    if item.group == NO_VALUES:
        return _taken(item, case, memory.preparing(item.backend, traced))
    arguments, expectation, bitwise = memory.expected(item.pairing, case, traced)
    if isinstance(expectation, OracleError):
        return Outcome(record_of(item, case, "oracle_error", str(expectation)), arguments)
    try:
        if item.group == INVARIANTS:
            return _varied(item, Asked(item.pairing, case, item.seed, memory, traced, arguments, expectation))
        leaves = [arguments[path] for path in item.pairing.leaves]
        outputs, precision = _outputs(item, memory, traced, leaves)
        if memory.first(item.backend, case.signature):
            _check_repeated(outputs, _outputs(item, memory, traced, leaves)[0])
    except BackendError as failure:
        return Outcome(_failed(item, case, failure), arguments)
    bounds = _bounds(expectation, outputs, precision)
    comparisons = _compared(outputs, expectation.values, bounds, item.pairing.signed_zeros)
    base = replace(
        _counted(record_of(item, case, "pass"), comparisons),
        tolerance="bit for bit" if bitwise else str(item.pairing.tolerance),
    )
    for number, comparison in enumerate(comparisons):
        if comparison.verdict != "pass":
            return Outcome(mismatch(item, case.signature, base, number, comparison, arguments), arguments)
    return Outcome(base)


def _varied(item: Item, asked: Asked) -> Outcome:
    """A case of an invariant: the shares of all its variations, up to the first wrong one."""
    base = replace(record_of(item, asked.case, "pass"), tolerance=str(item.pairing.tolerance))
    try:
        found = variations(asked)
    except CannotVaryError as error:
        return Outcome(replace(base, verdict="unavailable", message=str(error)))
    except OracleError as error:
        return Outcome(record_of(item, asked.case, "oracle_error", str(error)), asked.arguments)
    except TraceError as error:
        return Outcome(record_of(item, asked.case, "runtime_error", str(error)), asked.arguments)
    for variation in found:
        outputs, precision = _outputs(item, asked.memory, variation.traced, variation.leaves)
        for share in variation.shares:
            exactly = share.expectation is None and item.backend.tier == "device"
            taken = share.take(outputs)
            if share.expectation is not None:
                values, bounds = share.expectation.values, _bounds(share.expectation, taken, precision)
            elif exactly:
                plain, _ = _outputs(item, asked.memory, asked.traced, asked.leaves)
                values = tuple(map(widen, share.plain(plain)))
                bounds = tuple(np.zeros(value.shape) for value in values)
            else:
                # Code for a CPU sums in an order that depends on the whole shape, whatever the kernel says.
                values = share.plain(asked.expectation.values)
                bounds = share.plain(_bounds(asked.expectation, outputs, precision))
            comparisons = _compared(taken, values, bounds, exactly or item.pairing.signed_zeros)
            base = replace(_counted(base, comparisons), tolerance="bit for bit" if exactly else base.tolerance)
            for number, comparison in enumerate(comparisons):
                if comparison.verdict != "pass":
                    path = share.gradient_of[number] if share.gradient_of else ""
                    told = mismatch(item, asked.case.signature, base, number, comparison, asked.arguments, path)
                    return Outcome(replace(told, message=f"{share.label}: {told.message}"), asked.arguments)
    return Outcome(base)


def _outputs(
    item: Item, memory: Memory, traced: Traced, leaves: Sequence[Array]
) -> tuple[tuple[Array, ...], Precision]:
    executable = memory.preparing(item.backend, traced).result()
    assert not isinstance(executable, Artifact)
    return executable.run(leaves), executable.precision


def _bounds(expectation: Expectation, outputs: Sequence[Array], precision: Precision) -> tuple[Array, ...]:
    return tuple(expectation.bound(i, output.dtype, precision) for i, output in enumerate(outputs))


def _compared(
    outputs: Sequence[Array], values: Sequence[Array], bounds: Sequence[Array], signed_zeros: bool
) -> list[Comparison]:
    triples = zip(outputs, values, bounds, strict=True)
    return [compare(actual, value, bound, signed_zeros=signed_zeros) for actual, value, bound in triples]


def _counted(base: Record, comparisons: Sequence[Comparison]) -> Record:
    """`base` with what these comparisons add to it."""
    used = [u for u in (base.used, *(c.used for c in comparisons)) if u is not None]
    ulps = zip_longest(base.ulps, *(c.ulps for c in comparisons), fillvalue=0)
    return replace(
        base,
        compared=base.compared + sum(c.compared for c in comparisons),
        used=max(used, default=None),
        ulps=tuple(map(sum, ulps)),
    )


def _check_repeated(outputs: Sequence[Array], again: Sequence[Array]) -> None:
    """Raises BackendError if the same inputs gave other bits the second time."""
    for number, (one, other) in enumerate(zip(outputs, again, strict=True)):
        differs = np.argwhere(one.view(f"u{one.dtype.itemsize}") != other.view(f"u{one.dtype.itemsize}"))
        if len(differs):
            at = tuple(differs[0])
            raise BackendError(
                "nondeterministic",
                f"output {number}: the same inputs gave {one[at]} and then {other[at]} at "
                f"[{', '.join(map(str, at))}]; {len(differs)} of {one.size} elements differ",
            )


def _failed(item: Item, case: AnyCase, failure: BackendError) -> Record:
    return replace(record_of(item, case, failure.verdict, str(failure)), evidence=Evidence(stderr=failure.stderr))


def _taken(item: Item, case: AnyCase, preparing: "Future[Executable | Artifact]") -> Outcome:
    """A case of a tier that runs nothing."""
    try:
        artifact = preparing.result()
    except BackendError as failure:
        return Outcome(_failed(item, case, failure))
    assert isinstance(artifact, Artifact)
    record = record_of(item, case, "pass")
    return Outcome(
        replace(record, compared=artifact.kernels, facts=artifact.facts, advice=artifact.advice), files=artifact.files
    )


def _settled(item: Item, case: AnyCase, outcome: Outcome) -> Outcome:
    record = outcome.record
    verdict, remark = settle(
        item.pairing.limitations, record.verdict, item.backend.id, item.dtype, case.family.name, str(case.signature)
    )
    message = f"{record.message}\n{remark}".strip() if remark else record.message
    record = replace(record, verdict=verdict, message=message)
    return replace(outcome, record=record, arguments=None if verdict in NO_FINDING else outcome.arguments)
