"""A kernel that a machine cannot run on a backend that it has, in a run of pytest."""

from pathlib import Path

import pytest

from kerneltest.core.verdicts import Verdict
from kerneltest.pytest_plugin.scheduler import item_costs
from kerneltest.records.record_files import read_plan, read_records
from tests import forked
from tests.plugins import PLUGINS

SUITE = """
import jax
from jax.experimental import pallas as pl
from jax.sharding import AxisType, PartitionSpec as P
import kerneltest as kt

def body(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2

def double(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

def on_64_devices(x):
    mesh = jax.make_mesh((64,), ("d",), axis_types=(AxisType.Auto,))
    return jax.shard_map(double, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)(x)

@kt.oracle_for(double, x=kt.array("64 4", "float32"))
def plain(x):
    return 2 * x

@kt.oracle_for(on_64_devices, x=kt.array("64 4", "float32"))
def sharded(x):
    return 2 * x
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_it_is_told_once_and_fails_neither_the_run_nor_the_backend(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    options = ("--kt-backends", "interpret,lower:sm_90", "--kt-depth", "quick", "--kt-report", "out", *workers)
    run = forked.run(tmp_path, "pytest", *PLUGINS, "-p", "no:cacheprovider", *options)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("a mesh of more devices than JAX finds here, 1 of cpu") == 1
    assert "test_suite.py::sharded unavailable on " in run.stdout
    plan, records = read_plan(tmp_path / "out"), list(read_records(tmp_path / "out"))
    assert plan.unavailable == {}
    verdicts = {(record.pairing.partition("::")[2], record.verdict) for record in records}
    assert verdicts == {("plain", Verdict.PASS), ("sharded", Verdict.UNAVAILABLE)}
    assert sum(record.verdict is Verdict.UNAVAILABLE for record in records) == 2  # one for each backend
    assert {each.part[0].partition("::")[2] for each in item_costs(plan, [i.item for i in plan.items]).values()} == {
        "plain"
    }
