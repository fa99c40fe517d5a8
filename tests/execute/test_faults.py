"""Faults in a user's own code cost only the cases that run into them."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.plan.families import FAMILIES
from tests.sample import exponential


class _NoTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> Any:
    raise error


def _double(x: jax.Array) -> jax.Array:
    return vector_add(x, x)


def _checked(oracle: Callable[..., Any], length: int = 3) -> kt.Pairing:
    return kt.oracle_for(
        _double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(length,))), tolerance=kt.tolerance.exact()
    )(oracle)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit("over"), "GeneratorExit: over"),
        (_NoTextError(), "_NoTextError: (its text raised RuntimeError)"),
        (MemoryError("no room"), "MemoryError: no room"),
        (pytest.skip.Exception("not today"), "Skipped: not today"),
    ],
)
def test_what_an_oracle_raises_costs_its_case(error: BaseException, said: str) -> None:
    def oracle(x: np.ndarray) -> np.ndarray:
        return _raise(error) if (x == 1).all() else 2 * x

    result = kt.check(_checked(oracle), depth="quick")
    failed = {r.family: r for r in result.records if r.verdict.is_finding}
    assert "ones" in failed
    assert said in failed["ones"].message
    assert {r.verdict for r in result.records if r.family == "position_coded"} == {"pass"}


def test_a_family_that_raises_costs_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    @kt.family(group="special", name="raises_on_sight")
    def raises_on_sight(slot: Any, rng: Any) -> Any:
        raise ZeroDivisionError("a family of ours")

    try:
        result = kt.check(_checked(lambda x: 2 * x), depth="quick")
    finally:
        del FAMILIES["raises_on_sight"]
    (found,) = result.findings
    assert (found.family, found.verdict) == ("raises_on_sight", "oracle_error")
    assert "raises_on_sight raised ZeroDivisionError: a family of ours" in found.message
    assert any(r.family == "one_inf" and r.verdict == "pass" for r in result.records)


def test_an_interruption_ends_the_run() -> None:
    with pytest.raises(KeyboardInterrupt):
        kt.check(_checked(lambda x: _raise(KeyboardInterrupt())), depth="quick")


@pytest.mark.parametrize("mode", ["jax_debug_nans", "jax_debug_infs", "jax_disable_jit"])
def test_jaxs_debugging_modes_accuse_no_right_kernel(mode: str) -> None:
    """These modes raise at each NaN or infinity, which may be correct, or refuse to compile."""
    pairing = kt.oracle_for(exponential, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))(np.exp)
    jax.config.update(mode, True)
    try:
        result = kt.check(pairing, depth="quick")
    finally:
        jax.config.update(mode, False)
    assert {f.message for f in result.findings} == set()
    assert any(r.compared for r in result.records)


def summed_in_random_order(fault: Callable[[int], float]) -> Callable[..., kt.Pairing]:
    """Returns what declares a sum whose order changes from call to call, with an error by the number of the call."""
    rng, calls = np.random.default_rng(0), itertools.count()

    def total(x: np.ndarray) -> np.ndarray:
        order = rng.permutation(x.size)
        return np.float32(np.add.accumulate(x[order], dtype=np.float32)[-1] + fault(next(calls))).reshape(1)

    def kernel(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct((1,), x.dtype)
        return vector_add(jax.pure_callback(total, shape, x), x[:1] * 0)

    def declare(**options: Any) -> kt.Pairing:
        x, dims = kt.array("n", "float32"), dict(n=kt.dim(values=(4096,)))
        made = kt.oracle_for(kernel, x=x, dims=dims, tolerance=kt.tolerance.reduction("n"), **options)
        return made(lambda x: x.sum(keepdims=True) + x[:1] * 0)

    return declare


# The error of a call by its number, options, and the verdicts of the family `normal`, whose cases run twice. Sums of
# integers are equal in any order; only values that round differ.
SUMS: dict[str, tuple[Callable[[int], float], dict[str, Any], set[str]]] = {
    "reproducible": (lambda call: 0.0, {}, {"nondeterministic"}),
    "in any order": (lambda call: 0.0, {"reproducible": False}, set()),
    "in any order, and wrong the second time": (lambda call: 99.0 * (call % 2), {"reproducible": False}, {"mismatch"}),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_in_another_order_each_time_is_nondeterministic_unless_declared(name: str) -> None:
    fault, options, verdicts = SUMS[name]
    result = kt.check(summed_in_random_order(fault)(**options), depth="quick")
    assert {f.verdict for f in result.findings if f.family == "normal"} == verdicts
    assert any(r.compared and r.family == "normal" for r in result.records) or verdicts


def test_an_oracle_that_draws_random_numbers_is_refused() -> None:
    """Its spread would widen the bound and hide a kernel that is off by a third."""
    rng = np.random.default_rng()
    pairing = kt.oracle_for(_double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(64,))))(
        lambda x: 1.5 * x * (1 + 0.5 * rng.random(x.shape))
    )
    result = kt.check(pairing, depth="quick")
    assert {f.verdict for f in result.findings if f.family == "normal"} == {"oracle_error"}
    assert "for the same inputs: it must compute the same each time" in result.findings[0].message


def test_a_bound_that_zeros_would_meet_compares_nothing() -> None:
    pairing = kt.oracle_for(
        _double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(64,))),
        tolerance=kt.tolerance.conditioned(factor=1e9),
    )(lambda x: 2.0 * x)  # fmt: skip
    found = {r.family: (r.compared, r.message) for r in kt.check(pairing, depth="quick").records if r.verdict == "pass"}
    assert found["normal"][0] == found["wide_magnitudes"][0] == 0
    assert found["normal"][1].startswith("the bound by conditioned(factor=1e+09")


def test_an_oracle_that_writes_to_its_arguments_is_refused() -> None:
    def oracle(x: np.ndarray) -> np.ndarray:
        x *= 2
        return x

    result = kt.check(_checked(oracle), depth="quick")
    assert {f.verdict for f in result.findings if f.family == "ones"} == {"oracle_error"}
    assert "wrote to its argument 'x'" in result.findings[0].message
