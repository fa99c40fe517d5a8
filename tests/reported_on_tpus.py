"""Failures that users of Pallas TPU kernels reported in public, in small, each with a twin that is right.

Those of this module are raised by JAX, while it lowers; `tests/reported_by_mosaic.py` has those of XLA's TPU compiler.
None needs a TPU: JAX lowers for one on a CPU, and `libtpu` compiles with none attached.
The kernels are written anew from what the threads say, so that each is a few lines and does something simple.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

from tests.sample import whole

GENERATIONS = ("v4", "v5e", "v5p", "v6e", "7x")
F32 = "float32"
TILE = ((8, 128), F32)
JAX = "https://github.com/jax-ml/jax/"
HELION = "https://github.com/pytorch/helion/"

Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Reported:
    """One failure: where it was reported, the kernel in small, and what to write instead.

    `words` identify the message by JAX, Mosaic or XLA. On other than the `generations` it compiles. `inputs` are the
    (shape, dtype) of each argument; integers may be any. `versions` says how JAX 0.10.2 and 0.11.2 differ from 0.12.0.
    """

    name: str
    thread: str
    broken: Kernel
    fixed: Kernel
    oracle: Callable[..., np.ndarray]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    words: str
    stage: Literal["lower", "compile"] = "lower"
    generations: tuple[str, ...] = GENERATIONS
    verdict: Literal["unimplemented", "compile_error", "resource_exceeded"] = "compile_error"
    versions: str = ""


def shaped(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
WHOLE = pl.BlockSpec()


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


# fmt: off
REPORTED = (
    Reported("a block narrower than 128 lanes", JAX + "issues/39058", _narrow_blocks, _wide_blocks,
             lambda x: x * 2, (((16, 256), F32),), "divisible by 8 and 128"),
    Reported("a block of a size known at run time", JAX + "pull/24960", _blocks_of_runtime_size, _masked_rows,
             lambda n, x: x[: n[0] & 63].sum(axis=0, keepdims=True), (((1,), "int32"), ((64, 128), F32)),
             "Unsupported block dimension type"),
    Reported("cumsum", JAX + "issues/32991", _running_sum, _running_sum_by_rows,
             lambda x: np.cumsum(x, axis=0), (TILE,), "Unimplemented primitive in Pallas TPU lowering for tc: cumsum",
             verdict="unimplemented"),
    Reported("top_k", HELION + "pull/3104", _top_values, _top_values_by_argmax,
             lambda x: -np.sort(-x, axis=1)[:, :2], (TILE,), "top_k", verdict="unimplemented",
             versions="0.10.2 has no top_k at all; from 0.11.2 on, one that is not stable"),
    Reported("a loaded array indexed in a loop", JAX + "issues/18897", _rows_of_a_value, _rows_of_a_reference,
             _decaying, (TILE,), "lowering for tc: dynamic_slice", verdict="unimplemented"),
    Reported("a scan with outputs", JAX + "issues/21190", _scan_over_rows, _loop_over_rows,
             lambda x: np.concatenate([_decaying(x[: n + 1]) for n in range(8)]), (TILE,),
             "extensive output(s) is not supported", verdict="unimplemented"),
    Reported("a gather of rows", JAX + "issues/39366", _gather_rows, _rows_one_by_one,
             lambda x, rows: x[rows & 63], (((64, 128), F32), ((8,), "int32")),
             "Only take_along_axis-like gathers supported", verdict="unimplemented"),
    Reported("a reference indexed by arrays", JAX + "issues/25230", _index_by_arrays, _index_by_slices,
             lambda x: x * 2, (TILE,), "`broadcast_to` is a Triton-specific primitive"),
    Reported("a strided slice of a loaded array", JAX + "issues/38987", _even_and_odd_lanes, _even_and_odd_halves,
             lambda x: x[:, 0::2] - x[:, 1::2], (((8, 256), F32),), "expected strides to be confined to [1, 2)"),
    Reported("int64", JAX + "issues/23988", _wide_integers, _narrow_integers,
             lambda x: (x.astype(np.int64) * 3).astype(np.int32), (((8, 128), "int32"),),
             "64-bit types are not supported", verdict="unimplemented"),
    Reported("a bfloat16 accumulator", HELION + "pull/1647", _bfloat16_accumulator, _float32_accumulator,
             _dot, (((16, 128), "bfloat16"), ((128, 128), "bfloat16")), "Expected matmul acc to be 32-bit"),
    Reported("an array that the kernel closes over", JAX + "issues/21557", _captured_array, _passed_array,
             lambda x: x * np.arange(128, dtype=np.float32), (TILE,), "captures constants"),
    Reported("prefetched scalars used as a vector", HELION + "pull/2069", _prefetched_vector, _blocked_vector,
             lambda scales, x: x * scales, (((128,), F32), TILE), "Can only load scalars from SMEM"),
    Reported("a scalar stored to VMEM", JAX + "issues/22817", _scalar_in_vmem, _scalar_in_smem,
             lambda x: x + np.arange(8, dtype=np.int32), (((8,), "int32"),), "Cannot store scalars to VMEM"),
    Reported("a load from HBM", HELION + "pull/2018", _load_from_hbm, _copy_from_hbm,
             lambda x: x * 2, (TILE,), "Loads are only allowed on VMEM and SMEM references"),
    Reported("a SparseCore kernel where there is none", JAX + "issues/32639", _on_a_sparse_core, _on_the_tensor_core,
             lambda x: x, (((128,), "int32"),), "this TPU has no SparseCores",
             generations=("v4", "v5e"), verdict="unimplemented"),
)
# fmt: on
