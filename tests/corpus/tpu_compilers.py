"""Failures that users of Pallas TPU kernels reported in public, in small, each with a twin that is right.

JAX raises the first while it lowers, and XLA's TPU compiler the others. None needs a TPU: JAX lowers for one on a CPU,
and `libtpu` compiles with none attached. The kernels are written anew from what the threads say, so that each is a few
lines and does something simple. A comment says how JAX 0.10.2 and 0.11.2 differ from 0.12.
"""

import inspect
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

import kerneltest as kt
from tests.corpus.twin import Twin
from tests.sample import whole

GENERATIONS = ("v4", "v5e", "v5p", "v6e", "7x")
F32 = "float32"
TILE = ((8, 128), F32)

Kernel = Callable[..., Any]


def shaped(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
WHOLE = pl.BlockSpec()
HBM = pl.BlockSpec(memory_space=pl.ANY)


def double(x: Any, o: Any) -> None:
    """A body with nothing wrong in it, where a call is wrong around it."""
    o[...] = x[...] * 2


def _narrow_blocks(x: jax.Array) -> Any:
    """jax-ml/jax#39058: packed weights, whose blocks came out narrower than 128. Widen the block, or take all."""
    block = pl.BlockSpec((8, 64), lambda i, j: (i, j))
    return pl.pallas_call(double, grid=(2, 4), in_specs=[block], out_specs=block, out_shape=like(x))(x)


def _wide_blocks(x: jax.Array) -> Any:
    block = pl.BlockSpec((8, 128), lambda i, j: (i, j))
    return pl.pallas_call(double, grid=(2, 2), in_specs=[block], out_specs=block, out_shape=like(x))(x)


def _blocks_of_runtime_size(n: jax.Array, x: jax.Array) -> Any:
    """jax-ml/jax#24960: blocks of a size that is not static. Only a grid may be; keep the block and mask in it."""

    def body(x: Any, o: Any) -> None:
        o[...] = jnp.sum(x[...], axis=0, keepdims=True)

    size: Any = n[0] & 63
    block = pl.BlockSpec((size, 128), lambda i: (0, 0))
    return pl.pallas_call(body, grid=(1,), in_specs=[block], out_shape=shaped(1, 128))(x)


def _masked_rows(n: jax.Array, x: jax.Array) -> Any:
    def body(n: Any, x: Any, o: Any) -> None:
        rows = lax.broadcasted_iota(jnp.int32, x.shape, 0)
        o[...] = jnp.sum(jnp.where(rows < (n[0] & 63), x[...], 0), axis=0, keepdims=True)

    return pl.pallas_call(body, in_specs=[SMEM, WHOLE], out_shape=shaped(1, 128))(n, x)


def _running_sum(x: jax.Array) -> Any:
    """jax-ml/jax#32991: jnp.cumsum has no lowering. Add in a loop, or multiply by a triangle of ones."""
    return whole(lambda x: jnp.cumsum(x[...], axis=0), x, x)


def _running_sum_by_rows(x: jax.Array) -> Any:
    def body(x: Any, o: Any) -> None:
        total = jnp.zeros((1, x.shape[1]), x.dtype)
        for row in range(x.shape[0]):
            total += x[row : row + 1, :]
            o[row : row + 1, :] = total

    return pl.pallas_call(body, out_shape=like(x))(x)


def _top_values(x: jax.Array) -> Any:
    """pytorch/helion#3104: lax.top_k, as torch.topk asks for it, is refused. Take the greatest again and again."""
    return whole(lambda x: lax.top_k(x[...], 2)[0], shaped(8, 2), x)


def _top_values_by_argmax(x: jax.Array) -> Any:
    def body(x: Any, o: Any) -> None:
        left, columns = x[...], lax.broadcasted_iota(jnp.int32, x.shape, 1)
        for k in range(2):
            o[:, k : k + 1] = jnp.max(left, axis=1, keepdims=True)
            left = jnp.where(columns == jnp.argmax(left, axis=1, keepdims=True), -jnp.inf, left)

    return pl.pallas_call(body, out_shape=shaped(8, 2))(x)


def _rows_of_a_value(x: jax.Array) -> Any:
    """jax-ml/jax#18897: a loaded array indexed by a loop's counter is a dynamic_slice. Index the reference."""

    def body(x: Any, o: Any) -> None:
        loaded = x[...]
        o[...] = lax.fori_loop(0, 8, lambda t, h: h * 0.5 + loaded[t], jnp.zeros((128,), x.dtype))[None]

    return pl.pallas_call(body, out_shape=shaped(1, 128))(x)


def _rows_of_a_reference(x: jax.Array) -> Any:
    return whole(
        lambda x: lax.fori_loop(0, 8, lambda t, h: h * 0.5 + x[pl.ds(t, 1), :], jnp.zeros((1, 128), x.dtype)),
        shaped(1, 128),
        x,
    )


def _decaying(x: np.ndarray) -> np.ndarray:
    h = np.zeros((1, 128), x.dtype)
    for row in x:
        h = h * np.float32(0.5) + row
    return h


def _scan_over_rows(x: jax.Array) -> Any:
    """jax-ml/jax#21190: lax.scan with inputs or outputs of its own is refused. Only carry, and use references."""

    def body(x: Any, o: Any) -> None:
        def step(h: Any, row: Any) -> Any:
            h = h * 0.5 + row
            return h, h

        o[...] = lax.scan(step, jnp.zeros((128,), x.dtype), x[...])[1]

    return pl.pallas_call(body, out_shape=like(x))(x)


def _loop_over_rows(x: jax.Array) -> Any:
    def body(x: Any, o: Any) -> None:
        def step(t: Any, h: Any) -> Any:
            o[pl.ds(t, 1), :] = h = h * 0.5 + x[pl.ds(t, 1), :]
            return h

        lax.fori_loop(0, 8, step, jnp.zeros((1, 128), x.dtype))

    return pl.pallas_call(body, out_shape=like(x))(x)


def _gather_rows(x: jax.Array, rows: jax.Array) -> Any:
    """jax-ml/jax#39366: rows looked up by a vector of indices. Read the indices off SMEM, row by row."""
    return whole(lambda x, rows: x[...][rows[...] & 63], shaped(8, 128), x, rows)


def _rows_one_by_one(x: jax.Array, rows: jax.Array) -> Any:
    def body(x: Any, rows: Any, o: Any) -> None:
        for n in range(8):
            o[n : n + 1, :] = x[pl.ds(rows[n] & 63, 1), :]

    return pl.pallas_call(body, in_specs=[WHOLE, SMEM], out_shape=shaped(8, 128))(x, rows)


def _index_by_arrays(x: jax.Array) -> Any:
    """jax-ml/jax#25230: a reference indexed by arrays, as on a GPU. Index by slices."""
    return whole(lambda x: x[jnp.arange(8)[:, None], jnp.arange(128)[None, :]] * 2, x, x)


def _index_by_slices(x: jax.Array) -> Any:
    return pl.pallas_call(double, out_shape=like(x))(x)


def _even_and_odd_lanes(x: jax.Array) -> Any:
    """jax-ml/jax#38987: every second column of a loaded array. Split outside the kernel."""
    return whole(lambda x: x[...][:, 0::2] - x[...][:, 1::2], shaped(8, 128), x)


def _even_and_odd_halves(x: jax.Array) -> Any:
    return whole(lambda even, odd: even[...] - odd[...], shaped(8, 128), x[:, 0::2], x[:, 1::2])


def _wide_integers(x: jax.Array) -> Any:
    """jax-ml/jax#23988: a cast to int64 under x64. Stay within 32 bits."""
    with jax.enable_x64(True):
        return whole(lambda x: (x[...].astype(jnp.int64) * 3).astype(jnp.int32), x, x)


def _narrow_integers(x: jax.Array) -> Any:
    return whole(lambda x: x[...] * 3, x, x)


def _bfloat16_accumulator(x: jax.Array, y: jax.Array) -> Any:
    """pytorch/helion#1647: a product of bfloat16 in bfloat16. Ask for float32, then cast."""
    return whole(lambda x, y: x[...] @ y[...], x, x, y)


def _float32_accumulator(x: jax.Array, y: jax.Array) -> Any:
    def body(x: Any, y: Any, o: Any) -> None:
        o[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32).astype(o.dtype)

    return pl.pallas_call(body, out_shape=like(x))(x, y)


def _captured_array(x: jax.Array) -> Any:
    """jax-ml/jax#21557: a body that closes over an array. Pass it as an input."""
    ramp = np.arange(128, dtype=np.float32)
    return whole(lambda x: x[...] * ramp, x, x)


def _passed_array(x: jax.Array) -> Any:
    return whole(lambda x, ramp: x[...] * ramp[...], x, x, jnp.arange(128, dtype=jnp.float32)[None])


def _prefetched_vector(scales: jax.Array, x: jax.Array) -> Any:
    """pytorch/helion#2069: prefetched scalars used as a vector. SMEM gives scalars alone; pass the vector in VMEM."""

    def body(scales: Any, x: Any, o: Any) -> None:
        o[...] = x[...] * scales[...][None, :]

    block = pl.BlockSpec((8, 128), lambda i, scales: (i, 0))
    grid = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(1,), in_specs=[block], out_specs=block)
    return pl.pallas_call(body, grid_spec=grid, out_shape=like(x))(scales, x)


