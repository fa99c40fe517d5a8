"""Vector sums, iota, products, softmax, RMS normalisation and copies with a bug each; `FOUND` says what finds it."""

from tests.corpus.twin import edited, edits

VECTOR_ADD = [
    *edits("vector_add.blocked", "vector_add_blocked", [
        ("the store is not masked", "x + y, mask=inside)", "x + y)"),
        ("the load of y is not masked", "y = plgpu.load(y_ref.at[at], mask=inside, other=0)",
         "y = plgpu.load(y_ref.at[at])"),
        ("the mask is <= and not <", "jnp.arange(block) < length", "jnp.arange(block) <= length"),
        ("the block of the default is used for the start", "pl.program_id(0) * block", "pl.program_id(0) * BLOCK"),
        ("the grid's rounding up is one short", "grid=(pl.cdiv(length, block),)",
         "grid=((length + block - 2) // block,)"),
        ("the first operand is added to itself", "y_ref.at[at]", "x_ref.at[at]"),
        ("integers are added as float32 and do not wrap", "x + y, mask",
         "(x.astype(jnp.float32) + y.astype(jnp.float32)).astype(x.dtype), mask"),
        ("a zero in y returns x and its sign of zero", "x + y, mask", "jnp.where(y == 0, x, x + y), mask"),
        ("NaN and inf are replaced by numbers", "x + y, mask", "jnp.nan_to_num(x + y), mask"),
    ]),
    *edits("vector_add.blocked", "vector_add_blocked", [
        ("the sum is computed in bfloat16", "x + y, mask",
         "(x.astype(jnp.bfloat16) + y.astype(jnp.bfloat16)).astype(x.dtype), mask"),
    ], numeric=True),
]  # fmt: skip

IOTA = [
    *edits("iota.blocked", "iota_blocked", [
        ("the mask is <= and not <", "mask=index < length", "mask=index <= length"),
        ("the store is not masked", "index, mask=index < length", "index"),
        ("the block of the default is used for the start", "index = pl.program_id(0) * block",
         "index = pl.program_id(0) * BLOCK"),
        ("positions are kept in 8 bits", "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index,",
         "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index.astype(jnp.int8).astype(jnp.int32),"),
        ("positions are computed in bfloat16, so wrong from 257 on",
         "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index,",
         "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], "
         "index.astype(jnp.bfloat16).astype(jnp.int32),"),
    ]),
    *edits("iota.grid", "iota_grid", [
        ("it counts from one", "o_ref[i] = i", "o_ref[i] = i + 1"),
    ]),
]  # fmt: skip

_ACTIVATE = "    if activation is not None:\n        result = activation(result)\n"
_STEP = "return accumulator + _dot(x, y, precision)"
_X_MASK, _Y_MASK = (
    "mask=row_inside[:, None] & depth_inside[None, :]",
    "mask=depth_inside[:, None] & column_inside[None, :]",
)

