"""Kernels of `kernels/` with a bug each, for benchmarks/detection.py: those of tests/broken.py and the ones below."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.broken import BROKEN, Edited

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Variant(Edited):
    """One bug.

    Attributes:
      bug: in words, unique in its family.
      pairing: `suite.name` of a pairing whose declared inputs it is wrong for.
      function: the kernel's name in its module.
      edits: pairs of source text, each of which occurs once, and what replaces it.
      numeric: the results are of too little precision, and not of the wrong elements.
    """

    bug: str
    pairing: str
    function: str
    edits: Edits
    numeric: bool = False

    @property
    def name(self) -> str:
        return f"{self.pairing}: {self.bug}"


def _variants(
    pairing: str, function: str, bugs: Sequence[tuple[str, str, str]], numeric: bool = False
) -> list[Variant]:
    """Those of one pairing, each of one edit: the bug, the text and what replaces it."""
    return [Variant(bug, pairing, function, ((old, new),), numeric) for bug, old, new in bugs]


VECTOR_ADD = _variants(
    "vector_add.blocked",
    "vector_add_blocked",
    [
        ("the store is not masked", "x + y, mask=inside)", "x + y)"),
        (
            "the load of y is not masked",
            "y = plgpu.load(y_ref.at[at], mask=inside, other=0)",
            "y = plgpu.load(y_ref.at[at])",
        ),
        ("the mask is <= and not <", "jnp.arange(block) < length", "jnp.arange(block) <= length"),
        ("the block of the default is used for the start", "pl.program_id(0) * block", "pl.program_id(0) * BLOCK"),
        (
            "the grid's rounding up is one short",
            "grid=(pl.cdiv(length, block),)",
            "grid=((length + block - 2) // block,)",
        ),
        ("the first operand is added to itself", "y_ref.at[at]", "x_ref.at[at]"),
        (
            "integers are added as float32 and do not wrap",
            "x + y, mask",
            "(x.astype(jnp.float32) + y.astype(jnp.float32)).astype(x.dtype), mask",
        ),
        ("a zero in y returns x and its sign of zero", "x + y, mask", "jnp.where(y == 0, x, x + y), mask"),
        ("NaN and inf are replaced by numbers", "x + y, mask", "jnp.nan_to_num(x + y), mask"),
    ],
) + _variants(
    "vector_add.blocked",
    "vector_add_blocked",
    [
        (
            "the sum is computed in bfloat16",
            "x + y, mask",
            "(x.astype(jnp.bfloat16) + y.astype(jnp.bfloat16)).astype(x.dtype), mask",
        )
    ],
    numeric=True,
)

IOTA = _variants(
    "iota.blocked",
    "iota_blocked",
    [
        ("the mask is <= and not <", "mask=index < length", "mask=index <= length"),
        ("the store is not masked", "index, mask=index < length", "index"),
        (
            "the block of the default is used for the start",
            "index = pl.program_id(0) * block",
            "index = pl.program_id(0) * BLOCK",
        ),
        (
            "positions are kept in 8 bits",
            "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index,",
            "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index.astype(jnp.int8).astype(jnp.int32),",
        ),
        (
            "positions are computed in bfloat16, so wrong from 257 on",
            "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index,",
            "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], "
            "index.astype(jnp.bfloat16).astype(jnp.int32),",
        ),
    ],
) + _variants("iota.grid", "iota_grid", [("it counts from one", "o_ref[i] = i", "o_ref[i] = i + 1")])

_ACTIVATE = "    if activation is not None:\n        result = activation(result)\n"
_STEP = "return accumulator + _dot(x, y, precision)"
_X_MASK, _Y_MASK = (
    "mask=row_inside[:, None] & depth_inside[None, :]",
    "mask=depth_inside[:, None] & column_inside[None, :]",
)

MATMUL = [
    Variant(
        "both operands are padded with ones",
        "matmul.tiled",
        "matmul",
        ((f"{_X_MASK}, other=0", f"{_X_MASK}, other=1"), (f"{_Y_MASK}, other=0", f"{_Y_MASK}, other=1")),
    ),
    Variant(
        "the activation is applied to each step's product",
        "matmul.tiled",
        "matmul",
        (
            (
                _STEP,
                "part = _dot(x, y, precision)\n        return accumulator + (activation(part) if activation else part)",
            ),
            (_ACTIVATE, ""),
        ),
    ),
    Variant(
        "the activation is applied to the sum after each step",
        "matmul.tiled",
        "matmul",
        (
            (
                _STEP,
                "both = accumulator + _dot(x, y, precision)\n        return activation(both) if activation else both",
            ),
            (_ACTIVATE, ""),
        ),
    ),
    *_variants(
        "matmul.tiled",
        "matmul",
        [
            ("the store is not masked", "result.astype(o_ref.dtype), mask=inside)", "result.astype(o_ref.dtype))"),
            ("the rows' mask is <= and not <", "jnp.arange(block_m) < m", "jnp.arange(block_m) <= m"),
            ("the mask along k is <= and not <", "jnp.arange(block_k) < k", "jnp.arange(block_k) <= k"),
            ("the tail of k is not masked in x", _X_MASK, "mask=row_inside[:, None]"),
            ("the first step of k is skipped", "fori_loop(0, pl.cdiv", "fori_loop(1, pl.cdiv"),
            (
                "the program ids are swapped",
                "i, j = pl.program_id(0), pl.program_id(1)",
                "i, j = pl.program_id(1), pl.program_id(0)",
            ),
            (
                "NaN and inf are replaced by numbers",
                "result.astype(o_ref.dtype)",
                "jnp.nan_to_num(result).astype(o_ref.dtype)",
            ),
            ("the precision asked for is ignored", _STEP, "return accumulator + _dot(x, y, None)"),
        ],
    ),
    *_variants(
        "matmul.tiled",
        "matmul",
        [
            (
                "products are of bfloat16 operands",
                _STEP,
                "return accumulator + _dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), precision)",
            ),
            (
                "the accumulator is rounded to bfloat16 after each step",
                _STEP,
                "return (accumulator + _dot(x, y, precision)).astype(jnp.bfloat16).astype(jnp.float32)",
            ),
            (
                "the result is cast through float16",
                "result.astype(o_ref.dtype)",
                "result.astype(jnp.float16).astype(o_ref.dtype)",
            ),
            (
                "the activation is computed in the output's dtype",
                "result = activation(result)",
                "result = activation(result.astype(o_ref.dtype))",
            ),
        ],
        numeric=True,
    ),
    *_variants(
        "matmul.two_by_two",
        "matmul_2x2",
        [
            ("the output's index map is transposed", "lambda i, j: (i, j)", "lambda i, j: (j, i)"),
            ("the rows' index map is shifted by one block", "lambda i, j: (i, 0)", "lambda i, j: (1 - i, 0)"),
            ("the grid lacks its second column", "grid=(2, 2)", "grid=(2, 1)"),
        ],
    ),
    *_variants(
        "matmul.two_by_two",
        "matmul_2x2",
        [
            (
                "products are of bfloat16 operands",
                "_dot(x_ref[...], y_ref[...], precision)",
                "_dot(x_ref[...].astype(jnp.bfloat16), y_ref[...].astype(jnp.bfloat16), precision)",
            ),
        ],
        numeric=True,
    ),
]

_PRODUCT = "return product(x, y)"

BATCHED_MATMUL = [
    *_variants(
        "batched_matmul.one_axis",
        "batched_matmul",
        [
            (
                "the right matrix is the next batch element's",
                _PRODUCT,
                "return product(x, jax.numpy.roll(y, -1, axis=0))",
            )
        ],
    ),
    *_variants(
        "batched_matmul.one_axis",
        "batched_matmul",
        [
            (
                "products are of bfloat16 operands",
                _PRODUCT,
                "low = jax.numpy.bfloat16\n    return product(x.astype(low), y.astype(low)).astype(x.dtype)",
            )
        ],
        numeric=True,
    ),
    *_variants(
        "batched_matmul.two_axes",
        "batched_matmul",
        [
            (
                "the left operand's leading axes are read in the wrong order",
                _PRODUCT,
                "return product(x.swapaxes(0, 1).reshape(x.shape), y)",
            )
        ],
    ),
    *_variants(
        "batched_matmul.left_only",
        "batched_matmul",
        [
            (
                "the batch index wraps one early",
                _PRODUCT,
                "return product(x[jax.numpy.arange(len(x)) % max(len(x) - 1, 1)], y)",
            )
        ],
    ),
    *_variants(
        "batched_matmul.right_only",
        "batched_matmul",
        [
            (
                "k is rounded down to whole tiles",
                _PRODUCT,
                "whole = max(x.shape[-1] // 32 * 32, 1)\n    return product(x[..., :whole], y[..., :whole, :])",
            )
        ],
    ),
]

_ROW_LOAD = "x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)\n    e = "
_ROW_MASK = "jnp.arange(block) < columns\n    at = (row, pl.ds(tile * block, block))\n    "
_SHIFTED = "e = jnp.exp(x - _shift(jnp.max(x), finite))"

SOFTMAX = [
    *_variants(
        "softmax.fused",
        "softmax_fused",
        [
            ("no maximum is subtracted", _SHIFTED, "e = jnp.exp(x)"),
            ("rows that are fully masked are not guarded", _SHIFTED, "e = jnp.exp(x - jnp.max(x))"),
            ("a sum of zero is not guarded", "return x / jnp.where(total == 0.0, 1.0, total)", "return x / total"),
            ("a maximum of +inf is replaced by zero too", "maximum, jnp.maximum(maximum, 0.0))", "maximum, 0.0)"),
            ("the block is one tile", "block=pl.next_power_of_2(n)", "block=BLOCK"),
            (
                "the store is not masked",
                "_divide(e, jnp.sum(e)).astype(o_ref.dtype), mask=inside)",
                "_divide(e, jnp.sum(e)).astype(o_ref.dtype))",
            ),
            ("the load is not masked", _ROW_LOAD, "x = plgpu.load(x_ref.at[at]).astype(jnp.float32)\n    e = "),
            ("the mask is <= and not <", _ROW_MASK + _ROW_LOAD, _ROW_MASK.replace("<", "<=") + _ROW_LOAD),
            (
                "-10000 stands for -inf past the end",
                _ROW_LOAD,
                _ROW_LOAD.replace("-jnp.inf", "-1e4"),
            ),
        ],
    ),
    *_variants(
        "softmax.fused",
        "softmax_fused",
        [
            (
                "1e-6 is added to the sum against division by zero",
                "return x / jnp.where(total == 0.0, 1.0, total)",
                "return x / (total + 1e-6)",
            ),
            (
                "the sum is accumulated in bfloat16",
                "_divide(e, jnp.sum(e))",
                "_divide(e, jnp.sum(e.astype(jnp.bfloat16), dtype=jnp.bfloat16).astype(jnp.float32))",
            ),
        ],
        numeric=True,
    ),
    *_variants(
        "softmax.tiled",
        "softmax_tiled",
        [
            (
                "exponentials are of the tile's maximum and sums of the row's",
                "_divide(jnp.exp(x - shift), total)",
                "_divide(jnp.exp(x - _shift(maximum_ref[row, tile], is_finite)), total)",
            ),
            (
                "the tiles' sums are not rescaled",
                "jnp.sum(total_ref[row, :] * jnp.exp(maxima - shift))",
                "jnp.sum(total_ref[row, :])",
            ),
            ("statistics past the last tile are never written", "grid=statistics.shape", "grid=(m, tiles)"),
            ("the last tile's statistics are left out", "grid=statistics.shape", "grid=(m, max(n // block, 1))"),
            (
                "the tail counts as zeros in the statistics",
                "x_ref.at[row, pl.ds(tile * block, block)], mask=inside, other=-jnp.inf",
                "x_ref.at[row, pl.ds(tile * block, block)], mask=inside, other=0.0",
            ),
            (
                "the second pass does not guard fully masked rows",
                "shift = _shift(jnp.max(maxima), is_finite)",
                "shift = jnp.max(maxima)",
            ),
        ],
    ),
    Variant(
        "the tiles' statistics are kept in the input's dtype",
        "softmax.tiled",
        "softmax_tiled",
        (
            ("pl.next_power_of_2(tiles)), jnp.float32)", "pl.next_power_of_2(tiles)), x.dtype)"),
            ("maximum_ref[row, tile] = maximum", "maximum_ref[row, tile] = maximum.astype(x_ref.dtype)"),
            (
                "total_ref[row, tile] = jnp.sum(jnp.exp(x - _shift(maximum, is_finite)))",
                "total_ref[row, tile] = jnp.sum(jnp.exp(x - _shift(maximum, is_finite))).astype(x_ref.dtype)",
            ),
            ("maxima = maximum_ref[row, :]", "maxima = maximum_ref[row, :].astype(jnp.float32)"),
        ),
        numeric=True,
    ),
    *_variants(
        "softmax.tiled_by_comparison",
        "softmax_tiled_by_comparison",
        [("-inf passes for finite", "jnp.abs(x) < jnp.inf", "x < jnp.inf")],
    ),
]

RMS_NORM = _variants(
    "rms_norm.normalised",
    "rms_norm",
    [
        (
            "epsilon is added outside of the root",
            "jnp.sum(x * x) / columns + EPSILON)",
            "jnp.sum(x * x) / columns) + EPSILON",
        ),
        ("the gradient of w is of rows that are not normalised", "dw_ref.at[row], y * g", "dw_ref.at[row], x * g"),
        ("the gradient of w is of the first row", "dw.sum(0)", "dw[0]"),
        ("the gradient's mean leaves out w", "jnp.sum(y * w * g)", "jnp.sum(y * g)"),
        ("the gradient's mean is over the padded row", "jnp.sum(y * w * g) / columns", "jnp.mean(y * w * g)"),
        (
            "the second row's w is the first element's",
            "_load(w_ref, at, inside)\n    plgpu",
            "_load(w_ref, at * (pl.program_id(0) != 1), inside)\n    plgpu",
        ),
    ],
)

LAYER_NORM = _variants(
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
) + _variants(
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

_SCALED, _OF_TILE = "total * jnp.exp(maximum - shift)", "jnp.sum(jnp.exp(x - shift))"
_TOTAL = f"total = {_OF_TILE}"
_LOSS = "o_ref[row] = jnp.log(total) - (_at_label(x, at, labels_ref[row]) - shift)"
_RUNNING_TOTAL = f"total = {_SCALED} + {_OF_TILE}"

CROSS_ENTROPY = [
    *_variants(
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
    *_variants(
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
    *_variants(
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

_OF_LITTLE_PRECISION = (
    "sums are accumulated in the input's dtype",
    "exponentials are computed and summed in the input's dtype",
)

VARIANTS = (
    *(Variant(b.name, b.pairing, b.function, b.edits, b.name in _OF_LITTLE_PRECISION) for b in BROKEN),
    *VECTOR_ADD,
    *IOTA,
    *MATMUL,
    *BATCHED_MATMUL,
    *SOFTMAX,
    *RMS_NORM,
    *(*LAYER_NORM, *CROSS_ENTROPY, *CUMULATIVE_SUM),
)
