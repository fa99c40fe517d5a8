"""Failures that users of Pallas TPU kernels reported in public, in small: those that XLA's TPU compiler finds.

As in `tests/reported_on_tpus.py`, each has a twin that compiles on every generation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.reported_on_tpus import F32, HELION, JAX, SMEM, TILE, WHOLE, Reported, double, like, shaped
from tests.sample import whole

INFERENCE = "https://github.com/vllm-project/tpu-inference/"
HBM = pl.BlockSpec(memory_space=pl.ANY)


def _int8_product(x: jax.Array, y: jax.Array) -> Any:
    """jax-ml/jax#37367: a product of int8, which a v4's matrix unit lacks. Multiply as bfloat16, which is exact."""
    return whole(
        lambda x, y: jnp.dot(x[...], y[...], preferred_element_type=jnp.int32), shaped(128, 128, dtype=jnp.int32), x, y
    )


def _int8_product_as_bfloat16(x: jax.Array, y: jax.Array) -> Any:
    def body(x: Any, y: Any, o: Any) -> None:
        left, right = x[...].astype(jnp.bfloat16), y[...].astype(jnp.bfloat16)
        o[...] = jnp.dot(left, right, preferred_element_type=jnp.float32).astype(jnp.int32)

    return pl.pallas_call(body, out_shape=shaped(128, 128, dtype=jnp.int32))(x, y)


def _float4_product(x: jax.Array, y: jax.Array) -> Any:
    """vllm-project/tpu-inference#1425: weights of 4 bits, which TPUs before 7x lack. Widen outside the kernel."""
    return whole(lambda x, y: jnp.dot(x[...], y[...], preferred_element_type=jnp.float32), shaped(128, 128), x, y)


def _float4_product_widened(x: jax.Array, y: jax.Array) -> Any:
    return _float4_product(x, y.astype(jnp.bfloat16))


def _float16_load(x: jax.Array) -> Any:
    """pytorch/helion#3204: float16, of which a TPU has no vectors. Use bfloat16, or widen outside the kernel."""
    return pl.pallas_call(double, out_shape=like(x))(x)


def _float16_widened(x: jax.Array) -> Any:
    wide = x.astype(jnp.float32)
    return pl.pallas_call(double, out_shape=like(wide))(wide).astype(x.dtype)


def _flatten_inside(x: jax.Array) -> Any:
    """jax-ml/jax#24404: a reshape that crosses the tiles of 8 by 128. Reshape outside, where XLA does it."""
    return whole(lambda x: (x[...] * 2).reshape(800), shaped(800), x)


def _flatten_outside(x: jax.Array) -> Any:
    return pl.pallas_call(double, out_shape=like(x))(x).reshape(800)


def _pick_by_take_along_axis(x: jax.Array, columns: jax.Array) -> Any:
    """jax-ml/jax#37006: one column of each row, of more than fit one register. Compare columns and add up."""
    return whole(lambda x, columns: jnp.take_along_axis(x[...], columns[...] & 511, axis=1), shaped(128, 1), x, columns)


def _pick_by_comparing(x: jax.Array, columns: jax.Array) -> Any:
    def body(x: Any, columns: Any, o: Any) -> None:
        chosen = lax.broadcasted_iota(jnp.int32, x.shape, 1) == (columns[...] & 511)
        o[...] = jnp.sum(jnp.where(chosen, x[...], 0), axis=1, keepdims=True)

    return pl.pallas_call(body, out_shape=shaped(128, 1))(x, columns)


def _strided_load(x: jax.Array) -> Any:
    """jax-ml/jax#29520: a strided load off rows longer than 128. Cut the rows to blocks of 128 first."""
    return whole(lambda x: x[pl.ds(0, 8, stride=2), :], shaped(8, 256), x)


def _strided_load_by_blocks(x: jax.Array) -> Any:
    def body(x: Any, o: Any) -> None:
        o[...] = x[pl.ds(0, 8, stride=2), :]

    column = [pl.BlockSpec((rows, 128), lambda i: (0, i)) for rows in (16, 8)]
    return pl.pallas_call(body, grid=(2,), in_specs=column[:1], out_specs=column[1], out_shape=shaped(8, 256))(x)


