"""Cross-entropy with a bug each, most of them numerical."""

from benchmarks.variants.variant import Variant, variants

_SCALED, _OF_TILE = "total * jnp.exp(maximum - shift)", "jnp.sum(jnp.exp(x - shift))"
_TOTAL = f"total = {_OF_TILE}"
_LOSS = "o_ref[row] = jnp.log(total) - (_at_label(x, at, labels_ref[row]) - shift)"
_RUNNING_TOTAL = f"total = {_SCALED} + {_OF_TILE}"

CROSS_ENTROPY = [
    *variants(
        "cross_entropy.whole_rows",
        "cross_entropy",
        [
            ("no maximum is subtracted", f"shift = _shift(jnp.max(x))\n    {_TOTAL}", f"shift = 0.0\n    {_TOTAL}"),
            (
                "the sum is accumulated in bfloat16",
                _TOTAL,
                "total = jnp.sum(jnp.exp(x - shift).astype(jnp.bfloat16), dtype=jnp.bfloat16).astype(jnp.float32)",
            ),
            (
                "exponentials of capped logits are unshifted and in float16",
                f"shift = _shift(jnp.max(x))\n    {_TOTAL}",
                "shift = _shift(jnp.max(x)) if softcap is None else 0.0\n"
                "    total = jnp.sum(jnp.exp((x - shift).astype(jnp.float16)).astype(jnp.float32))",
            ),
            (
                "the cap's tanh is of exponentials that overflow",
                "softcap * jnp.tanh(x / softcap)",
                "softcap * (jnp.exp(2 * x / softcap) - 1) / (jnp.exp(2 * x / softcap) + 1)",
            ),
            (
                "the label's logit is picked by a product with a bfloat16 one-hot row",
                "jnp.sum(jnp.where(at == label, x, 0.0))",
                "jnp.sum((at == label).astype(jnp.bfloat16) * jnp.where(x == -jnp.inf, 0.0, x).astype(jnp.bfloat16),\n"
                "                   dtype=jnp.float32)",
            ),
            (
                "the log-sum-exp is rounded to the input's dtype",
                _LOSS,
                "o_ref[row] = (jnp.log(total) + shift).astype(x_ref.dtype).astype(jnp.float32) - "
                "_at_label(x, at, labels_ref[row])",
            ),
            (
                "1e-5 is added to the sum against a logarithm of zero",
                _LOSS,
                _LOSS.replace("total", "total + 1e-5"),
            ),
        ],
        numeric=True,
    ),
    Variant(
        "logits are capped and exponentiated in the input's dtype",
        "cross_entropy.whole_rows",
        "cross_entropy",
        (("other=0).astype(jnp.float32)", "other=0)"), (_LOSS, _LOSS.replace("= ", "= (") + ").astype(jnp.float32)")),
        numeric=True,
    ),
    *variants(
        "cross_entropy.tiled",
        "cross_entropy_tiled",
        [
            (
                "a tile's sum is accumulated in float16",
                _RUNNING_TOTAL,
                "low = jnp.exp(x - shift).astype(jnp.float16)\n"
                "        low = jnp.sum(low, dtype=jnp.float16).astype(jnp.float32)\n"
                "        total = total * jnp.exp(maximum - shift) + low",
            ),
            (
                "the scale of the sum so far is rounded to bfloat16",
                _SCALED,
                "total * jnp.exp(maximum - shift).astype(jnp.bfloat16).astype(jnp.float32)",
            ),
            (
                "the tiles' maxima are rounded to bfloat16 in the scale alone",
                _SCALED,
                "total * jnp.exp((maximum.astype(jnp.bfloat16) - shift.astype(jnp.bfloat16)).astype(jnp.float32))",
            ),
        ],
        numeric=True,
    ),
    Variant(
        "the running sum is carried in bfloat16",
        "cross_entropy.tiled",
        "cross_entropy_tiled",
        (
            (_RUNNING_TOTAL, f"total = ({_SCALED} + {_OF_TILE}).astype(jnp.bfloat16)"),
            (
                "jnp.float32(-jnp.inf), jnp.float32(0.0), jnp.float32(0.0)",
                "jnp.float32(-jnp.inf), jnp.bfloat16(0.0), jnp.float32(0.0)",
            ),
            ("jnp.log(total) - (at_label", "jnp.log(total.astype(jnp.float32)) - (at_label"),
        ),
        numeric=True,
    ),
]
