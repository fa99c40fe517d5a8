"""Kernels whose grids revisit, clamp, select or skip blocks: index maps, scratch, scalar prefetch, branches."""

import random

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import (
    PLAIN,
    PLAIN_AND_GPU,
    Draft,
    production,
    random_dtype,
    random_lengths,
)
from tools.generate.pointwise_frames import TPU


@production
def neighbours(rng: random.Random) -> Draft:
    """Each block with the one before or after it, whose number an index map clamps or wraps."""
    dtype, block = random_dtype(rng), rng.choice((4, 8))
    function = random_expression(rng, ["x", "y"])
    step, map_, number = rng.choice((
        ("the block before", "jnp.maximum(i - 1, 0)", "np.maximum(at - 1, 0)"),
        ("the block after", "jnp.minimum(i + 1, blocks - 1)", "np.minimum(at + 1, at[-1])"),
        ("the next block, around the end", "(i + 1) % blocks", "(at + 1) % (at[-1] + 1)"),
        ("the mirrored block", "blocks - 1 - i", "at[-1] - at"),
        ("the first block", "0", "0 * at"),
        ("half the block's number", "i // 2", "at // 2"),
    ))  # fmt: skip
    body = f"""
def kernel(x):
    (n,) = x.shape
    blocks = n // {block}

    def body(x_ref, y_ref, o_ref):
        x, y = x_ref[...].astype(jnp.float32), y_ref[...].astype(jnp.float32)
        o_ref[...] = ({function.kernel}).astype(o_ref.dtype)

    here = pl.BlockSpec(({block},), lambda i: (i,))
    return pl.pallas_call(
        body,
        grid=(blocks,),
        in_specs=[here, pl.BlockSpec(({block},), lambda i: ({map_},))],
        out_specs=here,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x, x)
"""
    arguments = {"x": f'kt.array("n", {dtype}, domain=(-8, 8))'}
    options = {
        "dims": f"dict(n=kt.dim(block={block}, multiple_of={block}, values=({block}, {3 * block}, {4 * block})))",
        "backends": PLAIN_AND_GPU,
    }
    oracle = f"""\
blocks = x.reshape(-1, {block})
at = np.arange(len(blocks))
y = blocks[{number}].reshape(-1)
return {function.oracle}"""
    features = frozenset({step, "clamped" if "imum" in map_ else "mapped", *function.forms})
    return Draft(f"each block with {step}", body, arguments, options, oracle, features)


