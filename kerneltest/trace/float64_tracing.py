"""Tracing of kernels in float64, so that JAX does not round their constants to narrower floats."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import is_float, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature
from kerneltest.trace.batched_interpreter.batched_values import is_promotable
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr, Jaxpr, Literal, OpenJaxpr
from kerneltest.trace.jax_compat.wide_float_names import widen_float_names
from kerneltest.trace.tracing import Traced, trace
from kerneltest.trace.walk import iter_equations, primitive_name, rounds_explicitly

# Part of the key of `jax.jit`'s traces, so that a trace with wide names is not taken for one without.
_traced_in_float64 = jax.make_user_context(default_value=None)

# Equations that come and go with dtypes.
_DTYPES_ONLY = frozenset({"convert_element_type", "jit", "pjit", "closed_call"})

# A constant of float32 with at most three binary digits, such as 1, 0.75 or 10, is taken for what its author wrote. One
# in two million of those that were rounded has as few, or one in 32 if it was rounded to bfloat16 before.
_FEW_DIGITS = 2**3


def trace_in_float64(pairing: Pairing, signature: Signature, own: Traced, platform: str = "") -> Traced | None:
    """Traces a kernel with float64 in place of its floats of 16 bits or more, arguments and constants included.

    Args:
      pairing: the kernel's.
      signature: of its arguments.
      own: its trace for that signature.
      platform: as `trace` takes it.

    Returns:
      The trace; None if the kernel cannot be traced so, if it consists of other operations in float64, or if none of
      its constants can have been rounded, so that its own trace is as good.
    """
    if rounds_explicitly(own.jaxpr.jaxpr) or not any(map(_may_be_rounded, _constants(own.jaxpr))):
        return None
    dtypes = tuple((path, _widened(dtype)) for path, dtype in signature.dtypes)
    with suppress(Failure), widen_float_names(), jax.enable_x64(True), _traced_in_float64(True):
        traced = trace(pairing, replace(signature, dtypes=dtypes), platform)
        if [*_operations(traced)] == [*_operations(own)]:
            return traced
    return None


def _widened(name: str) -> str:
    return "float64" if is_promotable(parse_dtype(name)) else name


def _operations(traced: Traced) -> Iterator[str]:
    names = (primitive_name(equation) for equation, _ in iter_equations(traced.jaxpr.jaxpr))
    return (name for name in names if name not in _DTYPES_ONLY)


def _constants(jaxpr: ClosedJaxpr | Jaxpr) -> Iterator[Any]:
    """Yields the constants of a jaxpr, at any depth."""
    outer = jax.core.Tracer  # what a nested jaxpr takes from the one around it
    yield from (each for each in getattr(jaxpr, "consts", ()) if not isinstance(each, outer))
    opened = getattr(jaxpr, "jaxpr", jaxpr)
    atoms = [*opened.outvars, *(operand for equation in opened.eqns for operand in equation.invars)]
    yield from (atom.val for atom in atoms if isinstance(atom, Literal))
    for equation in opened.eqns:
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(inner, (ClosedJaxpr, OpenJaxpr)):
                    yield from _constants(inner)


def _may_be_rounded(constant: Any) -> bool:
    """Returns whether float64 may hold another value of a constant."""
    try:
        dtype = np.dtype(getattr(constant, "dtype", type(constant)))
    except TypeError:
        return False  # a random key
    if not is_float(dtype):
        return False
    values = np.asarray(constant).astype(np.float64)
    values = values[np.isfinite(values)]
    return bool(values.any() if dtype.itemsize < 4 else (np.frexp(values)[0] * _FEW_DIGITS % 1).any())
