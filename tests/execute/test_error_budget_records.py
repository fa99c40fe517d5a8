"""The error budget of a case, by operation, in records, findings, messages and text."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.precision import FLOAT32, NVIDIA, XLA_CPU
from kerneltest.numerics.bounds import OracleCase
from kerneltest.numerics.rounding_bounds import OracleSamples
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import error_shares, sample_outputs
from kerneltest.records.evidence import format_budget
from tests.sample import elementwise, exponential

pytestmark = pytest.mark.usefixtures("values_alone")

DIMS = dict(n=kt.dim(values=(3, 64)))


def _shares(oracle: Any, precision: Any = XLA_CPU, **leaves: Any) -> dict[str, float]:
    given = {name: np.asarray(value, np.float64) for name, value in leaves.items()}
    formats, machine = dict.fromkeys(given, FLOAT32), RoundingModel(precision)

    def evaluate(machine: RoundingModel) -> Any:
        return sample_outputs(lambda arguments: (oracle(**arguments),), given, formats, machine)[0]

    evaluate(machine)
    found = error_shares(evaluate, precision, FLOAT32, machine.sources)
    return {each.source.description: each.part for each in found}


def test_the_operands_of_a_product_make_most_of_its_bound_where_they_are_rounded_to_tf32() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(8, 32)), rng.normal(size=(8, 32))
    parts = _shares(lambda q, k: q @ k.T, NVIDIA, q=q, k=k)
    assert next(iter(parts)) == "TF32 rounding of the operands of `q @ k.T`"
    assert parts["TF32 rounding of the operands of `q @ k.T`"] > 0.9
    assert list(_shares(lambda q, k: q @ k.T, q=q, k=k)) == ["summing of `q @ k.T`"]


def test_parts_add_up_to_the_whole_and_only_what_errs_has_one() -> None:
    parts = _shares(lambda x: np.exp(x) / np.maximum(x, 3.0), x=np.linspace(0.1, 2, 50))
    assert sum(parts.values()) == pytest.approx(1)
    assert next(iter(parts)) == "rounding of `np.exp(x)`"  # six ulps, and a division of one and a half
    assert not any("maximum(x, 3.0)`" in words and "exp" not in words for words in parts)


def test_subnormal_inputs_that_a_backend_flushes_are_named() -> None:
    assert _shares(lambda x: x + 0.0, x=np.full(4, 1e-40)).keys() >= {"flushed subnormal inputs"}


def _branching(x: Any) -> Any:
    return np.exp(x) if x[0] > 1 else np.sin(x)


def test_an_oracle_that_branches_where_only_inputs_are_perturbed_has_no_budget() -> None:
    x = np.linspace(1.0, 2.0, 8)
    values, formats = (np.sin(x),), {"x": FLOAT32}
    case = OracleCase(
        lambda given: values, {"x": x}, values, formats, lambda given: (_branching(given["x"]),), _branching
    )
    samples = OracleSamples(case, FLOAT32, exact_dots=False)
    assert not samples.at(XLA_CPU).note
    assert samples.shares(XLA_CPU, 0) == ()


def _off(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: jnp.exp(v) * 1.001, x)


def _grown(x: np.ndarray) -> np.ndarray:
    return np.exp(x)


def _make_pairing(kernel: Any, oracle: Any) -> kt.Pairing:
    return kt.oracle_for(kernel, x=kt.array("n", "float32"), dims=DIMS)(oracle)


def test_a_finding_says_what_makes_its_bound() -> None:
    result = kt.check(_make_pairing(_off, _grown), depth="quick")
    finding = next(f for f in result.findings if f.family == "normal")
    assert finding.budget == finding.record.error_budget
    first, line = finding.budget[0], _grown.__code__.co_firstlineno + 1
    assert (first.words, first.file, first.line) == (
        "rounding of `np.exp(x)`",
        "tests/execute/test_error_budget_records.py",
        line,
    )
    assert 0.9 < sum(part.part for part in finding.budget) <= 1.001
    assert f"rounding of `np.exp(x)` (test_error_budget_records.py:{line})" in format_budget(finding.budget)


def test_a_case_that_uses_half_as_much_again_of_its_bound_as_those_before_it_has_a_budget() -> None:
    result = kt.check(_make_pairing(exponential, _grown), depth="quick")
    records = [r for r in result.records if r.group != "invariants"]
    most: Counter[str] = Counter()
    for record in records:
        used = record.bound_fraction or 0.0
        assert bool(record.error_budget) == (used > 1.5 * most[record.family]), record
        most[record.family] = used if record.error_budget else most[record.family]
    assert 0 < sum(bool(r.error_budget) for r in records) < len(records)


def _cancels(x: jax.Array) -> jax.Array:
    return elementwise(lambda v: (v - v) + 1e-6, x)


def _narrow(x: np.ndarray) -> np.ndarray:
    y = x * 0 + 1
    return (y * 3e7 + 1e-3) - y * 3e7


def test_a_case_that_compares_nothing_says_which_operation_makes_the_bound_so_wide() -> None:
    records = [
        r for r in kt.check(_make_pairing(_cancels, _narrow), depth="quick").records if not r.compared and r.message
    ]
    first, advice = next(r.message.split("\n") for r in records if r.family == "normal")
    assert first.startswith("the bound by rounding() is so wide that zeros would pass: ")
    assert "rounding of `y * 3e7" in first
    assert f"(test_error_budget_records.py:{_narrow.__code__.co_firstlineno + 2})" in first
    assert "times as far as a rounding of the inputs does" in advice


def test_a_stable_formula_is_not_called_unstable() -> None:
    for record in kt.check(_make_pairing(_off, _grown), depth="quick").records:
        assert all(part.amplified < 16 for part in record.error_budget), record
