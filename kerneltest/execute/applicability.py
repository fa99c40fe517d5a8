"""Applicability: which backends serve any signature of a kernel, and whether any signature reaches a Pallas call."""

from kerneltest.backends.base import Backend
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature, signatures
from kerneltest.trace.tracing import Traced, trace

NO_CALL = "no signature reaches a Pallas call, so there is no kernel to test"

_FAILURES = 3  # traces that fail one after another; each case then reports its own


class Applicability:
    """The applicability of a pairing, signature by signature. Kernels are traced only as far as an answer needs it."""

    def __init__(self, pairing: Pairing, depth: str) -> None:
        """Initialises the instance.

        Args:
          pairing: the pairing as its author declared it.
          depth: of the run, which decides the signatures.
        """
        self._pairing, self._depth = pairing, depth
        self._traces: dict[tuple[Signature, str], Traced | None] = {}

    def unsupported_reason(self, backend: Backend) -> str:
        """Returns why a backend serves no signature of the kernel, or ""."""
        declared = self._pairing.on(backend.id)
        reasons: list[str] = []
        failures = 0
        for signature in signatures(declared, self._depth):
            traced = self._trace_on(declared, signature, backend.platform)
            if traced is None:
                failures += 1
                if failures == _FAILURES and not reasons:
                    return ""
                continue
            reason = backend.unsupported_reason(traced) if traced.calls else NO_CALL
            if not reason:
                return ""
            reasons.append(reason)
        return next((reason for reason in reasons if reason != NO_CALL), NO_CALL if reasons else "")

    def problem(self) -> str:
        """Returns a sentence if the kernel reaches no Pallas call for any signature and platform; "" if it may."""
        planned = signatures(self._pairing, self._depth)
        for signature in planned:
            traced = self._trace_on(self._pairing, signature, "")
            if traced is None or traced.calls:
                return ""
        count = f"none of its {len(planned)} signatures reaches" if len(planned) > 1 else "it never reaches"
        return f"{count} a Pallas call, so there is no kernel to test"

    def _trace_on(self, pairing: Pairing, signature: Signature, platform: str) -> Traced | None:
        """Returns the kernel traced for a signature on a platform; None if that fails."""
        general = self._trace(pairing, signature, "")
        by_platform = platform and general is not None and general.by_platform
        return self._trace(pairing, signature, platform) if by_platform else general

    def _trace(self, pairing: Pairing, signature: Signature, platform: str) -> Traced | None:
        key = signature, platform
        if key not in self._traces:
            try:
                self._traces[key] = trace(pairing, signature, platform)
            except Failure:
                self._traces[key] = None
        return self._traces[key]
