"""Kernels that pick their form by platform."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.core.failures import Failure
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.plan.signatures import signatures
from kerneltest.trace.jaxpr_digest import jaxpr_fingerprint
from kerneltest.trace.tracing import trace


def _doubled(parameters: Any) -> Callable[[jax.Array], jax.Array]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return lambda x: pl.pallas_call(body, out_shape=x, compiler_params=parameters)(x)


GPU, TPU = _doubled(plgpu.CompilerParams()), _doubled(pltpu.CompilerParams())


def dependent(x: jax.Array) -> jax.Array:
    return jax.lax.platform_dependent(x, cuda=GPU, rocm=GPU, tpu=TPU, default=lambda x: x * 2)


def without_default(x: jax.Array) -> jax.Array:
    return jax.lax.platform_dependent(x, cuda=GPU, tpu=TPU)


@jax.jit
def asking(x: jax.Array) -> jax.Array:
    return {"gpu": GPU, "tpu": TPU}.get(jax.default_backend(), lambda x: x * 2)(x)


@jax.jit
def only_on_tpus(x: jax.Array) -> jax.Array:
    return TPU(x) if jax.default_backend() == "tpu" else x * 2


def on_each_core(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(body, out_shape=x, grid=(jax.devices()[0].core_count,))(x)


PLATFORMS = (("tpu-v4", "mosaic_tpu"), ("cuda", "triton"), ("", "triton"), ("tpu-v6e", "mosaic_tpu"))


def _pairing(kernel: Callable[..., Any]) -> kt.Pairing:
    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(256,))))(lambda x: 2 * x)


@pytest.mark.parametrize("kernel", [dependent, without_default, asking])
def test_a_kernel_is_traced_for_the_platform_that_is_asked(kernel: Callable[..., Any]) -> None:
    pairing = _pairing(kernel)
    (signature,) = signatures(pairing, "quick")
    for platform, language in PLATFORMS:
        traced = trace(pairing, signature, platform)
        assert traced.by_platform
        assert traced.dialects == {language}


def test_a_platform_without_a_form_is_said() -> None:
    pairing = _pairing(without_default)
    with pytest.raises(Failure, match="platform_dependent has a branch for cuda, tpu, but not for rocm") as caught:
        trace(pairing, signatures(pairing, "quick")[0], "rocm")
    assert caught.value.verdict == "unimplemented"


def test_what_asks_for_no_platform_has_one_form_and_fingerprint() -> None:
    pairing = _pairing(GPU)
    traces = [trace(pairing, signatures(pairing, "quick")[0], platform) for platform, _ in PLATFORMS]
    assert not any(traced.by_platform for traced in traces)
    assert len({jaxpr_fingerprint(traced.jaxpr).text for traced in traces}) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_grid_by_the_devices_cores_is_that_of_each_backend_in_any_order(order: tuple[int, ...]) -> None:
    pairing, backends, traces = _pairing(on_each_core), resolve(BY_CORES), Cache().traces
    (signature,) = signatures(pairing, "quick")
    made = {i: traces.of(pairing, signature, backends[i]) for i in order}
    assert [made[i].calls[0].grid for i in range(3)] == [(2,), (132,), (304,)]


BY_CORES = ("interpret", "lower:sm_90", "lower:gfx942")


def test_jax_says_the_truth_again_afterwards() -> None:
    real = jax.default_backend
    trace(_pairing(asking), signatures(_pairing(asking), "quick")[0], "tpu-7x")
    assert jax.default_backend is real
    assert jax.default_backend() == "cpu"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kernel", [dependent, asking, only_on_tpus])
def test_each_backend_judges_the_form_of_its_own(kernel: Callable[..., Any]) -> None:
    chosen = ["interpret", "interpret-tpu", "lower:tpu-v5e", "simulate:sm_90"]
    result = kt.check(_pairing(kernel), backends=chosen, depth="quick")
    assert result.findings == ()
    judged = {record.backend for record in result.records if record.verdict == "pass"}
    assert judged == set(chosen) - ({"simulate:sm_90"} if kernel is only_on_tpus else set())


def test_a_wrong_form_is_found_where_it_is_used() -> None:
    def wrong(x: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(x, tpu=lambda x: TPU(x + 1), default=GPU)

    result = kt.check(_pairing(wrong), backends=["interpret", "interpret-tpu"], depth="quick")
    assert {finding.backend for finding in result.findings} == {"interpret-tpu"}
    assert np.all([f.verdict in ("mismatch", "special_mismatch") for f in result.findings])


@pytest.mark.parametrize(
    ("for_tpus", "otherwise", "served"),
    [
        (lambda x, mode: mode == "d", GPU, True),
        (lambda x, mode: x.shape == (17,), GPU, True),
        (lambda x, mode: x.dtype == "bfloat16", GPU, True),
        (lambda x, mode: mode == "b" and x.shape == (17,), lambda x: x * 2, True),
        (lambda x, mode: False, GPU, False),
    ],
)
def test_a_backend_serves_a_kernel_if_one_choice_leads_there(
    for_tpus: Callable[[Any, str], bool], otherwise: Callable[[Any], Any], served: bool
) -> None:
    traced = list[bool]()

    def kernel(x: Any, mode: str, other: str) -> Any:
        traced.append(for_tpus(x, mode))
        return (TPU if traced[-1] else otherwise)(x)

    modes = dict(mode=kt.static(*"abcd"), other=kt.static(*"efgh"))
    array = kt.array("n", ("float32", "bfloat16"))
    pairing = kt.oracle_for(kernel, x=array, **modes, dims=dict(n=kt.dim(block=16)))(lambda x, mode, other: 2 * x)
    plan = plan_pairing(pairing, "doubled", resolve(["lower:tpu-v5e"]), RunSettings(depth="quick"))
    assert any(traced) == (not plan.not_applicable) == served
    assert served or len(traced) <= len(signatures(pairing, "quick")) / 2


def test_a_kernel_without_arguments_is_refused() -> None:
    pairing = kt.oracle_for(lambda: GPU(jnp.ones(16)))(lambda: np.full(16, 2.0))
    plan = plan_pairing(pairing, "twos", resolve(["lower:tpu-v5e"]), RunSettings(depth="quick"))
    assert [each.backend for each in plan.not_applicable] == ["lower:tpu-v5e"]