def _blocked_vector(scales: jax.Array, x: jax.Array) -> Any:
    return whole(lambda scales, x: x[...] * scales[...], x, scales[None, :], x)


def _add_place(x: Any, o: Any) -> None:
    o[pl.program_id(0)] = x[pl.program_id(0)] + pl.program_id(0)


def _scalar_in_vmem(x: jax.Array) -> Any:
    """jax-ml/jax#22817: one scalar stored by each step of the grid. Put the output in SMEM."""
    return pl.pallas_call(_add_place, grid=(8,), in_specs=[SMEM], out_shape=like(x))(x)


def _scalar_in_smem(x: jax.Array) -> Any:
    return pl.pallas_call(_add_place, grid=(8,), in_specs=[SMEM], out_specs=SMEM, out_shape=like(x))(x)


def _load_from_hbm(x: jax.Array) -> Any:
    """pytorch/helion#2018: an argument left in HBM, and loaded. Let a block bring it to VMEM, or copy it there."""
    return pl.pallas_call(double, in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_shape=like(x))(x)


def _copy_from_hbm(x: jax.Array) -> Any:
    def body(x: Any, o: Any, held: Any) -> None:
        pltpu.sync_copy(x, held)
        o[...] = held[...] * 2

    held = pltpu.VMEM((8, 128), jnp.float32)
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(body, in_specs=[in_hbm], scratch_shapes=[held], out_shape=like(x))(x)


