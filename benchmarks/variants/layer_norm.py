"""Layer norm with a bug each, most of them numerical."""

from benchmarks.variants.variant import variants

LAYER_NORM = variants(
    "layer_norm.normalised",
    "layer_norm",
    [
        (
            "the variance is the mean of squares less the square of the mean",
            "jnp.sum(centred * centred) / columns + EPSILON",
            "jnp.sum(x * x) / columns - mean * mean + EPSILON",
        ),
        (
            "the mean is rounded to the input's dtype",
            "mean = jnp.sum(x) / columns",
            "mean = (jnp.sum(x) / columns).astype(x_ref.dtype).astype(jnp.float32)",
        ),
        (
            "the mean's sum is accumulated in bfloat16",
            "mean = jnp.sum(x) / columns",
            "mean = jnp.sum(x.astype(jnp.bfloat16), dtype=jnp.bfloat16).astype(jnp.float32) / columns",
        ),
        ("epsilon is cast to float16", "/ columns + EPSILON", "/ columns + jnp.float16(EPSILON)"),
        (
            "the variance and epsilon are added in float16",
            "jnp.sum(centred * centred) / columns + EPSILON",
            "((jnp.sum(centred * centred) / columns).astype(jnp.float16) + jnp.float16(EPSILON)).astype(jnp.float32)",
        ),
        (
            "epsilon is added outside of the root",
            "jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)",
            "1.0 / (jnp.sqrt(jnp.sum(centred * centred) / columns) + EPSILON)",
        ),
        (
            "the reciprocal root is refined once from bfloat16",
            "scale = jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)",
            "variance = jnp.sum(centred * centred) / columns + EPSILON\n"
            "    guess = jax.lax.rsqrt(variance).astype(jnp.bfloat16).astype(jnp.float32)\n"
            "    scale = guess * (1.5 - 0.5 * variance * guess * guess)",
        ),
        (
            "the gradient's normalised row is rounded to bfloat16",
            "y = (x - mean_ref[row]) * scale\n",
            "y = ((x - mean_ref[row]) * scale).astype(jnp.bfloat16).astype(jnp.float32)\n",
        ),
        (
            "the gradient's two means are in bfloat16",
            "along = jnp.sum(y * dy) / columns\n    dx = scale * (dy - jnp.sum(dy) / columns - y * along)",
            "low = jnp.bfloat16\n"
            "    sums = (jnp.sum(each.astype(low), dtype=low) for each in (y * dy, dy))\n"
            "    along, mean = (each.astype(jnp.float32) / columns for each in sums)\n"
            "    dx = scale * (dy - mean - y * along)",
        ),
        (
            "the gradient of weight is of rows with a scale of bfloat16",
            "y = (x - mean_ref[row]) * scale_ref[row]",
            "y = (x - mean_ref[row]) * scale_ref[row].astype(jnp.bfloat16).astype(jnp.float32)",
        ),
        (
            "the gradients of weight and bias are summed in bfloat16",
            "return sums[0] + y * g, sums[1] + g\n\n    zeros = jnp.zeros(BLOCK, jnp.float32)",
            "return sums[0] + (y * g).astype(jnp.bfloat16), sums[1] + g.astype(jnp.bfloat16)\n\n"
            "    zeros = jnp.zeros(BLOCK, jnp.bfloat16)",
        ),
    ],
    numeric=True,
) + variants(
    "layer_norm.normalised",
    "layer_norm",
    [
        (
            "the variance's mean is over the padded row",
            "jnp.sum(centred * centred) / columns",
            "jnp.mean(centred * centred)",
        )
    ],
)
