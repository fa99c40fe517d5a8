"""Mosaic GPU kernels are executed without a GPU: right ones agree with NumPy, and broken ones are named with a line."""

import gc
import re
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

import kerneltest as kt
from kernels.pipeline_copy import pipeline_swizzled_copy
from kerneltest.api import Result, pairing_id
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
from tests import mosaic_gpu_bugs, pipeline_bugs
from tests.backends.test_interpret_mosaic_gpu import one_case

needs_dialect = pytest.mark.skipif(
    jax.__version_info__ < (0, 11), reason="JAX lowers Mosaic GPU kernels without the dialect that is simulated"
)
LINES = Path(mosaic_gpu_bugs.__file__).read_text(encoding="utf-8").splitlines()
TARGETS = dict.fromkeys((mosaic_gpu_bugs.blackwell, mosaic_gpu_bugs.specialised), "sm_100")
OTHERWISE = {
    "never_stores_the_invariant_output": ["unwritten"],  # the interpreter only sees its values
    "input_only_pipeline_without_commit_smem": [],  # reads need no fence before a copy writes, as in CUTLASS
}


def _pairing(kernel: Any, m: int, n: int, k: int) -> kt.Pairing:
    dims = {"m": kt.dim(values=(m,)), "n": kt.dim(values=(n,)), "k": kt.dim(values=(k,))}
    a, b = kt.array("m k", "float16"), kt.array("k n", "float16")
    return kt.oracle_for(kernel, a=a, b=b, dims=dims)(lambda a, b: a @ b)


def _product(make: Any, bug: str = "") -> Result:
    tile = 128 if make in TARGETS else 64
    pairing = _pairing(make(bug), 2 * tile, tile, 192)
    first = next(value_cases(pairing, pairing_id(pairing), "float16", "structural", 0, "quick"))
    return kt.check(pairing, backends=[f"simulate:{TARGETS.get(make, 'sm_90')}"], depth="quick", case=first.id)


@needs_dialect
@pytest.mark.parametrize("make", dict.fromkeys(make for make, _ in mosaic_gpu_bugs.BUGS))
def test_a_right_product_is_not_accused(make: Any) -> None:
    result = _product(make)
    assert result.ok, result.findings


@needs_dialect
@pytest.mark.parametrize(("make", "bug"), mosaic_gpu_bugs.BUGS)
def test_a_broken_product_is_found_with_its_line(make: Any, bug: str) -> None:
    verdict, code = mosaic_gpu_bugs.BUGS[make, bug]
    (finding,) = _product(make, bug).findings
    assert finding.verdict == verdict, finding.message
    places = [int(line) for line in re.findall(r"mosaic_gpu_bugs\.py:(\d+)", finding.message)]
    assert any(code in LINES[line - 1] for line in places) or not code, finding.message


@needs_dialect
@pytest.mark.parametrize("name", mosaic_gpu_bugs.SMALL)
def test_small_kernels_are_judged(name: str) -> None:
    small = mosaic_gpu_bugs.SMALL[name]
    dims = {axis: kt.dim(values=(length,)) for axis, length in zip("mn", small.shape, strict=True)}
    pairing = kt.oracle_for(small.kernel, x=kt.array("m n", small.dtype), dims=dims)(small.oracle)
    first = next(value_cases(pairing, pairing_id(pairing), small.dtype, "structural", 0, "quick"))
    result = kt.check(pairing, backends=[f"simulate:{small.target}"], depth="quick", case=first.id)
    assert [finding.verdict for finding in result.findings] == [small.verdict] * bool(small.verdict), result.findings
    assert result.ok or small.verdict, result
    for finding in result.findings:
        assert small.words in finding.message
        assert "\n" not in finding.message  # no further faults


@needs_dialect
@pytest.mark.parametrize("name", pipeline_bugs.TWINS)
def test_pipelines_are_judged_as_jaxs_interpreter_does(name: str) -> None:
    make, verdict = pipeline_bugs.TWINS[name]
    right, broken = (one_case(name, make(is_broken), "simulate:sm_90") for is_broken in (False, True))
    assert right.ok, right.findings
    assert [finding.verdict for finding in broken.findings] == OTHERWISE.get(name, [verdict]), broken.findings


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
    pairing = _pairing(mosaic_gpu_bugs.hopper(), 64, 64, 64)
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
    result = _product(mosaic_gpu_bugs.hopper)
    assert result.ok, result.findings
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


@needs_dialect
def test_a_swizzled_pipeline_copies() -> None:
    dims = {"m": kt.dim(values=(128,)), "n": kt.dim(values=(64,))}
    pairing = kt.oracle_for(pipeline_swizzled_copy, x=kt.array("m n", "float32"), dims=dims)(lambda x: x)
    first = next(value_cases(pairing, pairing_id(pairing), "float32", "structural", 0, "quick"))
    assert kt.check(pairing, backends=["simulate:sm_90"], depth="quick", case=first.id).ok
