"""Digests of pairings as they are planned, by which the shards of one run are recognised on any machine."""

from collections.abc import Iterator, Sequence

from kerneltest.core.array_digest import digest_array
from kerneltest.core.dtypes import widen
from kerneltest.core.failures import Failure
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.execute.verdict_digests import digest_texts
from kerneltest.oracle.evaluation import evaluate_oracle
from kerneltest.plan.explicit import AnyCase
from kerneltest.trace.jaxpr_digest import OpaqueError, digest_jaxpr
from kerneltest.trace.tracing import Traced, without_debugging


@without_debugging()
def digest_pairings(items: Sequence[Item]) -> dict[str, str]:
    """Returns a digest of each pairing's kernel and oracle, by pairing.

    It has the kernel's jaxpr for each signature and platform, and the oracle's values on one case of each signature and
    group, without the last bits in which machines differ.

    Args:
      items: all groups of all items of a run.
    """
    by_dtype: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        by_dtype.setdefault((item.pairing_id, item.dtype), []).append(item)
    cache, texts = Cache(), dict[str, list[str]]()
    try:
        for (pairing, _), group in sorted(by_dtype.items()):
            texts.setdefault(pairing, []).extend(_digests(group, cache))
    finally:
        cache.pool.close()
    return {pairing: digest_texts(sorted(each)) for pairing, each in texts.items()}


def _digests(items: Sequence[Item], cache: Cache) -> Iterator[str]:
    """Yields the digests of the kernels and of the oracle's values in the items of a pairing and dtype."""
    seen: set[object] = set()
    for item in items:
        cache.switch_to(item.pairing, item.dtype)
        for case in item.cases():
            kernel, oracle = (case.signature, item.backend.platform), (case.signature, item.group.name)
            try:
                traced = cache.trace_for(item.pairing, case.signature, item.backend)
            except Failure as failure:
                yield f"{kernel} {failure.verdict}"
                continue
            if kernel not in seen:
                seen.add(kernel)
                yield f"{kernel} {_digest_kernel(traced)}"
            if isinstance(item.group, ValueGroup) and oracle not in seen:
                seen.add(oracle)
                yield f"{oracle} {_digest_values(item, case, traced, cache)}"


def _digest_kernel(traced: Traced) -> str:
    try:
        return digest_jaxpr(traced.jaxpr, approximate=True).text
    except OpaqueError as error:
        return str(error)


def _digest_values(item: Item, case: AnyCase, traced: Traced, cache: Cache) -> str:
    try:
        wide = {path: widen(value) for path, value in cache.arguments(item.pairing, case).items()}
        values, _ = evaluate_oracle(item.pairing, case.signature, wide, traced.outputs)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # reported when the case is judged
        return type(error).__name__
    return digest_texts(digest_array(each, approximate=True) for each in values)
