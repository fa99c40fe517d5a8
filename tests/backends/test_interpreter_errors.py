"""An exception of kerneltest inside one of JAX's interpreters ends its case as one, and not as the kernel's fault."""

from collections.abc import Callable, Container
from itertools import count
from operator import getitem, setitem
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.api import pairing_id
from kerneltest.plan.cases import value_cases
from kerneltest.records.schema import Record
from kerneltest.trace.jax_compat import interpreter_threads, mosaic_gpu_interpreter, tpu_interpreter
from kerneltest.trace.jax_compat.patches import keep_jax_frames
from kerneltest.trace.jax_compat.tpu_interpreter import TrackedSharedMemory
from tests.pipeline_bugs import BLOCK, SHAPE, TWINS
from tests.sample import whole

TPU, GPU = "interpret-tpu", "interpret-mosaic-gpu"


def doubled_on_tpu(x: jax.Array) -> jax.Array:
    return whole(lambda x_ref: x_ref[...] * 2, x, x)


def raise_at(calls: Container[int], original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that raises at some of its calls, in a frame that counts as kerneltest's."""
    namespace = {"__name__": "kerneltest.injected", "original": original, "calls": calls, "numbers": count()}
    exec(_RAISES, namespace)
    return namespace["run"]  # type: ignore[return-value]


_RAISES = """
def run(*args, **keywords):
    if next(numbers) in calls:
        raise LookupError("injected")
    return original(*args, **keywords)
"""

# The backend, the kernel, and the function that raises.
CASES: list[tuple[str, str, Any, str]] = [
    *((TPU, "", TrackedSharedMemory, name) for name in (
        "track", "get_buffer_content", "store_buffer_content", "allocate_buffer", "leftovers",
    )),
    (GPU, "waits_for_each_other", interpreter_threads, "_run_compiled"),
    (GPU, "waits_for_each_other", mosaic_gpu_interpreter, "_describe_wait"),
]  # fmt: skip


def ended(backend: str, kernel: Callable[..., Any], oracle: Callable[..., Any]) -> Record:
    lengths = dict(zip("mn", SHAPE, strict=True))
    dims = {name: kt.dim(values=[length]) for name, length in lengths.items()}
    pairing = kt.oracle_for(kernel, x=kt.array("m n", "float32"), dims=dims)(oracle)
    first = next(value_cases(pairing, pairing_id(pairing), "float32", "structural", 0, "quick"))
    (record,) = kt.check(pairing, backends=[backend], depth="quick", case=first.id).records
    return record


@pytest.mark.parametrize(("backend", "name", "owner", "function"), CASES)
def test_it_is_an_internal_error(
    backend: str, name: str, owner: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = TWINS[name][0](True) if name else doubled_on_tpu

    def oracle(x: np.ndarray) -> np.ndarray:
        return 2 * x[: BLOCK[0]] if name else 2 * x

    monkeypatch.setattr(owner, function, raise_at(range(10**9), getattr(owner, function)))
    record = ended(backend, kernel, oracle)
    assert record.verdict == "internal_error", record.message


def test_so_is_one_in_a_callback_of_the_gpu_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    def are_ordered(x: Any, y: Any) -> bool:
        raise LookupError("injected")

    monkeypatch.setattr(interpreter_threads.are_ordered, "__code__", are_ordered.__code__)
    make, _ = TWINS["barrier_for_fewer_arrivals_than_come"]
    record = ended(GPU, make(False), lambda x: 2 * x[: BLOCK[0]])
    assert record.verdict == "internal_error", record.message


@pytest.mark.parametrize("function", ["_waiting_threads", "_progress"])
def test_a_deadlock_is_noticed_though_looking_for_it_raised_once(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter_threads, function, raise_at([0], getattr(interpreter_threads, function)))
    make, _ = TWINS["waits_for_each_other"]
    record = ended(GPU, make(True), lambda x: 2 * x[: BLOCK[0]])
    assert record.verdict == "hang", record.message


Buffer = vars(tpu_interpreter)["tpu_memory"].Buffer
BUFFER = Buffer(np.zeros((8, 128), np.float32))


@pytest.mark.parametrize(
    ("access", "verdict"),
    [
        (lambda: getitem(BUFFER, (slice(8, 16), 0)), "out_of_bounds"),
        (lambda: setitem(BUFFER, (slice(4, 12), 0), np.zeros(8, np.float32)), "out_of_bounds"),
        (lambda: Buffer(BUFFER.content, logical_shape=(16, 128)), "unavailable"),
    ],
)
def test_an_access_outside_of_a_buffer_is_the_kernels(access: Callable[[], Any], verdict: str) -> None:
    with keep_jax_frames(), pytest.raises((IndexError, ValueError), match=r"out of bounds|bigger") as raised:
        access()
    assert tpu_interpreter.failure(raised.value, None, None).verdict == verdict
