"""Pallas calls as what JAX's interpreters make of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jax._src.interpreters import mlir

from kerneltest.trace.jax_compat.names import ClosedJaxpr


class _TracedError(Exception):
    """JAX has traced an interpreter and goes on to lower it."""


class _Lowering:
    """What JAX takes for the place that it lowers an equation in, until it has traced what it is to lower."""

    def __init__(self, avals: Sequence[Any]) -> None:
        self.avals_in = avals
        self.module_context = SimpleNamespace(platforms=("cpu",))

    @property
    def platforms(self) -> Any:
        raise _TracedError


def interpretation(equation: Any) -> Any:
    """A closed jaxpr without a Pallas call: what the interpreter that a Pallas call asks for does with its operands.

    JAX knows it only while it lowers the call, so the call's own rule is run that far, and no further.
    """
    registered = mlir._lowerings[equation.primitive]
    rule: Any = getattr(registered, "rule", registered)
    try:
        rule(_Lowering([v.aval for v in equation.invars]), *equation.invars, **equation.params)
    except _TracedError as stopped:
        frame = stopped.__traceback__
        while frame is not None and "consts_for_constvars" not in frame.tb_frame.f_locals:
            frame = frame.tb_next
        if frame is not None:
            known = frame.tb_frame.f_locals
            jaxpr = known["jaxpr"]
            return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, known["consts_for_constvars"])
    raise NotImplementedError(f"JAX lowers {equation.primitive.name} in a way that is not known")
