"""Vector sums, iota, products, softmax and RMS normalisation with a bug each."""

from benchmarks.variants.variant import Variant, variants

VECTOR_ADD = variants(
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
) + variants(
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

IOTA = variants(
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
) + variants("iota.grid", "iota_grid", [("it counts from one", "o_ref[i] = i", "o_ref[i] = i + 1")])

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
    *variants(
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
    *variants(
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
    *variants(
        "matmul.two_by_two",
        "matmul_2x2",
        [
            ("the output's index map is transposed", "lambda i, j: (i, j)", "lambda i, j: (j, i)"),
            ("the rows' index map is shifted by one block", "lambda i, j: (i, 0)", "lambda i, j: (1 - i, 0)"),
            ("the grid lacks its second column", "grid=(2, 2)", "grid=(2, 1)"),
        ],
    ),
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
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
    *variants(
        "softmax.tiled_by_comparison",
        "softmax_tiled_by_comparison",
        [("-inf passes for finite", "jnp.abs(x) < jnp.inf", "x < jnp.inf")],
    ),
]

RMS_NORM = variants(
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

ELEMENTARY = (*VECTOR_ADD, *IOTA, *MATMUL, *BATCHED_MATMUL, *SOFTMAX, *RMS_NORM)
