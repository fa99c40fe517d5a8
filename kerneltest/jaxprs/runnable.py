"""What was traced, as functions of arrays to run, lower or compile."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.experimental.pallas import triton as plgpu
from jax.extend.core import jaxpr_as_fun

from kerneltest.jaxprs.compat import eager
from kerneltest.jaxprs.rewrite import interpreting, rewritten, within
from kerneltest.jaxprs.trace import Call, Traced
from kerneltest.jaxprs.walk import ENTRIES


def runnable(traced: Traced, *, interpret: bool) -> Callable[..., Any]:
    """The kernel as a function of its leaves, every Pallas call in it interpreted or compiled."""
    run: Callable[..., Any] = jaxpr_as_fun(rewritten(traced.jaxpr, interpreting(interpret)))
    return run


def callable_of(call: Call) -> tuple[Callable[..., Any], list[Any]]:
    """One Pallas call as a function, through Triton where it leaves that open, and what it takes."""
    params = dict(call.equation.params, interpret=False)
    if call.dialect == "any":
        params["compiler_params"] = plgpu.CompilerParams()
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in call.equation.invars]
    return lambda *operands: call.equation.primitive.bind(*operands, **params), shapes


def eagerly(function: Callable[..., Any], *, interpret: bool) -> Callable[..., Any]:
    """A function of arrays to be called outside of `jax.jit`, every Pallas call in it interpreted or compiled."""
    return (lambda *arrays: eager.call(function, arrays, _interpreted)) if interpret else function


def _interpreted(primitive: str, params: Mapping[str, Any]) -> dict[str, Any]:
    chosen = within(params, interpreting(True))
    if primitive in ENTRIES and "interpret" in chosen:
        chosen["interpret"] = True
    return chosen
