"""Runs the cases of one item, one after another, in the light of declared xfails."""

import functools
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from threadpoolctl import ThreadpoolController

from kerneltest.core.details import Raised, Unavailable
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.runtime import retain_freed_memory, throttle_gc
from kerneltest.core.source_location import location_of_exception
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.time_budget import breadth_first
from kerneltest.execute.values import affordable_long
from kerneltest.execute.xfails import outlived, quarantined, settle
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.signatures import signatures
from kerneltest.records.evidence import Evidence
from kerneltest.records.journal import Activity, Phase
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import without_debugging


@dataclass(frozen=True, slots=True)
class PriorAttempts:
    """What other processes did of an item before they died.

    Attributes:
      records: of the item.
      deaths: what each process was doing, with the failure that is to be recorded for it.
    """

    records: Sequence[Record] = ()
    deaths: Sequence[tuple[Activity, Failure]] = ()

    @property
    def recorded_cases(self) -> Collection[str]:
        """The ids of the cases that have a record."""
        return {record.case for record in self.records if record.case}

    @property
    def unserved_families(self) -> Collection[str]:
        """The families that have a record as a whole."""
        return {record.family for record in self.records if not record.case}

    def ended(self, families: Collection[str]) -> dict[str, list[tuple[str, Verdict]]]:
        """The signature and verdict of each case that has a record, by family."""
        ended: dict[str, list[tuple[str, Verdict]]] = {}
        for record in self.records:
            if record.case and record.family in families:
                ended.setdefault(record.family, []).append((record.signature, record.verdict))
        return ended

    def failure(self, case: AnyCase) -> Failure | None:
        """How a case ended, if a process died of it: of its trace or its compilation, all of the signature do.

        Whatever was compiled beside the case may have been the cause as well, which then is found without that.
        """
        for doing, failure in self.deaths:
            shared = doing.phase in (Phase.TRACING, Phase.COMPILING) and doing.signature == str(case.signature)
            if not doing.concurrent_compiles and (doing.case == case.id or shared):
                return failure
        return None

    def fillable(self, case: AnyCase) -> bool:
        """Whether no process died of filling the case's arguments."""
        return not any(doing.phase is Phase.FILLING and doing.case == case.id for doing, _ in self.deaths)


def run_item(item: Item, cache: Cache, only: str = "", before: PriorAttempts | None = None) -> Iterator[Outcome]:
    """Every case of an item, in the plan's order; one record a family where the backend is not there.

    Oracles multiply matrices in one thread meanwhile: theirs are small, and threads that share a processor with
    another process wait for each other for longer than the product takes.

    With a budget (`Cache.budget`) they go breadth first, and those that no longer fit are left out.

    Args:
      item: what to run.
      cache: what it shares with other items.
      only: the id of the one case to run.
      before: what need not be run again, or must not.
    """
    cache.process.compiles_ahead = before is None
    try:
        cache.process.journal.start(item.name)
        blas = _thread_pools(len(sys.modules))
        retain_freed_memory()
        with without_debugging(), throttle_gc(), blas.limit(limits=1, user_api="blas"):
            yield from _run(item, cache, only, before or PriorAttempts())
    finally:
        cache.process.journal.stop()


@functools.lru_cache(maxsize=1)  # another module may bring another library
def _thread_pools(modules: int) -> ThreadpoolController:
    return ThreadpoolController()


def _run(item: Item, cache: Cache, only: str, before: PriorAttempts) -> Iterator[Outcome]:
    reason = item.backend.unavailable()
    if reason:
        for family in item.families() if not only else ():
            if family in before.unserved_families:
                continue
            yield Outcome(item.record(Verdict.UNAVAILABLE, reason, family=family))
        return
    cache.switch_to(item.pairing, item.dtype)
    budget = cache.process.budget
    if budget is not None:
        budget.turn_to(item.group.name)
    recorded = before.recorded_cases
    planned: list[AnyCase] = []
    for case in breadth_first(item.cases()) if budget is not None else item.cases():
        if only not in ("", case.id) or case.id in recorded:
            continue
        if failure := before.failure(case):
            cache.begin_case(item.name, case)
            yield _failed(item, case, cache, failure, fillable=before.fillable(case))
        else:
            planned.append(case)
    ids = {case.id for case in planned}

    def judge(case: AnyCase) -> Outcome:
        if case.id in ids:  # a drawn case that is made smaller stays what was planned
            cache.begin_case(item.name, case)
        if cache.process.device_lost and item.backend.tier is Tier.DEVICE:
            reason = f"the device no longer responds, {cache.process.device_lost}"
            return Outcome(item.record(Verdict.UNAVAILABLE, reason, case=case))
        if budget is None:
            return run_case(item, case, cache)
        if reason := budget.why_not(case):
            cache.cancel_waiting()
            return Outcome(item.record(Verdict.UNAVAILABLE, Unavailable(reason, left_out=True), case=case))
        started = budget.clock()
        outcome = run_case(item, case, cache)
        budget.ran(case, budget.clock() - started, compared=bool(outcome.record.compared))
        return outcome

    ended = before.ended(item.families())
    for outcome in _outcomes(item, planned, cache, judge):
        record = outcome.record
        ended.setdefault(record.family, []).append((record.signature, record.verdict))
        yield outcome
    for family, verdicts in ended.items():
        reason = outlived(item.pairing.xfail, verdicts, item.backend.id, item.dtype, family)
        if reason and not only and family not in before.unserved_families:
            yield Outcome(item.record(Verdict.XPASS, reason, family=family))


