"""Which failures are the same one, so that shrinking does not slip from one bug to another."""

import math

import pytest

from kerneltest.core.details import Access, MemoryFault, Mismatch, Race, Raised, Visit
from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import Record
from kerneltest.shrink.shrinker import resembles
from tests.written import case as recorded


def _wrong(actual: float, expected: float, output: int = 0, gradient_of: str = "") -> Record:
    detail = Mismatch("", output, gradient_of, 3, 9, "", (1,), "", "off")
    evidence = Evidence(actual=actual, expected=expected, output=output)
    return recorded(verdict="mismatch", message=detail.text(), detail=detail, evidence=evidence)


def _fault(buffer: str, element: str, program: tuple[int, ...], line: int, access: Access = Access.STORE) -> Record:
    detail = MemoryFault("f", Visit(access, program, f"k.py:{line}"), buffer, element, f"{access} at {buffer}{element}")
    return recorded(verdict="out_of_bounds", message=detail.text(), detail=detail)


def _race(buffer: str, element: str) -> Record:
    detail = Race("f", buffer, element, (Visit(Access.STORE, (0,), "k.py:5"),), f"{buffer}{element} is written twice")
    return recorded(verdict="race", message=detail.text(), detail=detail)


def _exception(said: str, line: int) -> Record:
    detail = Raised("the kernel", "ValueError", said, "while traced for n=1", f"k.py:{line}")
    return recorded(verdict="runtime_error", message=detail.text(), detail=detail)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (_wrong(2, 3), _wrong(-7, 0.5), True),
        (_wrong(2, 3), _wrong(math.nan, 3), False),
        (_wrong(2, 3), _wrong(2, math.nan), False),
        (_wrong(math.inf, 3), _wrong(-math.inf, 3), False),
        (_wrong(math.nan, 3), _wrong(math.nan, math.inf), True),
        (_wrong(-0.0, 0.0), _wrong(1.0, 0.0), False),
        (_wrong(2, 3), _wrong(2, 3, output=1), False),
        (_wrong(2, 3, gradient_of="x"), _wrong(2, 3, gradient_of="y"), False),
        (_fault("o_ref", "[24]", (0,), 5), _fault("o_ref", "[7]", (-1, 12), 5), True),
        (_fault("o_ref", "[24]", (0,), 5), _fault("o_ref", "[24]", (0,), 6), False),
        (_fault("o_ref", "[24]", (0,), 5), _fault("x_ref", "[24]", (0,), 5), False),
        (_fault("o_ref", "[24]", (0,), 5), _fault("o_ref", "[24]", (0,), 5, Access.LOAD), False),
        (_race("o_ref", "[0]"), _race("o_ref", "[7]"), True),
        (_race("o_ref", "[0]"), _race("s_ref", "[0]"), False),
        (_exception("shape (1, 2)\nand more", 3), _exception("shape (7, 9)\nand less", 3), True),
        (_exception("shape (1, 2)", 3), _exception("shape (7, 9)", 4), False),
        (_exception("shape (1, 2)", 3), _exception("dtype (1, 2)", 3), False),
        (recorded(verdict="unwritten"), recorded(verdict="uninitialised"), False),
    ],
)
def test_which_failures_are_the_same(one: Record, other: Record, alike: bool) -> None:
    assert resembles(one, other) == resembles(other, one) == alike
