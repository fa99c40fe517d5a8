"""Findings one after another: a test that looks for one of many runs no more than it reads."""

from collections.abc import Iterator

from kerneltest import Pairing
from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.records.schema import Record


def findings(pairing: Pairing, backends: list[str], depth: str = "quick") -> Iterator[Record]:
    """What `kt.check` finds, in its order, as soon as it is found."""
    cache = Cache()
    try:
        for item in plan_pairing(pairing, pairing_id(pairing), resolve(backends), RunSettings(depth=depth)).items:
            for outcome in run_item(item, cache):
                if outcome.record.verdict.is_finding:
                    yield outcome.record
    finally:
        cache.process.pool.close()
