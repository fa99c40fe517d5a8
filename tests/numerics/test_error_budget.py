"""The share of each operation of an oracle in a bound."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from kerneltest.core.dtypes import TF32, Array
from kerneltest.core.precision import FLOAT32, NVIDIA, XLA_CPU, Precision
from kerneltest.numerics.rounding_model import RoundingModel
from kerneltest.numerics.spread import ErrorShare, error_shares, sample_outputs

RNG = np.random.default_rng(0)
LEAVES = {name: RNG.normal(size=(16, 32)) for name in "qk"}


def _shares(
    oracle: Any, precision: Precision = XLA_CPU, leaves: Mapping[str, Array] = LEAVES
) -> tuple[ErrorShare, ...]:
    formats = dict.fromkeys(leaves, FLOAT32)
    machine = RoundingModel(precision)

    def evaluate(machine: RoundingModel) -> Array:
        return sample_outputs(lambda given: [oracle(**given)], leaves, formats, machine)[0]

    evaluate(machine)
    return error_shares(evaluate, precision, FLOAT32, machine.sources)


def _kinds(found: tuple[ErrorShare, ...]) -> list[str]:
    return [share.source.kind for share in found]


def test_the_parts_are_all_there_is_the_largest_first() -> None:
    found = _shares(lambda q, k: np.exp(q @ k.T / 8).sum(-1), NVIDIA)
    assert sum(share.part for share in found) == pytest.approx(1)
    assert [share.part for share in found] == sorted((share.part for share in found), reverse=True)
    assert all(share.part > 0 for share in found)


def test_rounded_operands_are_most_of_a_product() -> None:
    found = _shares(lambda q, k: q @ k.T + 1, NVIDIA)
    assert found[0].source.kind == "TF32 operands"
    assert found[0].part > 0.6
    assert str(found[0].source.origin).startswith("`q @ k.T` at test_error_budget.py:")
    assert "TF32 operands" not in _kinds(_shares(lambda q, k: q @ k.T + 1, NVIDIA.with_exact_dots()))


def test_cancellation_is_the_share_of_what_was_rounded_before_it() -> None:
    found = _shares(lambda q, k: (q * 1.1 + 1000.0) - 1000.0)
    assert found[0].part > 0.6
    assert found[0].source.origin.text == "q * 1.1 + 1000.0"


def test_a_long_sum_of_terms_of_both_signs_is_the_share_of_the_sum() -> None:
    leaves = {"q": RNG.normal(size=(8, 5000)).astype(np.float32).astype(np.float64)}
    found = _shares(lambda q: np.sum(q, -1) * 1.1, leaves=leaves)
    assert found[0].source.kind == "summing"
    assert found[0].part > 0.5


def test_flushed_inputs_have_a_share() -> None:
    leaves = {"q": np.full(64, 1e-40)}
    found = _shares(lambda q: q * 1e38, leaves=leaves)
    assert found[0].source.kind == "flushed subnormal inputs"
    assert found[0].part > 0.6


@pytest.mark.parametrize("oracle", [lambda q, k: q, lambda q, k: np.maximum(q, k), lambda q, k: q > k])
def test_what_nothing_moves_has_no_shares(oracle: Any) -> None:
    assert _shares(oracle, Precision("plain", {}, dot_input={"float32": TF32})) == ()


def test_large_elements_do_not_speak_for_small_ones() -> None:
    def oracle(q: Any) -> Any:
        one, other = q[:1] * 1.1, np.exp(q[1:])
        return np.concatenate([1e20 * one, other])

    parts = {share.source.origin.text: share.part for share in _shares(oracle, leaves={"q": np.linspace(0.1, 1, 20)})}
    assert parts["np.exp(q[1:])"] > 0.9
