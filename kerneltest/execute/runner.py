"""The execution of an item: its cases one after another, with declared xfails applied to each outcome."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from kerneltest.backends.base import UnavailableBackend
from kerneltest.core.details import Unavailable
from kerneltest.core.failures import Failure, assign_blame, reraise_interrupt, underlying_hang
from kerneltest.core.ids import ANY
from kerneltest.core.processes import blas_threads, retain_freed_memory, show_warnings_once, throttle_gc
from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import GroupName, Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome, apply_xfails, obsolete_xfails, quarantine_reason
from kerneltest.execute.time_budget import breadth_first
from kerneltest.execute.watchdog import limit_time
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.evidence import Evidence
from kerneltest.records.journal import Activity, Phase
from kerneltest.records.schema import Record
from kerneltest.trace.tracing import without_debugging


@dataclass(frozen=True, slots=True)
class PriorAttempts:
    """The records of earlier processes that ran an item and crashed, and the activity and the failure of each crash."""

    records: Sequence[Record] = ()
    crashes: Sequence[tuple[Activity, Failure]] = ()

    @property
    def unserved_families(self) -> Collection[str]:
        """The families that have a record as a whole, instead of one for each case."""
        return {record.family for record in self.records if not record.case}

    def recorded_verdicts(self, families: Collection[str]) -> dict[str, list[tuple[str, Verdict]]]:
        """Returns the signature and verdict of each case that has a record, by family."""
        verdicts: dict[str, list[tuple[str, Verdict]]] = {}
        for record in self.records:
            if record.case and record.family in families:
                verdicts.setdefault(record.family, []).append((record.signature, record.verdict))
        return verdicts

    def failure_of(self, case: AnyCase) -> Failure | None:
        """Returns the failure to record for a case that crashed a process; None if it did not.

        A crash while tracing or compiling applies to all cases of the signature. If other kernels were being compiled
        at the time, any of them may be the cause, so the case runs again without them.
        """
        for activity, failure in self.crashes:
            shared = activity.phase in (Phase.TRACING, Phase.COMPILING) and activity.signature == str(case.signature)
            if not activity.concurrent_compiles and (activity.case == case.id or shared):
                return failure
        return None

    def can_fill(self, case: AnyCase) -> bool:
        """Returns False if an earlier process crashed while it filled the case's arguments."""
        return all(activity.phase is not Phase.FILLING or activity.case != case.id for activity, _ in self.crashes)


def run_item(item: Item, cache: Cache, only: str = "", prior: PriorAttempts | None = None) -> Iterator[Outcome]:
    """Runs the cases of an item and yields their outcomes, in the plan's order.

    If the backend is unavailable, yields one outcome for each family instead. With a time budget, runs the cases
    breadth first and leaves out those that no longer fit.

    BLAS runs single-threaded meanwhile: oracle matrices are small, and oversubscribed threads wait for each other
    longer than the product takes.

    What kerneltest itself raised outside of a verdict comes last, as outcomes of all families (`ANY`).

    Args:
      item, cache: the item to run, and the cache that it shares with other items.
      only: the id of the only case to run; "" for all cases.
      prior: earlier attempts, whose cases are not run again. With them, nothing is compiled ahead.
    """
    cache.process.compiles_ahead = prior is None
    try:
        cache.process.journal.start(item.name)
        retain_freed_memory()
        with without_debugging(), show_warnings_once(), throttle_gc(), blas_threads():
            yield from _run(item, cache, only, prior or PriorAttempts())
    except BaseException as error:
        reraise_interrupt(error)
        cache.process.internal_failures.append(assign_blame(error, f"running {item.name}"))
    finally:
        cache.process.journal.stop()
    for failure in cache.process.take_internal_failures():
        yield Outcome(item.record(failure.verdict, failure.detail, family=ANY))


def _run(item: Item, cache: Cache, only: str, prior: PriorAttempts) -> Iterator[Outcome]:
    backend = item.backend
    if reason := backend.unavailable():
        known = backend.failure if isinstance(backend, UnavailableBackend) else None
        absence = known or Failure(Verdict.UNAVAILABLE, reason)
        for family in item.families() if not only or absence.verdict.is_finding else ():
            if family not in prior.unserved_families:
                yield Outcome(item.record(absence.verdict, absence.detail, family=family))
        return
    cache.switch_to(item.pairing, item.dtype)
    budget = cache.process.budget
    if budget is not None:
        budget.begin_group(item.group.name)
    recorded = {record.case for record in prior.records}
    planned: list[AnyCase] = []
    for case in breadth_first(item.cases()) if budget is not None else item.cases():
        if only not in ("", case.id) or case.id in recorded:
            continue
        if failure := prior.failure_of(case):
            cache.process.begin_case(item.name, case)
            yield _failure_outcome(item, case, cache, failure, fillable=prior.can_fill(case))
        else:
            planned.append(case)
    ids = {case.id for case in planned}

    def judge(case: AnyCase) -> Outcome:
        if case.id in ids:  # while a drawn case is shrunk, the journal keeps the planned one
            cache.process.begin_case(item.name, case)
        if cache.process.device_lost and item.backend.tier is Tier.DEVICE:
            reason = f"the device no longer responds, {cache.process.device_lost}"
            return Outcome(item.record(Verdict.UNAVAILABLE, reason, case=case))
        if budget is None:
            return run_case(item, case, cache)
        if reason := budget.skip_reason(case):
            cache.executables.cancel_waiting()
            return Outcome(item.record(Verdict.UNAVAILABLE, Unavailable(reason, left_out=True), case=case))
        started = budget.clock()
        outcome = run_case(item, case, cache)
        budget.add_cost(case, budget.clock() - started, compared=bool(outcome.record.compared))
        return outcome

    verdicts_of = prior.recorded_verdicts(item.families())
    for outcome in _judge_group(item, planned, cache, judge):
        record = outcome.record
        verdicts_of.setdefault(record.family, []).append((record.signature, record.verdict))
        yield outcome
    if only:
        return
    served = {name: verdicts for name, verdicts in verdicts_of.items() if name not in prior.unserved_families}
    obsolete = obsolete_xfails(item.pairing.xfail, served, item.backend.id, item.dtype, item.group.name)
    for family, reason in obsolete.items():
        yield Outcome(item.record(Verdict.XPASS, reason, family=family))


