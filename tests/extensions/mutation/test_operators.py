"""Each operator applies somewhere, makes a kernel that runs, and changes its results."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from kerneltest.backends.interpret import evaluate
from kerneltest.core.dtypes import Array, ShapeDtype
from kerneltest.extensions.mutation.mutants import KernelMutant, apply_mutant, find_mutants, mutate_trace
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.localize.sites import locate_equations
from kerneltest.trace.tracing import Traced, trace_function
from kerneltest.trace.walk import iter_equations
from tests.extensions.mutation.kernels_with_everything import KERNELS

UNSEEN = {"synchronisation-dropped"}  # kernels with copies do not run in NumPy


def _traced(name: str) -> tuple[Traced, list[Any]]:
    function, leaves = KERNELS[name]
    inputs = tuple(ShapeDtype(leaf.shape, leaf.dtype) for leaf in leaves)
    return trace_function(lambda *xs: [function(*xs)], inputs, "for a test"), leaves


@pytest.fixture(scope="module")
def mutants() -> dict[str, list[tuple[str, KernelMutant]]]:
    found: dict[str, list[tuple[str, KernelMutant]]] = {each.name: [] for each in OPERATORS.entries()}
    for name in KERNELS:
        located = locate_equations(_traced(name)[0].jaxpr)
        for mutant in dict.fromkeys(find_mutants(located, OPERATORS.entries())):
            found[mutant.operator].append((name, mutant))
    return found


def _run(traced: Traced, leaves: Sequence[Any]) -> Array:
    evaluation = evaluate(traced)
    assert evaluation is not None
    with np.errstate(all="ignore"):
        return evaluation.run(leaves)[0]


def test_there_are_at_least_28_each_with_the_bug_it_stands_for() -> None:
    operators = OPERATORS.entries()
    assert len(operators) >= 28
    assert all(operator.mistake for operator in operators)
    assert len({operator.mistake for operator in operators}) == len(operators)


@pytest.mark.parametrize("operator", [each.name for each in OPERATORS.entries()])
def test_an_operator_changes_a_kernel(operator: str, mutants: dict[str, list[tuple[str, KernelMutant]]]) -> None:
    assert mutants[operator], f"none of the kernels has a place for {operator}"
    differs = False
    for name, mutant in mutants[operator]:
        traced, leaves = _traced(name)
        original = mutate_trace(traced, locate_equations(traced.jaxpr))
        changed = apply_mutant(original.jaxpr, mutant)
        assert changed is not None
        mutated = mutate_trace(original, changed)
        assert mutated.outputs == original.outputs
        if operator not in UNSEEN and not differs:
            try:
                got = _run(mutated, leaves)
            except Exception as error:  # it leaves its arrays
                differs = "outside" in str(error) or "block" in str(error)
            else:
                differs = got.tobytes() != _run(original, leaves).tobytes()
    assert differs or operator in UNSEEN


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "copies"])
def test_a_kernel_with_located_equations_is_the_same_kernel(name: str) -> None:
    traced, leaves = _traced(name)
    located = mutate_trace(traced, locate_equations(traced.jaxpr))
    assert _run(located, leaves).tobytes() == np.asarray(_run(traced, leaves)).tobytes()


def test_a_mutant_is_the_same_at_all_lengths() -> None:
    def scaled(x: Any) -> Any:
        return [jax.numpy.where(x > 0, x * 2.0, x)]

    found = []
    for length in (3, 8):
        traced = trace_function(scaled, (ShapeDtype((length,), np.dtype(np.float32)),), "for a test")
        located = locate_equations(traced.jaxpr)
        found.append(sorted(set(find_mutants(located, OPERATORS.entries()))))
        changed = apply_mutant(located, found[0][0])
        assert changed is not None
    assert found[0] == found[1]
    assert {mutant.file.rpartition("/")[2] for mutant in found[0]} == {"test_operators.py"}


def test_a_wait_that_is_dropped_is_gone(mutants: dict[str, list[tuple[str, KernelMutant]]]) -> None:
    (wait,) = (m for name, m in mutants["synchronisation-dropped"] if name == "copies" and m.primitive == "dma_wait")
    located = locate_equations(_traced("copies")[0].jaxpr)
    changed = apply_mutant(located, wait)
    assert changed is not None
    names = [equation.primitive.name for equation, _ in iter_equations(changed)]
    assert "dma_wait" not in names
    assert "dma_start" in names


def test_the_operator_of_the_page_makes_a_mutant(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "mutation.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setattr(OPERATORS, "_registered", dict(OPERATORS._registered))
    exec(source, {"__name__": "of_the_page"})
    operator = OPERATORS.get("square-dropped")
    assert operator is not None
    assert operator.mistake == "A sum of squares lacks the squares"
    traced = trace_function(lambda x: [jax.lax.square(x)], (ShapeDtype((3,), np.dtype(np.float32)),), "for a test")
    (mutant,) = find_mutants(traced.jaxpr, [operator])
    changed = apply_mutant(traced.jaxpr, mutant)
    assert changed is not None
    x = np.array([1, 2, 3], np.float32)
    assert np.array_equal(mutate_trace(traced, changed).function(x)[0], x)
