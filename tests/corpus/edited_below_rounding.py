"""Kernels of `kernels/` whose bugs change results by less than a rounding: see benchmarks/below_rounding.py."""

from tests.corpus.twin import edited

_ONLINE = "attention.online", "causal_attention_online"
_ONE_BLOCK = "attention.one_block", "causal_attention"
_FUSED = "softmax.fused", "softmax_fused"
_LAYER_NORM = "layer_norm.normalised", "layer_norm"
_ENTROPY = "cross_entropy.tiled", "cross_entropy_tiled"
_MATMUL = "matmul.tiled", "matmul"
_ROTARY = "rotary.rotated", "rotary"

_EXP = "e = jnp.exp(x - _shift(jnp.max(x), finite))\n    plgpu.store(o_ref.at[at], _divide(e, jnp.sum(e))"
_EXP2 = "e = jnp.exp2((x - _shift(jnp.max(x), finite)) * 1.4427)\n    plgpu.store(o_ref.at[at], _divide(e, jnp.sum(e))"
_ROOT = "scale = jax.lax.rsqrt(jnp.sum(centred * centred) / columns + EPSILON)"
_LOSS = "o_ref[row] = jnp.log(total) - (at_label - _shift(maximum))"
_WEIGHTS = "e = jnp.exp(scores - _shift(jnp.max(scores, axis=1))[:, None])\n    weights"
_SEEN = "jnp.isfinite(jnp.max(scores, axis=1))[:, None] & (jnp.arange(scores.shape[1]) < sk)[None, :]"
_ZEROS = "zeros = jnp.zeros((block_m, block_n), jnp.float32)\n    result"

BELOW_ROUNDING = (
    edited("1/sqrt(d) to four digits", *_ONLINE, (("(1 / math.sqrt(d))", "round(1 / math.sqrt(d), 4)"),)),
    edited("1e-7 in the total", *_ONLINE, (("_divide(accumulator, total)", "_divide(accumulator, total + 1e-7)"),)),
    edited("a rescale 2^-22 off", *_ONLINE, (("rescale = jnp.exp(maximum - shift)",
           "rescale = jnp.exp(maximum - shift) * (1 - 2.0**-22)"),)),
    edited("log2(e) to five digits", *_FUSED, ((_EXP, _EXP2),)),
    edited("1e-8 in the total", *_FUSED, (("_divide(e, jnp.sum(e)).astype(o_ref.dtype)",
           "_divide(e, jnp.sum(e) + 1e-8).astype(o_ref.dtype)"),)),
    edited("epsilon 1.01e-5 for 1e-5", *_LAYER_NORM, (("EPSILON = 1e-5", "EPSILON = 1.01e-5"),)),
    edited("epsilon 1e-6 for 1e-5", *_LAYER_NORM, (("EPSILON = 1e-5", "EPSILON = 1e-6"),)),
    edited("epsilon outside of the root", *_LAYER_NORM, ((_ROOT,
           "scale = 1 / (jnp.sqrt(jnp.sum(centred * centred) / columns) + EPSILON)"),)),
    edited("epsilon 1% off", "rms_norm.normalised", "rms_norm", (("EPSILON = 2.0**-10",
           "EPSILON = 2.0**-10 * 1.01"),)),
    edited("base 10001 for 10000", *_ROTARY, (("BLOCK, BASE = 32, 10000.0", "BLOCK, BASE = 32, 10001.0"),)),
    edited("an exponent to five digits", *_ROTARY, (("(-2 * math.log(base) / d)",
           "round(-2 * math.log(base) / d, 5)"),)),
    edited("1e-7 in the total", *_ENTROPY, ((_LOSS, _LOSS.replace("log(total)", "log(total + 1e-7)")),)),
    edited("label smoothing of 1e-7", *_ENTROPY, ((_LOSS,
           "o_ref[row] = (1 - 1e-7) * (jnp.log(total) - (at_label - _shift(maximum)))"),)),
    edited("1.00001 + exp(-x)", "swiglu.gate", "swiglu_gate", (("x / (1.0 + jnp.exp(-x))",
           "x / (1.00001 + jnp.exp(-x))"),)),
    edited("a carry that decays by 2^-24", "cumulative_sum.sums", "cumulative_sum", (("return carry + jnp.sum(x)",
           "return carry * (1 - 2.0**-24) + jnp.sum(x)"),)),
    edited("one term 2^-26 too large", "vector_add.blocked", "vector_add_blocked", (("x + y, mask=inside",
           "(x.astype(jnp.float32) * (1 + 2.0**-26) + y.astype(jnp.float32)).astype(x.dtype), mask=inside"),)),
    edited("an accumulator that loses 2^-20 a step", *_MATMUL, (("return accumulator + _dot(x, y, precision)",
           "return accumulator * (1 - 2.0**-20) + _dot(x, y, precision)"),)),
    edited("a bias of 1e-9", *_MATMUL, ((_ZEROS,
           _ZEROS.replace("zeros((block_m, block_n)", "full((block_m, block_n), 1e-9")),)),
    edited("a product 2^-23 too large", *_ONE_BLOCK, (("_dot(weights.astype(v.dtype), v, precision)",
           "_dot(weights.astype(v.dtype), v, precision) * (1 + 2.0**-23)"),)),
    edited("masked columns attended by 1e-8", *_ONE_BLOCK, ((_WEIGHTS,
           _WEIGHTS.replace("\n", f" + jnp.where({_SEEN}, 1e-8, 0.0)\n", 1)),)),
)  # fmt: skip
