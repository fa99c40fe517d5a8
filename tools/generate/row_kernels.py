"""Reductions of rows and functions that use them: whole rows, blocks that a grid revisits, loops."""

import random
from dataclasses import dataclass

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import (
    PLAIN,
    PLAIN_AND_GPU,
    Draft,
    production,
    random_dtype,
    random_lengths,
)


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A reduction of the last axis of `v`, which has `n` elements in a row.

    Attributes:
      oracle: in NumPy, with the axis kept.
      kernels: in `jnp`, of whole rows without padding.
      start: the neutral element; "" if parts cannot be combined.
      combine: the combination of two parts, `{a}` and `{b}`.
      finish: the function of all parts combined, `{a}`.
      map: the expression of `v` that is reduced.
      reduce: the reduction of a block of it.
    """

    oracle: str
    kernels: tuple[str, ...]
    start: str = ""
    combine: str = "{a} + {b}"
    finish: str = "{a}"
    map: str = "v"
    reduce: str = "jnp.sum"


REDUCTIONS = {
    "sum": RowReduction(
        "v.sum(-1, keepdims=True)",
        ("jnp.sum(v, axis=-1, keepdims=True)", "jnp.dot(v, jnp.ones((n, 1), jnp.float32), precision='highest')"),
        "0.0",
    ),
    "mean": RowReduction(
        "v.mean(-1, keepdims=True)",
        ("jnp.mean(v, axis=-1, keepdims=True)", "jnp.sum(v * (1 / n), axis=-1, keepdims=True)"),
        "0.0",
        finish="{a} / n",
    ),
    "maximum": RowReduction(
        "v.max(-1, keepdims=True)",
        ("jnp.max(v, axis=-1, keepdims=True)", "-jnp.min(-v, axis=-1, keepdims=True)"),
        "-jnp.inf",
        combine="jnp.maximum({a}, {b})",
        reduce="jnp.max",
    ),
    "norm": RowReduction(
        "np.sqrt(np.square(v).sum(-1, keepdims=True) + 1e-6)",
        ("jnp.sqrt(jnp.sum(v * v, axis=-1, keepdims=True) + 1e-6)",),
        "0.0",
        finish="jnp.sqrt({a} + 1e-6)",
        map="v * v",
    ),
    "variance": RowReduction(
        "v.var(-1, keepdims=True)",
        (
            "jnp.var(v, axis=-1, keepdims=True)",
            "jnp.mean(jnp.square(v - jnp.mean(v, axis=-1, keepdims=True)), axis=-1, keepdims=True)",
        ),
    ),
    "log_sum_exp": RowReduction(
        "np.logaddexp.reduce(v, axis=-1, keepdims=True)",
        (
            "jax.scipy.special.logsumexp(v, axis=-1, keepdims=True)",
            "(jnp.max(v, -1, keepdims=True) + jnp.log(jnp.sum(jnp.exp(v - jnp.max(v, -1, keepdims=True)), -1, "
            "keepdims=True)))",
        ),
    ),
}  # of numbers from -8 to 8

_USES = {
    "reduced": ("{r}", "{r}"),
    "divided": ("v / (1 + jnp.abs({r}))", "v / (1 + np.abs({r}))"),
    "centred": ("v - {r}", "v - {r}"),
}


@production
def row_reduction(rng: random.Random) -> Draft:
    """A reduction of whole rows, or a function that uses it, with some rows for each program."""
    dtype = random_dtype(rng)
    name = rng.choice(sorted(REDUCTIONS))
    reduction, use = REDUCTIONS[name], rng.choice(sorted(_USES))
    rows = rng.choice((1, 4, 8, 5))
    before = random_expression(rng, ["x"], 2)
    in_kernel, in_oracle = _USES[use]
    of_kernel, of_oracle = in_kernel.format(r=rng.choice(reduction.kernels)), in_oracle.format(r=reduction.oracle)
    on_gpus = rows != 5 and "jnp.dot" not in of_kernel  # Triton's blocks are powers of two, its dot's 16 long
    width = "1" if use == "reduced" else "n"
    body = f"""
