"""Exceptions that raise when they are asked for their text end in the verdict of any other exception."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.core.failures import exception_text, format_exception


def _without_text(how: Callable[[], Any]) -> type[Exception]:
    class TextlessError(ValueError):
        def __str__(self) -> str:
            text: str = how()
            return text

        __repr__ = __str__

    return TextlessError


def _raise(error: BaseException) -> Any:
    raise error


WAYS = {
    "raises": (lambda: _raise(RuntimeError("no text")), "RuntimeError"),
    "exits": (lambda: _raise(SystemExit(3)), "SystemExit"),
    "skips": (lambda: _raise(pytest.skip.Exception("no text")), "Skipped"),
    "returns a number": (lambda: 3, "TypeError"),
}
DIMS = {"n": kt.dim(values=(3,))}


def _double(x: jax.Array) -> jax.Array:
    return vector_add(x, x)


@pytest.mark.parametrize("way", WAYS)
def test_the_text_of_an_exception_that_has_none(way: str) -> None:
    how, raised = WAYS[way]
    error = _without_text(how)()
    assert exception_text(error) == f"(its text raised {raised})"
    assert format_exception(error).startswith("TextlessError: ")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["interpret", "lower:sm_90", "simulate:gfx942", "interpret-tpu"])
def test_a_kernel_that_raises_one_while_it_is_traced(way: str, backend: str) -> None:
    how, raised = WAYS[way]

    def kernel(x: jax.Array) -> jax.Array:
        raise _without_text(how)

    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=DIMS)(lambda x: x)
    findings = kt.check(pairing, backends=[backend], depth="quick").findings
    assert {finding.verdict for finding in findings} == {"runtime_error"}
    assert f"TextlessError while traced for n=3,float32: (its text raised {raised})" in findings[0].message


@pytest.mark.parametrize("way", WAYS)
def test_an_oracle_that_raises_one_for_any_but_arrays_of_numpys(way: str) -> None:
    """The samples for the error bound are arrays of kerneltest's: what the oracle raises there costs the samples."""

    def oracle(x: np.ndarray) -> np.ndarray:
        if type(x) is not np.ndarray:
            raise _without_text(WAYS[way][0])
        return 2 * x

    result = kt.check(kt.oracle_for(_double, x=kt.array("n", "float32"), dims=DIMS)(oracle), depth="quick")
    assert result.ok, result.findings


@pytest.mark.parametrize("way", WAYS)
def test_a_rejection_that_has_no_text_does_not_match(way: str) -> None:
    def kernel(x: jax.Array) -> jax.Array:
        if x.shape[0] % 2:
            raise _without_text(WAYS[way][0])
        return _double(x)

    rejections = [kt.rejects("odd", raises=ValueError, match="even", dims={"n": 3})]
    pairing = kt.oracle_for(kernel, x=kt.array("n", "float32"), dims={"n": kt.dim(values=(4,))}, rejects=rejections)(
        lambda x: 2 * x
    )
    findings = kt.check(pairing, depth="quick").findings
    assert [finding.family for finding in findings] == ["rejects_odd"]
    assert "TextlessError" in findings[0].message
