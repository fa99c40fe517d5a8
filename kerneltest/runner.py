"""Run and judge the cases of one item, one after another."""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from kerneltest.backends import Artifact, Backend, BackendError, Executable
from kerneltest.drawn import FUZZ, DrawnCase
from kerneltest.dtypes import Array
from kerneltest.evidence import mismatch
from kerneltest.families import NO_VALUES
from kerneltest.item import AnyCase, Item, Outcome, record_of
from kerneltest.judge import compare
from kerneltest.limitations import outlived, quarantined, settle
from kerneltest.memory import Memory
from kerneltest.oracle import OracleError
from kerneltest.record import Evidence, Record
from kerneltest.trace import Traced, TraceError
from kerneltest.verdicts import NO_FINDING


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
    reason = unserved(backend, (memory.traced(pairing, case.signature) for case in planned))
    if reason:
        for family in item.families():
            yield Outcome(record_of(item, family, "unavailable", reason))
        return
    for case in planned:
        traced = memory.traced(pairing, case.signature)
        away = quarantined(pairing.limitations, backend.id, item.dtype, case.family.name, str(case.signature))
        if isinstance(traced, Traced) and not away:
            memory.preparing(backend, case.signature, traced)
    ended: dict[str, list[tuple[str, str]]] = {}
    if item.group == FUZZ:
        from kerneltest.fuzz import judge_all

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
    traced = memory.traced(item.pairing, case.signature)
    if isinstance(traced, TraceError):
        filled = None if item.group == NO_VALUES else case.fill(item.pairing)
        return Outcome(record_of(item, case, "runtime_error", str(traced)), filled)
    preparing = memory.preparing(item.backend, case.signature, traced)
    if item.group == NO_VALUES:
        return _taken(item, case, preparing)
    arguments, expectation, bitwise = memory.expected(item.pairing, case, traced)
    if isinstance(expectation, OracleError):
        return Outcome(record_of(item, case, "oracle_error", str(expectation)), arguments)
    try:
        executable = preparing.result()
        assert not isinstance(executable, Artifact)
        leaves = [arguments[path] for path in item.pairing.leaves]
        outputs = executable.run(leaves)
        if memory.first(item.backend, case.signature):
            _check_repeated(outputs, executable.run(leaves))
    except BackendError as failure:
        return Outcome(_failed(item, case, failure), arguments)
    comparisons = [
        compare(
            actual,
            expectation.values[i],
            expectation.bound(i, actual.dtype, executable.precision),
            signed_zeros=item.pairing.signed_zeros,
        )
        for i, actual in enumerate(outputs)
    ]
    base = record_of(item, case, "pass")
    base = replace(
        base,
        compared=sum(c.compared for c in comparisons),
        used=max((c.used for c in comparisons if c.used is not None), default=None),
        ulps=tuple(map(sum, zip_longest(*(c.ulps for c in comparisons), fillvalue=0))),
        tolerance="bit for bit" if bitwise else str(item.pairing.tolerance),
    )
    for number, comparison in enumerate(comparisons):
        if comparison.verdict != "pass":
            return Outcome(mismatch(item, case.signature, base, number, comparison, arguments), arguments)
    return Outcome(base)


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
