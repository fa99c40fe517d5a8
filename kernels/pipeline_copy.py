"""Copies by a Mosaic GPU pipeline: blocks travel from global to shared memory and back, several at a time."""

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK_M, BLOCK_N = 64, 64
BLOCK = (BLOCK_M, BLOCK_N)

IndexMap = Callable[..., Any]


def blocks_of(shape: tuple[int, ...], block: tuple[int, ...] = BLOCK) -> tuple[int, ...]:
    """How many blocks an array has along each axis.

    Raises:
      ValueError: it is not made of whole blocks.
    """
    if any(length % size for length, size in zip(shape, block, strict=True)):
        raise ValueError(
            f"a {'x'.join(map(str, shape))} array is not made of whole blocks of {'x'.join(map(str, block))}"
        )
    return tuple(length // size for length, size in zip(shape, block, strict=True))


def _copy_block(_: Any, x_smem: Any, o_smem: Any) -> None:
    o_smem[...] = x_smem[...]


def _copied(
    x: jax.Array, to: IndexMap, shape: tuple[int, ...], block: tuple[int, int], stages: tuple[int, int], transforms: Any
) -> jax.Array:
    """Each block of `x` at block `to(i, j)` of an array of `shape`."""
    grid = blocks_of(x.shape, block)
    source = plgpu.BlockSpec(block, lambda i, j: (i, j), delay_release=stages[1], transforms=transforms)
    target = plgpu.BlockSpec(block, to, transforms=transforms)

    def copy(x_gmem: Any, o_gmem: Any) -> None:
        plgpu.emit_pipeline(
            _copy_block, grid=grid, in_specs=[source], out_specs=[target], max_concurrent_steps=stages[0]
        )(x_gmem, o_gmem)

    return plgpu.kernel(copy, out_type=jax.ShapeDtypeStruct(shape, x.dtype))(x)


def pipeline_copy(x: jax.Array, *, block: tuple[int, int] = BLOCK, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """A copy of `x`, on a Hopper GPU or newer.

    Args:
      x: `(m, n)`, whole blocks in both axes.
      block: what is copied in one step; a row of it is a multiple of 16 bytes, and no axis is longer than 256.
      stages: how many blocks may be under way at once (`max_concurrent_steps`), and for how many steps after its
        own an input buffer is kept (`delay_release`), which are fewer.
    """
    return _copied(x, lambda i, j: (i, j), x.shape, block, stages, ())


def pipeline_swap_blocks(x: jax.Array, *, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """Block `(i, j)` of `x` at block `(j, i)`, by an index map that transposes; blocks are not changed inside.

    Args:
      x: `(m, n)`, whole blocks of 64 in both axes; the result is `(n, m)`.
      stages: as in `pipeline_copy`.
    """
    shape = (x.shape[1], x.shape[0])
    return _copied(x, lambda i, j: (j, i), shape, BLOCK, stages, ())


def pipeline_swizzled_copy(x: jax.Array, *, swizzle: int = 128, stages: tuple[int, int] = (2, 0)) -> jax.Array:
    """A copy of `x` through shared memory in tiles of eight rows, swizzled as for the tensor core.

    Args:
      x: `(m, n)`, 16- or 32-bit, whole blocks of 64 in both axes.
      swizzle: bytes of a row in a tile: 128, 64 or 32.
      stages: as in `pipeline_copy`.
    """
    transforms = (plgpu.TilingTransform((8, swizzle // x.dtype.itemsize)), plgpu.SwizzleTransform(swizzle))
    return _copied(x, lambda i, j: (i, j), x.shape, BLOCK, stages, transforms)
