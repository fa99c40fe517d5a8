"""The work in one call of a kernel, and the lengths of its blocks, from its jaxpr; plans choose cases by both."""

import math
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

from kerneltest.core.targets import TARGETS
from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes, inner_jaxprs
from kerneltest.trace.jax_compat.source_lines import line_of_function, line_of_nested
from kerneltest.trace.primitives import primitive_of
from kerneltest.trace.rewrite import is_plain_call, padded_shape
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.triton_kernels import is_triton_call, triton_ir
from kerneltest.trace.walk import equations_in, is_literal, primitive_name

_SHORT_BLOCK = 16  # elements per iteration of a loop whose number of iterations is unknown

# Seconds on one core, measured on the suites' kernels. JAX's interpreter copies all arrays for each program; the
# simulator runs each step in Python, for all programs at once.
_COPIED, _COMPUTED, _STEP = 2e-9, 4e-9, 15e-6
_OPERATION, _EVALUATED = 6e-6, 5e-9  # a step of one program in NumPy, and an element

_MASKED_COST = 50  # XLA's CPU backend handles masked elements one by one: each costs as much as so many others


@dataclass(frozen=True, slots=True)
class KernelWork:
    """The work of a kernel's Pallas calls in one run."""

    copied: float = 0.0  # the elements of a call's arrays times the number of its programs
    steps: float = 0.0  # the operations of one program, in sequence
    computed: float = 0.0  # the elements that all programs compute; masked ones count more
    operations: float = 0.0  # the operations of all programs
    elements: float = 0.0  # their elements

    @property
    def seconds(self) -> float:
        """Estimated run time of the slower one of Pallas' interpreter and the simulator."""
        return _COMPUTED * self.computed + max(_COPIED * self.copied, _STEP * self.steps)

    def numpy_seconds(self, rows: int) -> float:
        """Estimated time in which NumPy evaluates so many inputs at once."""
        return _OPERATION * self.operations + _EVALUATED * rows * self.elements

    def __add__(self, other: "KernelWork") -> "KernelWork":
        return KernelWork(*map(operator.add, astuple(self), astuple(other)))


def estimate_work(traced: Traced) -> KernelWork:
    """The work in one call of a traced kernel. Pallas calls whose grid is computed count as nothing."""
    known = (call.equation for call in traced.calls if is_plain_call(call.equation))
    return sum(map(estimate_call_work, known), KernelWork())


def estimate_call_work(equation: Equation) -> KernelWork:
    """The work in one Pallas call whose grid is known."""
    if is_triton_call(equation):
        return _estimate_triton(equation)
    mapping = equation.params["grid_mapping"]
    programs = math.prod(mapping.grid)
    arrays = [padded_shape(block) for block in mapping.block_mappings]
    unknown = max((max(shape, default=1) for shape in arrays), default=1) / _SHORT_BLOCK
    steps, computed, elements = _count_body(equation.params["jaxpr"].eqns, unknown)
    copied = programs * sum(map(math.prod, arrays))
    return KernelWork(copied, steps, programs * computed, programs * steps, programs * elements)


# Counts the tensors in the Triton IR, whose indentation shows the loops.
def _estimate_triton(equation: Equation) -> KernelWork:
    shapes = [v.aval.shape for v in (*equation.invars, *equation.outvars)]
    unknown = max((max(shape, default=1) for shape in shapes), default=1) / _SHORT_BLOCK
    programs, steps, computed, loops = math.prod(equation.params["grid"]), 0.0, 0.0, list[int]()
    for line in triton_ir(equation, TARGETS["sm_90"]).splitlines():
        indent = len(line) - len(line.lstrip())
        loops = [outer for outer in loops if outer < indent]
        times = unknown ** len(loops)
        tensors = re.findall(r"tensor<((?:\d+x)+)", line)
        steps += times
        computed += times * math.prod(int(n) for n in tensors[-1].split("x")[:-1]) if tensors else 0
        if "scf.for" in line or "scf.while" in line:
            loops.append(indent)
    return KernelWork(programs * sum(map(math.prod, shapes)), steps, programs * computed)


def _count_body(equations: Sequence[Equation], unknown: float) -> tuple[float, float, float]:
    """Operations, elements (masked ones count more) and all elements; a loop of unknown length has `unknown` turns."""
    steps = computed = elements = 0.0
    for equation in equations:
        iterations = {"scan": equation.params.get("length", 1), "while": unknown}.get(primitive_name(equation), 1)
        inner = list(inner_jaxprs(equation))
        for jaxpr in inner:
            more = (iterations * each for each in _count_body(jaxpr.eqns, unknown))
            steps, computed, elements = map(operator.add, (steps, computed, elements), more)
        if not inner:
            shapes = (getattr(v.aval, "shape", ()) for v in equation.outvars)
            times = _MASKED_COST if "mask" in primitive_of(equation).parts else 1
            made = sum(map(math.prod, shapes))
            steps, computed, elements = steps + 1, computed + times * made, elements + made
    return steps, computed, elements


# Source lines at which a kernel reads and writes, for tools that report an access without its line.


def device_name(name: str) -> str:
    """A kernel's name as the device's tools show it."""
    return re.sub(r"[^\w.-]", "_", name)


def definition_line(call: Call) -> str:
    """`FILE:LINE` at which a kernel is defined, or ""."""
    return next(filter(None, map(line_of_function, inner_jaxprs(call.equation))), "")


def access_lines(call: Call, access: str) -> tuple[str, ...]:
    """`FILE:LINE` of each `read` or `write` of a kernel, in program order and without duplicates; none for others."""
    lines = (
        line_of_nested([*within[1:], equation])
        for equation, within in equations_in(call.equation)
        if getattr(primitive_of(equation), f"{access}s", False)
    )
    return tuple(dict.fromkeys(filter(None, lines)))


# Blocks.


def cut_lengths(traced: Traced, length: int) -> set[int]:
    """Returns the lengths of values in a kernel's calls of which something in them counts as many as fit `length`.

    These are the programs along an axis of the grid, the steps of a loop or pipeline, or an integer that is written
    there; a part of a block at the end may count or not. Of a call in Triton, whose loops are not in the jaxpr, it
    returns the constants if nothing counts.
    """
    counts, sizes, constants = set[int](), set[int](), set[int]()
    for call in traced.calls:
        counts.update(call.grid)
        if is_triton_call(call.equation):
            constants.update(a.value for a in call.equation.params["arguments"] if a.constant and type(a.value) is int)
        for equation in (call.equation, *(inner for inner, _ in equations_in(call.equation))):
            counts.update(step_counts(equation))
            variables = (v for jaxpr in inner_jaxprs(equation) for v in (*jaxpr.invars, *jaxpr.constvars))
            shapes = (getattr(v.aval, "shape", ()) for v in (*variables, *equation.outvars))
            sizes.update(n for shape in shapes for n in shape if isinstance(n, int))
    shorter = {size for size in sizes | constants if 0 < size < length}
    found = {size for size in shorter if counts & {length // size, -(-length // size)} - {1}}
    return found if found or length in counts else shorter & constants


def step_counts(equation: Equation) -> Iterator[int]:
    """Yields the steps of a loop, the programs along each axis of a Mosaic kernel's grid, and integers in operands."""
    for atom in equation.invars:
        if is_literal(atom) and atom.aval.shape == () and atom.aval.dtype.kind in "iu":
            yield int(atom.val)
    if isinstance(trips := equation.params.get("length"), int):
        yield trips
    for mesh in core_meshes(equation):
        yield from getattr(mesh, "grid", ())
