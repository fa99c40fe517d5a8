"""Lowering of Pallas calls to Mosaic modules without a TPU, by JAX's own lowering rules."""

import functools
from dataclasses import dataclass, replace

import jax

from kerneltest.backends.lowering_errors import lowering_failure
from kerneltest.backends.tpu.tpu_errors import LOWERING
from kerneltest.core.details import NotBuilt
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tpu
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.device_free_compilation import module_bytes
from kerneltest.trace.jax_compat.mlir import custom_calls
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.jax_compat.tpu_compilation import TPU_CUSTOM_CALL, mosaic_module, mosaic_text
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.runnable import call_as_function, outer_references, uses_outer_references
from kerneltest.trace.tracing import Call, Traced


@dataclass(frozen=True, eq=False, slots=True)
class MosaicModule:
    """One Pallas call in the form that XLA's TPU compiler takes.

    Attributes:
      call: as the kernel has it.
      stablehlo: the function around it, as bytecode.
      mosaic: the modules that it calls, as bytecode.
    """

    call: Call
    stablehlo: bytes
    mosaic: tuple[bytes, ...]

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def text(self) -> str:
        """The Mosaic modules as MLIR text."""
        return "\n".join(map(mosaic_text, self.mosaic))


def lower(traced: Traced, tpu: Tpu) -> tuple[MosaicModule, ...]:
    """Lowers every Pallas call of a kernel for a generation.

    Returns:
      The lowered calls, in order.

    Raises:
      Failure: with the call, the primitive that has no rule, the user's line and advice.
    """
    return tuple(lower_call(call, tpu) for call in traced.calls)


_NOT_FOR_TPUS = 'if the kernel is not meant for TPUs, declare backends=("interpret", "gpu")'


@functools.lru_cache(maxsize=512)
def lower_call(call: Call, tpu: Tpu) -> MosaicModule:
    """Lowers one Pallas call; see `lower`."""
    run, shapes = call_as_function(call, "mosaic_tpu")
    try:
        with abstract_platform(tpu.id):
            lowered = jax.jit(run).trace(*shapes).lower(lowering_platforms=("tpu",))
    except Exception as error:
        if uses_outer_references(call):
            raise Failure(Verdict.UNAVAILABLE, outer_references(call)) from error
        failure = lowering_failure(error, call.name, LOWERING, line_of(call.equation.source_info))
        if call.dialect == "any" and isinstance(failure.detail, NotBuilt):
            hint = "; ".join(filter(None, (failure.detail.hint, _NOT_FOR_TPUS)))
            raise Failure(failure.verdict, replace(failure.detail, hint=hint)) from error
        raise failure from error
    mosaic = tuple(map(mosaic_module, custom_calls(lowered, frozenset({TPU_CUSTOM_CALL}))))
    return MosaicModule(call, module_bytes(lowered), mosaic)
