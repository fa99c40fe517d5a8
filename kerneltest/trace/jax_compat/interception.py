"""JAX's evaluation and lowering, intercepted: with other parameters for some primitives, or stopped part-way."""

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
from jax._src import core
from jax._src.interpreters import mlir
from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret
from jax._src.pallas.pallas_call import pallas_call_p

from kerneltest.trace.jax_compat.jaxpr_types import AbstractValue, ClosedJaxpr, Equation, JaxArray, Params

# From a primitive's name and parameters to the parameters that it is evaluated with.
ChooseParameters = Callable[[str, Params], dict[str, Any]]

_NO_OPTIONS = {"compiler_options_kvs": ()}  # which only the outermost jitted function may have


def call(function: Callable[..., Any], arguments: Sequence[JaxArray], parameters: ChooseParameters) -> Any:
    """Calls `function(*arguments)` outside of `jax.jit`, each operation with the parameters that are chosen for it."""
    with core.set_current_trace(_ReplacingTrace(parameters)):
        return function(*arguments)


class _ReplacingTrace(core.EvalTrace):
    """JAX's evaluation, with other parameters."""

    def __init__(self, parameters: ChooseParameters) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parameters = parameters

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        chosen = self._parameters(str(primitive.name), params)
        with core.set_current_trace(core.eval_trace):
            if _interprets(primitive, chosen):
                options = dict(chosen.get("compiler_options_kvs", ()))
                bound = functools.partial(primitive.bind, **{**chosen, **_NO_OPTIONS} if options else chosen)
                lowered = lower_interpreted(jax.jit(bound), args)
                return lowered.compile(compiler_options=options or None)(*args)
            return super().process_primitive(primitive, args, chosen)  # type: ignore[no-untyped-call]

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)


def lower_interpreted(jitted: Any, arguments: Sequence[jax.ShapeDtypeStruct | JaxArray]) -> Any:
    """Lowers a jitted function whose Pallas calls are interpreted, without JAX's interpreters of Mosaic kernels.

    JAX imports both, which takes a third of a second, to see that a call with `interpret=True` needs neither.
    """
    direct = mlir.LoweringParameters(override_lowering_rules=((pallas_call_p, _lower_call),))
    return jitted.trace(*arguments).lower(_private_parameters=direct)


def _lower_call(context: Any, *operands: Any, **params: Any) -> Any:
    """Lowers a Pallas call as JAX does."""
    if params["interpret"] is not True or params["jaxpr"].constvars:
        return _lowering_rule(pallas_call_p)(context, *operands, **params)
    own = {name: value for name, value in params.items() if name != "interpret"}
    interpreter: Any = functools.partial(pallas_call_hlo_interpret, **own)
    lower: Any = mlir.lower_fun(interpreter, multiple_results=True)
    return lower(context, *operands)


def _lowering_rule(primitive: Any) -> Any:
    registered = mlir._lowerings[primitive]
    return getattr(registered, "rule", registered)


def _interprets(primitive: Any, params: Params) -> bool:
    """Returns whether an operation is an interpreted Pallas call, or a jitted function that has one.

    JAX itself evaluates functions that donate operands, since only the outermost jitted function can.
    """
    if primitive is pallas_call_p:
        return params["interpret"] is True
    donated = params.get("donated_invars")
    if donated is None or any(donated):
        return False
    return any(_interprets(each.primitive, each.params) for each in params["jaxpr"].jaxpr.eqns)


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
    rule = _lower_call if equation.primitive is pallas_call_p else _lowering_rule(equation.primitive)
    try:
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
