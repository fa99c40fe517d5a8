"""Evaluation of a jaxpr: the function for each equation is looked up once; a call then runs them in order."""

from collections.abc import Callable, Sequence

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.trace.batched_interpreter.batched_values import EquationFunction, UnknownError, Value, constant
from kerneltest.trace.jax_compat.jaxpr_types import Atom, ClosedJaxpr, Equation, Jaxpr, Var


class BatchedEvaluator:
    """An evaluator of jaxprs, and the Pallas program that it currently runs.

    Args:
      rule: from this evaluator and an equation to the function that evaluates the equation.

    Attributes:
      rule: the same.
      program: the current program's number along each axis of the grid, (1,) each.
      grid: the number of programs along each axis.
    """

    def __init__(self, rule: "Rule") -> None:
        self.rule = rule
        self.program: Sequence[Array] = ()
        self.grid: Sequence[int] = ()
        # By the jaxpr's id, with the jaxpr itself to keep that id in use.
        self._compiled: dict[int, tuple[Jaxpr, CompiledJaxpr]] = {}

    def compile(self, jaxpr: Jaxpr, *, consts_as_arguments: bool = False) -> "CompiledJaxpr":
        """Prepares a jaxpr for evaluation.

        Args:
          jaxpr: open or closed.
          consts_as_arguments: whether it is called with its constants as its first arguments.

        Raises:
          UnknownError: it contains an unsupported operation.
        """
        if id(jaxpr) not in self._compiled:
            self._compiled[id(jaxpr)] = jaxpr, CompiledJaxpr(self, jaxpr, consts_as_arguments)
        return self._compiled[id(jaxpr)][1]


# From an evaluator and an equation to the function that evaluates the equation.
Rule = Callable[[BatchedEvaluator, Equation], EquationFunction]


class CompiledJaxpr:
    """A jaxpr with the functions that evaluate its equations.

    Args:
      evaluator: finds the functions.
      jaxpr: open or closed.
      consts_as_arguments: whether it is called with its constants as its first arguments.
    """

    def __init__(self, evaluator: BatchedEvaluator, jaxpr: Jaxpr, consts_as_arguments: bool) -> None:
        consts = [] if consts_as_arguments or not isinstance(jaxpr, ClosedJaxpr) else list(jaxpr.consts)
        jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
        if not consts_as_arguments and len(consts) != len(jaxpr.constvars):
            raise UnknownError("constants without values")
        self._slots: dict[Var, int] = {}
        self._initial: list[Value] = []  # the content of the slots before a call
        for variable, const in zip(jaxpr.constvars, consts, strict=False):
            self._slot(variable, constant(const, np.asarray(const).dtype))
        self._inputs = [self._slot(v) for v in (*(jaxpr.constvars if consts_as_arguments else ()), *jaxpr.invars)]
        self._steps: list[tuple[EquationFunction, list[int], list[int]]] = []
        for equation in jaxpr.eqns:
            inputs = [self._slot(variable) for variable in equation.invars]
            self._steps.append((evaluator.rule(evaluator, equation), inputs, [self._slot(v) for v in equation.outvars]))
        self._outputs = [self._slot(variable) for variable in jaxpr.outvars]

    def _slot(self, variable: Atom, value: Value = None) -> int:
        if hasattr(variable, "val"):
            self._initial.append(constant(variable.val, variable.aval.dtype))
            return len(self._initial) - 1
        if variable not in self._slots:
            self._slots[variable] = len(self._initial)
            self._initial.append(value)
        return self._slots[variable]

    def __call__(self, arguments: Sequence[Value]) -> list[Value]:
        values = self._initial.copy()
        for slot, argument in zip(self._inputs, arguments, strict=True):
            values[slot] = argument
        for function, inputs, outputs in self._steps:
            results = function([values[i] for i in inputs])
            if len(outputs) == 1:  # the common case, without a loop
                values[outputs[0]] = results[0]
            elif outputs:
                for slot, result in zip(outputs, results, strict=True):
                    values[slot] = result
        return [values[i] for i in self._outputs]
