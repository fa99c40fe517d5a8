"""Kernels in Triton's dialect with one program a row: norms, integers, positions, ragged rows."""

import random
from textwrap import indent

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import Draft, production, random_dtype, random_lengths
from tools.generate.pointwise_frames import TRITON

_PARAMS = "compiler_params=plgpu.CompilerParams(),"


@production
def triton_integer_rows(rng: random.Random) -> Draft:
    """A reduction of each row of integers or booleans, whole or in a loop over parts."""
    dtype = rng.choice(("int32", "int8", "uint8", "bool"))
    name, neutral, mapped, reduce, combine, oracle = rng.choice((
        ("sum", "0", "x.astype(jnp.int32)", "jnp.sum", "{a} + {b}", "x.astype(int).sum(-1)"),
        ("count", "0", "(x != 0).astype(jnp.int32)", "jnp.sum", "{a} + {b}", "np.count_nonzero(x, axis=-1)"),
        ("maximum", "-(2**31)", "x.astype(jnp.int32)", "jnp.max", "jnp.maximum({a}, {b})", "x.astype(int).max(-1)"),
        ("minimum", "2**31 - 1", "x.astype(jnp.int32)", "jnp.min", "jnp.minimum({a}, {b})", "x.astype(int).min(-1)"),
        ("squares", "0", "(x.astype(jnp.int32) & 15) * (x.astype(jnp.int32) & 15)", "jnp.sum", "{b} + {a}",
         "np.square(x.astype(int) % 16).sum(-1)"),
        ("any", "0", "(x != 0).astype(jnp.int32)", "jnp.max", "{a} | {b}", "x.any(-1) + 0"),
        ("all", "1", "(x != 0).astype(jnp.int32)", "jnp.min", "{a} & {b}", "x.all(-1) + 0"),
    ))  # fmt: skip
    block = rng.choice((16, 32))
    part = f"{reduce}(jnp.where(inside, {mapped}, {neutral}))"
    load = "x = plgpu.load(x_ref.at[row, at], mask=inside, other=0)"
    if rng.random() < 0.5:
        way, before = "whole rows", "block = pl.next_power_of_2(n)"
        text = f"at = jnp.arange(block)\ninside = at < n\n{load}\no_ref[row] = {part}"
    else:
        way, before = "loop over parts", ""
        combined = combine.format(a="total", b="part")
        text = f"""\
def step(i, total):
    at = i * {block} + jnp.arange({block})
    inside = at < n
    {load}
    part = {part}
    return {combined}

o_ref[row] = jax.lax.fori_loop(0, pl.cdiv(n, {block}), step, jnp.int32({neutral}))"""
    arguments = {"x": f'kt.array("m n", "{dtype}")'}
    body = _rows(before, text, "x_ref, o_ref", "(m,)", "jnp.int32", "x")
    features = frozenset({"triton", dtype, f"{name} of integers", way})
    what = f"the {name} of rows of {dtype}, by {way}"
    return Draft(what, body, arguments, _row_options(rng, block), f"return {oracle}", features, TRITON)


@production
def triton_positions(rng: random.Random) -> Draft:
    """The position of each row's extreme, or its running sums, from the start or from the end."""
    dtype = rng.choice(('"float32"', '"int32"'))
    name, text, out, oracle = rng.choice((
        ("argmax", "o_ref[row] = jnp.argmax(jnp.where(inside, x, -99))", "(m,)", "x.argmax(-1)"),
        ("argmin", "o_ref[row] = jnp.argmin(jnp.where(inside, x, 99))", "(m,)", "x.argmin(-1)"),
        ("first maximum", "o_ref[row] = jnp.min(jnp.where(inside & (x == jnp.max(jnp.where(inside, x, -99))), at, n))",
         "(m,)", "x.argmax(-1)"),
        ("rank", "keys = plgpu.load(x_ref.at[row, at], mask=inside, other=99)\n"
         "before = (keys[None, :] < x[:, None]) | ((keys[None, :] == x[:, None]) & (at[None, :] < at[:, None]))\n"
         "plgpu.store(o_ref.at[row, at], jnp.sum(before.astype(jnp.int32), axis=1), mask=inside)",
         "(m, n)", "x.argsort(-1, kind='stable').argsort(-1)"),
    ))  # fmt: skip
    other = {"argmax": "-99", "argmin": "99"}.get(name, "0")
    loaded = f"at = jnp.arange(block)\ninside = at < n\nx = plgpu.load(x_ref.at[row, at], mask=inside, other={other})\n"
    body = _rows("block = pl.next_power_of_2(n)", loaded + text, "x_ref, o_ref", out, "jnp.int32", "x")
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    features = frozenset({"triton", name})
    what = f"the {name} of rows"
    return Draft(what, body, arguments, _row_options(rng, 16), f"return {oracle}", features, TRITON)