def _on_a_sparse_core(x: jax.Array) -> Any:
    """jax-ml/jax#32639: a SparseCore kernel on a TPU with none. Write it for the TensorCore there."""

    def body(x: Any, o: Any, held: Any) -> None:
        pltpu.sync_copy(x, held)
        pltpu.sync_copy(held, o)

    mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=1)
    return pl.kernel(body, like(x), mesh=mesh, scratch_types=[pltpu.VMEM(x.shape, x.dtype)])(x)


def _on_the_tensor_core(x: jax.Array) -> Any:
    return whole(lambda x: x[...], x, x)


def _dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32) @ y.astype(np.float32)).astype(x.dtype)


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


def _reported(
    name: str,
    broken: Kernel,
    fixed: Kernel,
    oracle: Callable[..., np.ndarray],
    inputs: tuple[tuple[tuple[int, ...], str], ...],
    words: str,
    stage: Literal["lower", "compile"] = "lower",
    generations: tuple[str, ...] = GENERATIONS,
    verdict: str = "compile_error",
) -> Twin:
    """A failure, which does not occur on other than the `generations`."""

    def pairing(is_broken: bool) -> kt.Pairing:
        kernel = broken if is_broken else fixed
        names = inspect.signature(kernel).parameters
        arrays = {x: kt.array(" ".join(map(str, s)), dtype) for x, (s, dtype) in zip(names, inputs, strict=True)}
        return kt.oracle_for(kernel, **arrays)(oracle)

    lowered = {f"lower:tpu-{generation}": "pass" for generation in GENERATIONS}
    verdicts = lowered | {f"{stage}:tpu-{each}": verdict if each in generations else "pass" for each in GENERATIONS}
    compiled = tuple(f"compile:tpu-{generation}" for generation in GENERATIONS)
    return Twin(name=name, make=pairing, verdicts=verdicts, words=words, cases="all", right_on=compiled)


