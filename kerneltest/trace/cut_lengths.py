"""The lengths of the blocks into which a kernel cuts an axis, from the steps that it makes."""

from collections.abc import Iterator

from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes, inner_jaxprs
from kerneltest.trace.tracing import Traced
from kerneltest.trace.triton_kernels import is_triton_call
from kerneltest.trace.walk import equations_in, is_literal


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