MATMUL = [
    edited("both operands are padded with ones", "matmul.tiled", "matmul", ((f"{_X_MASK}, other=0",
           f"{_X_MASK}, other=1"), (f"{_Y_MASK}, other=0", f"{_Y_MASK}, other=1"))),
    edited("the activation is applied to each step's product", "matmul.tiled", "matmul", ((_STEP,
           "part = _dot(x, y, precision)\n        return accumulator + (activation(part) if activation else part)"),
           (_ACTIVATE, ""))),
    edited("the activation is applied to the sum after each step", "matmul.tiled", "matmul", ((_STEP,
           "both = accumulator + _dot(x, y, precision)\n        return activation(both) if activation else both"),
           (_ACTIVATE, ""))),
    *edits("matmul.tiled", "matmul", [
        ("the store is not masked", "result.astype(o_ref.dtype), mask=inside)", "result.astype(o_ref.dtype))"),
        ("the rows' mask is <= and not <", "jnp.arange(block_m) < m", "jnp.arange(block_m) <= m"),
        ("the mask along k is <= and not <", "jnp.arange(block_k) < k", "jnp.arange(block_k) <= k"),
        ("the tail of k is not masked in x", _X_MASK, "mask=row_inside[:, None]"),
        ("the first step of k is skipped", "fori_loop(0, pl.cdiv", "fori_loop(1, pl.cdiv"),
        ("the program ids are swapped", "i, j = pl.program_id(0), pl.program_id(1)",
         "i, j = pl.program_id(1), pl.program_id(0)"),
        ("NaN and inf are replaced by numbers", "result.astype(o_ref.dtype)",
         "jnp.nan_to_num(result).astype(o_ref.dtype)"),
        ("the precision asked for is ignored", _STEP, "return accumulator + _dot(x, y, None)"),
    ]),
    *edits("matmul.tiled", "matmul", [
        ("products are of bfloat16 operands", _STEP,
         "return accumulator + _dot(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), precision)"),
        ("the accumulator is rounded to bfloat16 after each step", _STEP,
         "return (accumulator + _dot(x, y, precision)).astype(jnp.bfloat16).astype(jnp.float32)"),
        ("the result is cast through float16", "result.astype(o_ref.dtype)",
         "result.astype(jnp.float16).astype(o_ref.dtype)"),
        ("the activation is computed in the output's dtype", "result = activation(result)",
         "result = activation(result.astype(o_ref.dtype))"),
    ], numeric=True),
    *edits("matmul.two_by_two", "matmul_2x2", [
        ("the output's index map is transposed", "lambda i, j: (i, j)", "lambda i, j: (j, i)"),
        ("the rows' index map is shifted by one block", "lambda i, j: (i, 0)", "lambda i, j: (1 - i, 0)"),
        ("the grid lacks its second column", "grid=(2, 2)", "grid=(2, 1)"),
    ]),
    *edits("matmul.two_by_two", "matmul_2x2", [
        ("products are of bfloat16 operands", "_dot(x_ref[...], y_ref[...], precision)",
         "_dot(x_ref[...].astype(jnp.bfloat16), y_ref[...].astype(jnp.bfloat16), precision)"),
    ], numeric=True),
]  # fmt: skip

_PRODUCT = "return product(x, y)"

BATCHED_MATMUL = [
    *edits("batched_matmul.one_axis", "batched_matmul", [
        ("the right matrix is the next batch element's", _PRODUCT,
         "return product(x, jax.numpy.roll(y, -1, axis=0))"),
    ]),
    *edits("batched_matmul.one_axis", "batched_matmul", [
        ("products are of bfloat16 operands", _PRODUCT,
         "low = jax.numpy.bfloat16\n    return product(x.astype(low), y.astype(low)).astype(x.dtype)"),
    ], numeric=True),
    *edits("batched_matmul.two_axes", "batched_matmul", [
        ("the left operand's leading axes are read in the wrong order", _PRODUCT,
         "return product(x.swapaxes(0, 1).reshape(x.shape), y)"),
    ]),
    *edits("batched_matmul.left_only", "batched_matmul", [
        ("the batch index wraps one early", _PRODUCT,
         "return product(x[jax.numpy.arange(len(x)) % max(len(x) - 1, 1)], y)"),
    ]),
    *edits("batched_matmul.right_only", "batched_matmul", [
        ("k is rounded down to whole tiles", _PRODUCT,
         "whole = max(x.shape[-1] // 32 * 32, 1)\n    return product(x[..., :whole], y[..., :whole, :])"),
    ]),
]  # fmt: skip

_ROW_LOAD = "x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)\n    e = "
_ROW_MASK = "jnp.arange(block) < columns\n    at = (row, pl.ds(tile * block, block))\n    "
_SHIFTED = "e = jnp.exp(x - _shift(jnp.max(x), finite))"

