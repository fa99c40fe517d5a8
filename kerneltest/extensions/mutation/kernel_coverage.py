"""The states of a kernel's masks, choices, branches, loops and grids that the planned cases exercise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from kerneltest.extensions.mutation.kernel_mutants import locate_equations
from kerneltest.trace.batched_interpreter.batched_evaluator import BatchedEvaluator
from kerneltest.trace.batched_interpreter.batched_kernel import BatchedKernel, kernel_rule
from kerneltest.trace.batched_interpreter.batched_values import EquationFunction
from kerneltest.trace.jax_compat.jaxpr_types import Equation
from kerneltest.trace.jax_compat.source_lines import place_of
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import primitive_name

_Values = Sequence[Any]


@dataclass(frozen=True, slots=True, order=True)
class CoverageSite:
    """A place of the kernel's code that has several states.

    Attributes:
      file, line, column: the place in the code.
      what: the site in words, such as `the mask of the load`.
      states: all of them, such as `on` and `off`.
    """

    file: str
    line: int
    column: int
    what: str
    states: tuple[str, ...]

    @property
    def place(self) -> str:
        """FILE:LINE."""
        return f"{self.file}:{self.line}"


STEPS = "the number of steps of the loop"
_LOOP = ("zero", "one", "more than one")
_AXIS = ("one", "more than one")


@dataclass(slots=True)
class CoverageRecorder:
    """Records the states of sites while kernels are evaluated.

    Attributes:
      seen: the states of each site so far.
    """

    seen: dict[CoverageSite, set[str]] = field(default_factory=dict)

    def kernel(self, traced: Traced) -> BatchedKernel:
        """Returns a kernel whose evaluation is recorded.

        Raises:
          UnknownError: it contains an operation that NumPy cannot evaluate.
        """
        return BatchedKernel(_with_places(traced), rule=self._rule)

    def _rule(self, evaluator: BatchedEvaluator, equation: Equation) -> EquationFunction:
        function = kernel_rule(evaluator, equation)
        place = place_of(equation.source_info)
        watch = _WATCHES.get(primitive_name(equation))
        if place is None or watch is None:
            return function
        note = partial(self._note, place)
        observe = watch(equation, note)
        if observe is None:
            return function

        def evaluate(operands: _Values) -> _Values:
            results = function(operands)
            observe(operands, results)
            return results

        return evaluate

    def _note(self, place: tuple[str, int, int], what: str, states: tuple[str, ...], seen: Sequence[str]) -> None:
        self.seen.setdefault(CoverageSite(*place, what, states), set()).update(seen)


_Note = Callable[[str, tuple[str, ...], Sequence[str]], None]
_Observe = Callable[[_Values, _Values], None]


def _with_places(traced: Traced) -> Traced:
    return replace(traced, jaxpr=locate_equations(traced.jaxpr))


def _of_mask(verb: str, position: int, equation: Equation, note: _Note) -> _Observe | None:
    numbers = equation.params["args_tree"].unflatten(range(len(equation.invars)))
    number = numbers[position]
    return None if number is None else partial(_see_booleans, note, f"the mask of the {verb}", ("on", "off"), number)


def _of_choice(equation: Equation, note: _Note) -> _Observe | None:
    if len(equation.invars) != 3:
        return None
    return partial(_see_booleans, note, "the condition of `where`", ("true", "false"), 0)


def _see_booleans(
    note: _Note, what: str, states: tuple[str, ...], number: int, operands: _Values, results: _Values
) -> None:
    values = np.asarray(operands[number]).astype(bool)
    note(
        what,
        states,
        [state for state, is_seen in zip(states, (values.any(), not values.all()), strict=True) if is_seen],
    )


def _of_branches(equation: Equation, note: _Note) -> _Observe:
    count = len(equation.params["branches"])
    states = ("not taken", "taken") if count == 2 else tuple(f"branch {number}" for number in range(count))

    def observe(operands: _Values, results: _Values) -> None:
        chosen = np.clip(np.asarray(operands[0]).astype(np.int64), 0, count - 1)
        note("the branch", states, [states[number] for number in np.unique(chosen)])

    return observe


def _of_scan(equation: Equation, note: _Note) -> _Observe:
    length = equation.params["length"]
    return lambda operands, results: note(STEPS, _LOOP, [_LOOP[min(length, 2)]])


def _of_while(equation: Equation, note: _Note) -> _Observe | None:
    params = equation.params
    start = params["cond_nconsts"] + params["body_nconsts"]
    counters = [
        number
        for number, variable in enumerate(equation.outvars)
        if getattr(variable.aval, "shape", None) == () and np.issubdtype(variable.aval.dtype, np.integer)
    ]
    if not counters:
        return None
    first = counters[0]  # JAX's own loops count their steps there

    def observe(operands: _Values, results: _Values) -> None:
        steps = np.abs(np.asarray(results[first], np.int64) - np.asarray(operands[start + first], np.int64))
        note(STEPS, _LOOP, [_LOOP[number] for number in np.unique(np.minimum(steps, 2))])

    return observe


def _of_call(equation: Equation, note: _Note) -> _Observe:
    grid: Sequence[object] = equation.params["grid_mapping"].grid

    def observe(operands: _Values, results: _Values) -> None:
        for axis, length in enumerate(grid):
            if isinstance(length, int) and length:
                note(f"the number of programs along axis {axis} of the grid", _AXIS, [_AXIS[min(length, 2) - 1]])

    return observe


_WATCHES: Mapping[str, Callable[[Equation, _Note], _Observe | None]] = {
    "masked_load": partial(_of_mask, "load", 2),
    "masked_swap": partial(_of_mask, "store", 3),
    "select_n": _of_choice,
    "cond": _of_branches,
    "scan": _of_scan,
    "while": _of_while,
    "pallas_call": _of_call,
}
