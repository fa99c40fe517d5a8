"""Attention for Hopper GPUs in Mosaic GPU: blocks of keys and values in a pipeline, a running maximum and sum."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

BLOCK = 64  # rows of queries that a program has, and of keys in a step
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def hopper_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """`softmax(q @ k.T / sqrt(64)) @ v`, of `(m, 64)` and twice `(n, 64)`, in float16 or bfloat16, whole blocks."""
    length = q.shape[1]
    rows = plgpu.Layout.WGMMA.reduce(1)

    def body(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any, q_smem: Any, loaded: Any) -> None:
        own = pl.ds(lax.axis_index("i") * BLOCK, BLOCK)
        plgpu.copy_gmem_to_smem(q_ref.at[own], q_smem, loaded)
        plgpu.barrier_wait(loaded)

        def step(_: Any, k_smem: Any, v_smem: Any, carry: Any) -> Any:
            total, most, weight = carry

            def multiply(acc: Any) -> jax.Array:
                plgpu.wgmma(acc, q_smem, k_smem.transpose((1, 0)))
                return acc[...]

            scores = pl.run_scoped(multiply, plgpu.ACC((BLOCK, BLOCK))) * length**-0.5
            new = jnp.maximum(most, scores.max(axis=1))
            shrink = jnp.exp(most - new)
            terms = jnp.exp(scores - lax.broadcast_in_dim(new, scores.shape, (0,)))
            weight = weight * shrink + terms.sum(axis=1)

            def add(acc: Any) -> None:
                plgpu.wgmma(acc, terms.astype(q.dtype), v_smem)

            total = total * lax.broadcast_in_dim(shrink, total.shape, (0,))
            return pl.run_state(add)(plgpu.ACC.init(total)), new, weight

        spec = plgpu.BlockSpec((BLOCK, length), lambda j: (j, 0), transforms=SWIZZLED)
        zeros = plgpu.layout_cast(jnp.zeros((BLOCK, length), jnp.float32), plgpu.Layout.WGMMA)
        start = [plgpu.layout_cast(jnp.full((BLOCK,), fill, jnp.float32), rows) for fill in (-jnp.inf, 0)]
        pipeline = plgpu.emit_pipeline(
            step, grid=(k.shape[0] // BLOCK,), in_specs=[spec, spec], max_concurrent_steps=2, init_carry=(zeros, *start)
        )
        total, _, weight = pipeline(k_ref, v_ref)
        q_smem[...] = (total / lax.broadcast_in_dim(weight, total.shape, (0,))).astype(q.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(q_smem, o_ref.at[own])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(q.shape[0] // BLOCK,),
        grid_names=("i",),
        scratch_types={
            "q_smem": plgpu.SMEM((BLOCK, length), q.dtype, transforms=SWIZZLED),
            "loaded": plgpu.Barrier(),
        },
    )(q, k, v)
