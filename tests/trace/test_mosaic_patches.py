"""What JAX's interpreters of Mosaic kernels are helped with is what they would do, without JAX's arrays."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from kerneltest.api import pairing_id
from kerneltest.backends.registry import resolve
from kerneltest.plan.cases import value_cases
from kerneltest.trace.jax_compat.interpreter_threads import are_ordered
from kerneltest.trace.tracing import trace
from suites import test_pipeline_copy

# Two vector clocks, and whether one of them is before the other.
CLOCKS: dict[str, tuple[list[int], list[int], bool]] = {
    "equal": ([1, 2, 3], [1, 2, 3], False),
    "one ahead in one place": ([1, 2, 3], [1, 5, 3], True),
    "one ahead everywhere": ([1, 2, 3], [2, 5, 9], True),
    "each ahead of the other": ([1, 2, 3], [2, 1, 3], False),
    "from the start": ([0, 0, 0], [0, 0, 1], True),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_are_in_order(name: str) -> None:
    one, other, wanted = CLOCKS[name]
    x, y = np.array(one, np.int32), np.array(other, np.int32)
    assert are_ordered(x, y) is are_ordered(y, x) is wanted


def test_memory_is_moved_without_arrays_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    (backend,), copy = resolve(["interpret-mosaic-gpu"]), test_pipeline_copy.copy
    case = next(value_cases(copy, pairing_id(copy), "float32", "structural", 0, "quick"))
    arguments = case.fill(copy)
    found = backend.evaluate(trace(copy, case.signature, backend.platform))
    assert found is not None

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("an array of a device is made")

    monkeypatch.setattr(jnp, "array", refused)
    (output,) = found.run([arguments[path] for path, _ in case.signature.dtypes])
    np.testing.assert_array_equal(output, arguments["x"])
