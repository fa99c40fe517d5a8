"""Failures of JAX's Mosaic interpreters carry buffers, elements and lines as data."""

import re

import pytest

from kerneltest.core.details import Access, Hung, MemoryFault, Race, Stated, Undefined
from tests.corpus import twin
from tests.corpus.judged import finding

LINE = re.compile(r"tests/corpus/\w+\.py:\d+")


@pytest.mark.parametrize(
    ("name", "buffer", "element", "accesses"),
    [
        ("reads before the copy landed", "buffer", "", [Access.LOAD, Access.COPY]),
        ("ends while it stores", "o", "[24:32, 0:128]", [Access.COPY, Access.BLOCK]),
        ("copies into memory given up", "buffer", "", [Access.COPY]),
        ("accumulates over a parallel dimension", "o", "[0:8, 0:128]", [Access.BLOCK, Access.BLOCK]),
    ],
)
def test_a_race_on_a_tpu(name: str, buffer: str, element: str, accesses: list[Access]) -> None:
    detail = finding(twin(f"TPU kernel {name}")).detail
    assert isinstance(detail, Race)
    assert (detail.buffer, detail.element, [visit.access for visit in detail.visits]) == (buffer, element, accesses)
    assert all(LINE.fullmatch(visit.place) for visit in detail.visits)


def test_an_access_outside_a_buffer_of_a_tpu() -> None:
    detail = finding(twin("TPU kernel writes past its buffer")).detail
    assert isinstance(detail, MemoryFault)
    assert (detail.buffer, detail.element, detail.visit.access) == ("slots", "[2, 0:8, 0:128]", Access.STORE)
    assert LINE.fullmatch(detail.place)


def test_a_block_outside_an_array_of_a_tpu() -> None:
    detail = finding(twin("TPU kernel maps to a block past the end")).detail
    assert isinstance(detail, MemoryFault)
    assert (detail.buffer, detail.element) == ("x", "[32:40, 0:128]")
    assert (detail.visit.access, detail.visit.program) == (Access.BLOCK, (3,))


def test_a_semaphore_that_is_not_zero() -> None:
    detail = finding(twin("TPU kernel signals and nobody waits")).detail
    assert isinstance(detail, Stated)
    assert (detail.values["semaphore"], detail.values["count"]) == ("ready[1]", 3)
    assert LINE.fullmatch(detail.place)
    assert detail.text().count(detail.place) == 1


def test_an_unwritten_row() -> None:
    detail = finding(twin("TPU kernel leaves a row unwritten")).detail
    assert isinstance(detail, Undefined)
    assert (detail.array, detail.unwritten, detail.count, detail.total) == ("output 0", True, 128, 4096)


def test_a_deadlock() -> None:
    detail = finding(twin("TPU kernel waits for more than is signalled")).detail
    assert isinstance(detail, Hung)
    assert LINE.fullmatch(detail.source)


def test_a_race_on_a_gpu() -> None:
    detail = finding(twin("pipeline reads before the copy landed")).detail
    assert isinstance(detail, Race)
    assert detail.buffer == "shared memory"
    assert re.fullmatch(r"\[.*0:64\]", detail.element)
    assert [visit.access for visit in detail.visits] == [Access.LOAD, Access.STORE]
    assert all(LINE.fullmatch(visit.place) and "warpgroup 0" in visit.thread for visit in detail.visits)


def test_an_access_outside_a_buffer_of_a_gpu() -> None:
    detail = finding(twin("pipeline forgets the remainder")).detail
    assert isinstance(detail, MemoryFault)
    assert detail.buffer == "shared memory"
    assert detail.element.startswith("[2")