def _store_to_any_row(row: jax.Array, x: jax.Array) -> Any:
    """pytorch/helion#3431: a row at a run-time index within a tile of packed bfloat16. Choose the row by a mask."""

    def body(row: Any, x: Any, o: Any) -> None:
        o[...] = jnp.zeros(o.shape, o.dtype)
        o[:, row[0] & 7, :] = x[...]

    out = shaped(8, 8, 128, dtype=x.dtype)
    return pl.pallas_call(body, in_specs=[SMEM, WHOLE], out_shape=out)(row, x)


def _store_by_mask(row: jax.Array, x: jax.Array) -> Any:
    def body(row: Any, x: Any, o: Any) -> None:
        chosen = lax.broadcasted_iota(jnp.int32, o.shape, 1) == (row[0] & 7)
        wide = x[...].astype(jnp.float32)[:, None, :]
        o[...] = jnp.where(chosen, wide, 0).astype(o.dtype)

    out = shaped(8, 8, 128, dtype=x.dtype)
    return pl.pallas_call(body, in_specs=[SMEM, WHOLE], out_shape=out)(row, x)


def _placed(row: np.ndarray, x: np.ndarray) -> np.ndarray:
    placed = np.zeros((8, 8, 128), x.dtype)
    placed[:, row[0] & 7, :] = x
    return placed


def _copy_part_of_a_tile(x: jax.Array) -> Any:
    """vllm-project/tpu-inference#3038: a copy of columns that end within a tile. Copy whole tiles, then cut."""

    def body(x: Any, o: Any, held: Any) -> None:
        pltpu.sync_copy(x.at[:, pl.ds(0, 1440)], held)
        o[...] = held[...]

    held = pltpu.VMEM((8, 1440), jnp.float32)
    return pl.pallas_call(body, in_specs=[HBM], scratch_shapes=[held], out_shape=shaped(8, 1440))(x)


def _copy_whole_tiles(x: jax.Array) -> Any:
    def body(x: Any, o: Any, held: Any) -> None:
        pltpu.sync_copy(x.at[:, pl.ds(0, 1536)], held)
        o[...] = held[:, :1440]

    held = pltpu.VMEM((8, 1536), jnp.float32)
    return pl.pallas_call(body, in_specs=[HBM], scratch_shapes=[held], out_shape=shaped(8, 1440))(x)


def _all_in_vmem(x: jax.Array) -> Any:
    """pytorch/xla#8429: no blocks, so that all of a large array is to lie in VMEM. Cut it to blocks.

    vllm-project/tpu-inference#508: the same of an array that only some generations hold.
    """
    return pl.pallas_call(double, out_shape=like(x))(x)


def _by_blocks(x: jax.Array) -> Any:
    block = pl.BlockSpec((256, x.shape[1]), lambda i: (i, 0))
    steps = x.shape[0] // 256
    return pl.pallas_call(double, grid=(steps,), in_specs=[block], out_specs=block, out_shape=like(x))(x)


def _prefetched_table(table: jax.Array, x: jax.Array) -> Any:
    """vllm-project/tpu-inference#3316: a table of pages larger than SMEM. Prefetch what the kernel reads of it."""
    pages = pl.BlockSpec((8, 128), lambda i, table: (table[i, 0] & 7, 0))
    rows = pl.BlockSpec((8, 128), lambda i, table: (i, 0))
    grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(8,), in_specs=[pages], out_specs=rows)
    return pl.pallas_call(lambda _, x, o: double(x, o), grid_spec=grid, out_shape=like(x))(table, x)


def _prefetched_column(table: jax.Array, x: jax.Array) -> Any:
    return _prefetched_table(table[:8, :1], x)


