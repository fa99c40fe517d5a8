"""Ways to apply an elementwise function to arrays: block specs, Triton's loads, loops, copies, pipelines."""

import random
from collections.abc import Callable

from tools.generate.generated_kernel import PLAIN_AND_GPU, Draft, random_lengths
from tools.generate.pointwise_function import PointwiseFunction

TRITON = "from jax.experimental.pallas import triton as plgpu"
TPU = "from jax.experimental.pallas import tpu as pltpu"
MOSAIC_GPU = "from jax.experimental.pallas import mosaic_gpu as plgpu"


Frame = Callable[[random.Random, PointwiseFunction], Draft]
FRAMES: list[Frame] = []


def frame(make: Frame) -> Frame:
    """Registers a way to apply a function to arrays."""
    FRAMES.append(make)
    return make


def bring_over_arrays(rng: random.Random, function: PointwiseFunction) -> Draft:
    """Returns a kernel of a function, in a frame that is chosen at random."""
    frames = [each for each in FRAMES if function.mosaic_gpu or each is not mosaic_gpu_pipeline]
    return rng.choice(frames)(rng, function)


@frame
def by_block_specs(rng: random.Random, function: PointwiseFunction) -> Draft:
    """Blocks of vectors; on GPUs, whole blocks. An index map may go backwards."""
    block = rng.choice((8, 16, 32))
    order = rng.choice(("i", "i", "pl.num_programs(0) - 1 - i"))
    order = order.replace("pl.num_programs(0)", f"pl.cdiv(n, {block})")
    in_place = function.in_place and rng.random() < 0.5
    body = f"""
def kernel({function.names}):
    (n,) = x.shape

    def body({function.refs}):
{function.computed()}

    spec = pl.BlockSpec(({block},), lambda i: ({order},))
    return pl.pallas_call(
        body,
        grid=(pl.cdiv(n, {block}),),
        {function.specs("spec")}
        out_shape={function.out_shape()},
{"        input_output_aliases={0: 0}," if in_place else ""}
    )({function.names})
"""
    on = f"on=dict(gpu=kt.dim(block={block}, values=({block}, {3 * block})))"
    options = {
        "dims": f"dict(n={random_lengths(rng, block, on)})",
        "backends": PLAIN_AND_GPU,
    }
    draft = function.draft("by block specs", body, "n", options)
    return draft.with_features("in place" * in_place, "reversed blocks" * (order != "i"))


_LOOPS = (
    ("one block a program", "pl.cdiv(n, {block})", "step = pl.program_id(0)\n{steps}"),
    ("static loop", "1", "def turn(step, _):\n{deeper}\n\njax.lax.fori_loop(0, pl.cdiv(n, {block}), turn, None)"),
    (
        "dynamic loop",
        "2",
        "program = pl.program_id(0)\n\ndef turn(round, _):\n    step = 2 * round + program\n{deeper}\n\n"
        "jax.lax.fori_loop(0, (pl.cdiv(n, {block}) + 1 - program) // 2, turn, None)",
    ),
    (
        "while loop",
        "2",
        "def turn(step):\n{deeper}\n    return step + 2\n\n"
        "jax.lax.while_loop(lambda step: step * {block} < n, turn, pl.program_id(0))",
    ),
)  # how often, in how many programs, each with the source of its steps


@frame
def by_masked_loads(rng: random.Random, function: PointwiseFunction) -> Draft:
    """Triton's masked loads and stores: one block a program, or a loop over blocks with a static or dynamic stride."""
    block = rng.choice((16, 32, 64))
    names = function.inputs
    # Pallas cannot cast 0 to an 8-bit float for Triton.
    zeros = ["0.0" if "float8" in dtypes else "0" for dtypes in names.values()]
    loads = "\n".join(
        f"{name} = plgpu.load({name}_ref.at[at], mask=inside, other={zero}){function.loaded}"
        for name, zero in zip(names, zeros, strict=True)
    )
    stores = "\n".join(
        f"plgpu.store({name}_ref.at[at], {function.stored(i)}, mask=inside)" for i, name in enumerate(function.outputs)
    )
    steps = f"at = step * {block} + jnp.arange({block})\ninside = at < n\n{loads}\n{stores}"
    way, programs, loop = rng.choice(_LOOPS)
    text = loop.format(steps=steps, deeper=_indented(steps, 4), block=block)
    body = f"""
def kernel({function.names}):
    (n,) = x.shape

    def body({function.refs}):
{_indented(text, 8)}

    return pl.pallas_call(
        body,
        grid=({programs.format(block=block)},),
        out_shape={function.out_shape()},
        compiler_params=plgpu.CompilerParams(),
    )({function.names})
"""
    options = {"dims": f"dict(n={random_lengths(rng, block)})"}
    return function.draft("by masked loads", body, "n", options, TRITON).with_features("triton", way)


