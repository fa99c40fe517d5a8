"""Rules for kernels on the cores of a mesh (`pl.kernel`, `core_map`), and for Mosaic's copies, barriers and products.

Programs run one after another, copies are made when they start, and waiting takes no time. A kernel whose programs wait
for each other may compute something else, so these rules only serve to compare formulas, which a kernel must follow.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kerneltest.core.dtypes import Array
from kerneltest.numerics.device_operations import multiply_matrices
from kerneltest.trace.batched_interpreter.memory_rules import (
    check_inside,
    memory_parts,
    operand_leaves,
    read_through,
    write_through,
)
from kerneltest.trace.batched_interpreter.pallas_call import MOST_PROGRAMS
from kerneltest.trace.jax_compat.jaxprs import Equation, core_meshes, inner_jaxprs
from kerneltest.trace.machine import (
    BatchedRef,
    EquationFunction,
    Machine,
    Rule,
    UnknownError,
    Value,
    by_row,
    copy_rows,
    is_uniform,
    rows_of,
    scoped_memory,
)
from kerneltest.trace.primitives import PRIMITIVES, Kind


def _on_cores(machine: Machine, equation: Equation) -> EquationFunction:
    meshes, bodies = core_meshes(equation), list(inner_jaxprs(equation))
    if len(meshes) != 1 or len(bodies) != 1 or equation.params.get("external_meshes"):
        raise UnknownError("a kernel on several meshes")
    (mesh,), (body,) = meshes, bodies
    if math.prod(lengths := tuple(mesh.shape.values())) > MOST_PROGRAMS:
        raise UnknownError("too many programs")
    run_program = machine.compile(body, consts_as_arguments=True)
    aliases = {output: operand for operand, output in dict(equation.params.get("input_output_aliases", {})).items()}
    outputs = [scoped_memory(machine.rules, v.aval) for v in equation.outvars]
    scratch = [scoped_memory(machine.rules, v.aval) for v in body.invars[len(equation.invars) + len(outputs) :]]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        rows = rows_of(operands)
        given = [x if isinstance(x, BatchedRef) else BatchedRef(copy_rows(x, rows)) for x in operands]
        made = [given[aliases[i]] if i in aliases else make(rows) for i, make in enumerate(outputs)]
        outer = machine.program, machine.grid, machine.axes
        try:
            machine.grid = lengths
            for numbers in itertools.product(*map(range, lengths)):
                machine.program = [np.array([number], np.int32) for number in numbers]
                machine.axes = {**outer[2], **dict(zip(mesh.shape, machine.program, strict=True))}
                run_program([*given, *made, *(make(rows) for make in scratch)])
        finally:
            machine.program, machine.grid, machine.axes = outer
        return [memory.array for memory in made]

    return evaluate


def _axis_index(machine: Machine, equation: Equation) -> EquationFunction:
    name = equation.params["axis_name"]

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        if name not in machine.axes:
            raise UnknownError(f"the axis {name}")
        return (machine.axes[name],)

    return evaluate


# The operands from `start` on, as the leaves of some trees among the parameters, in that order.
def _unflatten(equation: Equation, start: int, *names: str) -> list[Any]:
    leaves, found = operand_leaves(equation)[start:], []
    for name in names:
        tree = equation.params[name]
        count = 0 if tree is None else tree.num_leaves
        found.append(() if tree is None else tree.unflatten(leaves[:count]))
        leaves = leaves[count:]
    return found


def _copy(machine: Machine, equation: Equation) -> EquationFunction:
    params, to_shared = equation.params, equation.primitive.name == "copy_gmem_to_smem"
    if params.get("collective_axes") or params.get("reduction_op"):
        raise UnknownError("a copy to several blocks, or one that combines")
    start = 2 + (to_shared and bool(params.get("has_barrier", True)))
    trees = _unflatten(equation, start, "src_transforms_treedef", "dst_transforms_treedef")
    source, target = (memory_parts(equation, number, transforms) for number, transforms in enumerate(trees))
    conditional = params.get("has_user_predicate", False)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        if conditional and not is_uniform(operands[-1:]):
            raise UnknownError("rows of which only some are copied")
        if not conditional or operands[-1].all():
            for number, steps in ((0, source), (1, target)):
                check_inside(operands[number].array, steps, operands)
            write_through(operands[1], target, operands, read_through(operands[0].array, source, operands))
        return ()

    return evaluate


def _wgmma(machine: Machine, equation: Equation) -> EquationFunction:
    names = ("acc_transforms_tree", "a_transforms_tree", "b_transforms_tree")
    total, *factors = (memory_parts(equation, i, t) for i, t in enumerate(_unflatten(equation, 3, *names)))
    dtype = machine.rules.dtype_of(equation.invars[0].aval)

    def evaluate(operands: Sequence[Value]) -> Sequence[Value]:
        a, b = (
            read_through(x.array, steps, operands) if isinstance(x, BatchedRef) else x
            for x, steps in zip(operands[1:3], factors, strict=True)
        )
        before = read_through(operands[0].array, total, operands)
        write_through(operands[0], total, operands, before + multiply_matrices(a, b, dtype))
        return ()

    return evaluate


def _roll(machine: Machine, equation: Equation) -> EquationFunction:
    axis = equation.params["axis"]
    if equation.params.get("stride") is not None:
        raise UnknownError("a rotation with a stride")

    def evaluate(operands: Sequence[Array]) -> Sequence[Array]:
        return (np.stack([np.roll(x, int(shift), axis) for x, shift in by_row(operands)]),)

    return evaluate


def _nothing(machine: Machine, equation: Equation) -> EquationFunction:
    if equation.outvars:
        raise UnknownError(equation.primitive.name)
    return lambda operands: ()


def _for_formulas(rule: Rule) -> Rule:
    def checked(machine: Machine, equation: Equation) -> EquationFunction:
        if not machine.rules.promotes:
            raise UnknownError(f"{equation.primitive.name}, whose order only an interpreter knows")
        return rule(machine, equation)

    return checked


def _content(machine: Machine, equation: Equation) -> EquationFunction:
    return lambda operands: (operands[0].array.copy(),)


_UNORDERED: Mapping[str, Callable[[Machine, Equation], EquationFunction]] = {
    **{p.name: _nothing for p in PRIMITIVES.values() if p.kind is Kind.SYNCHRONISATION and p.name != "dma_wait"},
    **dict.fromkeys(("set_max_registers", "set_max_registers_p", "delay"), _nothing),
    **dict.fromkeys(("mpmd_map", "core_map"), _on_cores),
    "axis_index": _axis_index,
    **dict.fromkeys(("copy_gmem_to_smem", "copy_smem_to_gmem"), _copy),
    "wgmma_ref": _wgmma,
    **dict.fromkeys(("wgmma_accumulator_deref", "wgmma_accumulator_deref_p"), _content),
    "layout_cast": lambda machine, equation: lambda operands: operands[:1],
}
MOSAIC_RULES: Mapping[str, Rule] = {**{name: _for_formulas(rule) for name, rule in _UNORDERED.items()}, "roll": _roll}