@production
def scratch_reduction(rng: random.Random) -> Draft:
    """Statistics of columns or rows in scratch, by Welford's method, online, in pairs, or by compensated sums."""
    dtype, rows, columns = random_dtype(rng), rng.choice((4, 8)), rng.choice((8, 16))
    axis = rng.choice((0, 1))
    # A step combines the statistics so far, a (and b), with the block v, of which `inside` is true in the array.
    name, start, update, finish, oracle = rng.choice((
        ("Welford variance", ("0.0", "0.0"), """\
count = jnp.minimum((step + 1) * width, length) - step * width
seen = step * width
mean = jnp.sum(jnp.where(inside, v, 0), axis=AXIS, keepdims=True) / count
shift = mean - a
new_a = a + shift * count / (seen + count)
spread = jnp.sum(jnp.where(inside, jnp.square(v - mean), 0), axis=AXIS, keepdims=True)
new_b = b + spread + shift * shift * seen * count / (seen + count)""", "b / length", "v.var(AXIS, keepdims=True)"),
        ("online log-sum-exp", ("-jnp.inf", "0.0"), """\
new_a = jnp.maximum(a, jnp.max(jnp.where(inside, v, -jnp.inf), axis=AXIS, keepdims=True))
new_b = b * jnp.exp(a - new_a) + jnp.sum(jnp.where(inside, jnp.exp(v - new_a), 0), axis=AXIS, keepdims=True)""",
         "a + jnp.log(b)", "np.log(np.exp(v).sum(AXIS, keepdims=True))"),
        ("compensated sum", ("0.0", "0.0"), """\
term = jnp.sum(jnp.where(inside, v, 0), axis=AXIS, keepdims=True) - b
new_a = a + term
new_b = (new_a - a) - term""", "a", "v.sum(AXIS, keepdims=True)"),
        ("range", ("-jnp.inf", "jnp.inf"), """\
new_a = jnp.maximum(a, jnp.max(jnp.where(inside, v, -jnp.inf), axis=AXIS, keepdims=True))
new_b = jnp.minimum(b, jnp.min(jnp.where(inside, v, jnp.inf), axis=AXIS, keepdims=True))""", "a - b",
         "v.max(AXIS, keepdims=True) - v.min(AXIS, keepdims=True)"),
        ("mean of two sums", ("0.0", "0.0"), """\
new_a = a + jnp.sum(jnp.where(inside, v, 0), axis=AXIS, keepdims=True)
new_b = b + jnp.sum(jnp.where(inside, v * v, 0), axis=AXIS, keepdims=True)""", "b / length + a / length",
         "np.square(v).mean(AXIS, keepdims=True) + v.mean(AXIS, keepdims=True)"),
    ))  # fmt: skip
    before = random_expression(rng, ["x"], 2)
    width, other = (columns, rows) if axis else (rows, columns)
    grid = f"(pl.cdiv({'m' if axis else 'n'}, {other}), pl.cdiv(length, width))"
    shape = f"({other}, 1)" if axis else f"(1, {other})"
    index = "i, j" if axis else "j, i"
    updated = "\n".join(f"        {line}" for line in update.replace("AXIS", str(axis)).splitlines())
    body = f"""
def kernel(x):
    m, n = x.shape
    length, width = {"n" if axis else "m"}, {width}

    def body(x_ref, o_ref, a_ref, b_ref):
        step = pl.program_id(1)

        @pl.when(step == 0)
        def _():
            a_ref[...] = jnp.full(a_ref.shape, {start[0]}, jnp.float32)
            b_ref[...] = jnp.full(b_ref.shape, {start[1]}, jnp.float32)

        x = x_ref[...].astype(jnp.float32)
        v = {before.kernel}
        inside = step * width + jax.lax.broadcasted_iota(jnp.int32, v.shape, {axis}) < length
        a, b = a_ref[...], b_ref[...]
{updated}
        a_ref[...], b_ref[...] = new_a, new_b

        @pl.when(step == pl.num_programs(1) - 1)
        def _():
            a, b = a_ref[...], b_ref[...]
            o_ref[...] = ({finish}).astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        grid={grid},
        in_specs=[pl.BlockSpec(({rows}, {columns}), lambda i, j: ({index}))],
        out_specs=pl.BlockSpec({shape}, lambda i, j: ({"i, 0" if axis else "0, i"})),
        out_shape=jax.ShapeDtypeStruct({"(m, 1)" if axis else "(1, n)"}, x.dtype),
        scratch_shapes=[pltpu.VMEM({shape}, jnp.float32), pltpu.VMEM({shape}, jnp.float32)],
    )(x)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    options = {"dims": f"dict(m={random_lengths(rng, rows)}, n={random_lengths(rng, columns)})", "backends": PLAIN}
    options["batch_dims"] = '"m"' if axis else '"n"'
    features = frozenset({name, "scratch", f"axis {axis}", *before.forms})
    oracle = f"v = {before.oracle}\nreturn {oracle.replace('AXIS', str(axis))}"
    what = f"the {name} along axis {axis}"
    return Draft(what, body, arguments, options, oracle, features, TPU)


@production
def prefetched_blocks(rng: random.Random) -> Draft:
    """Blocks that prefetched numbers choose: of an input, of an output, or where a loop ends."""
    dtype, rows = random_dtype(rng), rng.choice((1, 4, 8))
    function = random_expression(rng, ["x"], 2)
    way = rng.choice(("input", "output", "length"))
    here, chosen = "(i, 0)", "(at_ref[i], 0)"
    computed = f"({function.kernel}).astype(o_ref.dtype)"
    if way == "length":
        computed = f"jnp.where(i * {rows} + jax.lax.broadcasted_iota(jnp.int32, x.shape, 0) < at_ref[0], {computed}, 0)"
    body = f"""
def kernel(x, at):
    n = x.shape[1]

    def body(at_ref, x_ref, o_ref):
        i = pl.program_id(0)
        x = x_ref[...].astype(jnp.float32)
        o_ref[...] = {computed}

    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=({"at.shape[0]" if way != "length" else f"pl.cdiv(x.shape[0], {rows})"},),
        in_specs=[pl.BlockSpec(({rows}, n), lambda i, at_ref: {chosen if way == "input" else here})],
        out_specs=pl.BlockSpec(({rows}, n), lambda i, at_ref: {chosen if way == "output" else here}),
    )
    out_shape = jax.ShapeDtypeStruct(({"x.shape[0]" if way != "input" else f"{rows} * at.shape[0]"}, n), x.dtype)
    return pl.pallas_call(body, grid_spec=grid_spec, out_shape=out_shape)(at, x)
