"""The key of an item: a digest of all that its verdicts follow from. Verdicts are reused only under the same key."""

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence

import jax
from threadpoolctl import threadpool_limits

from kerneltest.core.runtime import throttle_gc
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item
from kerneltest.execute.verdict_digests import NotReusableError, digest_texts
from kerneltest.execute.xfails import quarantine_reason
from kerneltest.records.package_contents import contents_of_libraries
from kerneltest.trace.jax_environment import jax_environment
from kerneltest.trace.tracing import without_debugging

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
