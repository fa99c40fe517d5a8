"""Causal attention of too little precision."""

from benchmarks.variants.variant import Variant, variants

_SCORES = "scores = _dot(q, k.T, precision) * (1 / math.sqrt(d))"
_DOT = "return jnp.dot(x, y, precision=precision, preferred_element_type=jnp.float32)"
_BFLOAT16_PRODUCTS = (
    "return jnp.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32)"
)
_SCORES_ROUNDED = "scores = (_dot(q, k.T, precision) * (1 / math.sqrt(d))).astype(q.dtype).astype(jnp.float32)"

_E = "e = jnp.exp(scores - _shift(jnp.max(scores, axis=1))[:, None])"
_WEIGHTS = "weights = _divide(e, jnp.sum(e, axis=1))"
_OUT = "_dot(weights.astype(v.dtype), v, precision)"

ONE_BLOCK = [
    Variant(
        "the scale is applied after the softmax",
        "attention.one_block",
        "causal_attention",
        ((_SCORES, "scores = _dot(q, k.T, precision)"), (_WEIGHTS, f"{_WEIGHTS} * (1 / math.sqrt(d))")),
        numeric=True,
    ),
    *variants(
        "attention.one_block",
        "causal_attention",
        [
            ("no maximum is subtracted", _E, "e = jnp.exp(scores)"),
            ("scores are rounded to the inputs' dtype", _SCORES, _SCORES_ROUNDED),
            (
                "exponentials are computed in bfloat16",
                _E,
                "e = jnp.exp((scores - _shift(jnp.max(scores, axis=1))[:, None]).astype(jnp.bfloat16))\n"
                "    e = e.astype(jnp.float32)",
            ),
            (
                "the total is accumulated in the inputs' dtype",
                "jnp.sum(e, axis=1))",
                "jnp.sum(e.astype(v.dtype), axis=1, dtype=v.dtype).astype(jnp.float32))",
            ),
            (
                "weights are rounded to bfloat16 for every input",
                _OUT,
                "_dot(weights.astype(jnp.bfloat16).astype(v.dtype), v, precision)",
            ),
            (
                "weights are rounded to float8",
                _OUT,
                "_dot(weights.astype(jnp.float8_e4m3fn).astype(v.dtype), v, precision)",
            ),
            (
                "an epsilon of float16 is added to the total",
                _WEIGHTS,
                "weights = e / (jnp.sum(e, axis=1) + 1e-3)[:, None]",
            ),
            ("products are of bfloat16 operands, whatever the precision", _DOT, _BFLOAT16_PRODUCTS),
        ],
        numeric=True,
    ),
]

_TOTAL = "total = total * rescale + jnp.sum(e, axis=1)"
_ACCUMULATOR = "accumulator = accumulator * rescale[:, None] + _dot(e.astype(v.dtype), v, precision)"

ONLINE = variants(
    "attention.online",
    "causal_attention_online",
    [
        ("the weighted sum is not rescaled", _ACCUMULATOR, _ACCUMULATOR.replace(" * rescale[:, None]", "")),
        ("the total is not rescaled", _TOTAL, _TOTAL.replace(" * rescale", "")),
        (
            "each block's own maximum is subtracted, so rescaling overflows",
            "larger = jnp.maximum(maximum, ",
            "larger = jnp.maximum(-jnp.inf, ",
        ),
        ("the maximum starts from 0", "jnp.full(block_q, -jnp.inf, jnp.float32)", "jnp.zeros(block_q, jnp.float32)"),
        (
            "the weighted sum is rounded to bfloat16 after each block",
            _ACCUMULATOR,
            f"{_ACCUMULATOR}\n        accumulator = accumulator.astype(jnp.bfloat16).astype(jnp.float32)",
        ),
        (
            "the weighted sum is kept in the inputs' dtype",
            _ACCUMULATOR,
            f"{_ACCUMULATOR}\n        accumulator = accumulator.astype(v.dtype).astype(jnp.float32)",
        ),
        (
            "the total is kept in the inputs' dtype",
            _TOTAL,
            f"{_TOTAL}\n        total = total.astype(q.dtype).astype(jnp.float32)",
        ),
        (
            "the total is kept in float16",
            _TOTAL,
            f"{_TOTAL}\n        total = total.astype(jnp.float16).astype(jnp.float32)",
        ),
        (
            "the factor that rescales is rounded to bfloat16",
            "rescale = jnp.exp(maximum - shift)",
            "rescale = jnp.exp((maximum - shift).astype(jnp.bfloat16)).astype(jnp.float32)",
        ),
        (
            "exponentials are rounded to bfloat16",
            "_dot(e.astype(v.dtype), v, precision)",
            "_dot(e.astype(jnp.bfloat16).astype(v.dtype), v, precision)",
        ),
        ("scores are rounded to the inputs' dtype", _SCORES, _SCORES_ROUNDED),
        ("products are of bfloat16 operands, whatever the precision", _DOT, _BFLOAT16_PRODUCTS),
    ],
    numeric=True,
)

ATTENTION = (*ONE_BLOCK, *ONLINE)
