"""Records one after another: a test that looks for one of many runs no more than it reads."""

from collections.abc import Iterator, Sequence

from kerneltest import Pairing
from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.records.schema import Record


def records(
    pairing: Pairing,
    backends: Sequence[str],
    depth: str = "quick",
    group: str = "",
    first: bool = False,
    seed: int = 0,
) -> Iterator[Record]:
    """The records of `kt.check` as soon as they are there, or those of a group, or of the first case of each item."""
    cache, settings = Cache(), RunSettings(depth=depth, seed=seed)
    try:
        for item in plan_pairing(pairing, pairing_id(pairing), resolve(backends), settings).items:
            if group in ("", item.group.name):
                only = next(iter(item.cases())).id if first else ""
                yield from (outcome.record for outcome in run_item(item, cache, only))
    finally:
        cache.process.pool.close()


def findings(pairing: Pairing, backends: Sequence[str], depth: str = "quick", seed: int = 0) -> Iterator[Record]:
    """The findings of `kt.check`, in its order, as soon as they are found."""
    return (record for record in records(pairing, backends, depth, seed=seed) if record.verdict.is_finding)


def found_twice(pairing: Pairing, seed: int) -> bool:
    """Whether cases of two families or of two signatures find that a kernel is wrong."""
    families, signatures = set(), set()
    for record in findings(pairing, ["interpret"], seed=seed):
        families.add(record.family)
        signatures.add(record.signature)
        if len(families) > 1 or len(signatures) > 1:
            return True
    return False
