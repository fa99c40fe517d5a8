"""Kernels in Triton's dialect that gather, add up atomically, hold a tile or branch."""

import random

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import Draft, production, random_dtype, random_lengths
from tools.generate.pointwise_frames import TRITON

_PARAMS = "compiler_params=plgpu.CompilerParams(),"


@production
def triton_gather(rng: random.Random) -> Draft:
    """Elements or rows picked by indices, of which some may mean none; a table of tables."""
    dtype = rng.choice((random_dtype(rng), '"int8"', '"int32"'))
    block = rng.choice((16, 32))
    ignored = rng.random() < 0.4
    load = rng.choice((
        "plgpu.load(x_ref.at[index], mask=inside, other=0)",
        "plgpu.load(x_ref.at[jnp.where(inside, index, 0)], mask=inside, other=0)",
    ))  # fmt: skip
    read, twice = (
        ("index", False)
        if ignored or rng.random() < 0.5
        else ("plgpu.load(at_ref.at[index], mask=inside, other=0)", True)
    )
    body = f"""
def kernel(x, at):
    (b,) = at.shape

    def body(x_ref, at_ref, o_ref):
        lanes = pl.program_id(0) * {block} + jnp.arange({block})
        index = plgpu.load(at_ref.at[lanes], mask=lanes < b, other={-1 if ignored else 0})
        inside = {"(lanes < b) & (index >= 0)" if ignored else "lanes < b"}
        index = {read}
        plgpu.store(o_ref.at[lanes], {load}, mask=lanes < b)

    return pl.pallas_call(
        body, grid=(pl.cdiv(b, {block}),), out_shape=jax.ShapeDtypeStruct((b,), x.dtype), {_PARAMS}
    )(x, at)
"""
    into = "b" if twice else "n"
    declared = f'kt.indices("b", into="{into}"{", ignore=-100" * ignored})'
    arguments = {"x": f'kt.array("{into}", {dtype})', "at": declared}
    dims = f"dict(b={random_lengths(rng, block)}{'' if twice else ', n=kt.dim(values=(7, 1, 33))'})"
    oracle = (
        "return np.where(at >= 0, x[np.maximum(at, 0)], 0)" if ignored else f"return x[{'at[at]' if twice else 'at'}]"
    )
    features = frozenset({"triton", "gather by loads", "ignored indices" * ignored, "gather twice" * twice} - {""})
    return Draft("elements picked by indices", body, arguments, {"dims": dims}, oracle, features, TRITON)


@production
def triton_atomics(rng: random.Random) -> Draft:
    """Elements combined atomically by indices, or those of all programs in one number."""
    name, dtype, start, oracle = rng.choice((
        ("add", "float32", "0", "np.add.at(o, at, np.floor(x))"),  # whole numbers, whose sums no order rounds
        ("max", "float32", "-9", "np.maximum.at(o, at, x)"),
        ("min", "float32", "9", "np.minimum.at(o, at, x)"),  # integers: see triton_atomic_add_of_integers.py
        ("or", "int32", "0", "np.bitwise_or.at(o, at, x)"),
        ("and", "int32", "-1", "np.bitwise_and.at(o, at, x)"),
        ("xor", "int32", "0", "np.bitwise_xor.at(o, at, x)"),
    ))  # fmt: skip
    block, single = rng.choice((16, 32)), rng.random() < 0.3
    loaded = "plgpu.load(x_ref.at[lanes], mask=inside, other=0)"
    loaded = f"jnp.floor({loaded})" if name == "add" else loaded
    at = "jnp.zeros_like(lanes)" if single else "plgpu.load(at_ref.at[lanes], mask=inside, other=0)"
    body = f"""
def kernel(x, at):
    (b,) = x.shape

    def body(x_ref, at_ref, _, o_ref):
        lanes = pl.program_id(0) * {block} + jnp.arange({block})
        inside = lanes < b
        x = {loaded}
        plgpu.atomic_{name}(o_ref, ({at},), x, mask=inside)

    start = jnp.full((9,), {start}, x.dtype)
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(b, {block}),),
        out_shape=jax.ShapeDtypeStruct((9,), x.dtype),
        input_output_aliases={{2: 0}},
        {_PARAMS}
    )(x, at, start)
"""
    domain = ", domain=(-8, 8)" if dtype == "float32" else ""
    arguments = {"x": f'kt.array("b", "{dtype}"{domain})', "at": 'kt.indices("b", into="9")'}
    options = {"dims": f"dict(b={random_lengths(rng, block)})", "backends": '("gpu",)'}
    oracle = f"o = np.full(9, {start}, x.dtype)\n{oracle.replace('at, ', '0 * at, ') if single else oracle}\nreturn o"
    features = frozenset({"triton", f"atomic {name}", dtype, "one address" if single else "by indices"})
    return Draft(f"elements combined by atomic {name}", body, arguments, options, oracle, features, TRITON)


