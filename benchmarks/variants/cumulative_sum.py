"""Cumulative sums with a bug each, most of them numerical."""

from benchmarks.variants.variant import Variant, variants

_CARRY = "return carry + jnp.sum(x)\n"
_BACKWARDS = "jnp.where(inside, columns - 1 - position, position) if reverse else position"

CUMULATIVE_SUM = [
    *[
        Variant(
            f"the carry is kept in {dtype}",
            "cumulative_sum.sums",
            "cumulative_sum",
            (
                (_CARRY, f"return (carry + jnp.sum(x)).astype(jnp.{dtype})\n"),
                ("step, jnp.float32(0.0)", f"step, jnp.{dtype}(0.0)"),
            ),
            numeric=True,
        )
        for dtype in ("bfloat16", "float16")
    ],
    *variants(
        "cumulative_sum.sums",
        "cumulative_sum",
        [
            (
                "the carry is rounded to the output's dtype",
                _CARRY,
                "return (carry + jnp.sum(x)).astype(o_ref.dtype).astype(jnp.float32)\n",
            ),
            (
                "a tile's total is rounded to the input's dtype",
                _CARRY,
                "return carry + jnp.sum(x).astype(x_ref.dtype).astype(jnp.float32)\n",
            ),
            (
                "sums within a tile are in the input's dtype",
                "jnp.cumsum(x)",
                "jnp.cumsum(x.astype(x_ref.dtype)).astype(jnp.float32)",
            ),
            (
                "sums within a tile are of terms rounded to bfloat16",
                "jnp.cumsum(x)",
                "jnp.cumsum(x.astype(jnp.bfloat16).astype(jnp.float32))",
            ),
            (
                "a tile's sums from its start are its total less those from its end",
                "jnp.cumsum(x)",
                "(jnp.sum(x) - jnp.cumsum(x[::-1])[::-1] + x)",
            ),
        ],
        numeric=True,
    ),
    Variant(
        "sums from the end are the total less those from the start",
        "cumulative_sum.sums",
        "cumulative_sum",
        (
            (_BACKWARDS, "position"),
            ("    return pl.pallas_call(", "    forward = pl.pallas_call("),
            (
                "        compiler_params=plgpu.CompilerParams(),\n    )(x)\n",
                "        compiler_params=plgpu.CompilerParams(),\n    )(x.astype(jnp.float32))\n"
                "    result = forward[:, -1:] - forward + x if reverse else forward\n"
                "    return result.astype(x.dtype)\n",
            ),
            (
                "out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype)",
                "out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32)",
            ),
        ),
        numeric=True,
    ),
]
