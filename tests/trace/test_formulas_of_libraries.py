"""What kernels of libraries use is evaluated without rounding, so that a constant wrong in its fifth digit is seen."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

import kerneltest as kt
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.core.precision import FLOAT32, NVIDIA, SIMULATED, Precision
from kerneltest.judge.formula import FORMULA_ARITHMETIC
from kerneltest.records.sharpness import Informativeness
from kerneltest.trace.batched_interpreter.promoted_kernel import PromotedKernel, SampleArithmetic
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import trace_function
from tests.found import findings

Kernel = Callable[..., Any]
RIGHT, WRONG = 1.7071, 1.70712  # in the fifth digit
SHAPE = (16, 128)
ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))
WHOLE = pl.BlockSpec(memory_space=pl.ANY)


def _like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _cores(count: int) -> Any:
    make: Any = pltpu.TensorCoreMesh if jax.__version_info__ >= (0, 11) else pltpu.create_tensorcore_mesh
    return make(axis_name="core", num_cores=count)


def _called(body: Callable[..., None], *arrays: Any, **options: Any) -> Kernel:
    return lambda x: pl.pallas_call(body, out_shape=_like(x), **options)(*arrays, x)


def _on_a_gpu(body: Callable[..., None], *scratch: Any, **options: Any) -> Kernel:
    options = {"grid": (1,), "grid_names": ("program",), **options}
    return lambda x: plgpu.kernel(body, out_type=_like(x), scratch_types=scratch, **options)(x)


def on_two_cores(c: float) -> Kernel:
    def body(x: Any, o: Any, buffer: Any) -> None:
        half = pl.ds(lax.axis_index("core") * 8, 8)
        pltpu.sync_copy(x.at[half], buffer)
        buffer[...] = buffer[...] * c
        pltpu.sync_copy(buffer, o.at[half])

    scratch = [pltpu.VMEM((8, 128), jnp.float32)]
    return lambda x: pl.kernel(body, out_type=_like(x), mesh=_cores(2), scratch_types=scratch)(x)


def by_core_map(c: float) -> Kernel:
    def kernel(x: Any) -> Any:
        def on_references(refs: Any) -> None:
            @pl.core_map(_cores(1))
            def _() -> None:
                refs[1][...] = refs[0][...] * c

        return pl.run_state(on_references)((x, jnp.zeros_like(x)))[1]

    return kernel


def on_a_grid(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        half = pl.ds(lax.axis_index("program") * 8, 8)
        o[half] = x[half] * c

    return _on_a_gpu(body, grid=(2,))


def in_threads(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        half = pl.ds(lax.axis_index("thread") * 8, 8)
        o[half] = x[half] * c

    return _on_a_gpu(body, num_threads=2, thread_name="thread")


def in_threads_by_jax(c: float) -> Kernel:
    """JAX evaluates the function, and its setting of 64 bits is that of a thread of Python."""

    def body(x: Any, o: Any) -> None:
        half = pl.ds(lax.axis_index("thread") * 8, 8)
        o[half] = lax.digamma(jnp.exp(x[half])) * c

    return _on_a_gpu(body, num_threads=2, thread_name="thread")


def by_copies(c: float) -> Kernel:
    def body(x: Any, o: Any, before: Any, after: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x, before, loaded)
        plgpu.barrier_wait(loaded)
        after[...] = before[...] * c
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(after, o)
        plgpu.wait_smem_to_gmem(0)

    return _on_a_gpu(body, plgpu.SMEM(SHAPE, jnp.float32), plgpu.SMEM(SHAPE, jnp.float32), plgpu.Barrier())


def by_copies_of_an_overhanging_slice(c: float) -> Kernel:
    def body(x: Any, o: Any, part: Any, loaded: Any) -> None:
        for row in (0, 8):  # the slice of 16 rows from row 8 on ends at row 24
            rows = pl.ds(lax.axis_index("program") + row, 16)
            plgpu.copy_gmem_to_smem(x.at[rows].at[pl.ds(0, 8)], part, loaded)
            plgpu.barrier_wait(loaded)
            part[...] = part[...] * c
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(part, o.at[rows].at[pl.ds(0, 8)])
            plgpu.wait_smem_to_gmem(0)

    return _on_a_gpu(body, plgpu.SMEM((8, 128), jnp.float32), plgpu.Barrier())


def in_warpgroups(c: float) -> Kernel:
    """One loads into the slot that two others have read, each of them half of it."""

    def body(x: Any, o: Any) -> None:
        def scope(slot: Any, loaded: Any, consumed: Any) -> None:
            def load(step: Any, _: Any) -> None:
                pl.when(step > 0)(lambda: plgpu.barrier_wait(consumed))
                plgpu.copy_gmem_to_smem(x.at[pl.ds(step * 8, 8)], slot, loaded)

            def compute(step: Any, _: Any) -> None:
                plgpu.barrier_wait(loaded)
                half = pl.ds(lax.axis_index("thread") * 4, 4)
                o[pl.ds(step * 8 + lax.axis_index("thread") * 4, 4)] = slot[half] * c
                plgpu.barrier_arrive(consumed)

            is_loading = lax.axis_index("thread") == 2
            pl.when(is_loading)(lambda: lax.fori_loop(0, 2, load, None))
            pl.when(~is_loading)(lambda: lax.fori_loop(0, 2, compute, None))

        barriers = plgpu.Barrier(), plgpu.Barrier(num_arrivals=2)
        pl.run_scoped(scope, plgpu.SMEM((8, 128), jnp.float32), *barriers, collective_axes="thread")

    return _on_a_gpu(body, num_threads=3, thread_name="thread")


def by_a_gpu_pipeline(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        def step(_: Any, x_block: Any, o_block: Any) -> None:
            o_block[...] = x_block[...] * c

        block = plgpu.BlockSpec((8, 128), lambda i: (i, 0))
        plgpu.emit_pipeline(step, grid=(2,), in_specs=[block], out_specs=[block], max_concurrent_steps=2)(x, o)

    return _on_a_gpu(body)


def by_a_tpu_pipeline(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        def step(x_block: Any, o_block: Any) -> None:
            o_block[...] = x_block[...] * c

        pltpu.emit_pipeline(step, grid=(2,), in_specs=[ROWS], out_specs=[ROWS])(x, o)

    return _called(body, in_specs=[WHOLE], out_specs=WHOLE)


def rolled(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        o[...] = pltpu.roll(x[...], 3, 1) * c

    return _called(body)


def in_strides(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        for start in range(2):
            rows = pl.ds(start, 8, stride=2)
            o[rows, :] = x[rows, :] * c

    return _called(body)


def by_copies_of_dynamic_length(c: float) -> Kernel:
    def body(count: Any, x: Any, o: Any, buffer: Any, done: Any) -> None:
        for start, end in ((0, count[0]), (count[0], 16)):
            rows = pl.ds(start, end - start)
            copy = pltpu.make_async_copy(x.at[rows], buffer.at[rows], done)
            copy.start()
            copy.wait()
        o[...] = buffer[...] * c

    scratch = [pltpu.VMEM(SHAPE, jnp.float32), pltpu.SemaphoreType.DMA]
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(1,), in_specs=[WHOLE], out_specs=pl.BlockSpec(SHAPE), scratch_shapes=scratch
    )
    return _called(body, np.array([5], np.int32), grid_spec=spec)


def with_a_barrier(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        value = x[...]
        pltriton.debug_barrier()
        o[...] = value * c

    return _called(body)


def with_a_semaphore(c: float) -> Kernel:
    def body(x: Any, o: Any, ready: Any) -> None:
        pl.semaphore_signal(ready, 1)
        pl.semaphore_wait(ready, 1)
        o[...] = x[...] * c

    return _called(body, scratch_shapes=[pltpu.SemaphoreType.REGULAR])


def writing_an_input(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        x[...] = x[...] * c
        o[...] = x[...]

    return _called(body)


def counting_in_a_scalar(c: float, *, mapped: bool = False) -> Kernel:
    def body(count: Any, x: Any, o: Any) -> None:
        count[0] = count[0] + 1
        o[...] = x[...] * c * (count[0] - pl.program_id(0)).astype(jnp.float32)

    block = pl.BlockSpec((8, 128), (lambda i, count: (i + 0 * count[0], 0)) if mapped else lambda i, count: (i, 0))
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,), in_specs=[block], out_specs=block)
    return _called(body, np.array([0], np.int32), grid_spec=spec)


def with_keys(c: float) -> Kernel:
    def body(seed: Any, x: Any, o: Any) -> None:
        key = jax.random.wrap_key_data(seed[...], impl="threefry2x32")
        o[...] = x[...] * c + 0 * jax.random.uniform(jax.random.split(key)[1], x.shape)

    return lambda x: _called(body, jax.random.key_data(jax.random.key(3)))(x)


def with_state(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        def on_reference(value: Any) -> None:
            value[...] = value[...] * c

        o[...] = pl.run_state(on_reference)(x[...])

    return _called(body)


def reshaped(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        o.reshape(2, 8, 128)[...] = x.reshape(2, 8, 128)[...] * c

    return _called(body)


def under_checkpoint(c: float) -> Kernel:
    def body(x: Any, o: Any) -> None:
        o[...] = jax.checkpoint(lambda value: value * c)(x[...])

    return _called(body)


def multiplied(c: float) -> Kernel:
    tiled = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)

    def body(x: Any, o: Any, operand: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x, operand, loaded)
        plgpu.barrier_wait(loaded)

        def scope(total: Any) -> Any:
            plgpu.wgmma(total, operand, operand)
            return total[...]

        o[...] = pl.run_scoped(scope, plgpu.ACC((64, 64), jnp.float32)) * c

    out, grid = jax.ShapeDtypeStruct((64, 64), jnp.float32), {"grid": (1,), "grid_names": ("program",)}

    def call(x: Any) -> Any:
        scratch = plgpu.SMEM((64, 64), x.dtype, transforms=tiled), plgpu.Barrier()
        return plgpu.kernel(body, out_type=out, scratch_types=scratch, **grid)(x)

    return call


SCALED = [
    on_two_cores, by_core_map, on_a_grid, in_threads, by_copies, by_copies_of_an_overhanging_slice, in_warpgroups,
    by_a_gpu_pipeline, by_a_tpu_pipeline, in_strides, by_copies_of_dynamic_length, with_a_barrier, with_a_semaphore,
    writing_an_input, counting_in_a_scalar, with_keys, with_state, reshaped, under_checkpoint,
]  # fmt: skip
CASES: list[tuple[Callable[[float], Kernel], Callable[[Array], Array]]] = [
    *((make, lambda x: x) for make in SCALED),
    (rolled, lambda x: np.roll(x, 3, 1)),
    (multiplied, lambda x: x @ x),
    (in_threads_by_jax, lambda x: np.asarray(lax.digamma(np.exp(x)))),
]


@pytest.mark.parametrize(("make", "expected"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_the_formula_is_evaluated_and_a_wrong_constant_shows(
    make: Callable[[float], Kernel], expected: Callable[[Array], Array]
) -> None:
    x = np.random.default_rng(0).normal(size=(64, 64) if make is multiplied else SHAPE)
    x = x.astype(ml_dtypes.bfloat16 if make is multiplied else np.float32)
    outputs = {}
    for constant in (RIGHT, WRONG):
        kernel = make(constant)
        traced = trace_function(lambda x, kernel=kernel: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
        promoted = PromotedKernel(traced)
        (outputs[constant],) = promoted([x[None]])
        (samples,) = promoted.sample([x], FORMULA_ARITHMETIC)
        assert np.array_equal(samples[0], outputs[constant][0])
    with jax.enable_x64(True):
        wanted = expected(x.astype(np.float64)) * RIGHT
    assert np.allclose(outputs[RIGHT], wanted, rtol=1e-7, atol=1e-12)
    assert not np.isclose(outputs[WRONG], wanted, rtol=1e-6, atol=0).any()


@pytest.mark.parametrize(("precision", "aligns"), [(NVIDIA, True), (SIMULATED, False)])
def test_the_sums_of_wgmma_are_rounded_as_tensor_cores_align_them(precision: Precision, aligns: bool) -> None:
    """As in the product of a group whose other rows a kernel has set to 0: a large number beside a 0 costs digits."""
    x = np.zeros((64, 64), np.float16)
    x[0, 0], x[0, 8:16], x[1:8, 8:16], x[32:, 32:] = 2.0**-12 * np.pi, 2.0**-12, 2.0**10, 0.1
    traced = trace_function(lambda x: [multiplied(1.0)(x)], (ShapeDtype(x.shape, x.dtype),), "")
    (samples,) = PromotedKernel(traced).sample([x], SampleArithmetic(FLOAT32, precision))
    moved = np.sqrt(np.mean((samples[1:] - samples[0]) ** 2, 0))
    wide = np.abs(x.astype(np.float64))
    by_sums, by_alignment = FLOAT32.unit_roundoff * (wide @ wide), FLOAT32.unit_roundoff * 2.0**-14 * 2.0**10
    assert (moved[32:, 32:] > by_sums[32:, 32:]).all()
    assert (moved[32:, 32:] < 40 * by_sums[32:, 32:]).all()
    assert ((moved[0, 8:16] > by_alignment) == aligns).all()


@pytest.mark.parametrize(("arrivals", "hangs"), [(2, False), (3, True)])
def test_threads_that_wait_for_each_other_have_no_formula(arrivals: int, hangs: bool) -> None:
    def body(x: Any, o: Any, arrived: Any) -> None:
        plgpu.barrier_arrive(arrived)
        plgpu.barrier_wait(arrived)
        o[...] = x[...]

    kernel = _on_a_gpu(body, plgpu.Barrier(num_arrivals=arrivals), num_threads=2, thread_name="thread")
    promoted = PromotedKernel(trace_function(lambda x: [kernel(x)], (ShapeDtype(SHAPE, np.dtype(np.float32)),), ""))
    x, before = np.ones((1, *SHAPE)), threading.active_count()
    with pytest.raises(UnknownError, match="wait for each other") if hangs else nullcontext():
        assert (promoted([x])[0] == x).all()
    assert threading.active_count() == before


def test_a_scalar_that_the_body_writes_places_no_block() -> None:
    kernel = counting_in_a_scalar(RIGHT, mapped=True)
    traced = trace_function(lambda x: [kernel(x)], (ShapeDtype(SHAPE, np.dtype(np.float32)),), "")
    with pytest.raises(UnknownError, match="an index map that reads a scalar"):
        PromotedKernel(traced)


def test_a_wrong_constant_far_below_rounding_is_found_in_a_pipeline() -> None:
    def doubled(constant: float) -> Any:
        declared = kt.oracle_for(by_a_gpu_pipeline(constant), x=kt.array("16 128", "bfloat16"))(lambda x: RIGHT * x)
        return findings(declared, ["interpret-mosaic-gpu"])

    assert not list(doubled(RIGHT))
    assert any("without rounding" in finding.message for finding in doubled(WRONG))


def _copied_beside_a_key(operation: Callable[[Any], Any]) -> Kernel:
    """References of keys are not evaluated in NumPy."""

    def body(key: Any, x: Any, o: Any) -> None:
        jax.random.bits(key[...])
        o[...] = operation(x[...])

    block = pl.BlockSpec(SHAPE, lambda: (0, 0))
    return _called(body, jax.random.key(3), in_specs=[WHOLE, block])


@pytest.mark.parametrize(
    ("dtype", "operation", "remarked"),
    [
        ("float32", lambda x: x, False),
        ("int32", lambda x: 2 * x, False),
        ("float32", lambda x: RIGHT * x, True),
    ],
    ids=["copy", "integers", "product"],
)
def test_only_what_rounds_is_remarked_on_where_no_formula_is_asked(
    dtype: str, operation: Callable[[Any], Any], remarked: bool
) -> None:
    declared = kt.oracle_for(_copied_beside_a_key(operation), x=kt.array("16 128", dtype))(operation)
    result = kt.check(declared, backends=["interpret"], depth="quick")
    assert result.ok
    remarks = Informativeness(result.records).remarks()
    assert any("cannot be evaluated in NumPy" in remark for remark in remarks) is remarked
