"""Rotary embedding of too little precision."""

from benchmarks.variants.variant import variants

_FREQUENCY = "frequency = jnp.exp(feature.astype(jnp.float32) * (-2 * math.log(base) / d))"
_PRODUCT = "position.astype(jnp.float32)[:, None] * frequency[None, :]"
_ANGLE = f"return {_PRODUCT}"
_TURNED = "cosine, sine = jnp.cos(angle), jnp.sin(angle)"
_REDUCED = "angle = angle - 2 * math.pi * jnp.round(angle * (0.5 / math.pi))\n    square = angle * angle\n    "

ROTARY = variants(
    "rotary.rotated",
    "rotary",
    [
        (
            "frequencies are rounded to float16",
            _FREQUENCY,
            f"{_FREQUENCY}.astype(jnp.float16).astype(jnp.float32)",
        ),
        (
            "exponents of the frequencies are rounded to bfloat16",
            _FREQUENCY,
            "frequency = jnp.exp((feature * (-2 * math.log(base) / d)).astype(jnp.bfloat16).astype(jnp.float32))",
        ),
        (
            "positions are rounded to bfloat16",
            _ANGLE,
            "return position.astype(jnp.bfloat16).astype(jnp.float32)[:, None] * frequency[None, :]",
        ),
        (
            "angles are rounded to bfloat16",
            _ANGLE,
            f"return ({_PRODUCT}).astype(jnp.bfloat16).astype(jnp.float32)",
        ),
        (
            "angles are rounded to float16",
            _ANGLE,
            f"return ({_PRODUCT}).astype(jnp.float16).astype(jnp.float32)",
        ),
        (
            "angles are reduced by a rounded 2 pi",
            _TURNED,
            f"angle = angle - 6.2832 * jnp.floor(angle / 6.2832)\n    {_TURNED}",
        ),
        (
            "sine and cosine are polynomials of degree 7 and 6",
            _TURNED,
            f"{_REDUCED}cosine = 1 - square / 2 * (1 - square / 12 * (1 - square / 30))\n    "
            "sine = angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42)))",
        ),
        (
            "sine and cosine are rounded to bfloat16",
            _TURNED,
            "cosine, sine = (f(angle).astype(jnp.bfloat16).astype(jnp.float32) for f in (jnp.cos, jnp.sin))",
        ),
        (
            "sine is the root of 1 - cos^2",
            _TURNED,
            "cosine, sign = jnp.cos(angle), jnp.where(jnp.sin(angle) < 0, -1.0, 1.0)\n    "
            "sine = sign * jnp.sqrt(jnp.where(cosine * cosine < 1, 1 - cosine * cosine, 0.0))",
        ),
    ],
    numeric=True,
)
