"""What evaluates a jaxpr: its operations looked up once, then done one after another."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.values import Step, UnknownError, Value
from kerneltest.trace.jax_compat.jaxpr_types import ClosedJaxpr


class Machine:
    """What evaluates jaxprs: it knows which program runs.

    Args:
      step: from this and an equation to what evaluates that.

    Attributes:
      program: its number along each axis of the grid, (1,) each.
      grid: how many programs there are along each axis.
    """

    def __init__(self, step: "Callable[[Machine, Any], Step]") -> None:
        self.step = step
        self.program: Sequence[Array] = ()
        self.grid: Sequence[int] = ()
        self._blocks: dict[int, tuple[Any, Block]] = {}

    def block(self, jaxpr: Any, *, given: bool = False) -> "Block":
        """A jaxpr, open or closed, ready to be evaluated; `given` is whether it gets its constants as arguments.

        Raises:
          UnknownError: it holds an operation that is not known here.
        """
        if id(jaxpr) not in self._blocks:
            self._blocks[id(jaxpr)] = jaxpr, Block(self, jaxpr, given)
        return self._blocks[id(jaxpr)][1]


class Block:
    """A jaxpr, its operations looked up once.

    Args:
      machine: that it runs on.
      jaxpr: open or closed.
      given: whether it gets its constants as its first arguments.
    """

    def __init__(self, machine: Machine, jaxpr: Any, given: bool) -> None:
        consts = [] if given or not isinstance(jaxpr, ClosedJaxpr) else list(jaxpr.consts)
        jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
        if not given and len(consts) != len(jaxpr.constvars):
            raise UnknownError("constants that are not at hand")
        self._numbers: dict[Any, int] = {}
        self._start: list[Value] = []
        for variable, const in zip(jaxpr.constvars, consts, strict=False):
            self._number(variable, np.asarray(const)[None])
        self._inputs = [self._number(v) for v in (*(jaxpr.constvars if given else ()), *jaxpr.invars)]
        self._steps: list[tuple[Step, list[int], list[int]]] = []
        for equation in jaxpr.eqns:
            inputs = [self._number(variable) for variable in equation.invars]
            self._steps.append((machine.step(machine, equation), inputs, [self._number(v) for v in equation.outvars]))
        self._outputs = [self._number(variable) for variable in jaxpr.outvars]

    def _number(self, variable: Any, value: Value = None) -> int:
        if hasattr(variable, "val"):
            self._start.append(np.asarray(variable.val, variable.aval.dtype)[None])
            return len(self._start) - 1
        if variable not in self._numbers:
            self._numbers[variable] = len(self._start)
            self._start.append(value)
        return self._numbers[variable]

    def __call__(self, arguments: Sequence[Value]) -> list[Value]:
        values = self._start.copy()
        for number, argument in zip(self._inputs, arguments, strict=True):
            values[number] = argument
        for step, inputs, outputs in self._steps:
            results = step([values[i] for i in inputs])
            if len(outputs) == 1:  # as most have
                values[outputs[0]] = results[0]
            elif outputs:
                for number, result in zip(outputs, results, strict=True):
                    values[number] = result
        return [values[i] for i in self._outputs]
