"""A kernel called as its users call it, on arrays and outside of `jax.jit`, its Pallas calls interpreted or not."""

from collections.abc import Callable, Sequence
from typing import Any

from jax._src import core

from kerneltest.jaxprs.rewrite import ENTRIES, interpreting, within


def call(function: Callable[..., Any], arguments: Sequence[Any], *, interpret: bool) -> Any:
    """`function(*arguments)`, operation by operation."""
    if not interpret:
        return function(*arguments)
    with core.set_current_trace(_Interpreting()):  # type: ignore[no-untyped-call]
        return function(*arguments)


class _Interpreting(core.EvalTrace):
    """Evaluates as JAX does, Pallas calls by its interpreter."""

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        chosen = within(params, interpreting(True))
        if str(primitive.name) in ENTRIES and "interpret" in chosen:
            chosen["interpret"] = True
        with core.set_current_trace(core.eval_trace):
            return super().process_primitive(primitive, args, chosen)  # type: ignore[no-untyped-call]

    def process_custom_jvp_call(self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)

    def process_custom_vjp_call(self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)
