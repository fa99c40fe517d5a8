"""What JAX or kerneltest cannot run is not the kernel's fault, however late it is raised."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

import kerneltest as kt
from kerneltest.api import Result
from kerneltest.backends.base import Executable
from kerneltest.backends.interpret import Interpret
from kerneltest.core.details import Stated
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace import partial_arrays
from kerneltest.trace.batched_interpreter import call_rules
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.tracing import Traced
from tests.sample import double, elementwise

WHOLE = pl.BlockSpec(memory_space=pl.ANY)


def _like(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _copied_by_dma(x_ref: Any, o_ref: Any, buffer: Any, done: Any) -> None:
    copy = pltpu.make_async_copy(x_ref, buffer, done)
    copy.start()
    copy.wait()
    o_ref[...] = buffer[...] * 2


def from_main_memory(x: jax.Array) -> jax.Array:
    scratch = [pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA]
    return pl.pallas_call(_copied_by_dma, out_shape=_like(x), in_specs=[WHOLE], scratch_shapes=scratch)(x)


def by_dynamic_dma(x: jax.Array) -> jax.Array:
    def body(count_ref: Any, x_ref: Any, o_ref: Any, done: Any) -> None:
        rows = pl.ds(0, count_ref[0])
        copy = pltpu.make_async_copy(x_ref.at[rows], o_ref.at[rows], done)
        copy.start()
        copy.wait()

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(1,), in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=[pltpu.SemaphoreType.DMA]
    )
    return pl.pallas_call(body, grid_spec=spec, out_shape=_like(x))(jnp.array([x.shape[0]]), x) * 2


def by_dma_of_no_rows(x: jax.Array) -> jax.Array:
    def body(count_ref: Any, x_ref: Any, o_ref: Any, done: Any) -> None:
        o_ref[...] = x_ref[...] * 2
        copy = pltpu.make_async_copy(x_ref.at[pl.ds(0, count_ref[0])], o_ref.at[pl.ds(0, count_ref[0])], done)
        copy.start()
        copy.wait()

    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(1,), scratch_shapes=[pltpu.SemaphoreType.DMA])
    return pl.pallas_call(body, grid_spec=spec, out_shape=_like(x))(jnp.array([0]), x)


def with_a_barrier(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        value = x_ref[...]
        pltriton.debug_barrier()
        o_ref[...] = value * 2

    return pl.pallas_call(body, out_shape=_like(x))(x)


def by_references_from_outside(x: jax.Array) -> jax.Array:
    def on_references(refs: Any) -> None:
        x_ref, o_ref = refs

        @pl.core_map(pltpu.create_tensorcore_mesh("core"))
        def _() -> None:
            pltpu.sync_copy(x_ref, o_ref)

    result: jax.Array = pl.run_state(on_references)((x, jnp.zeros_like(x)))[1]
    return result * 2


def _mosaic(body: Callable[..., None]) -> Callable[[jax.Array], jax.Array]:
    name = "out_shape" if jax.__version_info__ < (0, 11) else "out_type"
    return lambda x: plgpu.kernel(body, grid=(1,), grid_names=("g",), **{name: _like(x)})(x)


@_mosaic
def with_inline_code(x_ref: Any, o_ref: Any) -> None:
    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),))
    def nothing(context: Any, ref: Any) -> None:
        pass

    o_ref[...] = x_ref[...] * 2
    nothing(o_ref)


@_mosaic
def with_warps(x_ref: Any, o_ref: Any) -> None:
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _() -> None:
        pass

    o_ref[...] = x_ref[...] * 2


def _checked(kernel: Callable[..., Any], backend: str) -> Result:
    declare = kt.oracle_for(kernel, x=kt.array("64 128", "float32"), tolerance=kt.tolerance.exact())
    return kt.check(declare(lambda x: 2 * x), backends=[backend], depth="quick")


UNAVAILABLE = [
    (by_dynamic_dma, "interpret", "TypeError: Shapes must be 1D sequences of concrete values"),
    (with_a_barrier, "interpret", "NotImplementedError: MLIR translation rule for primitive 'debug_barrier"),
    (by_references_from_outside, "interpret-tpu", "references from outside (pl.run_state)"),
    (with_inline_code, "interpret-mosaic-gpu", "inline_mgpu"),
]


@pytest.mark.parametrize(("kernel", "backend", "words"), UNAVAILABLE)
def test_what_jax_cannot_run_is_unavailable(kernel: Callable[..., Any], backend: str, words: str) -> None:
    result = _checked(kernel, backend)
    assert {record.verdict for record in result.records} == {"unavailable"}
    assert all(words in record.message for record in result.records)
    assert all("test_jax_limits.py:" in record.message or "pl.run_state" in record.message for record in result.records)


LOWERED = [
    (with_warps, "lower:sm_90"),
    (with_inline_code, "lower:sm_90"),
    (with_a_barrier, "simulate:sm_90"),
    (by_dynamic_dma, "lower:tpu-v5e"),
    (by_dma_of_no_rows, "interpret-tpu"),
]


@pytest.mark.parametrize(("kernel", "backend"), LOWERED)
def test_a_tier_that_can_take_it_does(kernel: Callable[..., Any], backend: str) -> None:
    assert {record.verdict for record in _checked(kernel, backend).records} == {"pass"}


def test_a_call_that_only_its_batched_form_cannot_run() -> None:
    result = _checked(from_main_memory, "interpret-tpu")
    (batched,) = [record for record in result.records if record.family == "vmapped"]
    assert batched.verdict == "unavailable"
    assert "does not have trivial BlockSpec" in batched.message
    assert {record.verdict for record in result.records if record is not batched} == {"pass"}


@pytest.mark.parametrize(
    ("verdict", "told"),
    [("compile_error", "unavailable"), ("unimplemented", "unavailable"), ("out_of_bounds", "out_of_bounds")],
)
def test_only_what_keeps_a_batched_form_from_running_is_excused(
    verdict: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Interpret.prepare

    def refuse_batches(backend: Interpret, traced: Traced) -> Executable:
        if len(traced.inputs[0].shape) > 2:
            raise Failure(Verdict(verdict), Stated("no batches"))
        return prepare(backend, traced)

    monkeypatch.setattr(Interpret, "prepare", refuse_batches)
    monkeypatch.setattr(Interpret, "fast_path", lambda *_: None)
    doubled = _checked(double, "interpret")
    (batched,) = [record for record in doubled.records if record.family == "vmapped"]
    assert batched.verdict == told
    assert "no batches" in batched.message


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "int8"])
def test_padding_of_narrow_numbers_is_evaluated(dtype: str) -> None:
    def padded(x: jax.Array) -> jax.Array:
        wide = jnp.pad(x, ((0, 3), (0, 0)), constant_values=0.0 if jnp.issubdtype(x.dtype, jnp.floating) else 0)
        return elementwise(lambda v: v, wide)[: x.shape[0]]

    declare = kt.oracle_for(padded, x=kt.array("5 128", dtype), tolerance=kt.tolerance.exact())
    result = kt.check(declare(lambda x: x), backends=["interpret-tpu", "interpret"], depth="quick")
    assert {record.verdict for record in result.records} == {"pass"}


@pytest.mark.parametrize("error", [UnknownError("a value"), IndexError("a fault"), ValueError("another")])
def test_what_a_rule_cannot_evaluate_jax_does(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(partial_arrays, "_in_numpy", lambda equation: fails)
    monkeypatch.setattr(call_rules, "_length_and_scale", fails)
    doubled = _checked(lambda x: double(x + 0), "interpret")
    assert {record.verdict for record in doubled.records} == {"pass"}
    traced = _checked(lambda x: double(x + 0), "simulate:sm_90")
    assert {record.verdict for record in traced.records} == {"pass"}


def test_empty_arrays_have_no_blocks_outside_of_them() -> None:
    declare = kt.oracle_for(
        double,
        x=kt.array("n 128", "float32"), dims=dict(n=kt.dim(values=(0, 8))),
    )  # fmt: skip
    result = kt.check(declare(lambda x: np.multiply(x, 2)), backends=["interpret"], depth="quick")
    assert {record.verdict for record in result.records} == {"pass", "unavailable"}
    assert all("JAX" in record.message for record in result.records if record.verdict == "unavailable")


def _in_registers_of_all_threads(x_ref: Any, o_ref: Any) -> None:
    def scope(total: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    pl.run_scoped(scope, plgpu.ACC((64, 128), jnp.float32), collective_axes=("thread",))


def _at_an_unnamed_barrier(x_ref: Any, o_ref: Any, loaded: Any) -> None:
    plgpu.barrier_wait(loaded)
    o_ref[...] = x_ref[...] * 2


def _on_a_gpu(body: Callable[..., None], **options: Any) -> Callable[[jax.Array], Any]:
    return lambda x: plgpu.kernel(body, out_type=_like(x), grid=(1,), grid_names=("g",), **options)(x)


def _from_main_memory_directly(x: jax.Array) -> Any:
    def body(x_ref: Any, o_ref: Any, _: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(body, out_shape=_like(x), in_specs=[WHOLE], scratch_shapes=[pltpu.SemaphoreType.DMA])(x)


def _in_memory_of_a_cluster(x_ref: Any, o_ref: Any) -> None:
    def scope(_: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    pl.run_scoped(scope, plgpu.SMEM((64, 128), jnp.float32), collective_axes=("c",))


def _warps_in_warps(x_ref: Any, o_ref: Any) -> None:
    @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
    def _() -> None:
        @pl.core_map(plgpu.WarpMesh(axis_name="inner"))
        def _() -> None:
            pass

    o_ref[...] = x_ref[...] * 2


GPU, TPU = "interpret-mosaic-gpu", "interpret-tpu"
# Older interpreters have no warps in warps, nor any message about them.
NESTED = ("compile_error", "already mpmd_mapped") if jax.__version_info__ >= (0, 11) else ("unavailable", "core_map")


@pytest.mark.parametrize(
    ("kernel", "backend", "verdict", "words"),
    [
        (
            _on_a_gpu(_in_registers_of_all_threads, num_threads=1, thread_name="thread"),
            GPU, "unavailable", "MemorySpace.REGS",
        ),
        (
            _on_a_gpu(_at_an_unnamed_barrier, scratch_types=[plgpu.Barrier(num_barriers=2)]),
            GPU, "compile_error", "barrier",
        ),
        (_from_main_memory_directly, TPU, "compile_error", "cannot be referenced directly"),
        (from_main_memory, TPU, "pass", ""),
        (
            _on_a_gpu(_in_memory_of_a_cluster, cluster=(1,), cluster_names=("c",)),
            GPU, "compile_error", "no explicit thread axis",
        ),
        (_on_a_gpu(_warps_in_warps), GPU, *NESTED),
    ],
)  # fmt: skip
def test_only_true_checks_of_an_interpreter_accuse(
    kernel: Callable[..., Any], backend: str, verdict: str, words: str
) -> None:
    result = _checked(kernel, backend)
    values = [record for record in result.records if record.family != "vmapped"]
    assert {record.verdict for record in values} == {verdict}, result.records[0].message
    assert all(words in record.message for record in values)
