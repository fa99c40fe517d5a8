"""What of a kernel does not fit: its grid into one launch, its counts into 32 bits."""

import math
import re
from collections.abc import Sequence
from typing import Any

from kerneltest.backends.lowering_errors import Rule
from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.targets import X_BY_JAX, Target
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.names import line_of
from kerneltest.trace.tracing import Call
from kerneltest.trace.walk import equations, name_of, nested

_INT32 = 2**31 - 1


def too_many_programs(grid: Sequence[int]) -> Rule:
    """What it means that JAX refuses to lower a grid.

    JAX's Triton lowering (0.10.2, 0.11.2 and 0.12) puts the first axis of a grid on x and folds into it those before
    the last two, and these as well where they are longer than 65,535.
    """
    words = (
        f"the {math.prod(grid):,} programs of the grid {tuple(grid)} do not fit into one launch, whose x has at most "
        f"{X_BY_JAX:,}, and whose y and z 65,535: JAX makes y and z of the last two axes that are no longer than that, "
        "and folds all others into x. Let each program take more, or cut the last axes shorter and the first one longer"
    )
    return re.compile("Cannot fix pallas kernel launch grid"), Verdict.RESOURCE_EXCEEDED, words


def check_counts(call: Call) -> None:
    """A loop whose number of turns wraps around in the lowered code, which counts in 32 bits without a word.

    Raises:
      Failure: names the call, the number and the line.
    """
    inner = (jaxpr for value in call.equation.params.values() for jaxpr in nested(value))
    for equation, _ in (each for jaxpr in inner for each in equations(jaxpr)):
        turns = equation.params["length"] if name_of(equation) == "scan" else 0
        if turns > _INT32:
            raise _failure(
                Verdict.COMPILE_ERROR,
                call.name,
                f"a loop of {turns:,} turns does not fit into 32 bits, in which its turns are counted: put a loop of "
                f"fewer turns into another one ({line_of(equation.source_info)})",
            )


def check_launch(name: str, grid: Sequence[int], warps: int, target: Target) -> None:
    """Whether a lowered kernel can be launched.

    Args:
      name: of the kernel.
      grid: programs along x, y and z.
      warps: of one program; its threads lie along x.
      target: to launch it on.

    Raises:
      Failure: names the axis, what it has and what fits.
    """
    for axis, programs, most in zip("xyz", grid, target.grid, strict=True):
        if programs > most:
            raise _failure(
                Verdict.RESOURCE_EXCEEDED,
                name,
                f"{programs:,} programs along {axis} of the launch, and {target} takes {most:,}: let each program take "
                f"more{_OTHER_AXIS[axis]}",
            )
    threads = warps * target.warp
    if target.work_items and grid[0] * threads > target.work_items:
        raise _failure(
            Verdict.RESOURCE_EXCEEDED,
            name,
            f"{grid[0]:,} programs along x of the launch, of {threads} threads each, are {grid[0] * threads:,} work "
            f"items, and {target} takes {target.work_items:,}, of {target.work_items // threads:,} programs: let each "
            "program take more, or have fewer warps (num_warps)",
        )


_OTHER_AXIS = {"x": "", **dict.fromkeys("yz", ", or let the longest axis be x, which is the last one of the grid")}


def mosaic_launch(equation: Any) -> tuple[int, int, int]:
    """The programs along x, y and z of a Mosaic GPU call: its last axis is x, the one before y, and all others z."""
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


def _failure(verdict: Verdict, name: str, words: str) -> Failure:
    return Failure(verdict, NotBuilt(Stage.LOWER, name, "", words))
