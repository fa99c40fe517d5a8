"""Attention, rotary embedding, SwiGLU, layer norm, cross entropy and cumulative sums with a bug each."""

from tests.corpus.twin import edited, edits

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
    edited("the scale is applied after the softmax", "attention.one_block", "causal_attention", ((_SCORES,
           "scores = _dot(q, k.T, precision)"), (_WEIGHTS, f"{_WEIGHTS} * (1 / math.sqrt(d))")), numeric=True),
    *edits("attention.one_block", "causal_attention", [
        ("no maximum is subtracted", _E, "e = jnp.exp(scores)"),
        ("scores are rounded to the inputs' dtype", _SCORES, _SCORES_ROUNDED),
        ("exponentials are computed in bfloat16", _E,
         "e = jnp.exp((scores - _shift(jnp.max(scores, axis=1))[:, None]).astype(jnp.bfloat16))\n"
         "    e = e.astype(jnp.float32)"),
        ("the total is accumulated in the inputs' dtype", "jnp.sum(e, axis=1))",
         "jnp.sum(e.astype(v.dtype), axis=1, dtype=v.dtype).astype(jnp.float32))"),
        ("weights are rounded to bfloat16 for every input", _OUT,
         "_dot(weights.astype(jnp.bfloat16).astype(v.dtype), v, precision)"),
        ("weights are rounded to float8", _OUT,
         "_dot(weights.astype(jnp.float8_e4m3fn).astype(v.dtype), v, precision)"),
        ("an epsilon of float16 is added to the total", _WEIGHTS,
         "weights = e / (jnp.sum(e, axis=1) + 1e-3)[:, None]"),
        ("products are of bfloat16 operands, whatever the precision", _DOT, _BFLOAT16_PRODUCTS),
    ], numeric=True),
]  # fmt: skip

_TOTAL = "total = total * rescale + jnp.sum(e, axis=1)"
_ACCUMULATOR = "accumulator = accumulator * rescale[:, None] + _dot(e.astype(v.dtype), v, precision)"

ONLINE = edits("attention.online", "causal_attention_online", [
    ("the weighted sum is not rescaled", _ACCUMULATOR, _ACCUMULATOR.replace(" * rescale[:, None]", "")),
    ("the total is not rescaled", _TOTAL, _TOTAL.replace(" * rescale", "")),
    ("each block's own maximum is subtracted, so rescaling overflows", "larger = jnp.maximum(maximum, ",
     "larger = jnp.maximum(-jnp.inf, "),
    ("the maximum starts from 0", "jnp.full(block_q, -jnp.inf, jnp.float32)", "jnp.zeros(block_q, jnp.float32)"),
    ("the weighted sum is rounded to bfloat16 after each block", _ACCUMULATOR,
     f"{_ACCUMULATOR}\n        accumulator = accumulator.astype(jnp.bfloat16).astype(jnp.float32)"),
    ("the weighted sum is kept in the inputs' dtype", _ACCUMULATOR,
     f"{_ACCUMULATOR}\n        accumulator = accumulator.astype(v.dtype).astype(jnp.float32)"),
    ("the total is kept in the inputs' dtype", _TOTAL,
     f"{_TOTAL}\n        total = total.astype(q.dtype).astype(jnp.float32)"),
    ("the total is kept in float16", _TOTAL,
     f"{_TOTAL}\n        total = total.astype(jnp.float16).astype(jnp.float32)"),
    ("the factor that rescales is rounded to bfloat16", "rescale = jnp.exp(maximum - shift)",
     "rescale = jnp.exp((maximum - shift).astype(jnp.bfloat16)).astype(jnp.float32)"),
    ("exponentials are rounded to bfloat16", "_dot(e.astype(v.dtype), v, precision)",
     "_dot(e.astype(jnp.bfloat16).astype(v.dtype), v, precision)"),
    ("scores are rounded to the inputs' dtype", _SCORES, _SCORES_ROUNDED),
    ("products are of bfloat16 operands, whatever the precision", _DOT, _BFLOAT16_PRODUCTS),
], numeric=True)  # fmt: skip

ATTENTION = (*ONE_BLOCK, *ONLINE)

