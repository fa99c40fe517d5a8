"""Kernels under `jax.shard_map` on every tier, and what a machine without their mesh says of them."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.gpu.all_gather_mgpu import all_gather
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

import kerneltest as kt
from kerneltest.api import Result
from tests.found import findings
from tests.sample import whole
from tests.sharded import double, loop

needs_xla = pytest.mark.skipif(find_spec("jax_cuda13_plugin") is None, reason="XLA's CUDA compiler is not installed")
P = PartitionSpec
MESH = AbstractMesh((2,), ("a",), axis_types=(AxisType.Auto,))
TIERS = (
    "interpret",
    "interpret-tpu",
    "simulate:sm_90",
    "simulate:gfx942",
    "lower:sm_90",
    "lower:gfx942",
    "lower:tpu-v5e",
    pytest.param("compile:sm_90", marks=pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")),
)


def _over(function: Callable[..., Any], mesh: Any = MESH) -> Callable[..., Any]:
    def sharded(x: jax.Array) -> jax.Array:
        return jax.shard_map(
            function, mesh=mesh() if callable(mesh) else mesh, in_specs=P("a"), out_specs=P("a"), check_vma=False
        )(x)

    return sharded


def _paired(kernel: Callable[..., Any]) -> kt.Pairing:
    declared = kt.oracle_for(kernel, x=kt.array("n 128", "float32"), dims=dict(n=kt.dim(values=(16, 32))))
    made: kt.Pairing = declared(lambda x: 2 * x)
    return made


def _checked(kernel: Callable[..., Any], *backends: str) -> Result:
    return kt.check(_paired(kernel), backends=backends, depth="quick")


@pytest.mark.parametrize("backend", TIERS)
def test_a_right_kernel_passes_on_every_tier_by_its_local_kernel(backend: str) -> None:
    result = _checked(_over(double), backend)
    assert {record.verdict for record in result.records} == {"pass"}


def test_a_wrong_local_kernel_is_found() -> None:
    wrong = _paired(_over(lambda x: double(x).at[0, 0].add(1)))
    for backend in ("interpret", "simulate:sm_90"):
        assert any(found.verdict == "mismatch" for found in findings(wrong, [backend]))


def _placed(x: jax.Array) -> jax.Array:
    return whole(lambda x_ref: x_ref[...] + jax.lax.axis_index("a"), x, x)


def _sent(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any, sent: Any, received: Any) -> None:
        to = (1 - jax.lax.axis_index("a"),)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, sent, received, device_id=to)
        copy.start()
        copy.wait()

    whole, semaphore = pl.BlockSpec(memory_space=pl.ANY), pltpu.SemaphoreType.DMA
    return pl.pallas_call(
        body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), in_specs=[whole], out_specs=whole,
        scratch_shapes=[semaphore, semaphore],
    )(x)  # fmt: skip


def _by_warpgroup(body: Callable[[Any, Any], None]) -> Callable[[jax.Array], jax.Array]:
    def kernel(x: jax.Array) -> jax.Array:
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        doubled: jax.Array = plgpu.kernel(body, grid=(1,), grid_names=("program",), out_type=out)(x)
        return doubled

    return kernel


def _doubled_by_program(x_ref: Any, o_ref: Any) -> None:
    row = jax.lax.axis_index("program")
    o_ref[row] = x_ref[row] * 2
    for other in range(1, x_ref.shape[0]):
        o_ref[other] = x_ref[other] * 2


def _by_references(x: jax.Array) -> jax.Array:
    def on_references(refs: Any) -> None:
        @pl.core_map(plgpu.Mesh(grid=(1,), grid_names=("program",)))
        def _() -> None:
            refs[1][...] = refs[0][...] + jax.lax.axis_index("a").astype(x.dtype)

    result: jax.Array = pl.run_state(on_references)((x, jnp.zeros_like(x)))[1]
    return result


@pytest.mark.parametrize("backend", ["interpret-mosaic-gpu", "lower:sm_90"])
def test_the_programs_of_a_grid_are_no_devices(backend: str) -> None:
    result = _checked(_over(_by_warpgroup(_doubled_by_program)), backend)
    assert {record.verdict for record in result.records} == {"pass"}, result.records


def _too_large() -> Any:
    return jax.make_mesh((64,), ("a",), axis_types=(AxisType.Auto,))


def _reshaped() -> Any:
    return Mesh(np.array(jax.devices()).reshape(64, 1), ("a", "b"))


def _gathered(x: jax.Array) -> jax.Array:
    gathered: jax.Array = all_gather(x, axis_name="a", num_blocks=1)
    return gathered


@pytest.mark.parametrize(
    ("backend", "ended"),
    [
        ("lower:sm_90", "pass"),
        ("lower:sm_80", "unimplemented: kernel kernel: sm_80 has no multimem, which sm_90, sm_100 and sm_120 have"),
        pytest.param("compile:xla-sm_90", "pass", marks=needs_xla),
    ],
)
def test_mosaic_gpu_kernels_are_lowered_and_compiled_for_all_devices_of_their_mesh(backend: str, ended: str) -> None:
    (*_, record) = _checked(_over(_gathered), backend).records
    assert f"{record.verdict}: {record.message}".startswith(ended)


UNAVAILABLE = [
    (_over(_placed), ("interpret", "interpret-tpu", "lower:sm_90", "lower:tpu-v5e"), "asks for its place"),
    (_over(_sent), ("interpret", "interpret-tpu", "lower:tpu-v5e"), "sends to other devices of its mesh"),
    (_over(_by_references), ("interpret-mosaic-gpu",), "asks for its place"),
    (_over(_gathered), ("interpret-mosaic-gpu",), "sends to other devices of its mesh"),
    (_over(loop), ("interpret",), "the kernel's mesh has 2 devices, and JAX finds 1 of cpu here; XLA_FLAGS="),
    (_over(loop), ("interpret-tpu", "simulate:sm_90"), "exchange values inside a while"),
    (_over(double, _too_large), ("interpret", "lower:sm_90"), "a mesh of more devices than JAX finds here, 1 of cpu"),
    (_over(double, _reshaped), ("interpret", "lower:sm_90"), "a mesh of more devices than JAX finds here, 1 of cpu"),
    (_over(double, AbstractMesh((2,), ("a",), axis_types=(AxisType.Explicit,))), ("interpret",), "jax.reshard"),
]


@pytest.mark.parametrize(("kernel", "backends", "words"), UNAVAILABLE)
def test_what_needs_the_devices_of_a_mesh_is_unavailable_once(
    kernel: Callable[..., Any], backends: tuple[str, ...], words: str
) -> None:
    result = _checked(kernel, *backends)
    assert [(record.backend, record.verdict) for record in result.records] == [(b, "unavailable") for b in backends]
    assert all(words in record.message for record in result.records)
    assert set(result.unavailable) == set(backends)


def test_exchanges_around_a_kernel_do_not_hinder_its_compilation() -> None:
    assert {r.verdict for r in _checked(_over(loop), "lower:sm_90", "lower:gfx942", "lower:tpu-v5e").records} == {
        "pass"
    }
