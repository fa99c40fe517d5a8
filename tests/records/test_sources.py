"""What a plan says of a pairing: its declaration in words, the text of kernel and oracle."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.records.sources import describe, source
from tests.sample import double

ROOT = Path(__file__).parents[2]


def test_a_source_has_the_functions_that_it_names_and_their_lines() -> None:
    found = source(double)
    assert found.file == "tests/sample.py"
    lines = (ROOT / found.file).read_text(encoding="utf-8").splitlines()
    assert [text.splitlines()[0].split("(")[0] for _, text in found.parts] == ["def elementwise", "def double"]
    for first, text in found.parts:
        assert text.splitlines() == lines[first - 1 : first - 1 + len(text.splitlines())]


@pytest.mark.parametrize("wrapped", [jax.jit(double), functools.partial(double), functools.partial(jax.jit(double))])
def test_wrapped_functions_have_their_own_source(wrapped: Callable[..., Any]) -> None:
    assert source(wrapped) == source(double)


@pytest.mark.parametrize("without", [np.add, len, eval("lambda x: x")])
def test_what_has_no_source_has_none(without: Callable[..., Any]) -> None:
    assert source(without).parts == ()


def test_a_declaration_is_told_in_words() -> None:
    def kernel(x: Any, lengths: Any, mode: Any, n: Any) -> Any:
        return double(x)

    @kt.oracle_for(
        kernel,
        x=kt.array("b n 3", ("float32", "int8"), domain=(0, 1)),
        lengths=kt.lengths("b", up_to="n"),
        mode=kt.static("up", "down"),
        n=kt.dim_size("n"),
        dims=dict(b=kt.dim(values=(1, 7)), n=kt.dim(block=32, multiple_of=8, maximum=96)),
        tolerance=kt.tolerance.exact(),
        signed_zeros=True,
    )
    def oracle(x: Any, lengths: Any, n: Any) -> Any:
        return x

    assert describe(oracle).declaration == {
        "x": "array [b n 3] of float32, int8, from 0 to 1",
        "lengths": "length [b] into n of int32",
        "mode": "one of up, down",
        "n": "the length of n",
        "dim b": "1, 7",
        "dim n": "from 1 to 96, a multiple of 8; block 32",
        "tolerance": "exact",
        "signed zeros": "compared",
    }
    assert "@kt.oracle_for(" in describe(oracle).oracle.parts[0][1]
