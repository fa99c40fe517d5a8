"""Runs the cases of one item, one after another, in the light of declared xfails."""

import functools
import time
from collections.abc import Iterator
from dataclasses import replace

from kerneltest.core.failures import Failure, described
from kerneltest.core.places import where_raised
from kerneltest.core.verdicts import Verdict
from kerneltest.jaxprs.trace import without_debugging
from kerneltest.plan.drawn import AnyCase
from kerneltest.records.schema import Evidence
from kerneltest.run.cache import Cache
from kerneltest.run.item import Item, Outcome
from kerneltest.run.xfails import outlived, quarantined, settle


def run(item: Item, cache: Cache, only: str = "") -> Iterator[Outcome]:
    """Every case of an item, in the plan's order; one record a family where the backend is not there.

    Args:
      item: what to run.
      cache: what it shares with other items.
      only: the id of the one case to run.
    """
    reason = item.backend.unavailable()
    if reason:
        for family in item.families() if not only else ():
            yield Outcome(item.record(Verdict.UNAVAILABLE, reason, family=family))
        return
    planned = [case for case in item.cases() if only in ("", case.id)]
    cache.turn_to(item.pairing, item.dtype)
    ended: dict[str, list[tuple[str, Verdict]]] = {}
    for outcome in item.group.outcomes(item, planned, cache, functools.partial(judged, item, cache=cache)):
        record = outcome.record
        ended.setdefault(record.family, []).append((record.signature, record.verdict))
        yield outcome
    for family, verdicts in ended.items():
        reason = outlived(item.pairing.xfail, verdicts, item.backend.id, item.dtype, family)
        if reason and not only:
            yield Outcome(item.record(Verdict.XPASS, reason, family=family))


@without_debugging()
def judged(item: Item, case: AnyCase, cache: Cache) -> Outcome:
    """Runs one case, planned or drawn, and judges it in the light of declared xfails."""
    started = time.perf_counter()
    place = (item.backend.id, item.dtype, case.family.name, str(case.signature))
    reason = quarantined(item.pairing.xfail, *place)
    if reason:
        outcome = Outcome(item.record(Verdict.XFAIL, reason, case=case))
    else:
        try:
            outcome = item.group.judge(item, case, cache)
        except Failure as failure:
            outcome = _failed(item, case, cache, failure)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # SystemExit and pytest's own included
            raised = f"{case.family.name} raised {described(error)}{where_raised(error)}"
            outcome = _failed(item, case, cache, Failure(Verdict.RUNTIME_ERROR, raised))
    record = outcome.record
    verdict, remark = settle(item.pairing.xfail, record.verdict, *place)
    if remark:
        record = replace(record, verdict=verdict, message=f"{record.message}\n{remark}".strip())
    arguments = outcome.arguments if verdict.is_finding else None
    return replace(outcome, record=replace(record, seconds=time.perf_counter() - started), arguments=arguments)


def _failed(item: Item, case: AnyCase, cache: Cache, failure: Failure) -> Outcome:
    record = item.record(failure.verdict, str(failure), case=case)
    if not failure.verdict.is_finding:
        return Outcome(record)
    record = replace(record, evidence=Evidence(stderr=failure.stderr))
    try:
        return Outcome(record, item.group.arguments(item, case, cache))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:  # it is what the failure says
        return Outcome(record)
