"""Conditions by experiment: what was planted is named exactly, from one failing case."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import jax
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.fuzz_group import FuzzGroup
from kerneltest.execute.item import Item
from kerneltest.execute.runner import run_case
from kerneltest.execute.settings import RunSettings
from kerneltest.localize.condition_experiments import features_of, find_condition
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import signatures
from tests.sample import elementwise

DIMS = {"m": kt.dim(block=4), "n": kt.dim(block=8)}
Sizes = Callable[..., bool]  # of the lengths m and n and the options mode, step and dtype


def planted(is_wrong: Sizes) -> Pairing:
    """A sum of two matrices that is off by 64 for some signatures."""

    def kernel(x: jax.Array, y: jax.Array, mode: str, step: int) -> jax.Array:
        (m, n), dtype = x.shape, str(x.dtype)
        off = 64 if is_wrong(m=m, n=n, mode=mode, step=step, dtype=dtype) else 0
        return elementwise(lambda u, v: u + v + off, x, y)

    @kt.oracle_for(
        kernel, x=kt.array("m n", ("float32", "bfloat16")), y=kt.array("m n", ("float32", "bfloat16")),
        mode=kt.static("a", "b", "c"), step=kt.static(1, 3, 4), dims=DIMS,
    )  # fmt: skip
    def total(x: np.ndarray, y: np.ndarray, mode: str, step: int) -> np.ndarray:
        return x + y

    return total


def _condition(pairing: Pairing, case: ExplicitCase) -> str:
    (interpret,) = resolve(["interpret"])
    item = Item("p", pairing, "p", interpret, case.signature.dtype, FuzzGroup(), RunSettings())
    cache = Cache()
    record = run_case(item, case, cache).record
    assert record.verdict.is_finding
    found = find_condition(item, case, case, record, [case], {case.id}, cache)
    assert found is not None
    return found.words


OF_SIGNATURES: Mapping[str, Sizes] = {
    "n is not a multiple of its block, 8": lambda n, **_: n % 8 != 0,
    "n is not a multiple of 4": lambda n, **_: n % 4 != 0,
    "n is not a multiple of 3": lambda n, **_: n % 3 != 0,
    "n is odd": lambda n, **_: n % 2 == 1,
    "n is a multiple of its block, 8": lambda n, **_: n % 8 == 0,
    "n is a multiple of 5": lambda n, **_: n % 5 == 0,
    "n is 1 more than a multiple of its block, 8": lambda n, **_: n % 8 == 1,
    "n is longer than its block, 8": lambda n, **_: n > 8,
    "n is longer than its block, 8, and not a multiple of it": lambda n, **_: n > 8 and n % 8 != 0,
    "n is shorter than its block, 8": lambda n, **_: n < 8,
    "n is over 12": lambda n, **_: n > 12,
    "n is over 1": lambda n, **_: n > 1,
    "n is at most 3": lambda n, **_: n <= 3,
    "n is not a power of two": lambda n, **_: n & (n - 1) != 0,
    "m is over 2": lambda m, **_: m > 2,
    "m differs from n": lambda m, n, **_: m != n,
    "n is longer than m": lambda m, n, **_: n > m,
    "n is more than twice m": lambda m, n, **_: n > 2 * m,
    "m or n is not a multiple of its block": lambda m, n, **_: m % 4 != 0 or n % 8 != 0,
    "n is not a multiple of step": lambda n, step, **_: n % step != 0,
    "m * n is not a multiple of 32": lambda m, n, **_: m * n % 32 != 0,
    "m * n is over 64": lambda m, n, **_: m * n > 64,
    "mode is b": lambda mode, **_: mode == "b",
    "mode is not a": lambda mode, **_: mode != "a",
    "step is 4": lambda step, **_: step == 4,
    "dtype is bfloat16": lambda dtype, **_: dtype == "bfloat16",
    "mode is b and n is not a multiple of its block, 8": lambda n, mode, **_: mode == "b" and n % 8 != 0,
    "mode is b and n is longer than its block, 8": lambda n, mode, **_: mode == "b" and n > 8,
    "dtype is bfloat16 and n is odd": lambda n, dtype, **_: dtype == "bfloat16" and n % 2 == 1,
    "m is over 2 and n is not a multiple of 4": lambda m, n, **_: m > 2 and n % 4 != 0,
}


@pytest.mark.parametrize("words", OF_SIGNATURES)
def test_a_condition_on_signatures_is_named(words: str) -> None:
    is_wrong = OF_SIGNATURES[words]
    pairing = planted(is_wrong)
    chosen = next(
        resized
        for signature, n in itertools.product(signatures(pairing, "quick"), (9, 8, 12, 5, 3, 17, 10))
        for m in (5, 4, 9, 3)
        if is_wrong(m=m, n=n, **features_of(pairing, resized := replace(signature, dims=(("m", m), ("n", n)))).options)
    )
    family = FAMILIES["position_coded"]
    rng = np.random.default_rng(0)
    arguments = {path: family.fill(slot, rng, True) for path, slot in signature_slots(pairing, chosen).items()}
    found = _condition(pairing, ExplicitCase("p", chosen, arguments, family=family))
    assert set(found.split(" and ")) == set(words.split(" and "))