@production
def triton_ragged_rows(rng: random.Random) -> Draft:
    """A reduction of the first elements of each row, as many as an argument gives, or those that a window admits."""
    dtype, block = random_dtype(rng), rng.choice((16, 32))
    before = random_expression(rng, ["x"], 2)
    name, start, combine, finish, oracle = rng.choice((
        ("sum", "0.0", "total + jnp.sum(jnp.where(inside, v, 0))", "total", "v.sum(-1, where=inside)"),
        ("mean", "0.0", "total + jnp.sum(jnp.where(inside, v, 0))", "total / jnp.maximum(length, 1)",
         "v.sum(-1, where=inside) / np.maximum(lengths, 1)"),
        ("sum of squares", "0.0", "total + jnp.sum(jnp.where(inside, v * v, 0))", "total",
         "np.square(v).sum(-1, where=inside)"),
    ))  # fmt: skip
    first, first_oracle = rng.choice(
        (("0", "0"), ("jnp.maximum(length - 5, 0)", "np.maximum(lengths[:, None] - 5, 0)"))
    )
    steps = rng.choice((f"first // {block}, pl.cdiv(length, {block})", f"0, pl.cdiv(n, {block})"))
    text = f"""\
length = lengths_ref[row]
first = {first}

def step(i, total):
    at = i * {block} + jnp.arange({block})
    inside = (at >= first) & (at < length)
    x = plgpu.load(x_ref.at[row, at], mask=inside, other=0).astype(jnp.float32)
    v = {before.kernel}
    return {combine}

total = jax.lax.fori_loop({steps}, step, jnp.float32({start}))
o_ref[row] = ({finish}).astype(o_ref.dtype)"""
    body = _rows("", text, "x_ref, lengths_ref, o_ref", "(m,)", "x.dtype", "x, lengths")
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))', "lengths": 'kt.lengths("m", up_to="n")'}
    oracle = f"""\
v = {before.oracle}
at = np.arange(x.shape[1])
inside = (at >= {first_oracle}) & (at < lengths[:, None])
return {oracle}"""
    bound = "dynamic bounds" if "length" in steps else "static bounds"
    features = frozenset({"triton", "ragged", f"ragged {name}", bound, "window" * (first != "0"), *before.forms} - {""})
    what = f"the {name} of the first elements of rows"
    return Draft(what, body, arguments, _row_options(rng, block), oracle, features, TRITON)


@production
def triton_rows(rng: random.Random) -> Draft:
    """A softmax, log-softmax or norm of rows, one program a row, with masked loads."""
    dtype = random_dtype(rng)
    name, of_kernel, of_oracle = rng.choice((
        ("softmax", "e / jnp.sum(e)", "e / e.sum(-1, keepdims=True)"),
        ("softmax by a reciprocal", "e * (1 / jnp.sum(e))", "e / e.sum(-1, keepdims=True)"),
        ("log-softmax", "(x - top) - jnp.log(jnp.sum(e))", "(x - top) - np.log(e.sum(-1, keepdims=True))"),
        ("norm", "x * jax.lax.rsqrt(jnp.sum(jnp.where(inside, x * x, 0)) / n + 1e-5)",
         "x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-5)"),
    ))  # fmt: skip
    exp = rng.choice(("jnp.exp(x - top)", "jnp.exp2((x - top) * 1.4426950408889634)"))
    body = f"""
def kernel(x):
    m, n = x.shape
    block = pl.next_power_of_2(n)

    def body(x_ref, o_ref):
        row, at = pl.program_id(0), jnp.arange(block)
        inside = at < n
        x = plgpu.load(x_ref.at[row, at], mask=inside, other=-jnp.inf).astype(jnp.float32)
        top = jnp.max(x)
        e = {exp}
        plgpu.store(o_ref.at[row, at], ({of_kernel}).astype(o_ref.dtype), mask=inside)

    return pl.pallas_call(
        body,
        grid=(m,),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plgpu.CompilerParams(),
    )(x)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-40, 40))'}
    options = {"dims": "dict(m=kt.dim(values=(3, 1)), n=kt.dim(block=32))", "batch_dims": '"m"'}
    oracle = f"top = x.max(-1, keepdims=True)\ne = np.exp(x - top)\nreturn {of_oracle}"
    return Draft(f"the {name} of rows", body, arguments, options, oracle, frozenset({"triton", name}), TRITON)


def _rows(before: str, text: str, refs: str, shape: str, dtype: str, names: str) -> str:
    """Returns the source of a kernel with one program a row."""
    return f"""
def kernel({names}):
    m, n = x.shape
    {before}

    def body({refs}):
        row = pl.program_id(0)
{indent(text, " " * 8)}

    return pl.pallas_call(
        body, grid=(m,), out_shape=jax.ShapeDtypeStruct({shape}, {dtype}), {_PARAMS}
    )({names})
"""


def _row_options(rng: random.Random, block: int) -> dict[str, str]:
    return {"dims": f"dict(m=kt.dim(values=(3, 1)), n={random_lengths(rng, block)})", "batch_dims": '"m"'}
