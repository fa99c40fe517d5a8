"""Edits that are evaluated together have the results that each has alone."""

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from kerneltest.core.dtypes import ShapeDtype
from kerneltest.localize.equation_replay import EvaluatedKernel
from kerneltest.localize.repair_search import equation_repairs
from kerneltest.trace import machine
from kerneltest.trace.batched_interpreter.kernel_rules import BatchedKernel, KernelRules
from kerneltest.trace.tracing import trace_function


def _body(x_ref: Any, n_ref: Any, o_ref: Any) -> None:
    """A branch and a loop that depend on values, positions in arrays, and stores on top of stores."""
    i = pl.program_id(0)
    o_ref[...] = jnp.zeros((4,), jnp.float32)

    @pl.when(x_ref[0] + i > 0.5)
    def _() -> None:
        o_ref[...] += x_ref[...] * 2.0

    total = jax.lax.while_loop(lambda c: c[0] < n_ref[0], lambda c: (c[0] + 1, c[1] * 2.0 + c[0]), (0, 1.0))[1]
    at = (jnp.arange(4) + n_ref[0]) % 4
    o_ref[at] = jnp.where(at < 3, o_ref[...] + total, x_ref[at])


def _kernel(x: jax.Array, n: jax.Array) -> list[jax.Array]:
    block, scalar = pl.BlockSpec((4,), lambda i: (i,)), pl.BlockSpec((1,), lambda i: (0,))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return [pl.pallas_call(_body, grid=(2,), in_specs=[block, scalar], out_specs=block, out_shape=out)(x, n)]


def test_edits_have_the_same_results_together_and_alone() -> None:
    shapes = ShapeDtype((8,), np.dtype(np.float32)), ShapeDtype((1,), np.dtype(np.int32))
    leaves = [np.linspace(-1, 2, 8, dtype=np.float32), np.array([3], np.int32)]
    kernel = EvaluatedKernel(trace_function(_kernel, shapes, ""), None, {"n": 8})
    edits = [way for repair in equation_repairs(kernel) for way in repair.patches(kernel)][::8]
    before = kernel.run(leaves, rounded=True)[0]
    changed = 0
    for edit, together in zip(edits, kernel.run_all(leaves, edits, rounded=True), strict=True):
        try:
            alone = kernel.run(leaves, edit, rounded=True)
        except Exception:
            assert together is None
            continue
        assert together is not None
        np.testing.assert_array_equal(together[0][0], alone[0])
        changed += not np.array_equal(alone[0], before, equal_nan=True)
    assert changed > 10


def _narrow_body(x_ref: Any, o_ref: Any) -> None:
    """A cast that wraps, followed by arithmetic in its dtype."""
    narrow = (x_ref[...] * 50).astype(jnp.int8)
    o_ref[...] = (narrow >> 1).astype(jnp.int32) + jnp.sum(narrow)


def _narrow(x: jax.Array) -> list[jax.Array]:
    there = pl.BlockSpec((2,), lambda i: (jax.lax.cond(i > 1, lambda: 4 - i, lambda: i),))
    back = pl.BlockSpec((2,), lambda i: (i,))
    return [pl.pallas_call(_narrow_body, grid=(4,), in_specs=[there], out_specs=back, out_shape=x)(x)]


@pytest.mark.parametrize("rounded", [False, True])
def test_edits_have_the_results_of_the_edited_jaxpr(rounded: bool) -> None:
    traced = trace_function(_narrow, (ShapeDtype((8,), np.dtype(np.int32)),), "")
    kernel, leaves = EvaluatedKernel(traced, None, {"n": 8}), [np.arange(8, dtype=np.int32)]
    rules = KernelRules(promotes=True)
    edits = [way for repair in equation_repairs(kernel) for way in repair.patches(kernel)]
    unrounded = failed = 0
    for edit, together in zip(edits, kernel.run_all(leaves, edits, rounded=rounded), strict=True):
        try:
            if "_unrounded" in str(edit):  # it replaces no equation
                expected = kernel.run(leaves, edit, rounded=rounded)
                unrounded += not np.array_equal(expected[0], kernel.run(leaves, rounded=False)[0])
            else:
                equations = {id(each.equation): each.equations for each in edit(kernel.own)}
                jaxpr = kernel.own.rewrite(lambda site, of=equations: of.get(id(site.equation)))
                with jax.enable_x64(True):
                    expected = BatchedKernel(replace(traced, jaxpr=jaxpr), rules)([leaf[None] for leaf in leaves])[0]
        except Exception:
            assert together is None
            failed += 1
            continue
        assert together is not None
        np.testing.assert_array_equal(together[0][0], expected[0])
    assert unrounded == 1
    assert failed < len(edits) / 8


def _counting(x: jax.Array) -> list[jax.Array]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x_ref[...]), (0, x_ref[...]))[1]

    block = pl.BlockSpec((2,), lambda i: (i,))
    return [pl.pallas_call(body, grid=(16,), in_specs=[block], out_specs=block, out_shape=x)(x)]


def test_an_edit_with_an_endless_loop_is_given_up_for_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    iterations = 0

    def count(first: int) -> Iterator[int]:
        nonlocal iterations
        for number in itertools.count(first):
            iterations += 1
            yield number

    monkeypatch.setattr(machine, "itertools", SimpleNamespace(count=count))
    kernel = EvaluatedKernel(trace_function(_counting, (ShapeDtype((32,), np.dtype(np.float32)),), ""), None, {"n": 32})
    edits = [
        w
        for r in equation_repairs(kernel)
        if r.phrase in ("changing 1 to 0", "changing 3 to 2")
        for w in r.patches(kernel)
    ]
    leaves = [np.ones(32, np.float32)]
    runs = [outputs and outputs[0][0][0] for outputs in kernel.run_all(leaves, edits, rounded=True)]
    assert sorted(runs, key=str) == [3, None]
    assert iterations < 1000


def _products(x: jax.Array) -> list[jax.Array]:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.sum(x_ref[...][:, None] * x_ref[...][None, :], axis=1)

    return [pl.pallas_call(body, out_shape=x)(x)]


def test_edits_of_large_values_that_are_not_outputs_are_not_all_evaluated_at_once() -> None:
    traced = trace_function(_products, (ShapeDtype((256,), np.dtype(np.float32)),), "")
    kernel = EvaluatedKernel(traced, None, {"n": 256})
    edits = [way for repair in equation_repairs(kernel) for way in repair.patches(kernel)] * 3
    tracemalloc.start()
    try:
        assert len(list(kernel.run_all([np.ones(256, np.float32)], edits, rounded=False))) > 40
        assert tracemalloc.get_traced_memory()[1] < 24 * 256**2 * 8
    finally:
        tracemalloc.stop()