# fmt: off
TPU_COMPILERS = (
    _reported("a block narrower than 128 lanes", _narrow_blocks, _wide_blocks, lambda x: x * 2, (((16, 256), F32),),
              "divisible by 8 and 128"),
    _reported("a block of a size known at run time", _blocks_of_runtime_size, _masked_rows,
              lambda n, x: x[: n[0] & 63].sum(axis=0, keepdims=True), (((1,), "int32"), ((64, 128), F32)),
              "Unsupported block dimension type", verdict="runtime_error"),
    _reported("cumsum", _running_sum, _running_sum_by_rows, lambda x: np.cumsum(x, axis=0), (TILE,),
              "Unimplemented primitive in Pallas TPU lowering for tc: cumsum", verdict="unimplemented"),
    # JAX 0.10.2 has no top_k at all; from 0.11.2 on, one that is not stable.
    _reported("top_k", _top_values, _top_values_by_argmax, lambda x: -np.sort(-x, axis=1)[:, :2], (TILE,), "top_k",
              verdict="unimplemented"),
    _reported("a loaded array indexed in a loop", _rows_of_a_value, _rows_of_a_reference, _decaying, (TILE,),
              "lowering for tc: dynamic_slice", verdict="unimplemented"),
    _reported("a scan with outputs", _scan_over_rows, _loop_over_rows,
              lambda x: np.concatenate([_decaying(x[: n + 1]) for n in range(8)]), (TILE,),
              "extensive output(s) is not supported", verdict="unimplemented"),
    _reported("a gather of rows", _gather_rows, _rows_one_by_one, lambda x, rows: x[rows & 63],
              (((64, 128), F32), ((8,), "int32")), "Only take_along_axis-like gathers supported",
              verdict="unimplemented"),
    _reported("a reference indexed by arrays", _index_by_arrays, _index_by_slices, lambda x: x * 2, (TILE,),
              "`broadcast_to` is a Triton-specific primitive"),
    _reported("a strided slice of a loaded array", _even_and_odd_lanes, _even_and_odd_halves,
              lambda x: x[:, 0::2] - x[:, 1::2], (((8, 256), F32),), "expected strides to be confined to [1, 2)"),
    _reported("int64", _wide_integers, _narrow_integers, lambda x: (x.astype(np.int64) * 3).astype(np.int32),
              (((8, 128), "int32"),), "64-bit types are not supported", verdict="unimplemented"),
    _reported("a bfloat16 accumulator", _bfloat16_accumulator, _float32_accumulator, _dot,
              (((16, 128), "bfloat16"), ((128, 128), "bfloat16")), "Expected matmul acc to be 32-bit"),
    _reported("an array that the kernel closes over", _captured_array, _passed_array,
              lambda x: x * np.arange(128, dtype=np.float32), (TILE,), "captures constants", verdict="runtime_error"),
    _reported("prefetched scalars used as a vector", _prefetched_vector, _blocked_vector,
              lambda scales, x: x * scales, (((128,), F32), TILE), "Can only load scalars from SMEM"),
    _reported("a scalar stored to VMEM", _scalar_in_vmem, _scalar_in_smem, lambda x: x + np.arange(8, dtype=np.int32),
              (((8,), "int32"),), "Cannot store scalars to VMEM"),
    _reported("a load from HBM", _load_from_hbm, _copy_from_hbm, lambda x: x * 2, (TILE,),
              "Loads are only allowed on VMEM and SMEM references"),
    _reported("a SparseCore kernel where there is none", _on_a_sparse_core, _on_the_tensor_core, lambda x: x,
              (((128,), "int32"),), "has no SparseCores, on which the kernel runs", generations=("v4", "v5e"),
              verdict="unavailable"),
    # XLA's TPU compiler finds these.
    _reported("a product of int8", _int8_product, _int8_product_as_bfloat16,
              lambda x, y: x.astype(np.int32) @ y.astype(np.int32), (((128, 128), "int8"),) * 2,
              "Unsupported matmul RHS type on target", "compile", ("v4",), "unimplemented"),
    _reported("a product of 4-bit floats", _float4_product, _float4_product_widened,
              lambda x, y: x.astype(np.float32) @ y.astype(np.float32),
              (((128, 128), "bfloat16"), ((128, 128), "float4_e2m1fn")), "Bad lhs/rhs type", "compile",
              ("v4", "v5e", "v5p", "v6e"), "unimplemented"),
    _reported("float16", _float16_load, _float16_widened, lambda x: x * 2, (((16, 128), "float16"),),
              "Invalid vector type for load", "compile", verdict="unimplemented"),
    # JAX 0.10.2 also refuses (8, 128) to (16, 64), which 0.11.2 compiles.
    _reported("a reshape across tiles", _flatten_inside, _flatten_outside, lambda x: (x * 2).reshape(800),
              (((8, 100), F32),), "unsupported shape cast", "compile"),
    _reported("a gather across registers", _pick_by_take_along_axis, _pick_by_comparing,
              lambda x, columns: np.take_along_axis(x, columns & 511, axis=1),
              (((128, 1000), F32), ((128, 1), "int32")), "Multiple source vregs along gather dimension", "compile",
              verdict="unimplemented"),
    _reported("a strided load of long rows", _strided_load, _strided_load_by_blocks, lambda x: x[::2],
              (((16, 256), F32),), "The last dim size is not 128 in original base memref", "compile",
              verdict="unimplemented"),
    _reported("a store to an unaligned row", _store_to_any_row, _store_by_mask, _placed,
              (((1,), "int32"), ((8, 128), "bfloat16")), "cannot statically prove that index", "compile"),
    _reported("a copy of part of a tile", _copy_part_of_a_tile, _copy_whole_tiles, lambda x: x[:, :1440],
              (((8, 2880), F32),), "Slice sizes along tiled dimensions must be aligned to tiles", "compile"),
    _reported("an array that no VMEM holds", _all_in_vmem, _by_blocks, lambda x: x * 2, (((4096, 2304), F32),),
              "MiB of VMEM, but may use only", "compile", verdict="resource_exceeded"),
    _reported("an array that some VMEM holds", _all_in_vmem, _by_blocks, lambda x: x * 2, (((2048, 2048), F32),),
              "MiB of VMEM, but may use only", "compile", ("v4", "v5e", "v5p"), "resource_exceeded"),
    _reported("a prefetched table that SMEM does not hold", _prefetched_table, _prefetched_column, _paged,
              (((64, 4608), "int32"), ((64, 128), F32)), "bytes of scalar memory for its prefetched", "compile",
              verdict="resource_exceeded"),
    # libtpu raises for JAX 0.10.2 and 0.11.2; later it ends the process by a failed check (SIGABRT).
    _reported("a boolean vector made a column", _widen_a_mask, _widen_numbers,
              lambda x: (x[:1] > 0).astype(np.float32).T, (TILE,), "a reshape moves elements between lanes",
              "compile", verdict="compile_error|crash"),
)
# fmt: on
