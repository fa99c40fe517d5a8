"""JAX's evaluation and lowering, intercepted: with other parameters for some primitives, or stopped part-way."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from jax._src import core
from jax._src.interpreters import mlir

from kerneltest.trace.jax_compat.direct_interpretation import interpret_directly
from kerneltest.trace.jax_compat.jaxpr_types import AbstractValue, ClosedJaxpr, Equation, JaxArray, Params
from kerneltest.trace.jax_compat.patches import keep_jax_frames

# From a primitive's name and parameters to the parameters that it is evaluated with.
ChooseParameters = Callable[[str, Params], dict[str, Any]]


def call(function: Callable[..., Any], arguments: Sequence[JaxArray], parameters: ChooseParameters) -> Any:
    """Calls `function(*arguments)` outside of `jax.jit`, each operation with the parameters that are chosen for it."""
    with keep_jax_frames(), interpret_directly(), core.set_current_trace(_ReplacingTrace(parameters)):
        return function(*arguments)


class _ReplacingTrace(core.EvalTrace):
    """JAX's evaluation, with other parameters."""

    def __init__(self, parameters: ChooseParameters) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parameters = parameters

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        chosen = self._parameters(str(primitive.name), params)
        with core.set_current_trace(core.eval_trace):
            return super().process_primitive(primitive, args, chosen)  # type: ignore[no-untyped-call]

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)


class _TracedError(Exception):
    """Raised once JAX has traced an interpreter and goes on to lower it."""


class _LoweringContext:
    """A lowering context that lasts until JAX has traced the interpreter that it is about to lower."""

    def __init__(self, avals: Sequence[AbstractValue]) -> None:
        self.avals_in = avals
        self.module_context = SimpleNamespace(platforms=("cpu",))

    @property
    def platforms(self) -> Any:
        raise _TracedError


def interpretation(equation: Equation) -> ClosedJaxpr:
    """Closed jaxpr, without a Pallas call, of what the interpreter that a Pallas call asks for does to its operands.

    JAX makes it only while it lowers the call, so this runs the call's lowering rule up to that point and no further.

    Raises:
      NotImplementedError: this JAX lowers the call in an unknown way.
    """
    try:
        with interpret_directly():
            registered = mlir._lowerings[equation.primitive]
            rule: Any = getattr(registered, "rule", registered)
            rule(_LoweringContext([v.aval for v in equation.invars]), *equation.invars, **equation.params)
    except _TracedError as stopped:
        frame = stopped.__traceback__
        while frame is not None and "consts_for_constvars" not in frame.tb_frame.f_locals:
            frame = frame.tb_next
        if frame is not None:
            known = frame.tb_frame.f_locals
            jaxpr = known["jaxpr"]
            return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, known["consts_for_constvars"])
    raise NotImplementedError(f"JAX lowers {equation.primitive.name} in an unknown way")
