"""Limits of GPU code: the size of a launch, and counts of 32 bits."""

import math
import re
from collections.abc import Sequence
from typing import Any

from kerneltest.backends.lowering_errors import Excess, Rule
from kerneltest.core.details import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import X_BY_JAX, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import iter_equations, nested_jaxprs, primitive_name

Equation = Any  # jax.core.JaxprEqn, which JAX keeps private

_INT32 = 2**31 - 1


def too_many_programs(grid: Sequence[int]) -> Rule:
    """Returns the rule for JAX's error about a grid that is too large.

    JAX's Triton lowering (0.10.2, 0.11.2 and 0.12) maps the last two axes of a grid to y and z if they are no longer
    than 65,535, and all other axes to x.
    """
    programs = math.prod(grid)
    words = (
        f"the {programs:,} programs of the grid {tuple(grid)} do not fit into one launch, whose x has at most "
        f"{X_BY_JAX:,}, and whose y and z 65,535: JAX maps the last two axes to y and z if they are no longer than "
        "that, and all others to x. Let each program do more, or make the last axes shorter and the first one longer"
    )
    excess = Excess(words, "programs of a launch", programs)
    return re.compile("Cannot fix pallas kernel launch grid"), Verdict.RESOURCE_EXCEEDED, lambda: excess


def check_counts(call: Call) -> None:
    """Checks for loops whose number of iterations silently overflows the 32 bits of the lowered code.

    Raises:
      Failure: with the call, the number and the line.
    """
    inner = (jaxpr for value in call.equation.params.values() for jaxpr in nested_jaxprs(value))
    for equation, _ in (each for jaxpr in inner for each in iter_equations(jaxpr)):
        count = equation.params["length"] if primitive_name(equation) == "scan" else 0
        if count > _INT32:
            words = (
                f"a loop of {count:,} iterations overflows its 32-bit counter: nest a loop of fewer iterations in "
                "another one"
            )
            source = line_of(equation.source_info)
            raise Failure(Verdict.COMPILE_ERROR, NotBuilt(Stage.LOWER, call.name, "", words, source=source))


def check_launch(name: str, grid: Sequence[int], warps: int, target: Target) -> None:
    """Checks whether a lowered kernel can be launched.

    Args:
      name: of the kernel.
      grid: the numbers of programs along x, y and z.
      warps: per program, whose threads lie along x.
      target: to launch it on.

    Raises:
      Failure: with the axis, its programs and the target's limit.
    """
    for axis, programs, most in zip("xyz", grid, target.grid, strict=True):
        if programs > most:
            words = (
                f"{programs:,} programs along {axis} of the launch, but {target} allows {most:,}: let each program do "
                f"more{_OTHER_AXIS[axis]}"
            )
            raise _too_large(name, f"programs along {axis}", programs, most, words)
    threads = warps * target.warp
    items = grid[0] * threads
    if target.work_items and items > target.work_items:
        words = (
            f"{grid[0]:,} programs along x of the launch, of {threads} threads each, are {items:,} work items, but "
            f"{target} allows {target.work_items:,}, or {target.work_items // threads:,} programs: let each program do "
            "more, or use fewer warps (num_warps)"
        )
        raise _too_large(name, "work items", items, target.work_items, words)


_OTHER_AXIS = {"x": "", **dict.fromkeys("yz", ", or make the longest axis the last one of the grid, which is x")}


def mosaic_launch(equation: Equation) -> tuple[int, int, int]:
    """Returns the programs along x, y and z of a Mosaic GPU call: its last axis is x, the one before y, the rest z."""
    params = equation.params
    meshes = params.get("meshes") or (params.get("mesh"),)
    mesh = next((each for each in meshes if each is not None), None)
    if mesh is not None:
        grid, cluster = tuple(mesh.grid), tuple(mesh.cluster)
    else:
        semantics = getattr(params.get("compiler_params"), "dimension_semantics", None)
        axes = params["grid_mapping"].grid
        kinds = semantics or [""] * len(axes)
        grid = tuple(n for n, kind in zip(axes, kinds, strict=True) if "sequential" not in str(kind).lower())
        cluster = ()
    whole = [math.prod(axes) for axes in zip(_last_three(grid), _last_three(cluster), strict=True)]
    return whole[2], whole[1], whole[0]


def _last_three(grid: Sequence[int]) -> list[int]:
    padded = [1, 1, 1, *grid]
    return [math.prod(padded[:-2]), *padded[-2:]]


def _too_large(kernel: str, resource: str, needed: int, available: int, words: str) -> Failure:
    detail = ResourceExceeded(Stage.LOWER, kernel, resource, needed, available, "", words)
    return Failure(Verdict.RESOURCE_EXCEEDED, detail)
