"""Kernels in Mosaic GPU's dialect: copies that barriers await, in several slots; pipelines with a carry."""

import random

from tools.generate.forms import Expression, random_expression
from tools.generate.generated_kernel import Draft, production
from tools.generate.pointwise_frames import MOSAIC_GPU

# Forms whose operations Mosaic GPU lacks, and one that loses more than its oracle: of kernels that copy, only the
# rounding is judged (docs/tolerances.md).
_WITHOUT = {"softplus", "sine", "interpolation"}


@production
def mosaic_gpu_copies(rng: random.Random) -> Draft:
    """Blocks that are fetched one or more steps ahead, changed, and stored from shared memory."""
    dtype, slots, rows = rng.choice(("float32", "float16", "bfloat16")), rng.choice((1, 2, 3)), rng.choice((32, 64))
    function = _expression(rng)
    order = rng.choice(("step", "step", "steps - 1 - step"))
    pending = rng.choice((0, 0, 1)) if slots > 1 else 0  # stores that may be under way while the next block is computed
    body = f"""
def kernel(x):
    m, n = x.shape
    steps = m // {rows}

    def body(x_gmem, o_gmem):
        def rows_of(step):
            return pl.ds(({order}) * {rows}, {rows})

        def scoped(x_smem, o_smem, loaded):
            for step in range(min({slots}, steps)):
                plgpu.copy_gmem_to_smem(x_gmem.at[rows_of(step)], x_smem.at[step], loaded.at[step])

            @pl.loop(0, steps)
            def _(step):
                slot, out = jax.lax.rem(step, {slots}), jax.lax.rem(step, {pending + 1})
                plgpu.barrier_wait(loaded.at[slot])
                x = x_smem[slot].astype(jnp.float32)
                plgpu.wait_smem_to_gmem({pending}, wait_read_only=True)
                o_smem[out] = ({function.kernel}).astype(o_smem.dtype)
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(o_smem.at[out], o_gmem.at[rows_of(step)])

                @pl.when(step + {slots} < steps)
                def _():
                    plgpu.copy_gmem_to_smem(x_gmem.at[rows_of(step + {slots})], x_smem.at[slot], loaded.at[slot])

            plgpu.wait_smem_to_gmem(0)

        pl.run_scoped(
            scoped,
            x_smem=plgpu.SMEM(({slots}, {rows}, n), x.dtype),
            o_smem=plgpu.SMEM(({pending + 1}, {rows}, n), x.dtype),
            loaded=plgpu.Barrier(num_barriers={slots}),
        )

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((m, n), x.dtype))(x)
"""
    arguments = {"x": f'kt.array("m n", "{dtype}", domain=(-8, 8))'}
    options = {"dims": f"dict(m=kt.dim(block={rows}, values=({rows}, {4 * rows})), n=kt.dim(values=(64, 128)))"}
    features = frozenset(
        {"mosaic gpu", "barriers", f"{slots} slots", f"{pending} stores pending", dtype, *function.forms}
    )
    what = f"blocks through {slots} slots of shared memory"
    return Draft(what, body, arguments, options, f"return {function.oracle}", features, MOSAIC_GPU)


@production
def mosaic_gpu_carry(rng: random.Random) -> Draft:
    """Running sums or maxima of blocks of rows: the carry of a pipeline."""
    dtype, steps = rng.choice(("float32", "float16", "bfloat16")), rng.choice((1, 2, 3))
    function = _expression(rng)
    name, start, combine, oracle = rng.choice((
        ("sum", "0.0", "carry + v", "np.cumsum(blocks, 0)"),
        ("maximum", "-1e30", "jnp.maximum(carry, v)", "np.maximum.accumulate(blocks, 0)"),
        ("decayed sum", "0.0", "0.5 * carry + v", "np.array([sum(0.5 ** (i - j) * blocks[j] for j in range(i + 1)) "
         "for i in range(len(blocks))])"),
    ))  # fmt: skip
    body = f"""
def kernel(x):
    m, n = x.shape

    def step(_, x_smem, o_smem, carry):
        x = x_smem[...].astype(jnp.float32)
        v = {function.kernel}
        carry = {combine}
        o_smem[...] = carry.astype(o_smem.dtype)
        return carry

    def body(x_gmem, o_gmem):
        spec = plgpu.BlockSpec((64, n), lambda i: (i, 0))
        plgpu.emit_pipeline(
            step,
            grid=(m // 64,),
            in_specs=[spec],
            out_specs=[spec],
            max_concurrent_steps={steps},
            init_carry=jnp.full((64, n), {start}, jnp.float32),
        )(x_gmem, o_gmem)

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((m, n), x.dtype))(x)
"""
    arguments = {"x": f'kt.array("m n", "{dtype}", domain=(-8, 8))'}
    options = {"dims": "dict(m=kt.dim(block=64, values=(64, 192)), n=kt.dim(values=(64, 128)))"}
    options["backends"] = '"interpret-mosaic-gpu"'  # JAX finds no layout for a carry that starts as one number
    features = frozenset({"mosaic gpu", f"carried {name}", f"{steps} concurrent steps", dtype, *function.forms})
    oracle = f"blocks = ({function.oracle}).reshape(-1, 64, x.shape[1])\nreturn ({oracle}).reshape(x.shape)"
    return Draft(f"the running {name} of blocks", body, arguments, options, oracle, features, MOSAIC_GPU)


def _expression(rng: random.Random) -> Expression:
    while True:
        function = random_expression(rng, ["x"], 2)
        if not function.forms & _WITHOUT:
            return function
