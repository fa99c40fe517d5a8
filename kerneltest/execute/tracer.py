"""The traces that cases run. A mutation test puts a tracer of mutants in the place of this one."""

from collections.abc import Callable

from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.trace.float64_tracing import trace_in_float64
from kerneltest.trace.tracing import Traced, trace


class Tracer:
    """Traces the kernel of a pairing as it is."""

    def trace(self, pairing: Pairing, signature: Signature, platform: str) -> Traced:
        """Returns the kernel traced for a signature.

        Raises:
          Failure: as `trace` does.
        """
        return trace(pairing, signature, platform)

    def trace_wide(self, pairing: Pairing, signature: Signature, own: Traced, platform: str) -> Traced | None:
        """Returns the kernel traced in float64, or None, as `trace_in_float64` does.

        Args:
          pairing: the kernel's.
          signature: of its arguments.
          own: the kernel traced in its own dtypes.
          platform: as `trace` takes it.
        """
        return trace_in_float64(pairing, signature, own, platform)

    def trace_variation(self, plain: Traced, make: Callable[[], Traced]) -> Traced:
        """Returns the traced function of an invariant.

        Args:
          plain: the kernel that it varies.
          make: traces the function.
        """
        return make()
