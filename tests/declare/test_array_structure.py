"""Structures of arrays: each holds in every family and dtype, stays when it holds already, and survives shrinking."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.core.dtypes import Array
from kerneltest.plan.cases import Case, signature_slots, value_cases
from kerneltest.plan.explicit import ExplicitCase
from kerneltest.plan.families import FAMILIES, GROUPS
from kerneltest.plan.signatures import signatures
from kerneltest.shrink.shrinker import _apply, candidate_arguments, to_integer, to_simplest, to_zero
from tests.sample import elementwise

structure = kt.structure


def _is_dominant(v: Array) -> bool:
    size = np.abs(v)
    return bool((2 * np.diagonal(size) > size.sum(axis=1)).all())


# By structure: whether an array (float64, rounded to bfloat16 before) has it.
HOLDS: dict[Callable[[Array], Array], Callable[[Array], Any]] = {
    structure.symmetric: lambda v: np.array_equal(v, v.T),
    structure.positive_definite: lambda v: np.array_equal(v, v.T) and np.linalg.eigvalsh(v).min(initial=1) > 0,
    structure.lower_triangular: lambda v: np.array_equal(v, np.tril(v)) and _is_dominant(v),
    structure.upper_triangular: lambda v: np.array_equal(v, np.triu(v)) and _is_dominant(v.T),
    structure.diagonal: lambda v: np.array_equal(v, np.diag(np.diagonal(v))),
    structure.orthogonal: lambda v: np.allclose(v @ v.T, np.eye(len(v)), atol=0.02),
    structure.stochastic: lambda v: (v >= 0).all() and np.allclose(v.sum(axis=1), 1, atol=0.02),
    structure.ascending: lambda v: (np.diff(v, axis=1) >= 0).all(),
    structure.one_signed: lambda v: (v >= 0).all() or (v <= 0).all(),
    structure.sparse(0.25): lambda v: np.count_nonzero(v) <= np.ceil(v.size / 4),
}
each_structure = pytest.mark.parametrize("made", HOLDS, ids=lambda made: made.__name__)


def _pairing(made: Any, kernel: Any, oracle: Any) -> kt.Pairing:
    return kt.oracle_for(kernel, x=kt.array("n n", ("float32", "bfloat16"), structure=made))(oracle)


@each_structure
def test_it_holds_in_every_family_and_stays_when_it_holds(made: Any) -> None:
    pairing = _pairing(made, lambda x: x, lambda x: x)
    families, different = set(), set()
    for dtype in ("float32", "bfloat16"):
        for group in GROUPS:
            for case in value_cases(pairing, "p", dtype, group, 0, "quick"):
                values = case.fill(pairing)["x"].astype(np.float64)
                assert np.isfinite(values).all()
                assert HOLDS[made](values), case
                assert np.array_equal(made(values), values), case
                families.add(case.family.name)
                different.add(values.tobytes())
    assert len(families) > 15
    assert len(different) > 20


@each_structure
def test_smaller_and_simpler_cases_have_it(made: Any) -> None:
    pairing = _pairing(made, lambda x: x, lambda x: x)
    large, *others = sorted(signatures(pairing, "quick"), key=lambda each: -dict(each.dims)["n"])
    filled = Case("p", "p", large, FAMILIES["normal"], "", 0).fill(pairing)
    case = ExplicitCase("p", large, filled)
    for small in others:
        found = list(candidate_arguments(pairing, case, small, {}, 0))
        assert found
        assert all(HOLDS[made](each["x"].astype(np.float64)) for each in found)
    slot = signature_slots(pairing, large)["x"]
    for simplify in (to_simplest, to_zero, to_integer):
        assert HOLDS[made](_apply(slot, simplify, filled["x"]).astype(np.float64))


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: kt.array("m n", structure=structure.symmetric), "a symmetric matrix is square: its last two axes are"),
        (lambda: kt.array("n", structure=structure.orthogonal), "a orthogonal matrix is square"),
        (lambda: kt.array("n n", structure="symmetric"), "structure= is one of kt.structure or a function, not 'symm"),
    ],
)
def test_what_cannot_have_it_is_refused(declare: Callable[[], Any], words: str) -> None:
    with pytest.raises(kt.DeclarationError, match=words):
        kt.oracle_for(lambda x: x, x=declare())(lambda x: x)
    with pytest.raises(ValueError, match="from 0 to 1, not 2"):
        structure.sparse(2)


def test_a_structure_that_changes_the_shape_is_the_authors_mistake() -> None:
    pairing = _pairing(lambda values: values[:1], lambda x: elementwise(lambda v: v, x), lambda x: x)
    found = kt.check(pairing, depth="quick").findings
    assert {str(each.verdict) for each in found} == {"oracle_error"}
    assert any("its structure= returned shape (1, 17) instead of (17, 17)" in each.message for each in found)