def _outcomes(
    item: Item, planned: Sequence[AnyCase], cache: Cache, judge: Callable[[AnyCase], Outcome]
) -> Iterator[Outcome]:
    """With a budget, nothing is compiled ahead that may be left out: the first case tells what that costs."""
    if cache.process.budget is None:
        yield from item.group.outcomes(item, planned, cache, judge)
        return
    first, rest = planned[:1], planned[1:]
    yield from item.group.outcomes(item, first, cache, judge)
    cache.process.compiles_ahead = cache.process.compiles_ahead and cache.process.budget.affords(rest)
    yield from item.group.outcomes(item, rest, cache, judge)


@without_debugging()
def run_case(item: Item, case: AnyCase, cache: Cache) -> Outcome:
    """Runs one case, planned or drawn, and judges it in the light of declared xfails."""
    started = time.perf_counter()
    place = (item.backend.id, item.dtype, case.family.name, str(case.signature))
    reason = quarantined(item.pairing.xfail, *place)
    told = ""
    if reason:
        outcome = Outcome(item.record(Verdict.XFAIL, reason, case=case))
    else:
        try:
            cache.enter_phase(Phase.RUNNING)
            outcome = item.group.judge(item, case, cache)
        except Failure as ended:
            failure = _hung(ended)
            told = _told_by(item, case, cache, failure)
            outcome = _failed(item, case, cache, failure)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit and pytest's own included
            source = location_of_exception(error).strip(" ()")
            raised = Raised(case.family.name, type(error).__name__, exception_text(error), source=source)
            outcome = _failed(item, case, cache, Failure(Verdict.RUNTIME_ERROR, raised))
    record = outcome.record
    verdict, remark = settle(item.pairing.xfail, record.verdict, *place)
    if told and verdict.is_finding:
        return Outcome(item.record(Verdict.UNAVAILABLE, f"does not lower: {told} says why", case=case))
    record = replace(
        record,
        verdict=verdict,
        message=f"{record.message}\n{remark}".strip() if remark else record.message,
        special_inputs=cache.special_inputs(case) if item.backend.tier.gives_values else record.special_inputs,
        seconds=time.perf_counter() - started,
    )
    return replace(outcome, record=record, arguments=outcome.arguments if verdict.is_finding else None)


def _hung(failure: Failure) -> Failure:
    """The hang that a failure comes of, which code in between took for the kernel's own; else the failure itself."""
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, Failure) and cause.verdict is Verdict.HANG:
            return cause
        cause = cause.__cause__
    return failure


def _told_by(item: Item, case: AnyCase, cache: Cache, failure: Failure) -> str:
    """The backend that tells of a failure in this run, where this one only follows from it; else ""."""
    lowering = item.backend.lowering_backend()
    if not failure.does_not_lower or (item.pairing_id, lowering, item.dtype) not in cache.process.planned:
        return ""
    planned = (*signatures(item.pairing, item.depth), *affordable_long(item.pairing, item.depth))
    if case.signature not in planned:
        return ""
    try:  # an invariant has a kernel of its own, of which nobody else tells
        cache.wait_prepared(item.backend, cache.trace_for(item.pairing, case.signature, item.backend))
    except Failure as plain:
        return lowering if plain.does_not_lower else ""
    return ""


def _failed(item: Item, case: AnyCase, cache: Cache, failure: Failure, *, fillable: bool = True) -> Outcome:
    record = item.record(failure.verdict, failure.detail, case=case)
    if not failure.verdict.is_finding or not fillable:
        return Outcome(record)
    record = replace(record, evidence=Evidence(stderr=failure.stderr))
    try:
        return Outcome(record, item.group.arguments(item, case, cache))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:  # it is what the failure says
        return Outcome(record)
