"""Results that steps carry on: cumulative sums and extremes along either axis, and totals of whole arrays."""

import random
import re

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import PLAIN, Draft, production, random_dtype, random_lengths


@production
def scan(rng: random.Random) -> Draft:
    """A cumulative sum of rows, whole or in blocks with a carry that the grid keeps."""
    dtype = random_dtype(rng)
    rows, columns = rng.choice((1, 4, 8)), rng.choice((8, 16))
    sums = rng.choice((
        "jnp.cumsum(x, axis=1)",
        f"jnp.dot(x, jnp.triu(jnp.ones(({columns}, {columns}), jnp.float32)), precision='highest')",
        f"jnp.stack([jnp.sum(x[:, : i + 1], axis=1) for i in range({columns})], axis=1)",
    ))  # fmt: skip
    body = f"""
def kernel(x):
    m, n = x.shape

    def body(x_ref, o_ref, carry_ref):
        step = pl.program_id(1)

        @pl.when(step == 0)
        def _():
            carry_ref[...] = jnp.zeros(carry_ref.shape, jnp.float32)

        inside = step * {columns} + jnp.arange({columns})[None, :] < n
        x = jnp.where(inside, x_ref[...].astype(jnp.float32), 0)
        sums = carry_ref[...] + {sums}
        o_ref[...] = sums.astype(o_ref.dtype)
        carry_ref[...] = sums[:, -1:]

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {rows}), pl.cdiv(n, {columns})),
        in_specs=[pl.BlockSpec(({rows}, {columns}), lambda i, j: (i, j))],
        out_specs=[
            pl.BlockSpec(({rows}, {columns}), lambda i, j: (i, j)),
            pl.BlockSpec(({rows}, 1), lambda i, j: (i, 0)),
        ],
        out_shape=[jax.ShapeDtypeStruct((m, n), x.dtype), jax.ShapeDtypeStruct((m, 1), jnp.float32)],
    )(x)[0]
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    options = {"dims": f"dict(m={random_lengths(rng, rows)}, n={random_lengths(rng, columns)})", "batch_dims": '"m"'}
    options["backends"] = PLAIN
    what = "cumulative sums of rows in blocks"
    return Draft(what, body, arguments, options, "return np.cumsum(x, axis=1)", frozenset({"carry"}))


@production
def total(rng: random.Random) -> Draft:
    """One number from all elements: a sum, a mean, an inner product or a loss, in blocks of one or two axes."""
    dtype, block = random_dtype(rng), rng.choice((4, 8, 16))
    before = random_expression(rng, ["x"], 2)
    name, term, finish, oracle = rng.choice((
        ("sum", "v", "{a}", "v.sum()"),
        ("mean", "v", "{a} / x.size", "v.mean()"),
        ("inner product", "v * y", "{a}", "np.vdot(v, y)"),
        ("loss", "jnp.square(v - y)", "{a} / x.size", "np.square(v - y).mean()"),
        ("distance", "jnp.abs(v - y)", "{a} * (1 / x.size)", "np.abs(v - y).sum() / x.size"),
    ))  # fmt: skip
    rank = rng.choice((1, 2))
    axes, lengths = ("n", "n,") if rank == 1 else ("m n", "m, n")
    index = "i, 0" if rank == 2 else "i,"
    blocks, one = (f"{block}, n", "1, 1") if rank == 2 else (f"{block},", "1,")
    inside = f"pl.program_id(0) * {block} + jax.lax.broadcasted_iota(jnp.int32, v.shape, 0) < x.shape[0]"
    zeros = ", ".join("0" * rank)
    other = "y" in term
    of_block = re.sub(r"\bx\b", "x_block", before.kernel)
    body = f"""
