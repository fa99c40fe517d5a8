"""Matrix products in Triton's dialect: tiles in a loop, split sums, integers, attention of one head."""

import random

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import Draft, production, random_lengths
from tools.generate.pointwise_frames import TRITON

# dtype of x and y, what is loaded, of the sums, of the result, the options of the product, of the declaration
_PRODUCTS = (
    ("float32", "", "jnp.float32", "jnp.float32", ", precision='highest'", ", domain=(-8, 8)"),
    ("bfloat16", "", "jnp.float32", "x.dtype", ", preferred_element_type=jnp.float32", ", domain=(-8, 8)"),
    ("float16", "", "jnp.float32", "jnp.float32", ", preferred_element_type=jnp.float32", ", domain=(-8, 8)"),
    ("float16", ".astype(jnp.float32)", "jnp.float32", "x.dtype", ", precision='highest'", ", domain=(-8, 8)"),
    ("int8", "", "jnp.int32", "jnp.int32", ", preferred_element_type=jnp.int32", ""),
)


@production
def triton_product(rng: random.Random) -> Draft:
    """A matrix product by tiles: a loop over `k`, or programs that share it and add their parts up atomically."""
    dtype, loaded, sums, out, options, domain = rng.choice(_PRODUCTS)
    tile, depth = rng.choice((16, 32)), 32 if dtype == "int8" else rng.choice((16, 32))
    split = rng.random() < 0.3 and sums == out == "jnp.float32"
    transposed = rng.random() < 0.3
    y_at = ("columns[:, None]", "ks[None, :]") if transposed else ("ks[:, None]", "columns[None, :]")
    y_mask = " & ".join(f"({at} < {'k' if at.startswith('k') else 'n'})" for at in y_at)
    dot = f"jnp.dot(x, y{'.T' * transposed}{options})"
    after = random_expression(rng, ["v"], 2) if sums == "jnp.float32" and not split else None
    start = f"jnp.zeros(({tile}, {tile}), {sums})"
    if split:
        loop = f"v = tile(pl.program_id(2), {start})"
        store = "plgpu.atomic_add(o_ref, (rows[:, None], columns[None, :]), v, mask=inside)"
    else:
        loop = f"v = jax.lax.fori_loop(0, pl.cdiv(k, {depth}), tile, {start})"
        stored = f"({after.kernel}).astype(o_ref.dtype)" if after else "v"
        store = f"plgpu.store(o_ref.at[rows[:, None], columns[None, :]], {stored}, mask=inside)"
    body = f"""
def kernel(x, y):
    (m, k), n = x.shape, y.shape[{0 if transposed else 1}]

    def body(x_ref, y_ref{", _" * split}, o_ref):
        rows = pl.program_id(0) * {tile} + jnp.arange({tile})
        columns = pl.program_id(1) * {tile} + jnp.arange({tile})
        inside = (rows[:, None] < m) & (columns[None, :] < n)

        def tile(step, v):
            ks = step * {depth} + jnp.arange({depth})
            x_mask = (rows[:, None] < m) & (ks[None, :] < k)
            x = plgpu.load(x_ref.at[rows[:, None], ks[None, :]], mask=x_mask, other=0){loaded}
            y = plgpu.load(y_ref.at[{", ".join(y_at)}], mask={y_mask}, other=0){loaded}
            return v + {dot}

        {loop}
        {store}

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {tile}), pl.cdiv(n, {tile}){f", pl.cdiv(k, {depth})" * split}),
        out_shape=jax.ShapeDtypeStruct((m, n), {out}),
{"        input_output_aliases={2: 0}," * split}
        compiler_params=plgpu.CompilerParams(),
    )(x, y{", jnp.zeros((m, n), jnp.float32)" * split})
"""
    shapes = "m k", "n k" if transposed else "k n"
    arguments = {name: f'kt.array("{axes}", "{dtype}"{domain})' for name, axes in zip("xy", shapes, strict=True)}
    # Two parts add up to the same in either order, and three do not.
    inner = f"kt.dim(block={depth}, values=({depth + 6}, {2 * depth}))" if split else random_lengths(rng, depth)
    dims = f"m={random_lengths(rng, tile)}, n={random_lengths(rng, tile)}, k={inner}"
    declared = {"dims": f"dict({dims})"}
    if out != "x.dtype":
        declared["returns"] = '"int32"' if dtype == "int8" else '"float32"'
    if split:
        declared["backends"] = '"gpu"'
    oracle = f"v = x @ y{'.T' * transposed}\nreturn {after.oracle if after else 'v'}"
    features = {"triton", f"product of {dtype}", "product by tiles", *(after.forms if after else ())}
    features |= {"split sum"} if split else set()
    features |= {"transposed operand"} if transposed else set()
    return Draft(f"a product of {dtype} by tiles", body, arguments, declared, oracle, frozenset(features), TRITON)


