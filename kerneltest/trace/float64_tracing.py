"""Tracing of kernels in float64, so that JAX does not round their constants to narrower floats."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import jax

from kerneltest.core.dtypes import parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.trace.batched_interpreter.batched_values import is_promotable
from kerneltest.trace.jax_compat.wide_float_names import widen_float_names
from kerneltest.trace.tracing import Traced, trace
from kerneltest.trace.walk import iter_equations, primitive_name, rounds_explicitly

# Part of the key of `jax.jit`'s traces, so that a trace with wide names is not taken for one without.
_traced_in_float64 = jax.make_user_context(default_value=None)

# Equations that come and go with dtypes.
_DTYPES_ONLY = frozenset({"convert_element_type", "jit", "pjit", "closed_call"})


def trace_in_float64(pairing: Pairing, signature: Signature, own: Traced, platform: str = "") -> Traced | None:
    """Traces a kernel with float64 in place of its floats of 16 bits or more, arguments and constants included.

    Args:
      pairing: the kernel's.
      signature: of its arguments.
      own: its trace for that signature.
      platform: as `trace` takes it.

    Returns:
      The trace; None if the kernel cannot be traced so, or consists of other operations in float64.
    """
    dtypes = tuple((path, _widened(dtype)) for path, dtype in signature.dtypes)
    with suppress(Failure), widen_float_names(), jax.enable_x64(True), _traced_in_float64(True):
        traced = trace(pairing, replace(signature, dtypes=dtypes), platform)
        if [*_operations(traced)] == [*_operations(own)] and not rounds_explicitly(own.jaxpr.jaxpr):
            return traced
    return None


def _widened(name: str) -> str:
    return "float64" if is_promotable(parse_dtype(name)) else name


def _operations(traced: Traced) -> Iterator[str]:
    names = (primitive_name(equation) for equation, _ in iter_equations(traced.jaxpr.jaxpr))
    return (name for name in names if name not in _DTYPES_ONLY)
