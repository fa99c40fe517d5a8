"""SwiGLU of too little precision."""

from benchmarks.variants.variant import variants

_SILU = "return x / (1.0 + jnp.exp(-x))"
_GATE = "plgpu.store(o_ref.at[at], (_silu(a)"
_DOT = "return jnp.dot(x, y, precision=precision, preferred_element_type=jnp.float32)"
_STEP = "return a + _dot(x, w1, precision), b + _dot(x, w2, precision)"
_GATE_OF_SUMS = "plgpu.store(o_ref.at[rows, columns], (_silu(a)"
_TO_BFLOAT16 = ".astype(jnp.bfloat16).astype(jnp.float32)"
_SILU_BFLOAT16 = "low = x.astype(jnp.bfloat16)\n    return x * (1 / (1 + jnp.exp(-low))).astype(jnp.float32)"

SWIGLU = (
    *variants(
        "swiglu.fused",
        "swiglu",
        [
            (
                "the sigmoid is exp(x) / (1 + exp(x)), which overflows",
                _SILU,
                "return x * (jnp.exp(x) / (1.0 + jnp.exp(x)))",
            ),
            ("the sigmoid is computed in bfloat16", _SILU, _SILU_BFLOAT16),
            (
                "sums are rounded to bfloat16 after each step",
                _STEP,
                "low, high = jnp.bfloat16, jnp.float32\n        "
                "a, b = a + _dot(x, w1, precision), b + _dot(x, w2, precision)\n        "
                "return a.astype(low).astype(high), b.astype(low).astype(high)",
            ),
            (
                "sums are kept in the inputs' dtype",
                _STEP,
                "a, b = a + _dot(x, w1, precision), b + _dot(x, w2, precision)\n        "
                "return a.astype(x.dtype).astype(jnp.float32), b.astype(x.dtype).astype(jnp.float32)",
            ),
            (
                "products are of bfloat16 operands, whatever the precision",
                _DOT,
                "return jnp.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32)",
            ),
            (
                "the gate is rounded to bfloat16 before the second factor",
                _GATE_OF_SUMS,
                f"{_GATE_OF_SUMS}{_TO_BFLOAT16}",
            ),
        ],
        numeric=True,
    ),
    *variants(
        "swiglu.gate",
        "swiglu_gate",
        [
            (
                "the sigmoid is exp(x) / (1 + exp(x)), which overflows",
                _SILU,
                "return x * (jnp.exp(x) / (1.0 + jnp.exp(x)))",
            ),
            ("the sigmoid is computed in bfloat16", _SILU, _SILU_BFLOAT16),
            (
                "the sigmoid is a tanh, which cancels far below zero",
                _SILU,
                "return x * (0.5 + 0.5 * jnp.tanh(0.5 * x))",
            ),
            (
                "the gate is rounded to bfloat16 before the second factor",
                _GATE,
                f"{_GATE}{_TO_BFLOAT16}",
            ),
            (
                "an epsilon is added to the sigmoid's denominator",
                _SILU,
                "return x / (1.0 + jnp.exp(-x) + 1e-4)",
            ),
        ],
        numeric=True,
    ),
)