"""
    at, oracle, dims = {
        "input": ('kt.indices("b", into="p")', "v[at].reshape(-1, x.shape[1])",
                  "b=kt.dim(values=(5, 1)), p=kt.dim(values=(3, 1))"),
        "output": ('kt.permutation("p")', "v[np.argsort(at)].reshape(-1, x.shape[1])", "p=kt.dim(values=(4, 1))"),
        "length": (f'kt.lengths("1", up_to="{rows}*p")',
                   "np.where(np.arange(len(x))[:, None] < at[0], v.reshape(x.shape), 0)", "p=kt.dim(values=(3, 1))"),
    }[way]  # fmt: skip
    arguments = {"x": f'kt.array("{rows}*p n", {dtype}, domain=(-8, 8))', "at": at}
    options = {"dims": f"dict({dims}, n=kt.dim(values=(8, 5)))", "backends": PLAIN}
    features = frozenset({"scalar prefetch", f"prefetched {way}", *function.forms})
    oracle = f"v = ({function.oracle}).reshape(-1, {rows}, x.shape[1])\nreturn {oracle}"
    return Draft(f"blocks with a prefetched {way}", body, arguments, options, oracle, features, TPU)


@production
def steps_of_a_grid(rng: random.Random) -> Draft:
    """A grid whose steps differ: some are skipped, some take a branch, a loop ends by the step's number."""
    dtype, rows, columns = random_dtype(rng), rng.choice((4, 8)), rng.choice((4, 8))
    first, second = random_expression(rng, ["x"], 2), random_expression(rng, ["x"], 2)
    when, where = rng.choice((
        ("i > j", "at_row > at_column"),
        ("i == j", "at_row == at_column"),
        ("(i + j) % 2 == 0", "(at_row + at_column) % 2 == 0"),
        ("j == pl.num_programs(1) - 1", "at_column == at_column.max() + 0 * at_row"),
    ))  # fmt: skip
    way, text = rng.choice((
        ("cond", "o_ref[...] = jax.lax.cond({when}, lambda: {first}, lambda: {second}).astype(o_ref.dtype)"),
        ("two whens", "@pl.when({when})\ndef _():\n    o_ref[...] = ({first}).astype(o_ref.dtype)\n\n"
         "@pl.when(~({when}))\ndef _():\n    o_ref[...] = ({second}).astype(o_ref.dtype)"),
        ("where", "o_ref[...] = jnp.where({when}, {first}, {second}).astype(o_ref.dtype)"),
        ("overwritten", "o_ref[...] = ({second}).astype(o_ref.dtype)\n\n"
         "@pl.when({when})\ndef _():\n    o_ref[...] = ({first}).astype(o_ref.dtype)"),
    ))  # fmt: skip
    text = text.format(when=when, first=first.kernel, second=second.kernel)
    indented = "\n".join(f"        {line}" if line else "" for line in text.splitlines())
    body = f"""
def kernel(x):
    m, n = x.shape

    def body(x_ref, o_ref):
        i, j = pl.program_id(0), pl.program_id(1)
        x = x_ref[...].astype(jnp.float32)
{indented}

    spec = pl.BlockSpec(({rows}, {columns}), lambda i, j: (i, j))
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {rows}), pl.cdiv(n, {columns})),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    on = f"on=dict(gpu=kt.dim(values=({rows}, {2 * rows})))", f"on=dict(gpu=kt.dim(values=({columns}, {4 * columns})))"
    options = {
        "dims": f"dict(m={random_lengths(rng, rows, on[0])}, n={random_lengths(rng, columns, on[1])})",
        "backends": PLAIN_AND_GPU,
    }
    oracle = f"""\
at_row, at_column = np.arange(x.shape[0])[:, None] // {rows}, np.arange(x.shape[1]) // {columns}
return np.where({where}, {first.oracle}, {second.oracle})"""
    features = frozenset({f"steps by {way}", "branch by position", *first.forms, *second.forms})
    return Draft(f"steps that differ, by {way}", body, arguments, options, oracle, features)
