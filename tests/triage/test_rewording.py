"""Triage reads data: another wording of every message changes no suspect, count, difference or attribution."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kerneltest.records.runs import read_runs
from kerneltest.records.schema import Record
from kerneltest.triage.attribution import attributions
from kerneltest.triage.run_comparison import compare_runs
from kerneltest.triage.suspects import Suspect, find_suspects
from tests.written import write_run

BACKENDS = ["interpret", "lower:sm_90", "lower:tpu-v5e", "simulate:sm_90"]


def _softmax(x: jax.Array) -> jax.Array:
    """Gives NaN for a row of -inf, and has a length for which no block of Triton's exists."""

    def row(x_ref, o_ref):  # type: ignore[no-untyped-def]
        e = jnp.exp(x_ref[...] - x_ref[...].max())
        o_ref[...] = e / e.sum()

    block = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(row, out_shape=x, grid=(x.shape[0],), in_specs=[block], out_specs=block)(x)


def _softmax_oracle(x: np.ndarray) -> np.ndarray:
    maximum = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _copy(x: jax.Array) -> jax.Array:
    """Reads and writes past the end where its block does not divide the length, and races for the last element."""

    def block(x_ref, o_ref):  # type: ignore[no-untyped-def]
        start = pl.program_id(0) * 16
        o_ref[pl.ds(start, 16)] = x_ref[pl.ds(start, 16)]

    return pl.pallas_call(block, out_shape=x, grid=(pl.cdiv(x.shape[0], 16),))(x)


def _raises(x: jax.Array) -> jax.Array:
    if x.shape[0] == 3:
        raise ValueError(f"cannot take {x.shape}")
    return _copy(x)


def _pairings() -> list[kt.Pairing]:
    blocked, broken = dict(n=kt.dim(values=(1, 16, 20))), dict(n=kt.dim(values=(3, 16)))
    return [
        kt.oracle_for(_softmax, x=kt.array("m n", "float32"))(_softmax_oracle),
        kt.oracle_for(_copy, x=kt.array("n", "float32"), dims=blocked)(lambda x: x),
        kt.oracle_for(_raises, x=kt.array("n", "float32"), dims=broken)(lambda x: x + (len(x) > 3)),
    ]


@pytest.fixture(scope="module")
def records() -> tuple[Record, ...]:
    found: list[Record] = []
    for number, pairing in enumerate(_pairings()):
        result = kt.check(pairing, backends=BACKENDS, depth="quick")
        found += (replace(record, pairing=f"t.py::p{number}") for record in result.records)
    return tuple(found)


def _reword(records: Sequence[Record]) -> tuple[Record, ...]:
    rng = random.Random(0)
    words = ["zebra", "at k.py:3", "load at x[3]", "3 of 4 elements wrong", "by x: ", "left out: "]
    return tuple(
        replace(record, message=f"{rng.choice(words)} {record.message} {rng.choice(words)}")
        if record.message
        else record
        for record in records
    )


def _shown(suspect: Suspect) -> tuple[object, ...]:
    findings = [(record.case, record.backend) for record in suspect.findings]
    return suspect.id, suspect.effect, suspect.subject, suspect.condition, suspect.pattern, suspect.lines, findings


def test_suspects_and_attributions_are_the_same(records: tuple[Record, ...]) -> None:
    reworded = _reword(records)
    before, after = find_suspects(records, {}), find_suspects(reworded, {})
    assert len(before) >= 5
    assert list(map(_shown, before)) == list(map(_shown, after))
    assert attributions(records) == attributions(reworded)


def test_a_comparison_finds_no_change(records: tuple[Record, ...], tmp_path: Path) -> None:
    old, new = (write_run(tmp_path / name, *each) for name, each in (("a", records), ("b", _reword(records))))
    comparison = compare_runs(read_runs(old), read_runs(new))
    assert not comparison.changes
    assert {str(each.fate) for each in comparison.suspects} == {"still there"}
    old_run, new_run = read_runs(old)[0], read_runs(new)[0]
    assert old_run.reconciled == new_run.reconciled