@production
def triton_tiles(rng: random.Random) -> Draft:
    """A tile of rows and columns: transposed, reduced along an axis, or multiplied by another."""
    dtype, rows, columns = random_dtype(rng), rng.choice((16, 32)), rng.choice((16, 32))
    before = random_expression(rng, ["x"], 2)
    keep = "jnp.where(inside, v, 0)"
    way, value, places, oracle = rng.choice((
        ("transposed", "v.T", "columns rows", "v.T"),
        ("row sums", f"jnp.sum({keep}, axis=1)", "rows", "v.sum(1)"),
        ("column sums", f"jnp.sum({keep}, axis=0)", "columns", "v.sum(0)"),
        ("centred columns", f"v - (jnp.sum({keep}, axis=0) / m)[None, :]", "rows columns", "v - v.mean(0)"),
        ("product", f"jnp.dot({keep}, {keep}.T, precision='highest')", "rows rows", "v @ v.T"),
        ("outer sum", f"jnp.max(jnp.where(inside, v, -999), axis=1)[:, None] + jnp.sum({keep}, axis=0)[None, :]",
         "rows columns", "v.max(1, keepdims=True) + v.sum(0)"),
        ("running sums", f"jnp.cumsum({keep}, axis=1)", "rows columns", "np.cumsum(v, 1)"),
        ("running column sums", f"jnp.cumsum({keep}, axis=0)", "rows columns", "np.cumsum(v, 0)"),
    ))  # fmt: skip
    lengths = {"rows": "m", "columns": "n"}
    shape = "".join(f"{lengths[each]}, " for each in places.split())
    views = ["{}"] if " " not in places else ["{}[:, None]", "{}[None, :]"]
    indices = [view.format(each) for view, each in zip(views, places.split(), strict=True)]
    at = ", ".join(indices)
    mask = " & ".join(f"({index} < {lengths[index.partition('[')[0]]})" for index in indices)
    body = f"""
def kernel(x):
    m, n = x.shape

    def body(x_ref, o_ref):
        rows, columns = jnp.arange({rows}), jnp.arange({columns})
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        x = plgpu.load(x_ref.at[rows[:, None], columns[None, :]], mask=inside, other=0).astype(jnp.float32)
        v = {before.kernel}
        plgpu.store(o_ref.at[{at}], ({value}).astype(o_ref.dtype), mask={mask})

    return pl.pallas_call(body, grid=(1,), out_shape=jax.ShapeDtypeStruct(({shape}), x.dtype), {_PARAMS})(x)
"""
    arguments = {"x": f'kt.array("m n", {dtype}, domain=(-8, 8))'}
    m, n = (f"({most}, {rng.randint(2, most - 1)}, 1)" for most in (rows, columns))
    options = {"dims": f"dict(m=kt.dim(values={m}), n=kt.dim(values={n}))"}
    features = frozenset({"triton", f"tile {way}", *before.forms})
    oracle = f"v = {before.oracle}\nreturn {oracle}"
    return Draft(f"a tile, {way}", body, arguments, options, oracle, features, TRITON)


@production
def triton_branches(rng: random.Random) -> Draft:
    """Each program takes one of two or three branches, by its number or by an argument."""
    dtype, block = random_dtype(rng), rng.choice((16, 32))
    count = rng.choice((2, 3))
    branches = [random_expression(rng, ["x"], 2) for _ in range(count)]
    by_argument = rng.random() < 0.5
    which = f"which_ref[program] % {count}" if by_argument else f"program % {count}"
    functions = ", ".join(f"lambda x: {each.kernel}" for each in branches)
    chosen = (
        f"jax.lax.switch(jnp.int32({which}), [{functions}], x)"
        if count == 3
        else f"jax.lax.cond({which} == 1, {functions}, x)"
    )
    extra = ", which" * by_argument
    body = f"""
def kernel(x{extra}):
    (n,) = x.shape

    def body(x_ref{", which_ref" * by_argument}, o_ref):
        program = pl.program_id(0)
        at = program * {block} + jnp.arange({block})
        x = plgpu.load(x_ref.at[at], mask=at < n, other=0).astype(jnp.float32)
        plgpu.store(o_ref.at[at], ({chosen}).astype(o_ref.dtype), mask=at < n)

    return pl.pallas_call(
        body, grid=(pl.cdiv(n, {block}),), out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), {_PARAMS}
    )(x{extra})
"""
    arguments = {"x": f'kt.array("n", {dtype}, domain=(-8, 8))'}
    if by_argument:
        arguments["which"] = 'kt.array("9", "int32", domain=(0, 99))'
    programs = f"np.arange(len(x)) // {block}"
    number = f"which[{programs}]" if by_argument else programs
    listed = [each.oracle for each in branches]
    listed = listed if count == 3 else listed[::-1]
    oracle = f"branch = {number} % {count}\nreturn np.choose(branch, [{', '.join(listed)}])"
    options = {"dims": f"dict(n={random_lengths(rng, block)})"}
    features = frozenset({"triton", "cond" if count == 2 else "switch", "branch by argument" * by_argument} - {""})
    features = features.union(*(each.forms for each in branches))
    return Draft("a branch for each program", body, arguments, options, oracle, features, TRITON)
