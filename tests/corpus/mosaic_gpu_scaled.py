"""Products of Mosaic GPU whose elements of 4 or 8 bits share a scale in blocks, right and broken in one place each."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from tests.corpus.mosaic_gpu import HAS_DIALECT
from tests.corpus.twin import Twin


def _tiled(scales: jax.Array, order: tuple[int, ...]) -> jax.Array:
    """Tiles of 32 x 16: 128 rows and 4 scales of each, the rows that are 32 apart side by side."""
    rows, count = scales.shape
    parts = scales.reshape(rows // 128, 4, 32, count // 4, 4)
    return parts.transpose(order).reshape(rows // 128, count // 4, 32, 16)


def block_scaled(bug: str, dtype: Any, scale: Any, blocks: int) -> Callable[..., jax.Array]:
    """A product by tcgen05; `r` and `c` are the scales of blocks of rows of `a` and `b`.

    Each of two blocks has half of the rows of `a`, `b` and `r`, and all of `c`.
    """

    def body(*arrays: Any, **refs: Any) -> None:
        *inputs, result = arrays
        block, both = jax.lax.axis_index("x"), {"collective_axis": "x"} if blocks == 2 else {}
        for source, name in zip(inputs, "abrc", strict=True):
            part = plgpu.CopyPartition.REPLICATED if name == "c" else plgpu.CopyPartition.PARTITIONED(0)
            shared = {"collective_axes": "x", "leader_tracked": part} if both else {}
            plgpu.copy_gmem_to_smem(source, refs[name], refs["loaded"], **shared)

        @pl.when(block == 0)
        def _() -> None:
            plgpu.barrier_wait(refs["loaded"])
            plgpu.async_copy_scales_to_tmem(refs["r"], refs["rows"], **both)
            if bug != "scales not copied":
                own = {} if bug == "scales of one block only" else both
                plgpu.async_copy_scales_to_tmem(refs["c"], refs["columns"], **own)
            scales = {"a_scale": refs["rows"], "b_scale": refs["columns"], **both}
            columns = refs["b"].transpose((1, 0))
            plgpu.tcgen05_mma(refs["acc"], refs["a"], columns, refs["done"], accumulate=False, **scales)

        if bug != "product not waited for":
            plgpu.barrier_wait(refs["done"])
        refs["out"][...] = plgpu.async_load_tmem(refs["acc"])
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(refs["out"], result.at[pl.ds(block * 128, 128)])
        plgpu.wait_smem_to_gmem(0)

    def kernel(a: jax.Array, b: jax.Array, r: jax.Array, c: jax.Array) -> jax.Array:
        order = (0, 3, 1, 2, 4) if bug == "scales in the order of the rows" else (0, 3, 2, 1, 4)
        arrays = {"a": a.astype(dtype), "b": b.astype(dtype)}
        scales = {"r": _tiled(r.astype(scale), order), "c": _tiled(c.astype(scale), order)}
        transforms = (plgpu.TilingTransform((8, 1024 // jnp.finfo(dtype).bits)), plgpu.SwizzleTransform(128))
        shape, collective = (a.shape[0] // blocks, b.shape[0]), blocks == 2
        tensor = partial(plgpu.TMEM, dtype=scale, layout=plgpu.TMEMLayout.SCALES_LAYOUT, collective=collective)
        halves = {name: (x.shape[0] // blocks, *x.shape[1:]) for name, x in (*arrays.items(), *scales.items())}
        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[0]), jnp.float32),
            cluster=(blocks,),
            cluster_names=("x",),
            scratch_types={
                **{name: plgpu.SMEM(halves[name], dtype, transforms=transforms) for name in "ab"},
                "r": plgpu.SMEM(halves["r"], scale),
                "c": plgpu.SMEM(scales["c"].shape, scale),
                "rows": tensor((r.shape[0] // blocks, r.shape[1])),
                "columns": tensor(c.shape),
                "acc": plgpu.TMEM(shape, jnp.float32, collective=collective),
                "out": plgpu.SMEM(shape, jnp.float32),
                "loaded": plgpu.Barrier(num_arrivals=4),
                "done": plgpu.Barrier(orders_tensor_core=True),
            },
        )(*arrays.values(), *scales.values())

    return kernel


def _product(a: np.ndarray, b: np.ndarray, r: np.ndarray, c: np.ndarray) -> np.ndarray:
    left, right = (x * np.repeat(scales, x.shape[1] // scales.shape[1], axis=1) for x, scales in ((a, r), (b, c)))
    return left @ right.T


def _elements(axes: str, values: list[float]) -> Any:
    """Values that the narrow dtypes have, so that all sums are exact."""
    functions: dict[str, Callable[..., Any]] = {
        "m k": lambda rng, m, k: rng.choice(values, (m, k)),
        "n k": lambda rng, n, k: rng.choice(values, (n, k)),
        "m s": lambda rng, m, s: rng.choice(values, (m, s)),
        "n s": lambda rng, n, s: rng.choice(values, (n, s)),
    }
    return kt.derived(axes, functions[axes], dtypes="float32")


def _twin(bug: str, verdict: str, dtype: Any, scale: Any, block: int, *lines: str, blocks: int = 1) -> Twin:
    def make(broken: bool) -> kt.Pairing:
        contracted = 1024 // jnp.finfo(dtype).bits  # a row of 128 bytes
        lengths = {"m": 128 * blocks, "n": 256, "k": contracted, "s": contracted // block}
        return kt.oracle_for(
            block_scaled(bug if broken else "", dtype, scale, blocks),
            a=_elements("m k", [-6.0, -1.5, 0.0, 0.5, 1.0, 4.0]),
            b=_elements("n k", [-4.0, -1.0, 0.0, 0.5, 3.0]),
            r=_elements("m s", [0.5, 1.0, 2.0]),
            c=_elements("n s", [0.25, 1.0, 4.0]),
            dims={name: kt.dim(values=(length,)) for name, length in lengths.items()},
        )(_product)

    name = f"{jnp.dtype(dtype).name} with {jnp.dtype(scale).name}: {bug}"
    verdicts = {"simulate:sm_100": verdict} if HAS_DIALECT else {}
    return Twin(name=name, make=make, verdicts=verdicts, lines=lines)


_FLOAT4, _FLOAT8 = jnp.float4_e2m1fn, jnp.float8_e4m3fn
SCALED = (
    _twin("scales not copied", "uninitialised", _FLOAT4, jnp.float8_e8m0fnu, 32, "plgpu.tcgen05_mma("),
    _twin("scales in the order of the rows", "mismatch", _FLOAT4, jnp.float8_e4m3fn, 16),
    _twin("product not waited for", "race", _FLOAT8, jnp.float8_e8m0fnu, 32, "plgpu.tcgen05_mma("),
    _twin("scales of one block only", "uninitialised", _FLOAT4, jnp.float8_e8m0fnu, 32, "plgpu.tcgen05_mma(", blocks=2),
)
