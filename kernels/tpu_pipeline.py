"""TPU pipelines: `pltpu.emit_pipeline` moves blocks between a TPU's main memory and VMEM."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_M, BLOCK_N, BLOCK_K = 64, 128, 128


def _pipelined(body: Any, grid: tuple[int, ...], in_specs: list[Any], out_spec: Any, out: Any, *arrays: Any) -> Any:
    def kernel(*refs: Any) -> None:
        pltpu.emit_pipeline(body, grid=grid, in_specs=in_specs, out_specs=[out_spec])(*refs)

    whole = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        kernel,
        in_specs=[whole] * len(arrays),
        out_specs=whole,
        out_shape=out,
        compiler_params=pltpu.CompilerParams(),
    )(*arrays)


def tpu_copy(x: jax.Array) -> jax.Array:
    """A copy of `x`.

    Args:
      x: `(m, n)`, whole blocks of 64x128.
    """

    def body(x_vmem: Any, o_vmem: Any) -> None:
        o_vmem[...] = x_vmem[...]

    block = pl.BlockSpec((BLOCK_M, BLOCK_N), lambda i, j: (i, j))
    grid = (x.shape[0] // BLOCK_M, x.shape[1] // BLOCK_N)
    return _pipelined(body, grid, [block], block, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def tpu_sum(x: jax.Array) -> jax.Array:
    """The sum of the blocks of each row of blocks, `(m, 128)`; the output block is revisited, its last value counts.

    Args:
      x: `(m, n)`, float32, whole blocks of 64x128.
    """

    def body(x_vmem: Any, o_vmem: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_vmem[...] = jnp.zeros_like(o_vmem)

        o_vmem[...] += x_vmem[...]

    source = pl.BlockSpec((BLOCK_M, BLOCK_N), lambda i, j: (i, j))
    target = pl.BlockSpec((BLOCK_M, BLOCK_N), lambda i, j: (i, 0))
    grid = (x.shape[0] // BLOCK_M, x.shape[1] // BLOCK_N)
    return _pipelined(body, grid, [source], target, jax.ShapeDtypeStruct((x.shape[0], BLOCK_N), x.dtype), x)


def tpu_matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x @ y`, summed in float32 over blocks of `k`.

    Args:
      x, y: `(m, k)` and `(k, n)`, float32, whole blocks of 64, 128 and 128 along `m`, `n` and `k`.
    """

    def body(x_vmem: Any, y_vmem: Any, o_vmem: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            o_vmem[...] = jnp.zeros_like(o_vmem)

        o_vmem[...] += jnp.dot(x_vmem[...], y_vmem[...], precision="highest", preferred_element_type=jnp.float32)

    (m, k), (_, n) = x.shape, y.shape
    specs = [
        pl.BlockSpec((BLOCK_M, BLOCK_K), lambda i, j, s: (i, s)),
        pl.BlockSpec((BLOCK_K, BLOCK_N), lambda i, j, s: (s, j)),
    ]
    target = pl.BlockSpec((BLOCK_M, BLOCK_N), lambda i, j, s: (i, j))
    grid = (m // BLOCK_M, n // BLOCK_N, k // BLOCK_K)
    return _pipelined(body, grid, specs, target, jax.ShapeDtypeStruct((m, n), x.dtype), x, y)