SOFTMAX = [
    *edits("softmax.fused", "softmax_fused", [
        ("no maximum is subtracted", _SHIFTED, "e = jnp.exp(x)"),
        ("rows that are fully masked are not guarded", _SHIFTED, "e = jnp.exp(x - jnp.max(x))"),
        ("a sum of zero is not guarded", "return x / jnp.where(total == 0.0, 1.0, total)", "return x / total"),
        ("a maximum of +inf is replaced by zero too", "maximum, jnp.maximum(maximum, 0.0))", "maximum, 0.0)"),
        ("the block is one tile", "block=pl.next_power_of_2(n)", "block=BLOCK"),
        ("the store is not masked", "_divide(e, jnp.sum(e)).astype(o_ref.dtype), mask=inside)",
         "_divide(e, jnp.sum(e)).astype(o_ref.dtype))"),
        ("the load is not masked", _ROW_LOAD, "x = plgpu.load(x_ref.at[at]).astype(jnp.float32)\n    e = "),
        ("the mask is <= and not <", _ROW_MASK + _ROW_LOAD, _ROW_MASK.replace("<", "<=") + _ROW_LOAD),
        ("-10000 stands for -inf past the end", _ROW_LOAD, _ROW_LOAD.replace("-jnp.inf", "-1e4")),
    ]),
    *edits("softmax.fused", "softmax_fused", [
        ("1e-6 is added to the sum against division by zero", "return x / jnp.where(total == 0.0, 1.0, total)",
         "return x / (total + 1e-6)"),
        ("the sum is accumulated in bfloat16", "_divide(e, jnp.sum(e))",
         "_divide(e, jnp.sum(e.astype(jnp.bfloat16), dtype=jnp.bfloat16).astype(jnp.float32))"),
    ], numeric=True),
    *edits("softmax.tiled", "softmax_tiled", [
        ("exponentials are of the tile's maximum and sums of the row's", "_divide(jnp.exp(x - shift), total)",
         "_divide(jnp.exp(x - _shift(maximum_ref[row, tile], is_finite)), total)"),
        ("the tiles' sums are not rescaled", "jnp.sum(total_ref[row, :] * jnp.exp(maxima - shift))",
         "jnp.sum(total_ref[row, :])"),
        ("statistics past the last tile are never written", "grid=statistics.shape", "grid=(m, tiles)"),
        ("the last tile's statistics are left out", "grid=statistics.shape", "grid=(m, max(n // block, 1))"),
        ("the tail counts as zeros in the statistics",
         "x_ref.at[row, pl.ds(tile * block, block)], mask=inside, other=-jnp.inf",
         "x_ref.at[row, pl.ds(tile * block, block)], mask=inside, other=0.0"),
        ("the second pass does not guard fully masked rows", "shift = _shift(jnp.max(maxima), is_finite)",
         "shift = jnp.max(maxima)"),
    ]),
    edited("the tiles' statistics are kept in the input's dtype", "softmax.tiled", "softmax_tiled",
           (("pl.next_power_of_2(tiles)), jnp.float32)", "pl.next_power_of_2(tiles)), x.dtype)"),
           ("maximum_ref[row, tile] = maximum", "maximum_ref[row, tile] = maximum.astype(x_ref.dtype)"),
           ("total_ref[row, tile] = jnp.sum(jnp.exp(x - _shift(maximum, is_finite)))",
           "total_ref[row, tile] = jnp.sum(jnp.exp(x - _shift(maximum, is_finite))).astype(x_ref.dtype)"),
           ("maxima = maximum_ref[row, :]", "maxima = maximum_ref[row, :].astype(jnp.float32)")), numeric=True),
    *edits("softmax.tiled_by_comparison", "softmax_tiled_by_comparison", [
        ("-inf passes for finite", "jnp.abs(x) < jnp.inf", "x < jnp.inf"),
    ]),
]  # fmt: skip

