"""Pallas call to a Mosaic module, with no TPU: JAX's own lowering rules, asked for a generation that is not there."""

import functools
from dataclasses import dataclass

import jax

from kerneltest.backends.lowering_errors import explained
from kerneltest.backends.tpu.rules import LOWERING
from kerneltest.core.targets import Tpu
from kerneltest.trace.jax_compat.mlir import custom_calls
from kerneltest.trace.jax_compat.names import line_of
from kerneltest.trace.jax_compat.tpu import CALL, module_bytes, mosaic_module, mosaic_text
from kerneltest.trace.platforms import on_a
from kerneltest.trace.runnable import callable_of
from kerneltest.trace.tracing import Call, Traced


@dataclass(frozen=True, eq=False, slots=True)
class Module:
    """One Pallas call as what XLA's TPU compiler takes.

    Attributes:
      call: where it comes from.
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
        """Its Mosaic modules as MLIR text."""
        return "\n".join(map(mosaic_text, self.mosaic))


def lower(traced: Traced, tpu: Tpu) -> tuple[Module, ...]:
    """Every Pallas call of a kernel, in order, lowered for a generation.

    Raises:
      Failure: names the call, the primitive where one has no rule, the user's line and what to write instead.
    """
    return tuple(lower_call(call, tpu) for call in traced.calls)


@functools.lru_cache(maxsize=512)
def lower_call(call: Call, tpu: Tpu) -> Module:
    """One Pallas call, lowered; see `lower`."""
    run, shapes = callable_of(call, "mosaic_tpu")
    try:
        with on_a(tpu.id):
            lowered = jax.jit(run).trace(*shapes).lower(lowering_platforms=("tpu",))
    except Exception as error:
        raise explained(error, call.name, LOWERING, line_of(call.equation.source_info)) from error
    mosaic = tuple(map(mosaic_module, custom_calls(lowered, frozenset({CALL}))))
    return Module(call, module_bytes(lowered), mosaic)