@production
def triton_attention(rng: random.Random) -> Draft:
    """Attention of one head, a block of queries a program: online or in two passes, causal or with lengths."""
    dtype = rng.choice(("float32", "bfloat16", "float16"))
    queries, keys = rng.choice((16, 32)), rng.choice((16, 32))
    shown, hidden, arguments = rng.choice((
        ("at[None, :] < n", "True", {}),
        ("(at[None, :] < n) & (at[None, :] <= rows[:, None])", "np.arange(len(k)) <= np.arange(len(q))[:, None]", {}),
        ("at[None, :] < length_ref[0]", "np.arange(len(k)) < length[0]", {"length": 'kt.lengths("1", up_to="n")'}),
    ))  # fmt: skip
    base, scale = rng.choice((("jnp.exp", "0.25"), ("jnp.exp2", "0.25 * 1.4426950408889634")))
    extra = ", length" if arguments else ""
    last = rng.choice(("n", "length_ref[0]")) if arguments else "n"
    body = f"""
def kernel(q, k, v{extra}):
    (m, d), n = q.shape, k.shape[0]

    def body(q_ref, k_ref, v_ref{extra and ", length_ref"}, o_ref):
        rows, lanes = pl.program_id(0) * {queries} + jnp.arange({queries}), jnp.arange(16)
        q = plgpu.load(q_ref.at[rows[:, None], lanes[None, :]], mask=rows[:, None] < m, other=0).astype(jnp.float32)

        def step(i, carry):
            top, total, sums = carry
            at = i * {keys} + jnp.arange({keys})
            here = at[:, None], lanes[None, :]
            k = plgpu.load(k_ref.at[here], mask=at[:, None] < n, other=0).astype(jnp.float32)
            v = plgpu.load(v_ref.at[here], mask=at[:, None] < n, other=0).astype(jnp.float32)
            scores = jnp.dot(q, k.T, precision="highest") * ({scale})
            scores = jnp.where({shown}, scores, -jnp.inf)
            new_top = jnp.maximum(top, jnp.max(scores, axis=1))
            safe = jnp.where(new_top == -jnp.inf, 0, new_top)
            shrink, p = {base}(top - safe), {base}(scores - safe[:, None])
            total = total * shrink + jnp.sum(p, axis=1)
            return new_top, total, sums * shrink[:, None] + jnp.dot(p, v, precision="highest")

        start = jnp.full(({queries},), -jnp.inf), jnp.zeros(({queries},)), jnp.zeros(({queries}, 16))
        _, total, sums = jax.lax.fori_loop(0, pl.cdiv({last}, {keys}), step, start)
        o = sums / jnp.where(total == 0, 1, total)[:, None]
        plgpu.store(o_ref.at[rows[:, None], lanes[None, :]], o.astype(o_ref.dtype), mask=rows[:, None] < m)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {queries}),),
        out_shape=jax.ShapeDtypeStruct((m, d), q.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(q, k, v{extra})
"""
    arrays = {
        name: f'kt.array("{axis} 16", "{dtype}", domain=(-8, 8))' for name, axis in zip("qkv", "mnn", strict=True)
    }
    options = {"dims": f"dict(m={random_lengths(rng, queries)}, n={random_lengths(rng, keys)})"}
    oracle = f"""\
scores = np.where({hidden}, q @ k.T / 4, -np.inf)
top = scores.max(-1, keepdims=True)
e = np.exp(scores - np.where(np.isinf(top), 0, top))
total = e.sum(-1, keepdims=True)
return e @ v / np.where(total == 0, 1, total)"""
    kind = "lengths" if arguments else "causal" if "rows" in shown else "all keys"
    features = frozenset({"triton", "online softmax", f"attention of {kind}", dtype, base})
    return Draft(f"attention, {kind}", body, {**arrays, **arguments}, options, oracle, features, TRITON)
