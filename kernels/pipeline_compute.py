"""Mosaic GPU pipelines whose bodies compute: elementwise, with a carry, with blocks that stay in place."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from kernels.pipeline_copy import blocks_of

BLOCK_M, BLOCK_N = 32, 64  # six steps of three float32 arrays fit in shared memory
BLOCK = (BLOCK_M, BLOCK_N)


def _in_place(i: Any, j: Any) -> tuple[Any, Any]:
    return (i, j)


def _pipeline(
    body: Any,
    arrays: Sequence[jax.Array],
    outs: Sequence[jax.ShapeDtypeStruct],
    in_maps: Sequence[Any],
    out_maps: Sequence[Any],
    *,
    grid: tuple[int, ...],
    stages: tuple[int, int],
    carry: bool = False,
) -> Any:
    """`body` over blocks. A map of None pins the array to global memory; a carry starts as zeros."""

    def spec(index_map: Any, **options: Any) -> Any:
        if index_map is None:
            return plgpu.BlockSpec(memory_space=plgpu.GMEM, **options)
        return plgpu.BlockSpec(BLOCK, index_map, **options)

    def kernel(*refs: Any) -> None:
        plgpu.emit_pipeline(
            body,
            grid=grid,
            in_specs=[spec(index_map, delay_release=stages[1]) for index_map in in_maps],
            out_specs=[spec(index_map) for index_map in out_maps],
            max_concurrent_steps=stages[0],
            init_carry=jnp.zeros(BLOCK, jnp.float32) if carry else None,
        )(*refs)

    return plgpu.kernel(kernel, out_type=list(outs))(*arrays)


def pipeline_scale_cast(x: jax.Array, *, dtype: Any = jnp.float32, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """`2 x`, computed in float32 and rounded to `dtype`.

    Args:
      x: `(m, n)`, floating point, whole blocks of 32x64.
      dtype: of the result.
      stages: how many blocks may be under way at once (`max_concurrent_steps`), and for how many steps after its
        own an input buffer is kept (`delay_release`), which are fewer.
    """

    def body(_: Any, x_smem: Any, o_smem: Any) -> None:
        o_smem[...] = (x_smem[...].astype(jnp.float32) * 2).astype(dtype)

    out = jax.ShapeDtypeStruct(x.shape, dtype)
    (found,) = _pipeline(body, [x], [out], [_in_place], [_in_place], grid=blocks_of(x.shape, BLOCK),
                         stages=stages)  # fmt: skip
    return found


def pipeline_add(x: jax.Array, y: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """`x + y`.

    Args:
      x, y: `(m, n)` of one floating dtype, whole blocks of 32x64.
      stages: as in `pipeline_scale_cast`.
    """

    def body(_: Any, x_smem: Any, y_smem: Any, o_smem: Any) -> None:
        o_smem[...] = x_smem[...] + y_smem[...]

    (found,) = _pipeline(body, [x, y], [jax.ShapeDtypeStruct(x.shape, x.dtype)], [_in_place] * 2, [_in_place],
                         grid=blocks_of(x.shape, BLOCK), stages=stages)  # fmt: skip
    return found


def pipeline_add_block(x: jax.Array, b: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """Each block of `x` plus `b`, whose index map does not depend on the grid.

    Args:
      x: `(m, n)`, whole blocks of 32x64.
      b: `(32, 64)` of the same floating dtype.
      stages: as in `pipeline_scale_cast`.
    """

    def body(_: Any, x_smem: Any, b_smem: Any, o_smem: Any) -> None:
        o_smem[...] = x_smem[...] + b_smem[...]

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    (found,) = _pipeline(body, [x, b], [out], [_in_place, lambda i, j: (0, 0)], [_in_place],
                         grid=blocks_of(x.shape, BLOCK), stages=stages)  # fmt: skip
    return found


def pipeline_add_pinned(x: jax.Array, y: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """`x + y` with `y` left in global memory, where the body reads its block.

    Args:
      x, y: `(m, n)` of one floating dtype, whole blocks of 32x64.
      stages: as in `pipeline_scale_cast`.
    """

    def body(indices: Any, x_smem: Any, y_gmem: Any, o_smem: Any) -> None:
        i, j = indices
        y_block = y_gmem[pl.ds(i * BLOCK_M, BLOCK_M), pl.ds(j * BLOCK_N, BLOCK_N)]
        o_smem[...] = x_smem[...] + y_block

    (found,) = _pipeline(body, [x, y], [jax.ShapeDtypeStruct(x.shape, x.dtype)], [_in_place, None], [_in_place],
                         grid=blocks_of(x.shape, BLOCK), stages=stages)  # fmt: skip
    return found


def pipeline_mixed(x: jax.Array, y: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> tuple[jax.Array, jax.Array]:
    """`x + y` as float32 and `-y` in its own dtype: two inputs and two outputs of different dtypes.

    Args:
      x: `(m, n)`, float32, whole blocks of 32x64.
      y: `(m, n)`, bfloat16 or float16.
      stages: as in `pipeline_scale_cast`.
    """

    def body(_: Any, x_smem: Any, y_smem: Any, sum_smem: Any, minus_smem: Any) -> None:
        sum_smem[...] = x_smem[...] + y_smem[...].astype(jnp.float32)
        minus_smem[...] = -y_smem[...]

    outs = [jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(y.shape, y.dtype)]
    both, minus = _pipeline(body, [x, y], outs, [_in_place] * 2, [_in_place] * 2, grid=blocks_of(x.shape, BLOCK),
                            stages=stages)  # fmt: skip
    return both, minus


def _sum_blocks(x: jax.Array, out_map: Any, blocks: int, stages: tuple[int, int]) -> jax.Array:
    """Sums of the blocks of `x` so far, at block `out_map(i)` of `blocks` blocks."""

    def body(_: Any, x_smem: Any, o_smem: Any, total: Any) -> Any:
        total = total + x_smem[...]
        o_smem[...] = total
        plgpu.commit_smem()  # the pipeline does so only where it stores inside the loop
        return total

    if x.shape[1] != BLOCK_N:
        raise ValueError(f"a sum of blocks is of {BLOCK_N} columns, not {x.shape[1]}")
    out = jax.ShapeDtypeStruct((blocks * BLOCK_M, BLOCK_N), x.dtype)
    (found,) = _pipeline(body, [x], [out], [lambda i: (i, 0)], [out_map], grid=blocks_of(x.shape, BLOCK)[:1],
                         stages=stages, carry=True)  # fmt: skip
    return found


def pipeline_running_sum(x: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """Each block replaced by the sum of the blocks up to it: a carry.

    Args:
      x: `(m, 64)`, float32, whole blocks of 32 rows.
      stages: as in `pipeline_scale_cast`.
    """
    return _sum_blocks(x, lambda i: (i, 0), blocks_of(x.shape, BLOCK)[0], stages)


def pipeline_total(x: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """The sum of all blocks, `(32, 64)`: an output that does not depend on the grid and is stored after the loop.

    Args:
      x: `(m, 64)`, float32, whole blocks of 32 rows.
      stages: as in `pipeline_scale_cast`.
    """
    return _sum_blocks(x, lambda i: (0, 0), 1, stages)


def _row_totals(x: jax.Array, store: Any, out_map: Any, stages: tuple[int, int]) -> jax.Array:
    rows, columns = blocks_of(x.shape, BLOCK)

    def body(indices: Any, x_smem: Any, o_ref: Any, total: Any) -> Any:
        i, j = indices
        total = jnp.where(j == 0, 0.0, 1.0) * total + x_smem[...]
        store(i, j == columns - 1, o_ref, total)
        return total

    out = jax.ShapeDtypeStruct((x.shape[0], BLOCK_N), x.dtype)
    (found,) = _pipeline(body, [x], [out], [_in_place], [out_map], grid=(rows, columns),
                         stages=stages, carry=True)  # fmt: skip
    return found


def pipeline_row_totals(x: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """The sum of the blocks of each row of blocks, `(m, 64)`: a reduction over the innermost grid axis.

    Args:
      x: `(m, n)`, finite float32, whole blocks of 32x64.
      stages: as in `pipeline_scale_cast`.
    """

    def store(i: Any, last: Any, o_gmem: Any, total: Any) -> None:
        @pl.when(last)
        def _() -> None:
            o_gmem[pl.ds(i * BLOCK_M, BLOCK_M), :] = total

        plgpu.commit_smem()

    return _row_totals(x, store, None, stages)


def pipeline_revisited(x: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """What `pipeline_row_totals` computes, with one output block for all steps of a row, of which the last is to count.

    It is not what JAX's Mosaic GPU pipeline does: that stores a block when it is *first* visited, and at the very end
    (docs/upstream/mosaic_gpu_revisited_output.py).

    Args:
      x: `(m, n)`, finite float32, whole blocks of 32x64.
      stages: as in `pipeline_scale_cast`.
    """

    def store(_: Any, __: Any, o_smem: Any, total: Any) -> None:
        o_smem[...] = total

    return _row_totals(x, store, lambda i, j: (i, 0), stages)
