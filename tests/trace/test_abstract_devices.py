"""Kernels that ask what device they run on, on a machine that has none of the kind."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import kerneltest as kt
from kerneltest.plan.signatures import signatures
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.tracing import Traced, trace
from tests.sample import whole


def _times(x: jax.Array, factor: float) -> jax.Array:
    return whole(lambda x_ref: x_ref[...] * factor, x, x)


def asks_tpu_info(x: jax.Array) -> jax.Array:
    return _times(x, pltpu.get_tpu_info().num_lanes / 64)


def asks_tpu_info_of_a_mesh(x: jax.Array) -> jax.Array:
    mesh, rows = AbstractMesh((2,), ("a",), axis_types=(AxisType.Auto,)), PartitionSpec("a")
    return jax.shard_map(asks_tpu_info, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)(x)


def makes_a_core_mesh(x: jax.Array) -> jax.Array:
    return _times(x, float(2 * pltpu.create_tensorcore_mesh("core").shape["core"]))


def counts_cores(x: jax.Array) -> jax.Array:
    return _times(x, float(2 * jax.devices()[0].num_cores))


def counts_multiprocessors(x: jax.Array) -> jax.Array:
    return _times(x, 2.0 if jax.devices()[0].core_count > 1 else 3.0)


def asks_the_kind(x: jax.Array) -> jax.Array:
    return _times(x, 2.0) if "TPU" in jax.devices()[0].device_kind else x * 2


def refuses_others(x: jax.Array) -> jax.Array:
    if jax.devices()[0].platform != "tpu":
        raise NotImplementedError("only TPUs are supported")
    return _times(x, 2.0)


def raises_its_own_error(x: jax.Array) -> jax.Array:
    try:
        return asks_tpu_info(x)
    except ValueError as error:
        raise RuntimeError("the library has no kernel for this device") from error


ON_TPUS = (
    asks_tpu_info,
    asks_tpu_info_of_a_mesh,
    makes_a_core_mesh,
    counts_cores,
    asks_the_kind,
    refuses_others,
    raises_its_own_error,
)


def _pairing(kernel: Callable[..., Any]) -> kt.Pairing:
    return kt.oracle_for(kernel, x=kt.array("8 128", "float32"))(lambda x: 2 * x)


def _traced(kernel: Callable[..., Any], platform: str) -> Traced:
    pairing = _pairing(kernel)
    return trace(pairing, signatures(pairing, "quick")[0], platform)


@pytest.mark.parametrize("kernel", ON_TPUS)
@pytest.mark.parametrize("platform", ["", "tpu-v5e", "tpu-v6e"])
def test_a_kernel_for_tpus_is_traced_where_there_is_none(kernel: Callable[..., Any], platform: str) -> None:
    assert len(_traced(kernel, platform).calls) == 1


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kernel", ON_TPUS)
def test_it_is_tested_on_tpus_and_does_not_apply_to_gpus(kernel: Callable[..., Any]) -> None:
    backends = ("interpret", "interpret-tpu", "lower:tpu-v5e", "lower:sm_90", "simulate:sm_90")
    result = kt.check(_pairing(kernel), backends=backends, depth="quick")
    assert {(record.backend, record.verdict) for record in result.records} == {(b, "pass") for b in backends[:3]}
    assert set(result.not_applicable) == set(backends[3:])


def test_a_kernel_for_gpus_does_not_apply_to_tpus() -> None:
    backends = ("interpret", "lower:sm_90", "simulate:sm_90", "lower:tpu-v5e", "interpret-tpu")
    result = kt.check(_pairing(counts_multiprocessors), backends=backends, depth="quick")
    assert {(record.backend, record.verdict) for record in result.records} == {(b, "pass") for b in backends[:3]}
    assert "asks for the properties of a GPU" in result.not_applicable["lower:tpu-v5e"]


def test_a_missing_attribute_stays_an_error_of_the_kernel() -> None:
    (record, *_) = kt.check(_pairing(lambda x: _times(x, jax.devices()[0].nonsense)), depth="quick").records
    assert record.verdict == "runtime_error"
    assert (
        "a device of platform cpu has no attribute 'nonsense' (tests/trace/test_abstract_devices.py:" in record.message
    )


def test_jax_itself_sees_the_machine_as_it_is() -> None:
    with abstract_platform("tpu-v5e"):
        np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(np.arange(3)), [1, 2, 3])
        assert jax.devices()[0].platform == "tpu"
    assert jax.devices()[0].platform == "cpu"
    with pytest.raises(AttributeError):
        _ = jax.devices()[0].num_cores