RMS_NORM = edits("rms_norm.normalised", "rms_norm", [
    ("epsilon is added outside of the root", "jnp.sum(x * x) / columns + EPSILON)",
     "jnp.sum(x * x) / columns) + EPSILON"),
    ("the gradient of w is of rows that are not normalised", "dw_ref.at[row], y * g", "dw_ref.at[row], x * g"),
    ("the gradient of w is of the first row", "dw.sum(0)", "dw[0]"),
    ("the gradient's mean leaves out w", "jnp.sum(y * w * g)", "jnp.sum(y * g)"),
    ("the gradient's mean is over the padded row", "jnp.sum(y * w * g) / columns", "jnp.mean(y * w * g)"),
    ("the second row's w is the first element's", "_load(w_ref, at, inside)\n    plgpu",
     "_load(w_ref, at * (pl.program_id(0) != 1), inside)\n    plgpu"),
])  # fmt: skip

_ACCUMULATE_IN_INPUT_DTYPE = (
    ("preferred_element_type=jnp.float32", "preferred_element_type=x.dtype"),
    ("zeros = jnp.zeros((block_m, block_n), jnp.float32)", "zeros = jnp.zeros((block_m, block_n), x_ref.dtype)"),
)

FOUND = (
    edited("the second operand always comes from the first block", "vector_add.blocked", "vector_add_blocked",
           (("y_ref.at[at]", "y_ref.at[pl.ds(pl.program_id(0) * 0, block)]"),), "mismatch", "block n=1"),
    edited("the mask drops the last element", "vector_add.blocked", "vector_add_blocked",
           (("jnp.arange(block) < length", "jnp.arange(block) < length - 1"),), "special_mismatch",
           "only past the last full block of n"),
    edited("the grid lacks the tail", "vector_add.blocked", "vector_add_blocked", (("grid=(pl.cdiv(length, block),)",
           "grid=(max(length // block, 1),)"),), "special_mismatch",
           "only past the last full block of n (from 128 on)"),
    edited("every block counts from the next block's start", "iota.blocked", "iota_blocked",
           (("plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index,",
           "plgpu.store(o_ref.at[pl.ds(pl.program_id(0) * block, block)], index + block,"),), "mismatch",
           "holds what belongs 1 block of n further on"),
    edited("the mask drops the last element", "iota.blocked", "iota_blocked", (("mask=index < length",
           "mask=index < length - 1"),), "mismatch", "only past the last full block of n"),
    edited("the grid lacks the last program", "iota.grid", "iota_grid",
           (("grid=(n,),\n        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),\n        compiler_params=plgpu",
           "grid=(max(n - 1, 1),),\n        out_shape=jax.ShapeDtypeStruct((n,), jnp.int32),\n"
           "        compiler_params=plgpu"),), "mismatch", "1 of"),
    edited("the last step of k is skipped", "matmul.tiled", "matmul", (("fori_loop(0, pl.cdiv(k, block_k), step",
           "fori_loop(0, k // block_k, step"),), "mismatch", "every element"),
    edited("sums are accumulated in the input's dtype", "matmul.tiled", "matmul", _ACCUMULATE_IN_INPUT_DTYPE,
           "mismatch", "bfloat16", numeric=True),
    edited("the tail of k is not masked in y", "matmul.tiled", "matmul",
           (("mask=depth_inside[:, None] & column_inside[None, :]", "mask=column_inside[None, :]"),),
           "special_mismatch", "expected"),
    edited("the columns' index map always gives the first block", "matmul.two_by_two", "matmul_2x2",
           (("lambda i, j: (0, j)", "lambda i, j: (0, 0)"),), "mismatch", "worst at"),
    edited("every matrix is multiplied by the first right one", "batched_matmul.one_axis", "batched_matmul",
           (("return product(x, y)", "return product(x, y[:1].repeat(y.shape[0], 0))"),), "mismatch", "worst at ["),
    edited("the batch comes out reversed", "batched_matmul.two_axes", "batched_matmul", (("return product(x, y)",
           "return product(x, y)[::-1]"),), "mismatch", "worst at ["),
    edited("the last element of k is dropped", "batched_matmul.left_only", "batched_matmul", (("return product(x, y)",
           "return product(x[..., :-1], y[..., :-1, :])"),), "mismatch", "every element"),
    edited("the tail of a row counts as zeros", "softmax.fused", "softmax_fused",
           (("at = (row, pl.ds(tile * block, block))\n"
           "    x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)\n    e = ",
           "at = (row, pl.ds(tile * block, block))\n"
           "    x = plgpu.load(x_ref.at[at], mask=inside, other=0.0).astype(jnp.float32)\n    e = "),), "mismatch",
           "every element"),
    edited("fully masked tiles are not guarded", "softmax.tiled", "softmax_tiled",
           (("return jnp.where(is_finite(maximum), maximum, jnp.maximum(maximum, 0.0))", "return maximum"),),
           "special_mismatch", "got nan, expected 0"),
    edited("the maximum starts from 0 instead of -inf", "softmax.tiled", "softmax_tiled",
           (("    maximum = jnp.max(x)\n", "    maximum = jnp.maximum(jnp.max(x), 0.0)\n"),), "mismatch",
           "far_below_zero"),
    edited("exponentials are computed and summed in the input's dtype", "softmax.fused", "softmax_fused",
           (("x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf).astype(jnp.float32)\n    e = ",
           "x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf)\n    e = "),), "mismatch", "float16",
           numeric=True),
    edited("the mean is over the padded row", "rms_norm.normalised", "rms_norm",
           (("    return jax.lax.rsqrt(jnp.sum(x * x) / columns + EPSILON)",
           "    return jax.lax.rsqrt(jnp.mean(x * x) + EPSILON)"),), "mismatch", "every element"),
    edited("the gradient lacks the mean's part", "rms_norm.normalised", "rms_norm", (("scale * (w * g - y * mean)",
           "scale * w * g"),), "mismatch", "the gradient: by x"),
    edited("the tail of w is not masked", "rms_norm.normalised", "rms_norm",
           (("x, w = _load(x_ref, row, inside), _load(w_ref, at, inside)\n    plgpu",
           "x, w = _load(x_ref, row, inside), w_ref[at].astype(jnp.float32)\n    plgpu"),
           ("w).astype(o_ref.dtype), mask=inside)", "w + 0 * jnp.sum(w)).astype(o_ref.dtype), mask=inside)")),
           "special_mismatch", "expected"),
)  # fmt: skip

ELEMENTARY = (*FOUND, *VECTOR_ADD, *IOTA, *MATMUL, *BATCHED_MATMUL, *SOFTMAX, *RMS_NORM)

# Found on a Hopper GPU, where every staging takes seconds; `mosaic_gpu_pipelines` has small ones for the interpreter.
PIPELINES = (
    edited("the output's index map is transposed", "pipeline_copy.copy", "pipeline_copy",
           (("_copied(x, lambda i, j: (i, j), x.shape, block,", "_copied(x, lambda i, j: (j, i), x.shape, block,"),),
           "mismatch", "m", "cuda"),
    edited("the input's index map is one block off", "pipeline_copy.copy", "pipeline_copy",
           (("BlockSpec(block, lambda i, j: (i, j), delay",
           "BlockSpec(block, lambda i, j: (i, (j + 1) % grid[1]), delay"),), "mismatch", "n", "cuda"),
    edited("one column of blocks is never read", "pipeline_copy.copy", "pipeline_copy",
           (("BlockSpec(block, lambda i, j: (i, j), delay", "BlockSpec(block, lambda i, j: (i, j * 0), delay"),),
           "mismatch", "block", "cuda"),
)  # fmt: skip
