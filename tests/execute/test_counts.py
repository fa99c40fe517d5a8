"""The numbers of traces, compilations and oracle evaluations, so that a rise does not go unnoticed."""

import pytest

from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from suites import (
    test_attention,
    test_layer_norm,
    test_matmul,
    test_pipeline_copy,
    test_softmax,
    test_tpu_softmax,
    test_vector_add,
)

# By pairing, at `quick` on two backends, in all dtypes or one: cases and signatures; then traces, evaluations of the
# oracle, compilations of interpret mode (two for each dtype, one of them for the call outside of `jit`), kernels in
# NumPy, lowerings, and cases whose oracles are sampled together.
ALL, ONE = None, "float32"
COUNTS = {
    "vector add": (test_vector_add.blocked, ALL, (1444, 78), (60, 721, 12, 84, 54, 656)),
    "softmax": (test_softmax.fused, ALL, (815, 30), (18, 409, 6, 36, 21, 381)),
    "matmul": (test_matmul.tiled, ONE, (395, 18), (9, 200, 2, 15, 11, 120)),
    "layer norm": (test_layer_norm.normalised, ONE, (434, 14), (8, 217, 2, 20, 15, 202)),
    "attention": (test_attention.online, ONE, (439, 16), (9, 222, 2, 16, 11, 106)),
}
COUNTED = ("traces", "oracle evaluations", "prepared for interpret", "evaluated for interpret",
           "prepared for simulate:sm_90", "cases sampled together")  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_costs(name: str) -> None:
    pairing, dtype, planned, costs = COUNTS[name]
    cache = Cache()
    items = plan_pairing(
        pairing, pairing_id(pairing), resolve(["interpret", "simulate:sm_90"]), RunSettings(depth="quick")
    ).items
    chosen = [item for item in items if dtype in (ALL, item.dtype)]
    records = [outcome.record for item in chosen for outcome in run_item(item, cache)]
    cache.process.pool.close()
    assert not any(record.verdict.is_finding for record in records)
    assert (len(records), len({(record.backend, record.signature) for record in records})) == planned
    assert tuple(cache.process.journal.counts[each] for each in COUNTED) == costs


# On an interpreter of Mosaic kernels, in one dtype: compilations, at most two, and kernels in NumPy.
MOSAIC = {
    "interpret-mosaic-gpu": (test_pipeline_copy.copy, (1, 22)),
    "interpret-tpu": (test_tpu_softmax.softmax, (1, 6)),
}


@pytest.mark.parametrize("backend", MOSAIC)
def test_costs_of_mosaic_kernels(backend: str) -> None:
    pairing, costs = MOSAIC[backend]
    cache = Cache()
    items = plan_pairing(pairing, pairing_id(pairing), resolve([backend]), RunSettings(depth="quick")).items
    chosen = [item for item in items if item.dtype == items[0].dtype]
    assert not any(outcome.record.verdict.is_finding for item in chosen for outcome in run_item(item, cache))
    cache.process.pool.close()
    assert tuple(cache.process.journal.counts[f"{each} for {backend}"] for each in ("prepared", "evaluated")) == costs