_FREQUENCY = "frequency = jnp.exp(feature.astype(jnp.float32) * (-2 * math.log(base) / d))"
_PRODUCT = "position.astype(jnp.float32)[:, None] * frequency[None, :]"
_ANGLE = f"return {_PRODUCT}"
_TURNED = "cosine, sine = jnp.cos(angle), jnp.sin(angle)"
_REDUCED = "angle = angle - 2 * math.pi * jnp.round(angle * (0.5 / math.pi))\n    square = angle * angle\n    "

ROTARY = edits("rotary.rotated", "rotary", [
    ("frequencies are rounded to float16", _FREQUENCY, f"{_FREQUENCY}.astype(jnp.float16).astype(jnp.float32)"),
    ("exponents of the frequencies are rounded to bfloat16", _FREQUENCY,
     "frequency = jnp.exp((feature * (-2 * math.log(base) / d)).astype(jnp.bfloat16).astype(jnp.float32))"),
    ("positions are rounded to bfloat16", _ANGLE,
     "return position.astype(jnp.bfloat16).astype(jnp.float32)[:, None] * frequency[None, :]"),
    ("angles are rounded to bfloat16", _ANGLE, f"return ({_PRODUCT}).astype(jnp.bfloat16).astype(jnp.float32)"),
    ("angles are rounded to float16", _ANGLE, f"return ({_PRODUCT}).astype(jnp.float16).astype(jnp.float32)"),
    ("angles are reduced by a rounded 2 pi", _TURNED,
     f"angle = angle - 6.2832 * jnp.floor(angle / 6.2832)\n    {_TURNED}"),
    ("sine and cosine are polynomials of degree 7 and 6", _TURNED,
     f"{_REDUCED}cosine = 1 - square / 2 * (1 - square / 12 * (1 - square / 30))\n    "
     "sine = angle * (1 - square / 6 * (1 - square / 20 * (1 - square / 42)))"),
    ("sine and cosine are rounded to bfloat16", _TURNED,
     "cosine, sine = (f(angle).astype(jnp.bfloat16).astype(jnp.float32) for f in (jnp.cos, jnp.sin))"),
    ("sine is the root of 1 - cos^2", _TURNED,
     "cosine, sign = jnp.cos(angle), jnp.where(jnp.sin(angle) < 0, -1.0, 1.0)\n    "
     "sine = sign * jnp.sqrt(jnp.where(cosine * cosine < 1, 1 - cosine * cosine, 0.0))"),
], numeric=True)  # fmt: skip

_SILU = "return x / (1.0 + jnp.exp(-x))"
_GATE = "plgpu.store(o_ref.at[at], (_silu(a)"
_STEP = "return a + _dot(x, w1, precision), b + _dot(x, w2, precision)"
_GATE_OF_SUMS = "plgpu.store(o_ref.at[rows, columns], (_silu(a)"
_TO_BFLOAT16 = ".astype(jnp.bfloat16).astype(jnp.float32)"
_SILU_BFLOAT16 = "low = x.astype(jnp.bfloat16)\n    return x * (1 / (1 + jnp.exp(-low))).astype(jnp.float32)"

SWIGLU = (
    *edits("swiglu.fused", "swiglu", [
        ("the sigmoid is exp(x) / (1 + exp(x)), which overflows", _SILU,
         "return x * (jnp.exp(x) / (1.0 + jnp.exp(x)))"),
        ("the sigmoid is computed in bfloat16", _SILU, _SILU_BFLOAT16),
        ("sums are rounded to bfloat16 after each step", _STEP, "low, high = jnp.bfloat16, jnp.float32\n        "
         "a, b = a + _dot(x, w1, precision), b + _dot(x, w2, precision)\n        "
         "return a.astype(low).astype(high), b.astype(low).astype(high)"),
        ("sums are kept in the inputs' dtype", _STEP,
         "a, b = a + _dot(x, w1, precision), b + _dot(x, w2, precision)\n        "
         "return a.astype(x.dtype).astype(jnp.float32), b.astype(x.dtype).astype(jnp.float32)"),
        ("products are of bfloat16 operands, whatever the precision", _DOT,
         "return jnp.dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32)"),
        ("the gate is rounded to bfloat16 before the second factor", _GATE_OF_SUMS, f"{_GATE_OF_SUMS}{_TO_BFLOAT16}"),
    ], numeric=True),
    *edits("swiglu.gate", "swiglu_gate", [
        ("the sigmoid is exp(x) / (1 + exp(x)), which overflows", _SILU,
         "return x * (jnp.exp(x) / (1.0 + jnp.exp(x)))"),
        ("the sigmoid is computed in bfloat16", _SILU, _SILU_BFLOAT16),
        ("the sigmoid is a tanh, which cancels far below zero", _SILU, "return x * (0.5 + 0.5 * jnp.tanh(0.5 * x))"),
        ("the gate is rounded to bfloat16 before the second factor", _GATE, f"{_GATE}{_TO_BFLOAT16}"),
        ("an epsilon is added to the sigmoid's denominator", _SILU, "return x / (1.0 + jnp.exp(-x) + 1e-4)"),
    ], numeric=True),
)  # fmt: skip

