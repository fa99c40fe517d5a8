"""An evaluation in NumPy is used only after it has given what JAX's interpreter and compiled code give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerneltest.backends.base import ContradictedError
from kerneltest.backends.jitted import NumpyPath
from kerneltest.core.failures import Failure
from kerneltest.core.precision import XLA_CPU
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.batching import agree_within

LEAVES = [np.ones(3, np.float32)]


@dataclass(frozen=True)
class Evaluated:
    """An evaluation that is, or is not, as JAX's interpreter."""

    faithful: bool = True
    kinds: frozenset[Any] = frozenset({"add"})
    precision = XLA_CPU

    def run(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(leaves)

    def run_jax_interpreter(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(leaves) if self.faithful else tuple(leaf + 1 for leaf in leaves)


class Compiler:
    def __init__(self, fails: bool = False) -> None:
        self.compiled, self.evaluated, self.fails = 0, 0, fails

    def __call__(self, traced: Any) -> Any:
        self.compiled += 1
        if self.fails:
            raise Failure(Verdict.RUNTIME_ERROR, "the kernel raised")
        return Evaluated()

    def count(self) -> None:
        self.evaluated += 1


def _checked(path: NumpyPath, traced: Any, agrees: bool = True) -> bool:
    try:
        return path.prepare_checked(traced, lambda: LEAVES, lambda outputs, wanted, precision: agrees) is not None
    except ContradictedError:
        return False


def test_compiled_code_is_compared_once_and_each_kernel_is_evaluated_once() -> None:
    compiler = Compiler()
    path = NumpyPath(lambda traced: Evaluated(), compiler, compiler.count)
    one, other = object(), object()
    assert [_checked(path, each) for each in (one, one, other)] == [True] * 3
    assert (compiler.compiled, compiler.evaluated) == (1, 2)
    assert path.is_trusted(one)


def test_after_a_disagreement_with_compiled_code_nothing_is_trusted() -> None:
    compiler = Compiler()
    path = NumpyPath(lambda traced: Evaluated(), compiler, compiler.count)
    assert not path.is_contradicted("one")
    assert not _checked(path, "one", agrees=False)
    assert not _checked(path, "other")
    assert path.is_contradicted("one")
    assert path.is_contradicted("other")
    assert (compiler.compiled, compiler.evaluated) == (1, 1)


def test_an_unfaithful_evaluation_costs_its_own_signature_only() -> None:
    compiler = Compiler()
    path = NumpyPath(lambda traced: Evaluated(traced != "wrong"), compiler, compiler.count)
    assert not _checked(path, "wrong")
    assert not compiler.compiled
    assert _checked(path, "right")
    assert not path.is_contradicted("wrong")


def test_jax_is_asked_only_where_equations_are_of_a_new_kind() -> None:
    asked = []

    class Asked(Evaluated):
        def run_jax_interpreter(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
            asked.append(self.kinds)
            return super().run_jax_interpreter(leaves)

    kinds = {"one": {"add"}, "two": {"add"}, "more": {"add", "mul"}, "wrong": {"exp"}, "known": {"add"}}
    compiler = Compiler()
    path = NumpyPath(lambda traced: Asked(traced != "wrong", frozenset(kinds[traced])), compiler, compiler.count)
    assert [_checked(path, each) for each in kinds] == [True, True, True, False, True]
    assert asked == [{"add"}, {"add", "mul"}, {"exp"}, {"add"}]  # after a wrong one, nothing is taken for granted


def test_a_kernel_whose_compiled_code_fails_is_not_trusted() -> None:
    compiler = Compiler(fails=True)
    path = NumpyPath(lambda traced: Evaluated(), compiler, compiler.count)
    with pytest.raises(Failure):
        _checked(path, "one")
    assert not _checked(path, "one")
    assert not path.is_trusted("one")


def test_a_kernel_that_needs_a_compiler_is_not_covered() -> None:
    compiler = Compiler()
    path = NumpyPath(lambda traced: None, compiler, compiler.count)
    assert not path.covers("one")
    assert not _checked(path, "one")
    assert not compiler.evaluated


@pytest.mark.parametrize(("steps", "agrees"), [(1, True), (2, False)])
def test_two_runs_near_a_tie_may_be_rounded_to_its_two_sides(steps: int, agrees: bool) -> None:
    """Each is within half a step of the oracle, and a little more."""
    one = np.ones(1, ml_dtypes.bfloat16)
    other = (one.view(np.uint16) + steps).view(one.dtype)
    assert agree_within((np.array([2.0**-8 + 1e-6]),), (one,), (other,)) == agrees
    assert not agree_within((np.zeros(1),), (one,), (other,))
