"""Mosaic GPU kernels are executed without a GPU; tests/corpus/mosaic_gpu.py has broken ones."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from kernels.pipeline_copy import pipeline_swizzled_copy
from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.backends.simulate.mosaic_gpu import backend
from kerneltest.backends.simulate.mosaic_gpu.machine import Cluster, Flight
from kerneltest.backends.simulate.mosaic_gpu.memory import Agent, tiled_layout
from kerneltest.core import targets
from kerneltest.core.failures import Failure
from kerneltest.localize.case_replay import MutableKernel
from kerneltest.plan.cases import value_cases
from kerneltest.plan.signatures import signatures
from kerneltest.trace.tracing import trace
from tests.corpus import twin
from tests.corpus.judged import check_right

needs_dialect = pytest.mark.skipif(
    jax.__version_info__ < (0, 11), reason="JAX lowers Mosaic GPU kernels without the dialect that is simulated"
)


def _print_layout(x: Any) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        plgpu.print_layout("x", x_ref[...])

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def _copy(x: Any, **params: Any) -> Any:
    def body(x_ref: Any, o_ref: Any, smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref, smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(smem, o_ref)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = {"smem": plgpu.SMEM(x.shape, x.dtype), "loaded": plgpu.Barrier()}
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    compiler = plgpu.CompilerParams(**params)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch, compiler_params=compiler)(x)


@needs_dialect
@pytest.mark.parametrize(
    ("kernel", "dtype", "words"),
    [
        (_print_layout, "float32", rf"operation mosaic_gpu\.\w+.*{Path(__file__).name}:\d+"),
        (_copy, "int4", "elements of type i4"),
        (lambda x: _copy(x, unsafe_no_auto_barriers=True), "float32", "unsafe_no_auto_barriers"),
    ],
)
def test_what_is_not_supported_is_named(kernel: Any, dtype: str, words: str) -> None:
    pairing = kt.oracle_for(kernel, x=kt.array("n", dtype), dims={"n": kt.dim(values=(128,))})(lambda x: x)
    (stage,) = resolve(["simulate:sm_90"])
    with pytest.raises(Failure, match=words) as caught:
        stage.prepare(trace(pairing, signatures(pairing, "quick")[0]))
    assert caught.value.verdict == "unavailable"


def test_no_repair_is_searched_for() -> None:
    pairing = twin("hopper: tail step").right()
    with pytest.raises(Failure, match="does not support changed Mosaic GPU kernels"):
        MutableKernel(trace(pairing, signatures(pairing, "quick")[0]), targets.TARGETS["sm_90"], {})


def test_a_long_chain_of_products_completes_in_order() -> None:
    completed: list[int] = []
    chain: list[Flight] = []
    for number in range(3000):
        apply = partial(completed.append, number)
        chain.append(Flight(Agent(None, 1, 1, "", ()), apply, "", before=tuple(chain[-1:])))
    chain[-1].complete()
    assert completed == list(range(3000))


@needs_dialect
def test_accesses_do_not_keep_their_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Cluster]] = []

    class Watched(Cluster):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(weakref.ref(self))
            if len(made) == 3:
                gc.collect()
                assert made[0]() is None

    monkeypatch.setattr(backend, "Cluster", Watched)
    check_right(twin("hopper: tail step"))
    assert len(made) > 2


@pytest.mark.parametrize("swizzle", [128, 64, 32, 16])
def test_tiles_and_swizzles_permute_the_elements(swizzle: int) -> None:
    tile = (8, swizzle // 2)
    layout = tiled_layout((2, 64, 64), np.dtype(np.float16), 1024, tile, swizzle)
    assert sorted(layout.addresses.reshape(-1) - 512) == list(range(2 * 64 * 64))
    first_row = layout.addresses[0, 0, : tile[1]] - 512
    assert (first_row == np.arange(tile[1])).all()  # row 0 of a tile is not swizzled


def test_the_swizzle_is_nvidias() -> None:
    """CUTLASS `Swizzle<3, 4, 3>`: the 16-byte chunk of a 128-byte row is combined with the row's number, modulo 8."""
    layout = tiled_layout((8, 64), np.dtype(np.float16), 0, (8, 64), 128)
    chunks = layout.addresses.reshape(8, 8, 8)[:, :, 0] * 2 // 16 % 8
    assert (chunks == np.arange(8)[:, None] ^ np.arange(8)).all()


def test_two_elements_of_four_bits_share_a_byte() -> None:
    float4 = np.dtype(ml_dtypes.float4_e2m1fn)
    layout = tiled_layout((16, 256), float4, 1024, (8, 256), 128)
    assert layout.size == 16 * 256 // 2
    assert layout.spots == slice(1024, 1024 + layout.size)
    data = np.full(4096, 255, np.uint8)
    values = (np.arange(16 * 256) % 16).astype(np.uint8).reshape(16, 256).view(float4)
    layout.store(data, values)
    assert layout.load(data).tobytes() == values.tobytes()
    assert data[1024] == 0x10  # the even element in the low bits
    chunk = layout.view((1, slice(0, 32)))  # row 1, whose 16-byte chunks are exchanged with their neighbours
    assert chunk.spots == slice(1024 + 128 + 16, 1024 + 128 + 32)


def _product(waits: bool) -> Callable[[Any, Any], Any]:
    tiled = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def kernel(a: Any, b: Any) -> Any:
        def body(a_ref: Any, b_ref: Any, o_ref: Any) -> None:
            def scope(acc: Any) -> Any:
                def step(_: Any, left: Any, right: Any) -> None:
                    plgpu.wgmma(acc, left, right)
                    if waits:
                        plgpu.wgmma_wait(1)

                options: dict[str, Any] = {"delay_release": 1, "transforms": tiled}
                specs = [
                    plgpu.BlockSpec((64, 64), lambda k: (0, k), **options),
                    plgpu.BlockSpec((64, 64), lambda k: (k, 0), **options),
                ]
                plgpu.emit_pipeline(step, grid=(4,), in_specs=specs, max_concurrent_steps=2)(a_ref, b_ref)
                return acc[...]

            o_ref[...] = pl.run_scoped(scope, plgpu.ACC((64, 64))).astype(o_ref.dtype)

        return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 64), a.dtype))(a, b)

    return kernel


@needs_dialect
@pytest.mark.parametrize("waits", [True, False])
def test_a_wgmma_waits_for_those_before_it(waits: bool) -> None:
    """As JAX documents, so that a slot kept for a step after its own need not be waited for."""
    dims = {"m": kt.dim(values=(64,)), "k": kt.dim(values=(256,)), "n": kt.dim(values=(64,))}
    pairing = kt.oracle_for(_product(waits), a=kt.array("m k", "float16"), b=kt.array("k n", "float16"), dims=dims)(
        lambda a, b: a @ b
    )
    first = next(value_cases(pairing, pairing_id(pairing), "float16", "structural", 0, "quick"))
    result = kt.check(pairing, backends=["simulate:sm_90"], depth="quick", case=first.id)
    assert result.ok, result.findings[0].message


@needs_dialect
def test_a_swizzled_pipeline_copies() -> None:
    dims = {"m": kt.dim(values=(128,)), "n": kt.dim(values=(64,))}
    pairing = kt.oracle_for(pipeline_swizzled_copy, x=kt.array("m n", "float32"), dims=dims)(lambda x: x)
    first = next(value_cases(pairing, pairing_id(pairing), "float32", "structural", 0, "quick"))
    assert kt.check(pairing, backends=["simulate:sm_90"], depth="quick", case=first.id).ok