def kernel(x):
    m, n = x.shape

    def body(x_ref, o_ref):
        x = x_ref[...].astype(jnp.float32)
        v = {before.kernel}
        o_ref[...] = ({of_kernel}).astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {rows}),),
        in_specs=[pl.BlockSpec(({rows}, n), lambda i: (i, 0))],
        out_specs=pl.BlockSpec(({rows}, {width}), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, {width}), x.dtype),
    )(x)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    on = [f"on=dict(gpu=kt.dim(values=({each}, {4 * each})))" * on_gpus for each in (rows, 8)]
    dims = f"m={random_lengths(rng, rows, on[0])}, n={random_lengths(rng, 16, on[1])}"
    options = {"dims": f"dict({dims})", "batch_dims": '"m"', "backends": PLAIN_AND_GPU if on_gpus else PLAIN}
    features = frozenset({name, use, "whole rows", *before.forms})
    what = f"the {name.replace('_', ' ')} of rows, {use}"
    return Draft(what, body, arguments, options, f"v = {before.oracle}\nreturn {of_oracle}", features)


@production
def blocked_reduction(rng: random.Random) -> Draft:
    """A reduction of rows in blocks of columns: the grid revisits the output, or a loop goes over the row."""
    dtype = random_dtype(rng)
    name = rng.choice(sorted(each for each, reduction in REDUCTIONS.items() if reduction.start))
    reduction, rows, columns = REDUCTIONS[name], rng.choice((1, 4, 8)), rng.choice((8, 16, 12))
    before = random_expression(rng, ["x"], 2)
    part = f"{reduction.reduce}(jnp.where(inside, {reduction.map}, {reduction.start}), axis=1, keepdims=True)"
    if rng.random() < 0.5:
        way, finish = "revisited output", reduction.finish.format(a="o_ref[...]")
        body = f"""
def kernel(x):
    m, n = x.shape

    def body(x_ref, o_ref):
        step = pl.program_id(1)

        @pl.when(step == 0)
        def _():
            o_ref[...] = jnp.full(o_ref.shape, {reduction.start}, jnp.float32)

        x = x_ref[...].astype(jnp.float32)
        v = {before.kernel}
        inside = step * {columns} + jnp.arange({columns})[None, :] < n
        part = {part}
        o_ref[...] = {reduction.combine.format(a="o_ref[...]", b="part")}

        @pl.when(step == pl.num_programs(1) - 1)
        def _():
            o_ref[...] = {finish}

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {rows}), pl.cdiv(n, {columns})),
        in_specs=[pl.BlockSpec(({rows}, {columns}), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec(({rows}, 1), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, 1), jnp.float32),
    )(x).astype(x.dtype)
"""
    else:
        way, finish = "loop", reduction.finish.format(a="total")
        body = f"""
def kernel(x):
    m, n = x.shape
    steps = pl.cdiv(n, {columns})
    padded = jnp.pad(x, ((0, 0), (0, steps * {columns} - n)))

    def body(x_ref, o_ref):
        def step(i, total):
            x = x_ref[:, pl.ds(i * {columns}, {columns})].astype(jnp.float32)
            v = {before.kernel}
            inside = i * {columns} + jnp.arange({columns})[None, :] < n
            part = {part}
            return {reduction.combine.format(a="total", b="part")}

        total = jax.lax.fori_loop(0, steps, step, jnp.full(o_ref.shape, {reduction.start}, jnp.float32))
        o_ref[...] = ({finish}).astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, {rows}),),
        in_specs=[pl.BlockSpec(({rows}, steps * {columns}), lambda i: (i, 0))],
        out_specs=pl.BlockSpec(({rows}, 1), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((m, 1), x.dtype),
    )(padded)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    on_gpus = way == "loop" and columns != 12  # programs of a GPU run at the same time, and blocks are powers of two
    on = [f"on=dict(gpu=kt.dim(values=({each}, {2 * each})))" * on_gpus for each in (rows, columns)]
    dims = f"m={random_lengths(rng, rows, on[0])}, n={random_lengths(rng, columns, on[1])}"
    options = {"dims": f"dict({dims})", "batch_dims": '"m"', "backends": PLAIN_AND_GPU if on_gpus else PLAIN}
    features = frozenset({name, way, *before.forms})
    what = f"the {name} of rows in blocks, by a {way}"
    return Draft(what, body, arguments, options, f"v = {before.oracle}\nreturn {reduction.oracle}", features)
