"""Kernels of Mosaic GPU, right and broken in one place each, as users report it: products, then small kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from tests.corpus.twin import Twin, paired

HAS_DIALECT = jax.__version_info__ >= (0, 11)  # JAX 0.10 lowers without the dialect that is simulated
STEP = 64
SWIZZLED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

Kernel = Callable[[jax.Array, jax.Array], jax.Array]


def _store(bug: str, value: Any, smem: Any, target: Any) -> None:
    smem[...] = value
    if bug != "no commit_smem":
        plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(smem, target)
    if bug != "no last wait":
        plgpu.wait_smem_to_gmem(0)


def _blocks(tile: int, **options: Any) -> tuple[Any, Any]:
    options["transforms"] = SWIZZLED
    left = plgpu.BlockSpec((tile, STEP), lambda k: (lax.axis_index("m"), k), **options)
    return left, plgpu.BlockSpec((STEP, tile), lambda k: (k, lax.axis_index("n")), **options)


def _tile(o: Any, tile: int) -> Any:
    return o.at[pl.ds(lax.axis_index("m") * tile, tile), pl.ds(lax.axis_index("n") * tile, tile)]


def _call(body: Callable[..., None], tile: int, a: jax.Array, b: jax.Array, **scratch: Any) -> jax.Array:
    shape = (a.shape[0], b.shape[1])
    smem = plgpu.SMEM((tile, tile), a.dtype, transforms=SWIZZLED)
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(shape, a.dtype),
        grid=(shape[0] // tile, shape[1] // tile),
        grid_names=("m", "n"),
        scratch_types={"o_smem": smem, **scratch},
    )(a, b)


def hopper(bug: str = "") -> Kernel:
    """A product by wgmma, in a pipeline of two slots."""
    tile = 64
    keep = {"wgmma not waited for": 2, "waits for one step too few": 1}.get(bug, 0)

    def body(a: Any, b: Any, o: Any, o_smem: Any) -> None:
        def scope(acc: Any) -> Any:
            def step(_: Any, a_smem: Any, b_smem: Any) -> None:
                plgpu.wgmma(acc, a_smem, b_smem)
                if keep < 2:
                    plgpu.wgmma_wait(keep)

            steps = a.shape[1] // STEP - (bug == "tail step")
            plgpu.emit_pipeline(step, in_specs=_blocks(tile), grid=(steps,), max_concurrent_steps=2)(a, b)
            return acc[...]

        total = pl.run_scoped(scope, plgpu.ACC((tile, tile)))
        _store(bug, total.astype(o.dtype), o_smem, _tile(o, tile) if bug != "one tile" else o.at[:tile, :tile])

    return lambda a, b: _call(body, tile, a, b)


def by_hand(bug: str = "") -> Kernel:
    """A product by wgmma whose copies are started and waited for by hand, one slot of each operand."""
    tile = 64

    def body(a: Any, b: Any, o: Any, o_smem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        m, n = lax.axis_index("m"), lax.axis_index("n")

        def scope(acc: Any) -> Any:
            @pl.loop(0, a.shape[1] // STEP)
            def _(k: Any) -> None:
                part = pl.ds(k * STEP, STEP)
                plgpu.copy_gmem_to_smem(a.at[pl.ds(m * tile, tile), part], a_smem, loaded)
                if bug != "one copy missing":
                    plgpu.copy_gmem_to_smem(b.at[part, pl.ds(n * tile, tile)], b_smem, loaded)
                if bug != "barrier not waited for":
                    plgpu.barrier_wait(loaded)
                plgpu.wgmma(acc, a_smem, b_smem)
                if bug != "slot reused while wgmma reads it":
                    plgpu.wgmma_wait(0)
                if bug == "barrier waited for twice":
                    plgpu.barrier_wait(loaded)

            return acc[...]

        total = pl.run_scoped(scope, plgpu.ACC((tile, tile)))
        _store(bug, total.astype(o.dtype), o_smem, _tile(o, tile))

    def kernel(a: jax.Array, b: jax.Array) -> jax.Array:
        arrivals = {"one arrival too many expected": 3, "one arrival too few expected": 1}.get(bug, 2)
        slots = {f"{name}_smem": plgpu.SMEM((tile, STEP), a.dtype, transforms=SWIZZLED) for name in "ab"}
        return _call(body, tile, a, b, **slots, loaded=plgpu.Barrier(num_arrivals=arrivals))

    return kernel


def blackwell(bug: str = "") -> Kernel:
    """A product by tcgen05 in tensor memory, whose steps are waited for one late."""
    tile = 128

    def body(a: Any, b: Any, o: Any, o_smem: Any, acc: Any, done: Any) -> None:
        def step(index: Any, a_smem: Any, b_smem: Any) -> None:
            now = lax.rem(index[0], 2)
            accumulates = True if bug == "accumulator not cleared" else index[0] > 0
            plgpu.tcgen05_mma(acc, a_smem, b_smem, barrier=done.at[now], accumulate=accumulates)
            if bug != "step not waited for":
                plgpu.barrier_wait(done.at[now if bug == "wrong phase" else 1 - now])

        if bug != "step not waited for":
            plgpu.barrier_arrive(done.at[1])
        steps = a.shape[1] // STEP
        blocks = _blocks(tile, delay_release=0 if bug == "no delay_release" else 1)
        plgpu.emit_pipeline(step, in_specs=blocks, grid=(steps,), max_concurrent_steps=2)(a, b)
        if bug != "accumulator read too early":
            plgpu.barrier_wait(done.at[1 - steps % 2])
        _store(bug, plgpu.async_load_tmem(acc).astype(o.dtype), o_smem, _tile(o, tile))

    return lambda a, b: _call(
        body,
        tile,
        a,
        b,
        acc=plgpu.TMEM((tile, tile), jnp.float32),
        done=plgpu.Barrier(num_arrivals=1, num_barriers=2, orders_tensor_core=True),
    )


def specialised(bug: str = "") -> Kernel:
    """A product by tcgen05, for which one warp copies and one starts the products."""
    tile = 128

    def body(a: Any, b: Any, o: Any, o_smem: Any, a_smem: Any, b_smem: Any, acc: Any, **barriers: Any) -> None:
        loaded, consumed, done = (barriers[name] for name in ("loaded", "consumed", "done"))
        steps = a.shape[1] // STEP

        def copy(k: Any, _: Any) -> None:
            slot, part = lax.rem(k, 2), pl.ds(k * STEP, STEP)
            if bug != "slot not waited for":
                pl.when(k >= 2)(lambda: plgpu.barrier_wait(consumed.at[slot]))
            rows, columns = (pl.ds(lax.axis_index(axis) * tile, tile) for axis in "mn")
            plgpu.copy_gmem_to_smem(a.at[rows, part], a_smem.at[slot], loaded.at[slot])
            plgpu.copy_gmem_to_smem(b.at[part, columns], b_smem.at[slot], loaded.at[slot])

        def multiply(k: Any, _: Any) -> None:
            slot = lax.rem(k, 2)
            plgpu.barrier_wait(loaded.at[slot])
            plgpu.tcgen05_mma(acc, a_smem.at[slot], b_smem.at[slot], consumed.at[slot], accumulate=k > 0)

        @plgpu.warp_map
        def _(warp: Any) -> None:
            @pl.when(warp == 0)
            def _() -> None:
                lax.fori_loop(0, steps, copy, None)

            @pl.when(warp == 1)
            def _() -> None:
                lax.fori_loop(0, steps, multiply, None)
                plgpu.tcgen05_commit_arrive(done)

        plgpu.barrier_wait(done)
        _store(bug, plgpu.async_load_tmem(acc).astype(o.dtype), o_smem, _tile(o, tile))

    slots = (("a_smem", (2, tile, STEP)), ("b_smem", (2, STEP, tile)))
    return lambda a, b: _call(
        body,
        tile,
        a,
        b,
        **{name: plgpu.SMEM(shape, a.dtype, transforms=SWIZZLED) for name, shape in slots},
        acc=plgpu.TMEM((tile, tile), jnp.float32),
        loaded=plgpu.Barrier(num_arrivals=2, num_barriers=2),
        consumed=plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
        done=plgpu.Barrier(orders_tensor_core=True),
    )


def two_blocks(bug: str = "") -> Kernel:
    """A product by tcgen05 on two blocks, each with half of the rows and columns, that claim a tile at a time."""
    tile = 128

    def body(a: Any, b: Any, o: Any, o_smem: Any, a_smem: Any, b_smem: Any, acc: Any, **barriers: Any) -> None:
        loaded, consumed, done, stored = (barriers[name] for name in ("loaded", "consumed", "done", "stored"))
        steps, group, block = a.shape[1] // STEP, lax.axis_index("wg"), lax.axis_index("x")
        both = {"cluster_axes": ("x",)} if bug != "each block claims a tile" else {}

        @plgpu.dynamic_scheduling_loop(grid_names=("t",), thread_axis="wg", **both)
        def _(tile_of: Any) -> None:
            (index,), number = tile_of.index, tile_of.local_index
            rows = pl.ds(index * 2 * tile, 2 * tile)

            def copy(k: Any, _: Any) -> None:
                slot, part = lax.rem(k, 2), pl.ds(k * STEP, STEP)
                pl.when((k >= 2) | (number > 0))(lambda: plgpu.barrier_wait(consumed.at[slot]))
                for source, smem, axis in ((a.at[rows, part], a_smem, 0), (b.at[part], b_smem, 1)):
                    tracked = plgpu.CopyPartition.PARTITIONED(axis)
                    options = {"leader_tracked": tracked, "collective_axes": "x"}
                    plgpu.copy_gmem_to_smem(source, smem.at[slot], loaded.at[slot], **options)

            def multiply(k: Any, _: Any) -> None:
                slot = lax.rem(k, 2)
                plgpu.barrier_wait(loaded.at[slot])
                used = consumed.at[slot]
                plgpu.tcgen05_mma(acc, a_smem.at[slot], b_smem.at[slot], used, accumulate=k > 0, collective_axis="x")

            @pl.when(group == 0)
            def _() -> None:
                @plgpu.warp_map
                def _(warp: Any) -> None:
                    pl.when(warp == 0)(lambda: lax.fori_loop(0, steps, copy, None))
                    pl.when((warp == 1) & (number > 0))(lambda: plgpu.barrier_wait(stored))

                    @pl.when((warp == 1) & (block == 0))
                    def _() -> None:
                        lax.fori_loop(0, steps, multiply, None)
                        plgpu.tcgen05_commit_arrive(done, collective_axis="x")

            @pl.when(group == 1)
            def _() -> None:
                plgpu.barrier_wait(done)
                part = index * 2 + (0 if bug == "the rows of the other block" else block)
                _store(bug, plgpu.async_load_tmem(acc).astype(o.dtype), o_smem, o.at[pl.ds(part * tile, tile)])
                plgpu.wait_load_tmem()
                plgpu.barrier_arrive(stored)

    def kernel(a: jax.Array, b: jax.Array) -> jax.Array:
        count = {"num_arrivals": 1, "orders_tensor_core": True}
        both = plgpu.ClusterBarrier(collective_axes=("x",), **count)
        slots = (("a_smem", (2, tile, STEP)), ("b_smem", (2, STEP, tile)))
        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
            grid=(a.shape[0] // (2 * tile),),
            grid_names=("t",),
            num_threads=2,
            thread_name="wg",
            cluster=(2,),
            cluster_names=("x",),
            scratch_types={
                **{name: plgpu.SMEM(shape, a.dtype, transforms=SWIZZLED) for name, shape in slots},
                "o_smem": plgpu.SMEM((tile, 2 * tile), a.dtype, transforms=SWIZZLED),
                "acc": plgpu.TMEM((tile, 2 * tile), jnp.float32, collective=True),
                "loaded": plgpu.Barrier(num_arrivals=2, num_barriers=2),
                "consumed": plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
                "done": plgpu.Barrier(orders_tensor_core=True),
                "stored": plgpu.Barrier(**count) if bug == "the other block's reads not waited for" else both,
            },
        )(a, b)

    return kernel


def _products(make: Callable[[str], Kernel], target: str, tile: int, bugs: Sequence[tuple[str, ...]]) -> list[Twin]:
    rows = 4 * tile if make is two_blocks else 2 * tile
    dims = {name: kt.dim(values=(length,)) for name, length in zip("mnk", (rows, rows // 2, 192), strict=True)}
    a, b = kt.array("m k", "float16"), kt.array("k n", "float16")

    def paired_with(bug: str) -> Callable[[bool], kt.Pairing]:
        return lambda broken: kt.oracle_for(make(bug if broken else ""), a=a, b=b, dims=dims)(lambda a, b: a @ b)

    return [
        Twin(
            name=f"{make.__name__}: {bug}",
            make=paired_with(bug),
            verdicts={f"simulate:{target}": verdict} if HAS_DIALECT else {},
            lines=tuple(lines),
            right_is_tested=number > 0,
        )
        for number, (bug, verdict, *lines) in enumerate(bugs)
    ]


PRODUCTS = (
    *_products(
        hopper,
        "sm_90",
        64,
        [
            ("wgmma not waited for", "race", "plgpu.wgmma("),
            ("waits for one step too few", "race", "plgpu.wgmma("),
            ("no commit_smem", "race", "plgpu.copy_smem_to_gmem("),
            ("no last wait", "race", "plgpu.copy_smem_to_gmem("),
            ("tail step", "mismatch"),
            ("one tile", "race", "plgpu.copy_smem_to_gmem("),
        ],
    ),
    *_products(
        by_hand,
        "sm_90",
        64,
        [
            ("slot reused while wgmma reads it", "race", "plgpu.wgmma("),
            ("barrier not waited for", "race", "plgpu.wgmma("),
            ("barrier waited for twice", "hang", "plgpu.barrier_wait("),
            ("one copy missing", "hang", "plgpu.barrier_wait("),
            ("one arrival too many expected", "hang", "plgpu.barrier_wait("),
            ("one arrival too few expected", "runtime_error", "plgpu.copy_gmem_to_smem("),
            ("no commit_smem", "race", "plgpu.copy_smem_to_gmem("),
        ],
    ),
    *_products(
        blackwell,
        "sm_100",
        128,
        [
            ("step not waited for", "race", "plgpu.tcgen05_mma("),
            ("accumulator read too early", "race", "plgpu.async_load_tmem("),
            ("accumulator not cleared", "uninitialised", "plgpu.tcgen05_mma("),
            ("no delay_release", "race", "plgpu.tcgen05_mma("),
            ("wrong phase", "hang", "plgpu.barrier_wait("),
            ("no commit_smem", "race", "plgpu.copy_smem_to_gmem("),
            ("no last wait", "race", "plgpu.copy_smem_to_gmem("),
        ],
    ),
    *_products(
        specialised,
        "sm_100",
        128,
        [
            ("slot not waited for", "runtime_error", "plgpu.copy_gmem_to_smem("),
        ],
    ),
    *_products(
        two_blocks,
        "sm_100",
        128,
        [
            ("the other block's reads not waited for", "race", "plgpu.async_load_tmem("),
            ("each block claims a tile", "race"),
            ("the rows of the other block", "race", "plgpu.copy_smem_to_gmem("),
            ("no last wait", "race", "plgpu.copy_smem_to_gmem("),
        ],
    ),
)


def _loaded(then: Callable[..., None], result: Any = None, **options: Any) -> Callable[[jax.Array], jax.Array]:
    """A kernel that gives a function the references to its array, to its result, and to a copy in shared memory."""

    def kernel(x: jax.Array) -> jax.Array:
        out = result or jax.ShapeDtypeStruct(x.shape, x.dtype)

        def body(x_ref: Any, o: Any, smem: Any, o_smem: Any, loaded: Any) -> None:
            plgpu.copy_gmem_to_smem(x_ref, smem, loaded)
            plgpu.barrier_wait(loaded)
            then(x_ref, o, smem, o_smem, loaded)

        scratch: dict[str, Any] = {
            "smem": plgpu.SMEM(x.shape, x.dtype),
            "o_smem": plgpu.SMEM(out.shape, out.dtype),
            "loaded": plgpu.Barrier(),
        }
        return plgpu.kernel(body, out_type=out, scratch_types=scratch, **options)(x)

    return kernel


def _mapped(function: Callable[[Any], Any], result: Any = None) -> Callable[[jax.Array], jax.Array]:
    def then(_x: Any, o: Any, smem: Any, o_smem: Any, _loaded: Any) -> None:
        value = plgpu.layout_cast(smem[...], plgpu.Layout.WGMMA)
        _store("", function(value).astype(o.dtype), o_smem, o)

    return _loaded(then, result)


def _reuse(keep: int, *predicates: bool, warp: int | None = None) -> Callable[[jax.Array], jax.Array]:
    """Copies out of shared memory under predicates, waits for all but some copies, and copies into it again.

    One warp starts the copies if it is named.
    """

    def then(x: Any, o: Any, smem: Any, _o_smem: Any, loaded: Any) -> None:
        def copy() -> None:
            for predicate in predicates:
                plgpu.copy_smem_to_gmem(smem, o, predicate=(lax.axis_index("g") == 0) == predicate)

        if warp is None:
            copy()
        plgpu.warp_map(lambda number: pl.when(number == warp)(copy) if warp is not None else None)
        plgpu.wait_smem_to_gmem(keep)
        plgpu.copy_gmem_to_smem(x, smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.wait_smem_to_gmem(0)

    return _loaded(then, grid=(1,), grid_names=("g",))


def _store_block(*, modifies: bool) -> Callable[[jax.Array], jax.Array]:
    def then(x: Any, o: Any, smem: Any, _o_smem: Any, _loaded: Any) -> None:
        plgpu.copy_smem_to_gmem(smem, o)
        if modifies:
            plgpu.copy_smem_to_gmem(smem, x)
        plgpu.wait_smem_to_gmem(0)

    return _loaded(then)


def _in_parts(rows: int) -> Callable[[jax.Array], jax.Array]:
    def then(_x: Any, o: Any, smem: Any, _o_smem: Any, _loaded: Any) -> None:
        part = pl.ds(lax.axis_index("g") * rows, rows)
        o[part] = smem[part] if rows == 32 else smem[:rows]

    return _loaded(then, grid=(2,), grid_names=("g",))


def _two_readers(waiting: tuple[int, ...]) -> Callable[[jax.Array], jax.Array]:
    """Two warps copy from memory that is then reused, and those named wait before."""

    def then(x: Any, o: Any, smem: Any, _o_smem: Any, loaded: Any) -> None:
        def copy(warp: int) -> None:
            plgpu.copy_smem_to_gmem(smem, o.at[pl.ds(64 * warp, 64)])
            if warp in waiting:
                plgpu.wait_smem_to_gmem(0)

        for warp in range(2):
            plgpu.warp_map(lambda number, warp=warp: pl.when(number == warp)(lambda: copy(warp)))  # type: ignore[misc]
        plgpu.copy_gmem_to_smem(x, smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.wait_smem_to_gmem(0)

    return _loaded(then, jax.ShapeDtypeStruct((128, 128), jnp.float32))


def _through_tensor_memory(*, committed: bool) -> Callable[[jax.Array], jax.Array]:
    def then(_x: Any, o: Any, smem: Any, o_smem: Any, _loaded: Any) -> None:
        def scope(tmem: Any) -> None:
            plgpu.async_store_tmem(tmem, plgpu.layout_cast(smem[...], plgpu.Layout.TCGEN05))
            if committed:
                plgpu.commit_tmem()
            _store("", plgpu.async_load_tmem(tmem), o_smem, o)
            plgpu.wait_load_tmem()

        pl.run_scoped(scope, plgpu.TMEM((128, 128), jnp.float32))

    return _loaded(then)


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _float8(dtype: Any) -> Callable[[jax.Array], jax.Array]:
    return _mapped(lambda x: (1000 * (x * x + 1)).astype(dtype).astype(jnp.float32))


_COLUMN = jax.ShapeDtypeStruct((64,), jnp.uint32)


def _small(
    name: str,
    broken: Callable[[jax.Array], jax.Array],
    right: Callable[[jax.Array], jax.Array],
    verdict: str,
    oracle: Callable[[np.ndarray], np.ndarray] = _same,
    words: str = "",
    dtype: str = "float32",
    shape: tuple[int, int] = (64, 128),
    target: str = "sm_90",
) -> Twin:
    make = paired(lambda is_broken: broken if is_broken else right, shape, oracle, dtype)
    verdicts = {f"simulate:{target}": verdict} if HAS_DIALECT else {}
    return Twin(name=name, make=make, verdicts=verdicts, words=words)


SMALL = (
    _small("memory reused before its copy's group is over", _reuse(1, True), _reuse(1, True, False), "race"),
    _small("memory reused before a warp's copy is over", _reuse(1, True, warp=2), _reuse(0, True, warp=2), "race"),
    _small(
        "memory reused after one of two copies",
        _two_readers((1,)),
        _two_readers((0, 1)),
        "race",
        lambda x: np.concatenate([x, x]),
    ),
    _small(
        "rows past the end, stored to",
        _in_parts(40),
        _in_parts(32),
        "out_of_bounds",
        words="store at output 0 [40:80, 0:128] of [64, 128]",
    ),
    _small("an input written to", _store_block(modifies=True), _store_block(modifies=False), "input_modified"),
    _small(
        "tensor memory, not committed",
        _through_tensor_memory(committed=False),
        _through_tensor_memory(committed=True),
        "race",
        shape=(128, 128),
        target="sm_100",
    ),
    _small(
        "8-bit floats of the format with larger values",
        _float8(jnp.float8_e5m2),
        _float8(jnp.float8_e4m3fn),
        "mismatch",
        lambda x: np.where(np.isnan(x), x, 448),
        shape=(64, 64),
    ),
    _small(
        "8-bit floats for scales, which are rounded up",
        _float8(jnp.float8_e4m3fn),
        _float8(jnp.float8_e8m0fnu),
        "mismatch",
        lambda x: np.exp2(np.minimum(np.ceil(np.log2(1000 * (x * x + 1))), 127)),
        shape=(64, 64),
        target="sm_100",
    ),
    _small(
        "a maximum of unsigned integers as signed ones",
        _mapped(lambda x: jnp.max(x.astype(jnp.int32), axis=1), _COLUMN),
        _mapped(lambda x: jnp.max(x, axis=1), _COLUMN),
        "mismatch",
        lambda x: x.max(1),
        dtype="uint32",
        shape=(64, 64),
    ),
)