def _paged(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    pages: np.ndarray = x.reshape(8, 8, 128)[table[:8, 0] & 7]
    return pages.reshape(64, 128) * 2


def _widen_a_mask(x: jax.Array) -> Any:
    """jax-ml/jax#37370: a vector of booleans made a column. Make numbers of it first."""
    return whole(lambda x: (x[0, :] > 0)[:, None].astype(jnp.float32), shaped(128, 1), x)


def _widen_numbers(x: jax.Array) -> Any:
    return whole(lambda x: (x[0, :] > 0).astype(jnp.float32)[:, None], shaped(128, 1), x)


# fmt: off
REPORTED = (
    Reported("a product of int8", JAX + "issues/37367", _int8_product, _int8_product_as_bfloat16,
             lambda x, y: x.astype(np.int32) @ y.astype(np.int32), (((128, 128), "int8"),) * 2,
             "Unsupported matmul RHS type on target", "compile", ("v4",), "unimplemented"),
    Reported("a product of 4-bit floats", INFERENCE + "issues/1425", _float4_product, _float4_product_widened,
             lambda x, y: x.astype(np.float32) @ y.astype(np.float32),
             (((128, 128), "bfloat16"), ((128, 128), "float4_e2m1fn")),
             "Bad lhs/rhs type", "compile", ("v4", "v5e", "v5p", "v6e"), "unimplemented"),
    Reported("float16", HELION + "pull/3204", _float16_load, _float16_widened,
             lambda x: x * 2, (((16, 128), "float16"),), "Invalid vector type for load", "compile",
             verdict="unimplemented"),
    Reported("a reshape across tiles", JAX + "issues/24404", _flatten_inside, _flatten_outside,
             lambda x: (x * 2).reshape(800), (((8, 100), F32),), "unsupported shape cast", "compile",
             versions="0.10.2 also refuses (8, 128) to (16, 64), which 0.11.2 compiles"),
    Reported("a gather across registers", JAX + "issues/37006", _pick_by_take_along_axis, _pick_by_comparing,
             lambda x, columns: np.take_along_axis(x, columns & 511, axis=1),
             (((128, 1000), F32), ((128, 1), "int32")), "Multiple source vregs along gather dimension", "compile",
             verdict="unimplemented"),
    Reported("a strided load of long rows", JAX + "issues/29520", _strided_load, _strided_load_by_blocks,
             lambda x: x[::2], (((16, 256), F32),), "The last dim size is not 128 in original base memref", "compile",
             verdict="unimplemented"),
    Reported("a store to an unaligned row", HELION + "pull/3431", _store_to_any_row, _store_by_mask,
             _placed, (((1,), "int32"), ((8, 128), "bfloat16")), "cannot statically prove that index", "compile"),
    Reported("a copy of part of a tile", INFERENCE + "pull/3038", _copy_part_of_a_tile, _copy_whole_tiles,
             lambda x: x[:, :1440], (((8, 2880), F32),), "Slice sizes along tiled dimensions must be aligned to tiles",
             "compile"),
    Reported("an array that no VMEM holds", "https://github.com/pytorch/xla/issues/8429", _all_in_vmem, _by_blocks,
             lambda x: x * 2, (((4096, 2304), F32),), "vmem", "compile", verdict="resource_exceeded"),
    Reported("an array that some VMEM holds", INFERENCE + "pull/508", _all_in_vmem, _by_blocks,
             lambda x: x * 2, (((2048, 2048), F32),), "Ran out of memory in memory space vmem", "compile",
             ("v4", "v5e", "v5p"), "resource_exceeded"),
    Reported("a prefetched table that SMEM does not hold", INFERENCE + "pull/3316", _prefetched_table,
             _prefetched_column, _paged, (((64, 4608), "int32"), ((64, 128), F32)), "space=smem", "compile",
             verdict="resource_exceeded"),
)

# In JAX 0.12.0, `libtpu` ends the process at these by a failed check (SIGABRT), so that they need one of their own.
ENDING_THE_PROCESS = (
    Reported("a boolean vector made a column", JAX + "issues/37370", _widen_a_mask, _widen_numbers,
             lambda x: (x[:1] > 0).astype(np.float32).T, (TILE,), "unsupported shape cast", "compile",
             versions="0.10.2 and 0.11.2 raise these words; 0.12.0 writes a failed check to stderr, and ends"),
)
# fmt: on
