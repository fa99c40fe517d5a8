"""How much there is to do for one call of a kernel, read off its jaxpr: what plans go by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kerneltest.trace.rewrite import filled_up, is_plain_call
from kerneltest.trace.tracing import Traced
from kerneltest.trace.walk import name_of, nested

_SHORT_BLOCK = 16  # elements a turn of a loop whose turns are not known

# Seconds on one core, measured on the suites' kernels: JAX's interpreter copies all arrays for each program, and the
# simulator takes its steps in Python, for all programs at once.
_COPIED, _COMPUTED, _STEP = 2e-9, 4e-9, 15e-6

# XLA's CPU takes masked elements one by one: each costs as much as so many others.
_MASKED, _ONE_BY_ONE = frozenset({"masked_load", "masked_swap", "load", "store"}), 50


@dataclass(frozen=True, slots=True)
class Work:
    """What the Pallas calls of a kernel do in one run.

    Attributes:
      copied: elements of all arrays of a call, times its programs.
      steps: operations one after another, by the program that has the most.
      computed: elements that all programs compute.
    """

    copied: float = 0.0
    steps: float = 0.0
    computed: float = 0.0

    @property
    def seconds(self) -> float:
        """About what the slower takes of Pallas' interpreter and the simulator."""
        return _COMPUTED * self.computed + max(_COPIED * self.copied, _STEP * self.steps)

    def __add__(self, other: "Work") -> "Work":
        return Work(self.copied + other.copied, self.steps + other.steps, self.computed + other.computed)


def work(traced: Traced) -> Work:
    """Of one call of a traced kernel, on grids that are known; other calls count as nothing."""
    return sum((work_of(call.equation) for call in traced.calls if is_plain_call(call.equation)), Work())


def work_of(equation: Any) -> Work:
    """Of one Pallas call on a grid that is known."""
    mapping = equation.params["grid_mapping"]
    programs = math.prod(mapping.grid)
    arrays = [filled_up(block) for block in mapping.block_mappings]
    unknown = max((max(shape, default=1) for shape in arrays), default=1) / _SHORT_BLOCK
    steps, computed = _of_body(equation.params["jaxpr"].eqns, unknown)
    return Work(programs * sum(map(math.prod, arrays)), steps, programs * computed)


def _of_body(equations: Sequence[Any], unknown: float) -> tuple[float, float]:
    """Operations and elements; a loop with no length that is known turns `unknown` times."""
    steps = computed = 0.0
    for equation in equations:
        turns = {"scan": equation.params.get("length", 1), "while": unknown}.get(name_of(equation), 1)
        inner = [jaxpr for value in equation.params.values() for jaxpr in nested(value)]
        for jaxpr in inner:
            more, elements = _of_body(jaxpr.eqns, unknown)
            steps, computed = steps + turns * more, computed + turns * elements
        if not inner:
            shapes = (getattr(v.aval, "shape", ()) for v in equation.outvars)
            times = _ONE_BY_ONE if name_of(equation) in _MASKED else 1
            steps, computed = steps + 1, computed + times * sum(map(math.prod, shapes))
    return steps, computed
