"""What a Pallas call keeps in VMEM."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kerneltest.backends.tpu.errors import VmemWindow, tile_advice, vmem_limit, windows
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.targets import MIB, TPUS
from kerneltest.trace.tracing import Call, trace_function

GRID = pltpu.PrefetchScalarGridSpec(
    num_scalar_prefetch=1,
    grid=(4, 2),
    in_specs=[
        pl.BlockSpec((16, 128), lambda i, j, s: (i, j)),
        pl.BlockSpec((16, 128), lambda i, j, s: (0, 0)),
        pl.BlockSpec(memory_space=pl.ANY),
    ],
    out_specs=pl.BlockSpec((16, 128), lambda i, j, s: (i, j), pipeline_mode=pl.Buffered(1)),
    scratch_shapes=[pltpu.VMEM((3, 100), jnp.bfloat16), pltpu.SMEM((4,), jnp.int32), pltpu.SemaphoreType.DMA],
)


def _kernel(at: Any, x: Any, fixed: Any, whole: Any, o: Any, kept: Any, scalars: Any, arrived: Any) -> None:
    o[...] = x[...] + fixed[...]


def _call(**parameters: Any) -> Call:
    def function(at: jax.Array, x: jax.Array) -> list[jax.Array]:
        more = {"compiler_params": pltpu.CompilerParams(**parameters)} if parameters else {}
        return [pl.pallas_call(_kernel, grid_spec=GRID, out_shape=x, **more)(at, x, x, x)]

    shapes = ShapeDtype((4,), np.dtype(np.int32)), ShapeDtype((64, 256), np.dtype(np.float32))
    (call,) = trace_function(function, shapes, "").calls
    return call


def test_blocks_and_scratch_are_in_vmem_and_what_is_placed_elsewhere_is_not() -> None:
    assert [str(window) for window in windows(_call())] == [
        "x 2 x float32[16, 128] = 16 KiB",
        "fixed float32[16, 128] = 8 KiB",
        "o float32[16, 128] = 8 KiB",
        "kept bfloat16[3, 100] = 2 KiB",
    ]


def test_a_grid_of_one_step_fetches_nothing_ahead() -> None:
    def function(x: jax.Array) -> list[jax.Array]:
        spec = pl.BlockSpec((16, 128), lambda i: (i, 0))
        body = lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...])  # noqa: E731
        return [pl.pallas_call(body, grid=(1,), in_specs=[spec], out_specs=spec, out_shape=x)(x)]

    (call,) = trace_function(function, (ShapeDtype((16, 128), np.dtype(np.float32)),), "").calls
    assert [window.buffers for window in windows(call)] == [1, 1]


@pytest.mark.parametrize(("tpu", "asked", "most"), [
    ("tpu-v4", None, 16 * MIB), ("tpu-v5e", None, 128 * MIB), ("tpu-v5e", MIB, MIB), ("tpu-7x", 128 * MIB, 64 * MIB),
])  # fmt: skip
def test_a_call_may_have_what_there_is_or_what_it_asks_for(tpu: str, asked: int | None, most: int) -> None:
    call = _call(vmem_limit_bytes=asked) if asked else _call()
    assert vmem_limit(call, TPUS[tpu]) == most


@pytest.mark.parametrize(("shape", "dtype", "whole", "words"), [
    ((8, 128), "float32", (64, 256), ""),
    ((8, 64), "float32", (64, 256), "fills 64 of 128 lanes; make its last dimension 128"),
    ((8, 64), "float32", (64, 64), ""),
    ((1, 128), "float32", (64, 256), "fills 1 of the 8 rows of a tile of float32"),
    ((8, 128), "int8", (64, 256), "fills 8 of the 32 rows of a tile of int8; make its last dimension but one 32"),
    ((8, 128), "float16", (64, 256), ""),
    ((1, 128), "float32", (1, 256), ""),
    ((64,), "float32", (256,), "fills 64 of 128 lanes"),
])  # fmt: skip
def test_what_wastes_most_of_a_tile_is_told(
    shape: tuple[int, ...], dtype: str, whole: tuple[int, ...], words: str
) -> None:
    told = tile_advice((VmemWindow("x", shape, np.dtype(dtype), whole, 1),))
    assert len(told) == bool(words)
    assert words in "".join(told)


def test_a_grid_whose_length_is_an_argument_has_no_window_for_it() -> None:
    def function(count: jax.Array, x: jax.Array) -> list[jax.Array]:
        spec = pl.BlockSpec((16, 128), lambda i: (i, 0))
        return [pl.pallas_call(_copy, grid=(count,), in_specs=[spec], out_specs=spec, out_shape=x)(x)]

    shapes = ShapeDtype((), np.dtype(np.int32)), ShapeDtype((60, 128), np.dtype(np.float32))
    (call,) = trace_function(function, shapes, "").calls
    assert [window.name for window in windows(call)] == ["x_ref", "o_ref"]


def _copy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]