LAYER_NORM = [
    *edits("layer_norm.normalised", "layer_norm", [
        ("the variance is the mean of squares less the square of the mean",
         "jnp.sum(centred * centred) / columns + EPSILON", "jnp.sum(x * x) / columns - mean * mean + EPSILON"),
        ("the mean is rounded to the input's dtype", "mean = jnp.sum(x) / columns",
         "mean = (jnp.sum(x) / columns).astype(x_ref.dtype).astype(jnp.float32)"),
        ("the mean's sum is accumulated in bfloat16", "mean = jnp.sum(x) / columns",
         "mean = jnp.sum(x.astype(jnp.bfloat16), dtype=jnp.bfloat16).astype(jnp.float32) / columns"),
        ("epsilon is cast to float16", "/ columns + EPSILON", "/ columns + jnp.float16(EPSILON)"),
        ("the variance and epsilon are added in float16", "jnp.sum(centred * centred) / columns + EPSILON",
         "((jnp.sum(centred * centred) / columns).astype(jnp.float16) + jnp.float16(EPSILON)).astype(jnp.float32)"),
        ("epsilon is added outside of the root", "jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)",
         "1.0 / (jnp.sqrt(jnp.sum(centred * centred) / columns) + EPSILON)"),
        ("the reciprocal root is refined once from bfloat16",
         "scale = jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)",
         "variance = jnp.sum(centred * centred) / columns + EPSILON\n"
         "    guess = jax.lax.rsqrt(variance).astype(jnp.bfloat16).astype(jnp.float32)\n"
         "    scale = guess * (1.5 - 0.5 * variance * guess * guess)"),
        ("the gradient's normalised row is rounded to bfloat16", "y = (x - mean_ref[row]) * scale\n",
         "y = ((x - mean_ref[row]) * scale).astype(jnp.bfloat16).astype(jnp.float32)\n"),
        ("the gradient's two means are in bfloat16",
         "along = jnp.sum(y * dy) / columns\n    dx = scale * (dy - jnp.sum(dy) / columns - y * along)",
         "low = jnp.bfloat16\n" "    sums = (jnp.sum(each.astype(low), dtype=low) for each in (y * dy, dy))\n"
         "    along, mean = (each.astype(jnp.float32) / columns for each in sums)\n"
         "    dx = scale * (dy - mean - y * along)"),
        ("the gradient of weight is of rows with a scale of bfloat16", "y = (x - mean_ref[row]) * scale_ref[row]",
         "y = (x - mean_ref[row]) * scale_ref[row].astype(jnp.bfloat16).astype(jnp.float32)"),
        ("the gradients of weight and bias are summed in bfloat16",
         "return sums[0] + y * g, sums[1] + g\n\n    zeros = jnp.zeros(BLOCK, jnp.float32)",
         "return sums[0] + (y * g).astype(jnp.bfloat16), sums[1] + g.astype(jnp.bfloat16)\n\n"
         "    zeros = jnp.zeros(BLOCK, jnp.bfloat16)"),
    ], numeric=True),
    *edits("layer_norm.normalised", "layer_norm", [
        ("the variance's mean is over the padded row", "jnp.sum(centred * centred) / columns",
         "jnp.mean(centred * centred)"),
    ]),
]  # fmt: skip

_SCALED, _OF_TILE = "total * jnp.exp(maximum - shift)", "jnp.sum(jnp.exp(x - shift))"
_CROSS_ENTROPY_TOTAL = f"total = {_OF_TILE}"
_LOSS = "o_ref[row] = jnp.log(total) - (_at_label(x, at, labels_ref[row]) - shift)"
_RUNNING_TOTAL = f"total = {_SCALED} + {_OF_TILE}"

