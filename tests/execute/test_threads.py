"""BLAS runs in one thread while an item runs, and in as many as before afterwards."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import kerneltest as kt
from kernels.vector_add import vector_add_blocked
from kerneltest.backends.registry import resolve
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings


def _threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


seen: set[int] = set()


def total(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    seen.update(_threads())
    return x + y


def test_an_item_runs_with_one_thread_and_leaves_as_many_as_there_were() -> None:
    leaf = kt.array("n", "float32")
    pairing = kt.oracle_for(vector_add_blocked, x=leaf, y=leaf, dims={"n": kt.dim(values=(8,), block=8)})(total)
    (item, *_) = plan_pairing(pairing, "total", resolve(["interpret"]), RunSettings(depth="quick")).items
    cache = Cache()
    with threadpool_limits(2, user_api="blas"):
        before = _threads()
        assert [outcome.record.verdict.value for outcome in run_item(item, cache)]
        assert _threads() == before == {2}
    cache.process.pool.close()
    assert seen == {1}