# If the group itself raises, that is the outcome of all cases that are left. With a budget, one case runs first, to
# learn whether the group can afford the others. If it cannot, nothing is compiled ahead, since those cases may be left
# out.
def _judge_group(
    item: Item, planned: Sequence[AnyCase], cache: Cache, judge: Callable[[AnyCase], Outcome]
) -> Iterator[Outcome]:
    process, group, ended = cache.process, item.group, 0
    first = len(planned) if process.budget is None else 1
    try:
        for outcome in group.outcomes(item, planned[:first], cache, judge):
            ended += 1
            yield outcome
        if process.budget is not None:
            process.compiles_ahead = process.compiles_ahead and process.budget.can_afford(planned[first:])
            for outcome in group.outcomes(item, planned[first:], cache, judge):
                ended += 1
                yield outcome
    except BaseException as error:
        reraise_interrupt(error)
        failure = underlying_hang(error) or assign_blame(error, f"preparing the cases of {item.name}")
        for case in planned[ended:]:
            yield Outcome(item.record(failure.verdict, failure.detail, case=case))


def run_single_case(item: Item, case: AnyCase, cache: Cache, *, owns_process: bool = True) -> Outcome:
    """Runs and judges a case outside of a run of its item, within the item's time limit; see `limit_time`."""
    with limit_time(cache.process.journal, item.settings.timeout, owns_process=owns_process):
        cache.process.begin_case(item.name, case)
        try:
            return run_case(item, case, cache)
        finally:
            cache.process.journal.stop()


@without_debugging()
@show_warnings_once()
def run_case(item: Item, case: AnyCase, cache: Cache) -> Outcome:
    """Runs and judges one case, planned or not, and applies the declared xfails to its verdict."""
    started = time.perf_counter()
    reporter = ""
    if reason := quarantine_reason(item, case):
        outcome = Outcome(item.record(Verdict.XFAIL, reason, case=case))
    else:
        try:
            cache.process.enter_phase(Phase.RUNNING)
            outcome = item.group.judge(item, case, cache)
        except BaseException as error:  # SystemExit and pytest's own included
            reraise_interrupt(error)
            who = case.family.name if item.group.name == GroupName.INVARIANTS else "the kernel"
            failure = underlying_hang(error) or assign_blame(error, cache.process.journal.phase, who)
            reporter = _lowering_reporter(item, case, cache, failure)
            outcome = _failure_outcome(item, case, cache, failure)
    record = outcome.record
    verdict, remark = apply_xfails(item.pairing.xfail, record.verdict, item.place(case), str(case.signature))
    if reporter and verdict.is_finding:
        return Outcome(item.record(Verdict.UNAVAILABLE, f"does not lower; see {reporter}", case=case))
    if item.backend.tier.gives_values and (known := cache.expectations.cases.get(case.id)):
        record = replace(record, special_inputs=known.special_inputs)
    message = f"{record.message}\n{remark}".strip() if remark else record.message
    record = replace(record, verdict=verdict, message=message, seconds=time.perf_counter() - started)
    return replace(outcome, record=record, arguments=outcome.arguments if verdict.is_finding else None, claimed=())


# The backend that reports in this run that the kernel does not lower; "" if this backend has to.
def _lowering_reporter(item: Item, case: AnyCase, cache: Cache, failure: Failure) -> str:
    lowering = item.backend.lowering_backend()
    is_planned = (item.pairing_id, lowering, item.dtype) in cache.process.planned and case.signature in item.lowered
    if not failure.does_not_lower or not is_planned:
        return ""
    try:  # an invariant may trace another function, which only this backend lowers
        cache.executables.wait(item.backend, cache.traces.of(item.pairing, case.signature, item.backend))
    except Failure as plain:
        return lowering if plain.does_not_lower else ""
    return ""


def _failure_outcome(item: Item, case: AnyCase, cache: Cache, failure: Failure, *, fillable: bool = True) -> Outcome:
    record, arguments = item.record(failure.verdict, failure.detail, case=case), None
    if not failure.verdict.is_finding or not fillable:
        return Outcome(record)
    try:
        arguments = item.group.arguments(item, case, cache)
    except BaseException as error:  # the case itself reports it
        reraise_interrupt(error)
    return Outcome(replace(record, evidence=Evidence(stderr=failure.stderr)), arguments)
