"""Failures of JAX's Mosaic interpreters carry buffers, elements and lines as data."""

import re
from typing import Any

import jax
import numpy as np
import pytest

import tests.tpu_memory_bugs  # noqa: F401 - its twins join the others
from kerneltest.backends.registry import resolve
from kerneltest.core.details import Access, Hung, MemoryFault, Race, Stated, Undefined
from kerneltest.core.dtypes import ShapeDtype
from kerneltest.core.failures import Failure
from kerneltest.trace.platform_dispatch import abstract_platform
from kerneltest.trace.tracing import trace_function
from tests import pipeline_bugs, tpu_bugs

LINE = re.compile(r"tests/\w+\.py:\d+")


def detail_of(backend_id: str, kernel: Any, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """The detail with which a kernel fails."""
    (backend,) = resolve([backend_id])
    with abstract_platform(backend.platform):
        inputs = (ShapeDtype(shape, np.dtype(dtype)),)
        traced = trace_function(lambda x: jax.tree.leaves(kernel(x)), inputs, "here")
    with pytest.raises(Failure) as caught:
        backend.prepare(traced).run([np.ones(shape, dtype)])
    return caught.value.detail


def tpu_detail(name: str) -> Any:
    twins = tpu_bugs.TWINS[name]
    return detail_of("interpret-tpu", twins.make(True), (twins.rows, tpu_bugs.COLUMNS), twins.dtype)


def gpu_detail(name: str) -> Any:
    make, _ = pipeline_bugs.TWINS[name]
    return detail_of("interpret-mosaic-gpu", make(True), pipeline_bugs.SHAPE)


@pytest.mark.parametrize(
    ("name", "buffer", "element", "accesses"),
    [
        ("reads_before_the_copy_landed", "buffer", "", [Access.LOAD, Access.COPY]),
        ("ends_while_it_stores", "o", "[24:32, 0:128]", [Access.COPY, Access.BLOCK]),
        ("copies_into_memory_given_up", "buffer", "", [Access.COPY]),
        ("accumulates_over_a_parallel_dimension", "o", "[0:8, 0:128]", [Access.BLOCK, Access.BLOCK]),
    ],
)
def test_a_race_on_a_tpu(name: str, buffer: str, element: str, accesses: list[Access]) -> None:
    detail = tpu_detail(name)
    assert isinstance(detail, Race)
    assert (detail.buffer, detail.element, [visit.access for visit in detail.visits]) == (buffer, element, accesses)
    assert all(LINE.fullmatch(visit.place) for visit in detail.visits)


def test_an_access_outside_a_buffer_of_a_tpu() -> None:
    detail = tpu_detail("writes_past_its_buffer")
    assert isinstance(detail, MemoryFault)
    assert (detail.buffer, detail.element, detail.visit.access) == ("slots", "[2, 0:8, 0:128]", Access.STORE)
    assert LINE.fullmatch(detail.place)


def test_a_block_outside_an_array_of_a_tpu() -> None:
    detail = tpu_detail("maps_to_a_block_past_the_end")
    assert isinstance(detail, MemoryFault)
    assert (detail.buffer, detail.element) == ("x", "[32:40, 0:128]")
    assert (detail.visit.access, detail.visit.program) == (Access.BLOCK, (3,))


def test_a_semaphore_that_is_not_zero() -> None:
    detail = tpu_detail("signals_and_nobody_waits")
    assert isinstance(detail, Stated)
    assert (detail.values["semaphore"], detail.values["count"]) == ("ready[1]", 3)
    assert LINE.fullmatch(detail.place)
    assert detail.text().count(detail.place) == 1


def test_an_unwritten_row() -> None:
    detail = tpu_detail("leaves_a_row_unwritten")
    assert isinstance(detail, Undefined)
    assert (detail.array, detail.unwritten, detail.count, detail.total) == ("output 0", True, 128, 4096)


def test_a_deadlock() -> None:
    detail = tpu_detail("waits_for_more_than_is_signalled")
    assert isinstance(detail, Hung)
    assert LINE.fullmatch(detail.source)


def test_a_race_on_a_gpu() -> None:
    detail = gpu_detail("reads_before_the_copy_landed")
    assert isinstance(detail, Race)
    assert detail.buffer == "shared memory"
    assert re.fullmatch(r"\[.*0:64\]", detail.element)
    assert [visit.access for visit in detail.visits] == [Access.LOAD, Access.STORE]
    assert all(LINE.fullmatch(visit.place) and "warpgroup 0" in visit.thread for visit in detail.visits)


def test_an_access_outside_a_buffer_of_a_gpu() -> None:
    detail = gpu_detail("forgets_the_remainder")
    assert isinstance(detail, MemoryFault)
    assert detail.buffer == "shared memory"
    assert detail.element.startswith("[2")
