"""The records of cases that another process has judged, as far as they stand for this one."""

import math
from dataclasses import replace

from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.schema import Record


def believed_record(record: Record | None, item: Item, case: AnyCase, cache: Cache) -> Record | None:
    """Returns the record of a case in another process as this one would have made it; None if it does not stand.

    It does not if it took longer than one step may, if it is a pass that lacks the parts of its bound, or if compiled
    code has contradicted the fast path here.

    Args:
      record: that the other process made, if any.
      item, case: of the record.
      cache: of this process.
    """
    if record is None or record.seconds > (item.settings.timeout or math.inf) or _is_contradicted(item, case, cache):
        return None
    if record.verdict is not Verdict.PASS or not record.compared:  # then its parts explain why any value is allowed
        return record
    used = item.backend, record.family, record.bound_fraction or 0.0
    if not cache.is_largest_use(*used):
        return replace(record, error_budget=())
    return record if record.error_budget and cache.exceeds_earlier_use(*used) else None


def _is_contradicted(item: Item, case: AnyCase, cache: Cache) -> bool:
    """Returns whether the fast path is known to be wrong here, or whether this process is to meet a failure itself."""
    path = cache.fast_paths.get(item.backend.id)
    try:
        return path is not None and path.is_contradicted(cache.trace_for(item.pairing, case.signature, item.backend))
    except Failure:
        return True