CROSS_ENTROPY = [
    *edits("cross_entropy.whole_rows", "cross_entropy", [
        ("no maximum is subtracted", f"shift = _shift(jnp.max(x))\n    {_CROSS_ENTROPY_TOTAL}",
         f"shift = 0.0\n    {_CROSS_ENTROPY_TOTAL}"),
        ("the sum is accumulated in bfloat16", _CROSS_ENTROPY_TOTAL,
         "total = jnp.sum(jnp.exp(x - shift).astype(jnp.bfloat16), dtype=jnp.bfloat16).astype(jnp.float32)"),
        ("exponentials of capped logits are unshifted and in float16",
         f"shift = _shift(jnp.max(x))\n    {_CROSS_ENTROPY_TOTAL}",
         "shift = _shift(jnp.max(x)) if softcap is None else 0.0\n"
         "    total = jnp.sum(jnp.exp((x - shift).astype(jnp.float16)).astype(jnp.float32))"),
        ("the cap's tanh is of exponentials that overflow", "softcap * jnp.tanh(x / softcap)",
         "softcap * (jnp.exp(2 * x / softcap) - 1) / (jnp.exp(2 * x / softcap) + 1)"),
        ("the label's logit is picked by a product with a bfloat16 one-hot row",
         "jnp.sum(jnp.where(at == label, x, 0.0))",
         "jnp.sum((at == label).astype(jnp.bfloat16) * jnp.where(x == -jnp.inf, 0.0, x).astype(jnp.bfloat16),\n"
         "                   dtype=jnp.float32)"),
        ("the log-sum-exp is rounded to the input's dtype", _LOSS,
         "o_ref[row] = (jnp.log(total) + shift).astype(x_ref.dtype).astype(jnp.float32) - "
         "_at_label(x, at, labels_ref[row])"),
        ("1e-5 is added to the sum against a logarithm of zero", _LOSS, _LOSS.replace("total", "total + 1e-5")),
    ], numeric=True),
    edited("logits are capped and exponentiated in the input's dtype", "cross_entropy.whole_rows", "cross_entropy",
           (("other=0).astype(jnp.float32)", "other=0)"), (_LOSS,
           _LOSS.replace("= ", "= (") + ").astype(jnp.float32)")), numeric=True),
    *edits("cross_entropy.tiled", "cross_entropy_tiled", [
        ("a tile's sum is accumulated in float16", _RUNNING_TOTAL, "low = jnp.exp(x - shift).astype(jnp.float16)\n"
         "        low = jnp.sum(low, dtype=jnp.float16).astype(jnp.float32)\n"
         "        total = total * jnp.exp(maximum - shift) + low"),
        ("the scale of the sum so far is rounded to bfloat16", _SCALED,
         "total * jnp.exp(maximum - shift).astype(jnp.bfloat16).astype(jnp.float32)"),
        ("the tiles' maxima are rounded to bfloat16 in the scale alone", _SCALED,
         "total * jnp.exp((maximum.astype(jnp.bfloat16) - shift.astype(jnp.bfloat16)).astype(jnp.float32))"),
    ], numeric=True),
    edited("the running sum is carried in bfloat16", "cross_entropy.tiled", "cross_entropy_tiled", ((_RUNNING_TOTAL,
           f"total = ({_SCALED} + {_OF_TILE}).astype(jnp.bfloat16)"),
           ("jnp.float32(-jnp.inf), jnp.float32(0.0), jnp.float32(0.0)",
           "jnp.float32(-jnp.inf), jnp.bfloat16(0.0), jnp.float32(0.0)"), ("jnp.log(total) - (at_label",
           "jnp.log(total.astype(jnp.float32)) - (at_label")), numeric=True),
]  # fmt: skip

_CARRY = "return carry + jnp.sum(x)\n"
_BACKWARDS = "jnp.where(inside, columns - 1 - position, position) if reverse else position"

CUMULATIVE_SUM = [
    *[
        edited(
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
    *edits(
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
    edited(
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

COMPOSED = (*ATTENTION, *ROTARY, *SWIGLU, *LAYER_NORM, *CROSS_ENTROPY, *CUMULATIVE_SUM)
