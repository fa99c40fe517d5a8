"""The plan says once which backends kernels lose with JAX's Triton backend."""

import numpy as np
import pytest

import kerneltest as kt
from kernels.pipeline_copy import pipeline_copy
from kernels.vector_add import vector_add
from kerneltest.backends.registry import resolve
from kerneltest.execute import planning
from kerneltest.execute.planning import build_plan, plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.records.run_plan import Plan

X = kt.array("n", "float32")
SQUARE = {"m": kt.dim(values=(64,)), "n": kt.dim(values=(64,))}
BACKENDS = ("interpret", "lower:sm_90", "simulate:gfx942", "lower:tpu-v5e")


def _triton() -> kt.Pairing:
    return kt.oracle_for(vector_add, x=X, y=X, dims={"n": kt.dim(values=(64,))})(np.add)


def _mosaic() -> kt.Pairing:
    return kt.oracle_for(pipeline_copy, x=kt.array("m n", "float32"), dims=SQUARE)(lambda x: x)


def _plan(*pairings: kt.Pairing) -> Plan:
    settings = RunSettings(depth="quick")
    plans = [plan_pairing(each, f"a.py::{n}", resolve(BACKENDS), settings) for n, each in enumerate(pairings)]
    items = [item for each in plans for item in each.items]
    return build_plan(plans, items, [item.name for item in items], settings, run="r")


@pytest.fixture
def deprecated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TRITON_IS_DEPRECATED", True)


@pytest.mark.usefixtures("deprecated")
def test_the_tiers_that_go_with_triton_are_named_once() -> None:
    said = _plan(_mosaic(), _triton(), _triton()).environment["deprecated"]
    assert "2 pairings, the first a.py::1, will then lose lower:sm_90, simulate:gfx942: docs/how-to/mosaic" in said
    assert "and pairing a.py::0, will then lose" in _plan(_triton()).environment["deprecated"]


@pytest.mark.usefixtures("deprecated")
def test_kernels_of_other_languages_lose_nothing() -> None:
    assert "deprecated" not in _plan(_mosaic()).environment


def test_an_older_jax_does_not_deprecate_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TRITON_IS_DEPRECATED", False)
    assert "deprecated" not in _plan(_triton()).environment
