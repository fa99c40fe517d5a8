"""Matrix products with what comes before and after them, and rows that are gathered or scattered by indices."""

import random

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import PLAIN, Draft, production, random_dtype, random_lengths


@production
def product(rng: random.Random) -> Draft:
    """A matrix product in blocks of all three dims, or with its sum split in two, with a function of the result."""
    dtype = random_dtype(rng)
    block = rng.choice((4, 8, 16))
    after = random_expression(rng, ["v", "bias"][: rng.randint(1, 2)], 2)
    has_bias, split = "bias" in after.kernel, rng.random() < 0.3
    bias = ", bias" if has_bias else ""
    x, y = rng.choice((("x", "y"), ("y.T", "x.T")))
    dot = f"jnp.dot({x}, {y}, precision='highest', preferred_element_type=jnp.float32)"
    dot = dot if x == "x" else f"({dot}).T"
    first = "l % half == 0" if split else "l == 0"
    body = f"""
def kernel(x, y{bias}):
    (m, k), n = x.shape, y.shape[1]
    steps = pl.cdiv(k, {block})
{"    half = pl.cdiv(steps, 2)" if split else ""}

    def body(x_ref, y_ref, o_ref):
        l = pl.program_id(2)
        inside = l * {block} + jnp.arange({block}) < k
        x = jnp.where(inside[None, :], x_ref[...].astype(jnp.float32), 0)
        y = jnp.where(inside[:, None], y_ref[...].astype(jnp.float32), 0)

        @pl.when({first})
        def _():
            o_ref[...] = jnp.zeros(o_ref.shape, jnp.float32)

        o_ref[...] += ({dot}).reshape(o_ref.shape)

    v = pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {block}), pl.cdiv(n, {block}), steps),
        in_specs=[
            pl.BlockSpec(({block}, {block}), lambda i, j, l: (i, l)),
            pl.BlockSpec(({block}, {block}), lambda i, j, l: (l, j)),
        ],
        out_specs=pl.BlockSpec((1, {block}, {block}), lambda i, j, l: ({"l // half" if split else 0}, i, j)),
        out_shape=jax.ShapeDtypeStruct(({"pl.cdiv(steps, half)" if split else 1}, m, n), jnp.float32),
    )(x, y).sum(0)
{"    bias = bias.astype(jnp.float32)" if has_bias else ""}
    return ({after.kernel}).astype(x.dtype)
"""
    arguments = {"x": f'kt.array("m k", {dtype}, domain=(-8, 8))', "y": f'kt.array("k n", {dtype}, domain=(-8, 8))'}
    if has_bias:
        arguments["bias"] = f'kt.array("n", {dtype}, domain=(-8, 8))'
    options = {"dims": f"dict({', '.join(f'{d}={random_lengths(rng, block)}' for d in 'mkn')})", "backends": PLAIN}
    features = frozenset({"split sum" if split else "one sum", f"product of {x}", *after.forms})
    oracle = f"v = x @ y\nreturn {after.oracle}"
    return Draft("a matrix product in blocks", body, arguments, options, oracle, features)


@production
def gather(rng: random.Random) -> Draft:
    """Rows picked by indices: by a one-hot product, by `take`, or one by one in a loop."""
    dtype = random_dtype(rng)
    way, picked = rng.choice((
        ("take", "jnp.take(x, at_ref[...], axis=0)"),
        ("one-hot product", "jnp.dot((at_ref[...][:, None] == jnp.arange(n)[None, :]).astype(jnp.float32), x, "
         "precision='highest')"),
        ("loop", "jax.lax.fori_loop(0, b, lambda i, rows: rows.at[i].set(x[at_ref[i]]), jnp.zeros((b, d), "
         "jnp.float32))"),
    ))  # fmt: skip
    after = random_expression(rng, ["v"], 2)
    body = f"""
def kernel(x, at):
    (n, d), (b,) = x.shape, at.shape

    def body(x_ref, at_ref, o_ref):
        x = x_ref[...].astype(jnp.float32)
        v = {picked}
        o_ref[...] = ({after.kernel}).astype(o_ref.dtype)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((b, d), x.dtype))(x, at)
"""
    arguments = {"x": f'kt.array("n d", {dtype}, domain=(-8, 8))', "at": 'kt.indices("b", into="n")'}
    options = {"dims": "dict(n=kt.dim(values=(7, 1, 16)), d=kt.dim(values=(5, 1)), b=kt.dim(values=(9, 1, 4)))"}
    options["backends"] = PLAIN
    features = frozenset({way, *after.forms})
    return Draft(
        f"rows picked by indices, by {way}", body, arguments, options, f"v = x[at]\nreturn {after.oracle}", features
    )


@production
def scatter(rng: random.Random) -> Draft:
    """Rows added up by indices: one by one, or by a one-hot product."""
    dtype = random_dtype(rng)
    way, summed = rng.choice((
        ("loop", "jax.lax.fori_loop(0, b, lambda i, sums: sums.at[at_ref[i]].add(x[i]), jnp.zeros((n, d), "
         "jnp.float32))"),
        ("one-hot product", "jnp.dot((jnp.arange(n)[:, None] == at_ref[...][None, :]).astype(jnp.float32), x, "
         "precision='highest')"),
    ))  # fmt: skip
    body = f"""
def kernel(x, at, like):
    (b, d), n = x.shape, like.shape[0]

    def body(x_ref, at_ref, o_ref):
        x = x_ref[...].astype(jnp.float32)
        o_ref[...] = ({summed}).astype(o_ref.dtype)

    sums = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((n, d), x.dtype))(x, at)
    return sums + like[:, None].astype(x.dtype)
"""
    arguments = {
        "x": f'kt.array("b d", {dtype}, domain=(-8, 8))',
        "at": 'kt.indices("b", into="n")',
        "like": 'kt.array("n", "float32", domain=(0, 0))',
    }
    options = {"dims": "dict(n=kt.dim(values=(7, 1, 16)), d=kt.dim(values=(5, 1)), b=kt.dim(values=(9, 1, 4)))"}
    options["backends"] = PLAIN
    options["returns"] = '"x"'
    oracle = "sums = np.zeros((like.shape[0], x.shape[1]))\nnp.add.at(sums, at, x)\nreturn sums"
    return Draft(f"rows added up by indices, by {way}", body, arguments, options, oracle, frozenset({way}))