def kernel(x{", y" * other}):
    {lengths} = x.shape

    def body(x_ref{", y_ref" * other}, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros(o_ref.shape, jnp.float32)

        x_block = x_ref[...].astype(jnp.float32)
        v = {of_block}
{"        y = y_ref[...].astype(jnp.float32)" if other else ""}
        inside = {inside}
        o_ref[...] += jnp.sum(jnp.where(inside, {term}, 0)).reshape(o_ref.shape)

    spec = pl.BlockSpec(({blocks}), lambda i: ({index}))
    summed = pl.pallas_call(
        body,
        grid=(pl.cdiv(x.shape[0], {block}),),
        in_specs=[spec] * {2 if other else 1},
        out_specs=pl.BlockSpec(({one}), lambda i: ({zeros},)),
        out_shape=jax.ShapeDtypeStruct(({one}), jnp.float32),
    )(x{", y" * other})[{zeros}]
    return {finish.format(a="summed")}
"""
    arguments = dict.fromkeys(["x", "y"][: 1 + other], f'kt.array("{axes}", {dtype}, domain=(-8, 8))')
    first = random_lengths(rng, block)
    dims = f"m={first}, n=kt.dim(values=(5, 1, 8))" if rank == 2 else f"n={first}"
    options = {"dims": f"dict({dims})", "backends": PLAIN, "returns": '"float32"'}
    features = frozenset({f"total {name}", "scalar result", f"rank {rank}", *before.forms})
    oracle = f"v = {before.oracle}\nreturn {oracle}"
    return Draft(f"the {name} of all elements", body, arguments, options, oracle, features)


@production
def cumulative(rng: random.Random) -> Draft:
    """A scan of whole rows or columns, from either end: by a primitive, an associative scan, a loop or by doubling."""
    dtype, axis, reverse = random_dtype(rng), rng.choice((0, 1)), rng.random() < 0.5
    name, primitive, pair, neutral, oracle = rng.choice((
        ("sum", "jax.lax.cumsum", "jnp.add", "0", "np.cumsum(v, AXIS)"),
        ("maximum", "jax.lax.cummax", "jnp.maximum", "-jnp.inf", "np.maximum.accumulate(v, AXIS)"),
        ("minimum", "jax.lax.cummin", "jnp.minimum", "jnp.inf", "np.minimum.accumulate(v, AXIS)"),
    ))  # fmt: skip
    way, text = rng.choice((
        ("primitive", "o = {primitive}(v, axis={axis}, reverse={reverse})"),
        ("associative scan", "o = jax.lax.associative_scan({pair}, v, axis={axis}, reverse={reverse})"),
        ("flipped scan", "o = jnp.flip({primitive}(jnp.flip(v, {axis}), axis={axis}, reverse={other}), {axis})"),
        ("doubling", """\
o, shift = v, 1
at = jax.lax.broadcasted_iota(jnp.int32, v.shape, {axis})
while shift < v.shape[{axis}]:
    near = at {compare}
    o = {pair}(o, jnp.where(near, jnp.roll(o, {sign}shift, {axis}), {neutral}))
    shift *= 2"""),
        ("loop", """\
def turn(i, carry):
    o, last = carry
    at = {at}
    last = {pair}(last, jax.lax.dynamic_slice_in_dim(v, at, 1, {axis}))
    return jax.lax.dynamic_update_slice_in_dim(o, last, at, {axis}), last

first = jnp.full_like(jax.lax.slice_in_dim(v, 0, 1, axis={axis}), {neutral})
o, _ = jax.lax.fori_loop(0, v.shape[{axis}], turn, (v, first))"""),
    ))  # fmt: skip
    length = f"v.shape[{axis}]"
    text = text.format(
        primitive=primitive, pair=pair, neutral=neutral, axis=axis, reverse=reverse, other=not reverse,
        at=f"{length} - 1 - i" if reverse else "i", sign="-" if reverse else "",
        compare=f"< {length} - shift" if reverse else ">= shift",
    )  # fmt: skip
    text = "\n".join(f"        {line}" if line else "" for line in text.splitlines())
    before = random_expression(rng, ["x"], 2)
    body = f"""
def kernel(x):
    def body(x_ref, o_ref):
        x = x_ref[...].astype(jnp.float32)
        v = {before.kernel}
{text}
        o_ref[...] = o.astype(o_ref.dtype)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    options = {"dims": f"dict(m={random_lengths(rng, 6)}, n={random_lengths(rng, 9)})", "backends": PLAIN}
    options["batch_dims"] = '"n"' if axis == 0 else '"m"'
    scanned = oracle.replace("AXIS", str(axis))
    turned = f"np.flip(v, {axis})"
    oracle = f"np.flip({scanned.replace('(v', '(' + turned)}, {axis})" if reverse else scanned
    features = frozenset({f"cumulative {name}", way, f"axis {axis}", "from the end" * reverse, *before.forms} - {""})
    what = f"the cumulative {name} along axis {axis}, by a {way}"
    return Draft(what, body, arguments, options, f"v = {before.oracle}\nreturn {oracle}", features)
