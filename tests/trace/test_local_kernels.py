"""Kernels under `jax.shard_map`, run for one device after another, and on all devices of their mesh."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun  # type: ignore[attr-defined, unused-ignore]
from jax.sharding import AbstractMesh, AxisType

from kerneltest.core.dtypes import ShapeDtype
from kerneltest.trace.local_kernels import exchange_in
from kerneltest.trace.rewrite import interpret_calls, rewrite_jaxpr
from kerneltest.trace.tracing import Traced, trace_function
from tests.sharded import SHAPE, P, loop, sharded

MESH = AbstractMesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
_INPUT = ShapeDtype(SHAPE, np.dtype(np.float32))

_ON_FOUR_DEVICES = """
import sys
import jax, numpy as np
from jax.sharding import AxisType
from kerneltest.backends.jitted import compile_for
from kerneltest.core.precision import XLA_CPU
from tests.sharded import NAMES, SHAPE
from tests.trace.test_local_kernels import together_on, traced_on

mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
x = np.arange(32, dtype=np.float32).reshape(SHAPE)

def outputs(traced):
    return compile_for(traced, jax.devices()[0], XLA_CPU, interpret=True).run([x])

for name in NAMES:
    traced = traced_on(mesh, name)
    assert not traced.not_local, (name, traced.not_local)
    together = outputs(together_on(traced))
    for one, other in zip(outputs(traced), together, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
abstract = traced_on(mesh.abstract_mesh, "rows")
np.testing.assert_array_equal(outputs(together_on(abstract))[0], 2 * x)
print("equal")
"""


def traced_on(mesh: object, name: str) -> Traced:
    return trace_function(lambda x: [sharded(name, mesh)(x)], (_INPUT,), "")


def together_on(traced: Traced) -> Traced:
    """The same kernel, to be run on all devices of its mesh at once."""
    return replace(traced, not_local="it runs on all devices at once")


def test_devices_in_turn_give_what_they_give_together() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    root = str(Path(__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", _ON_FOUR_DEVICES], capture_output=True, text=True, timeout=600,
        env={**os.environ, **flags, "PYTHONPATH": root},
    )  # fmt: skip
    assert ran.stdout.split() == ["equal"], ran.stderr[-2000:]


EXPECTED = {
    "rows": lambda x: 2 * x,
    "both axes along one dimension": lambda x: 2 * x,
    "sum": lambda x: 2 * sum(np.split(half, 2, 1)[i] for half in np.split(x, 2) for i in range(2)),
    "some send": lambda x: np.concatenate([np.zeros((8, 2)), 2 * x[:, :2]], 1),
    "places": lambda x: 2 * x + np.array([0, 0, 1, 1]) - 2 * (np.arange(8) >= 4)[:, None],
    "gradient": lambda x: 2 * np.sin(x) * np.cos(x),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_mesh_needs_no_devices_to_be_run_in_turn(name: str) -> None:
    x = np.arange(32, dtype=np.float32).reshape(SHAPE)
    traced = traced_on(MESH, name)
    assert "shard_map" not in str(traced.jaxpr)
    (got,) = jax.jit(jaxpr_as_fun(_interpreted(traced)))(x)
    np.testing.assert_allclose(got, EXPECTED[name](x), rtol=1e-5)


def _interpreted(traced: Traced) -> ClosedJaxpr:
    interpreted: ClosedJaxpr = rewrite_jaxpr(traced.jaxpr, interpret_calls(True))
    return interpreted


def test_all_devices_share_one_local_kernel() -> None:
    assert len(traced_on(MESH, "rows").calls) == 1
    assert len(traced_on(MESH, "ring").calls) == 1


def test_what_needs_all_devices_together_is_told() -> None:
    exchanged = jax.shard_map(loop, mesh=MESH, in_specs=P("a"), out_specs=P("a"), check_vma=False)
    traced = trace_function(lambda x: [exchanged(x)], (_INPUT,), "")
    assert "exchange values inside a while" in traced.not_local
    assert "sharded.py:" in traced.not_local
    assert traced.sharded is not None
    assert len(traced.calls) == 1


def test_a_kernel_that_asks_for_its_place_is_told() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + jax.lax.axis_index("a").astype(jnp.float32)

    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((4, 4), np.float32))
    placed = jax.shard_map(call, mesh=MESH, in_specs=P("a"), out_specs=P("a"), check_vma=False)
    traced = trace_function(lambda x: [placed(x)], (_INPUT,), "")
    assert "asks for its place" in traced.not_local
    assert exchange_in(call.equation for call in traced.calls) == traced.not_local
