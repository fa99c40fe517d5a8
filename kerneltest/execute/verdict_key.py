"""The key of an item: a digest of all that its verdicts follow from. Verdicts are reused only under the same key."""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence

import jax
from threadpoolctl import threadpool_limits

from kerneltest.core.dtypes import digest_array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.processes import throttle_gc
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.execute.verdict_digests import NotReusableError, digest_texts
from kerneltest.execute.xfails import quarantine_reason
from kerneltest.oracle.evaluation import evaluate_oracle
from kerneltest.plan.explicit import AnyCase
from kerneltest.records.result_cache import contents_of_libraries
from kerneltest.trace.jax_environment import jax_environment
from kerneltest.trace.jaxpr_digest import OpaqueError, digest_jaxpr
from kerneltest.trace.tracing import Traced, without_debugging

# Environment variables that compilers and JAX read; what kernels and oracles read shows in their traces and values.
_VARIABLES = ("XLA_", "JAX_", "LIBTPU_", "TPU_", "TRITON_", "PTXAS_", "MLIR_", "LLVM_", "MOSAIC_", "NVIDIA_TF32_")
_SET_BY_JAX = "MOSAIC_GPU_CUDA_ROOT"  # on first use of Mosaic GPU
_PLACES = re.compile("compilation_cache|persistent_cache|dump_ir_to")  # settings of JAX that only name folders


def verdict_key(parts: Sequence[Item], cache: Cache) -> str:
    """Returns the key of a pytest item.

    The kernel is traced for each signature, and the oracle is evaluated once on each case; nothing is compiled or run.

    Args:
      parts: the groups of the item.
      cache: that the item runs with.

    Raises:
      NotReusableError: not all that the verdicts follow from can be told.
    """
    first = parts[0]
    if reason := first.backend.unavailable():
        raise NotReusableError(reason)
    if not type(first.backend).__module__.startswith("kerneltest."):
        raise NotReusableError(f"the backend {first.backend.id} is not kerneltest's own")
    texts = [*_circumstances(first, cache), *_declaration(first.pairing)]
    cache.switch_to(first.pairing, first.dtype)
    journal = cache.process.journal
    journal.start(first.name)
    try:
        with without_debugging(), throttle_gc(), threadpool_limits(1, "blas"):
            for part in parts:
                for case in part.cases():
                    place = (part.backend.id, part.dtype, part.group.name, case.family.name)
                    if reason := quarantine_reason(
                        part.pairing.xfail, place, str(case.signature)
                    ):  # the case may crash or hang
                        texts += (part.group.name, case.id, reason)
                        continue
                    cache.begin_case(part.name, case)
                    texts += (part.group.name, case.id, part.group.case_digest(part, case, cache))
    finally:
        journal.stop()
    return digest_texts(texts)


def _circumstances(item: Item, cache: Cache) -> Iterator[str]:
    """Yields what all items of a run have in common, and the backend's side."""
    yield contents_of_libraries()
    yield f"{sys.version} {sys.flags.optimize} {sys.platform}"
    yield repr(sorted((name, str(value)) for name, value in item.settings.plan_fields().items()))
    yield repr((item.backend.id, item.dtype, sorted((k, str(v)) for k, v in item.backend.environment().items())))
    yield str((item.pairing_id, item.backend.lowering_backend(), item.dtype) in cache.process.planned)
    yield repr(sorted(jax_environment().items()))
    settings = {name: str(getattr(jax.config, name, value)) for name, value in jax.config.values.items()}
    yield repr(sorted((name, value) for name, value in settings.items() if not _PLACES.search(name)))
    variables = [each for each in os.environ.items() if each[0].startswith(_VARIABLES) and each[0] != _SET_BY_JAX]
    yield repr(sorted(variables))
    raising = [each for each in warnings.filters if each[0] == "error"]
    yield repr([(getattr(text, "pattern", text), str(kind)) for _, text, kind, _, _ in raising])


def _declaration(pairing: Pairing) -> Iterator[str]:
    """Yields what a pairing declares beyond its cases and their bounds."""
    yield f"{pairing.name} {pairing.tolerance} {pairing.signed_zeros} {pairing.all_masked} {pairing.grad}"
    yield repr(
        (pairing.batch_dims, pairing.invariant_to, pairing.backends, sorted(pairing.needs), pairing.reproducible)
    )
    yield repr(pairing.xfail)
    yield repr([(each.name, each.raises.__qualname__, each.match) for each in pairing.rejects])
    yield repr([(path, leaf.role, leaf.dtypes, str(leaf.shape)) for path, leaf in pairing.leaves.items()])


# Digests of pairings as they are planned, by which the shards of one run are recognised on any machine.


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
