"""An exception of kerneltest inside one of JAX's interpreters ends its case as one, and not as the kernel's fault."""

from collections.abc import Callable, Container
from functools import partial
from itertools import count
from operator import getitem, setitem
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.records.schema import Record
from kerneltest.trace.jax_compat import interpreter_threads, mosaic_gpu_interpreter, tpu_interpreter
from kerneltest.trace.jax_compat.patches import keep_jax_frames
from kerneltest.trace.jax_compat.tpu_interpreter import TrackedSharedMemory
from tests.corpus import twin
from tests.corpus.twin import paired
from tests.found import records
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

DOUBLED = paired(lambda _: doubled_on_tpu, (256, 64), lambda x: 2 * x)
WAITING = twin("pipeline waits for each other")

# The backend, the pairing, and the function that raises.
CASES: list[tuple[str, Callable[[], kt.Pairing], Any, str]] = [
    *((TPU, partial(DOUBLED, False), TrackedSharedMemory, name) for name in (
        "track", "get_buffer_content", "store_buffer_content", "allocate_buffer", "leftovers",
    )),
    (GPU, WAITING.broken, interpreter_threads, "_run_compiled"),
    (GPU, WAITING.broken, mosaic_gpu_interpreter, "_describe_wait"),
]  # fmt: skip


def ended(backend: str, pairing: kt.Pairing) -> Record:
    (record,) = records(pairing, [backend], group="structural", first=True)
    return record


@pytest.mark.parametrize(("backend", "make", "owner", "function"), CASES)
def test_it_is_an_internal_error(
    backend: str, make: Callable[[], kt.Pairing], owner: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, function, raise_at(range(10**9), getattr(owner, function)))
    record = ended(backend, make())
    assert record.verdict == "internal_error", record.message


def test_so_is_one_in_a_callback_of_the_gpu_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    def are_ordered(x: Any, y: Any) -> bool:
        raise LookupError("injected")

    monkeypatch.setattr(interpreter_threads.are_ordered, "__code__", are_ordered.__code__)
    record = ended(GPU, twin("pipeline barrier for fewer arrivals than come").right())
    assert record.verdict == "internal_error", record.message


@pytest.mark.parametrize("function", ["_waiting_threads", "_progress"])
def test_a_deadlock_is_noticed_though_looking_for_it_raised_once(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter_threads, function, raise_at([0], getattr(interpreter_threads, function)))
    record = ended(GPU, WAITING.broken())
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
