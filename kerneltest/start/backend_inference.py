"""Infers whether a kernel that names no language is for GPUs or for TPUs only: by where it lowers."""

from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.core.runtime import show_warnings_once
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import signatures
from kerneltest.start.progress import Progress
from kerneltest.trace.tracing import trace, without_debugging

_TARGETS = {"gpu": "lower:sm_90", "tpu": "lower:tpu-v5e"}
_MOST = 6  # signatures


def infer_backends(pairing: Pairing, progress: Progress) -> tuple[str, ...]:
    """Returns `interpret` with `gpu` or `tpu` if a kernel lowers at all lengths for only one of these; else ().

    Raises:
      TimeLimitError: the time was over.
    """
    fails = dict.fromkeys(_TARGETS, False)
    for signature in signatures(pairing, "quick")[:_MOST]:
        for name, backend in _TARGETS.items():
            progress.show(f"lowering the kernel for {name} at {signature}")
            with progress.interrupt(), without_debugging(), show_warnings_once():
                try:
                    traced = trace(pairing, signature)
                    if traced.dialects != {"any"}:
                        return ()
                    resolve([backend])[0].prepare(traced)
                except Failure:
                    fails[name] = True
    kept = [name for name, failed in fails.items() if not failed]
    return ("interpret", kept[0]) if len(kept) == 1 else ()
