"""What does not fit: grids into a launch, counts and numbers into 32 bits. Nothing here is allocated."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import triton

from kerneltest.backends.codegen.tiers import lower
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.tracing import Traced, trace_function

B = 16
MANY = 2**31
Kernel = Callable[[jax.Array], Any]


def traced(kernel: Kernel, n: int = 64, dtype: str = "int32") -> Traced:
    return trace_function(lambda x: [kernel(x)], (ShapeDtype((n,), np.dtype(dtype)),), "here")


def copy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def called(body: Callable[..., None] = copy, grid: tuple[int, ...] = (4,), warps: int | None = None) -> Kernel:
    spec = pl.BlockSpec((B,), lambda *programs: (programs[0],))
    parameters = triton.CompilerParams(num_warps=warps)
    return lambda x: pl.pallas_call(
        body, grid=grid, in_specs=[spec], out_specs=spec, out_shape=x, compiler_params=parameters
    )(x)


def on_mosaic(grid: tuple[int, ...], **more: Any) -> Kernel:
    out = "out_type" if "out_type" in inspect.signature(plgpu.kernel).parameters else "out_shape"

    def kernel(x: jax.Array) -> Any:
        shape = {out: jax.ShapeDtypeStruct(x.shape, x.dtype)}
        return plgpu.kernel(lambda *_: None, grid=grid, grid_names=tuple("abcde"[: len(grid)]), **shape, **more)(x)

    return kernel


@pytest.mark.parametrize(
    ("grid", "launched"),
    [
        ((70_000,), (70_000, 1, 1)),
        ((4, 65_535), (4, 65_535, 1)),
        ((4, 70_000), (280_000, 1, 1)),
        ((2, 70_000, 4), (140_000, 4, 1)),
        ((2, 4, 70_000), (560_000, 1, 1)),
        ((2, 3, 70_000, 4), (420_000, 4, 1)),
        ((2**24 - 1,), (2**24 - 1, 1, 1)),
    ],
)
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_grid_that_jax_folds_into_a_launch_lowers(
    grid: tuple[int, ...], launched: tuple[int, int, int], target: str
) -> None:
    (kernel,) = lower(traced(called(grid=grid)), TARGETS[target])
    assert (*kernel.grid, 1, 1)[:3] == launched


def _refused(kernel: Kernel, target: str, verdict: Verdict, said: str) -> None:
    with pytest.raises(Failure, match=re.escape(said)) as caught:
        lower(traced(kernel), TARGETS[target])
    assert (caught.value.verdict, caught.value.does_not_lower) == (verdict, True)


def _wide(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + jnp.sum(jnp.arange(MANY))


def _long(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jax.lax.fori_loop(0, MANY, lambda i, v: v + 1, x_ref[...])


FULL = Verdict.RESOURCE_EXCEEDED


@pytest.mark.parametrize(
    ("kernel", "target", "verdict", "said"),
    [
        (called(grid=(MANY - 1,)), "sm_90", FULL,
         "kernel copy: the 2,147,483,647 programs of the grid (2147483647,) do not fit into one launch, whose x has at "
         "most 2,147,483,646, and whose y and z 65,535: "),
        (called(grid=(70_000, 70_000)), "sm_90", FULL, "the 4,900,000,000 programs of the grid (70000, 70000) do not"),
        (called(grid=(70_000, 70_000)), "gfx942", FULL, "the 4,900,000,000 programs of the grid (70000, 70000) do not"),
        (called(grid=(2**24,)), "gfx942", FULL,
         "kernel copy: 16,777,216 programs along x of the launch, of 256 threads each, are 4,294,967,296 work items, "
         "but gfx942 allows 4,294,967,295, or 16,777,215 programs: let each program do more, or use fewer warps"),
        (called(grid=(2**24,), warps=8), "gfx1100", FULL, "of 256 threads each, are 4,294,967,296 work items"),
        (called(_long), "sm_90", Verdict.COMPILE_ERROR,
         "kernel _long: a loop of 2,147,483,648 iterations overflows its 32-bit counter"),
        (called(_wide), "sm_90", FULL, "a block of 2147483648 elements is more than the 1,048,576"),
        (on_mosaic((70_000, 4)), "sm_90", FULL,
         "70,000 programs along y of the launch, but sm_90 allows 65,535: let each program do more, or make the "
         "longest axis the last one of the grid, which is x"),
        (on_mosaic((70_000, 4, 4)), "sm_90", FULL, "70,000 programs along z of the launch"),
        (on_mosaic((300, 300, 4, 4)), "sm_90", FULL, "90,000 programs along z of the launch"),
        (on_mosaic((40_000, 4), cluster=(2,), cluster_names=("k",)), "sm_90", None, ""),
        (on_mosaic((40_000, 4), cluster=(2, 1), cluster_names=("k", "l")), "sm_90", FULL, "80,000 programs along y"),
        (on_mosaic((4, 70_000)), "sm_90", None, ""),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(kernel: Kernel, target: str, verdict: Verdict | None, said: str) -> None:
    if verdict is None:
        assert lower(traced(kernel), TARGETS[target])
    else:
        _refused(kernel, target, verdict, said)


@pytest.mark.parametrize(("warps", "target"), [(2, "gfx942"), (4, "gfx1100"), (4, "sm_90")])
def test_fewer_threads_leave_room_for_more_programs(warps: int, target: str) -> None:
    assert lower(traced(called(grid=(2**24,), warps=warps)), TARGETS[target])


def _offset(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + pl.program_id(0) * MANY


def _compared(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = jnp.where(x_ref[...] < MANY + 5, x_ref[...], 0)


def _constant(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + jnp.int32(MANY)


def _array(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + jnp.asarray(MANY)


def _far(x: jax.Array) -> Any:
    spec = pl.BlockSpec((B,), lambda i: (i * MANY,))
    return pl.pallas_call(copy, grid=(4,), in_specs=[spec], out_specs=spec, out_shape=x)(x)


@pytest.mark.parametrize(
    ("kernel", "number"),
    [
        (called(_offset), "2,147,483,648"),
        (called(_compared), "2,147,483,653"),
        (called(_constant), "2,147,483,648"),
        (called(_array), "2,147,483,648"),
        (_far, "2,147,483,648"),
    ],
)
def test_a_number_that_does_not_fit_is_named_where_it_stands(kernel: Kernel, number: str) -> None:
    said = rf"OverflowError while traced here: {number} does not fit into 32 bits.*jnp.int64.*\(\S*test_sizes.py:\d+\)"
    with pytest.raises(Failure, match=said) as caught:
        traced(kernel)
    assert caught.value.verdict is Verdict.RUNTIME_ERROR
