"""A function called on arrays, outside of `jax.jit`, with other parameters for some of its primitives."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax._src import core

# From a primitive's name and parameters to those it is evaluated with.
Parameters = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def call(function: Callable[..., Any], arguments: Sequence[Any], parameters: Parameters) -> Any:
    """`function(*arguments)`, operation by operation, each with the parameters that `parameters` gives it."""
    with core.set_current_trace(_Replacing(parameters)):
        return function(*arguments)


class _Replacing(core.EvalTrace):
    """Evaluates as JAX does, with other parameters."""

    def __init__(self, parameters: Parameters) -> None:
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