@frame
def by_slices(rng: random.Random, function: PointwiseFunction) -> Draft:
    """One program that goes over slices of whole arrays; the last slice is moved back so that it ends at the end."""
    block = rng.choice((8, 16))
    body = f"""
def kernel({function.names}):
    (n,) = x.shape

    def body({function.refs}):
        def turn(step, _):
            at = pl.ds(jnp.minimum(step * {block}, n - {block}), {block})
{function.computed("at", 12)}

        jax.lax.fori_loop(0, pl.cdiv(n, {block}), turn, None)

    return pl.pallas_call(body, out_shape={function.out_shape()})({function.names})
"""
    lengths = f"{block}, {block + rng.randint(1, block - 1)}, {3 * block}"
    on = f"on=dict(gpu=kt.dim(block={block}, values=({block}, {2 * block})))"
    options = {
        "dims": f"dict(n=kt.dim(block={block}, values=({lengths}), {on}))",
        "backends": PLAIN_AND_GPU,
    }
    return function.draft("by slices", body, "n", options).with_features("clamped")


@frame
def by_tpu_copies(rng: random.Random, function: PointwiseFunction) -> Draft:
    """A TPU's copies between main memory and VMEM: started all at once, or an `emit_pipeline` of the same."""
    spec = rng.choice(
        ("pl.BlockSpec((8, 128), lambda i: (i, 0))", "pl.BlockSpec((8, 128), lambda i: (pl.cdiv(m, 8) - 1 - i, 0))")
    )
    refs = function.refs.replace("_ref", "_hbm")
    if rng.random() < 0.5:
        way, scratch = "emit_pipeline", ""
        text = f"""\
def step({function.refs}):
{function.computed(indent=4)}

spec = {spec}
pltpu.emit_pipeline(step, grid=(pl.cdiv(m, 8),), {" ".join(function.specs("spec").split())[:-1]})({refs})"""
    else:
        way = "async copies"
        arrays = [f"{name}_ref" for name in (*function.inputs, *function.outputs)]
        starts = [f"pltpu.make_async_copy({name}_hbm.at[rows], {name}_ref, sems.at[{i}])"
                  for i, name in enumerate(function.inputs)]  # fmt: skip
        stops = [f"pltpu.make_async_copy({name}_ref, {name}_hbm.at[rows], sems.at[{len(starts) + i}])"
                 for i, name in enumerate(function.outputs)]  # fmt: skip
        dtypes = [*(f"{name}.dtype" for name in function.inputs), *function.dtypes]
        vmem = [f"pltpu.VMEM((8, 128), {dtype})" for dtype in dtypes]
        scratch = f"        scratch_shapes=[{', '.join(vmem)}, pltpu.SemaphoreType.DMA(({len(arrays)},))],"
        refs += ", " + ", ".join(arrays) + ", sems"
        text = f"""\
def turn(step, _):
    rows = pl.ds(step * 8, 8)
    copies = [{", ".join(starts)}]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()
{function.computed(indent=4)}
    copies = [{", ".join(stops)}]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()

jax.lax.fori_loop(0, m // 8, turn, None)"""
    whole = "pl.BlockSpec(memory_space=pl.ANY)"
    body = f"""
def kernel({function.names}):
    m, n = x.shape

    def body({refs}):
{_indented(text, 8)}

    return pl.pallas_call(
        body,
        {function.specs(whole)}
        out_shape={function.out_shape()},
{scratch}
        compiler_params=pltpu.CompilerParams(),
    )({function.names})
"""
    dims = "dict(m=kt.dim(block=8, values=(8, 24)), n=kt.dim(values=(128,)))"
    return function.draft(f"by {way}", body, "m n", {"dims": dims}, TPU).with_features("tpu", way)


@frame
def mosaic_gpu_pipeline(rng: random.Random, function: PointwiseFunction) -> Draft:
    """Mosaic GPU's pipeline of blocks through shared memory."""
    steps = rng.choice((1, 2, 3))
    refs = [f"{name}_gmem" for name in (*function.inputs, *function.outputs)]
    body = f"""
def kernel({function.names}):
    m, n = x.shape

    def body({", ".join(refs)}):
        def step(_, {function.refs}):
{function.computed(indent=12)}

        spec = plgpu.BlockSpec((64, 64), lambda i, j: (i, j))
        plgpu.emit_pipeline(
            step,
            grid=(m // 64, n // 64),
            in_specs=[spec] * {len(function.inputs)},
            out_specs=[spec] * {len(function.results)},
            max_concurrent_steps={steps},
        )({", ".join(refs)})

    return plgpu.kernel(body, out_type={function.out_shape()})({function.names})
"""
    dims = "dict(m=kt.dim(values=(64, 192)), n=kt.dim(values=(64, 128)))"
    draft = function.draft("by a Mosaic GPU pipeline", body, "m n", {"dims": dims}, MOSAIC_GPU)
    return draft.with_features("mosaic gpu", f"{steps} concurrent steps")


def _indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line if line else line for line in text.split("\n"))
