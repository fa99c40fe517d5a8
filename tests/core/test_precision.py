"""The table of precisions, which must not claim more accuracy than this machine has."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import function_errors
from kerneltest.backends import device
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import TF32, ShapeDtype
from kerneltest.core.precision import (
    AMD,
    FLOAT32,
    NVIDIA,
    SIMULATED,
    TPU,
    XLA_AMD,
    XLA_CPU,
    XLA_NVIDIA,
    Precision,
    Ulps,
)
from kerneltest.numerics.bounds import Bound
from kerneltest.trace.tracing import trace_function
from tests.sample import double
from tests.simulated import TARGETS, elementwise_block, simulated

ROWS = (XLA_CPU, NVIDIA, AMD, SIMULATED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_states_every_function_with_its_source(row: Precision) -> None:
    assert set(row.ulps) == set(NVIDIA.ulps)
    assert all(errors.relative >= 0.5 and errors.source for errors in row.ulps.values())
    assert row.flushing <= set(row.ulps)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_oracle_that_divides_by_a_root_allows_for_a_reciprocal_root(row: Precision) -> None:
    assert row.ulps["rsqrt"].relative <= row.ulps["sqrt"].relative + row.ulps["divide"].relative


def test_rows_have_names_of_their_own_and_can_be_keys() -> None:
    made = [*ROWS, XLA_NVIDIA, XLA_AMD, NVIDIA.with_exact_dots(), SIMULATED.combine(XLA_CPU)]
    assert len({row.name for row in made}) == len(made)
    assert {row: row.name for row in made}[replace(NVIDIA)] == "NVIDIA"


def test_an_error_counts_from_the_result_from_one_and_from_the_argument() -> None:
    assert Ulps(2.0).error(np.array([1.0, 3.0])).tolist() == [2 * 2.0**-23, 2 * 2.0**-22]
    assert Ulps(0.5, absolute=3.0).error(np.array(0.0)) == 0.5 * FLOAT32.smallest_subnormal + 3 * 2.0**-23
    assert Ulps(1.0, argument=2.0).error(np.array(1.0), moved=0.25) == 2.0**-23 + 0.25


# `interpret` divides as it is written, except in kernels with functions that need XLA's simplifier, as tanh does.
QUOTIENTS = ("divide by 7.0", "divide by 7.0, with tanh")


def _measured(name: str, row: Precision, monkeypatch: pytest.MonkeyPatch) -> list[function_errors.Measured]:
    monkeypatch.setattr(function_errors, "COUNT", 2**14)
    places = [replace(place, row=row) for place in function_errors.places(jax.devices("cpu")[0])]
    found = [each for each in function_errors.measure(places, [name]) if not isinstance(each, str)]
    assert [each.place for each in found] == ["XLA, CPU", "Pallas, interpreted"]
    return found


@pytest.mark.parametrize("name", ["add", "exp", "exp2", "log", "tanh", *QUOTIENTS, "power by 20", "logaddexp"])
def test_the_row_of_xla_allows_what_xla_does_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(each.allowed for each in _measured(name, XLA_CPU, monkeypatch))


@pytest.mark.parametrize("name", ["exp2", "log", "tanh", QUOTIENTS[1], "power by 20", "logaddexp"])
def test_an_error_beyond_the_row_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = replace(XLA_CPU, ulps=dict.fromkeys(XLA_CPU.ulps, Ulps(0.5)))
    assert not any(each.allowed for each in _measured(name, strict, monkeypatch))


def test_flushing_that_a_row_does_not_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = replace(XLA_CPU, flushes=False)
    for name in ("square", "exp"):
        assert all(each.gives_zero and not each.allowed for each in _measured(name, keeping, monkeypatch))
    stated = replace(keeping, flushing=frozenset({"exp"}))
    assert all(each.allowed for each in _measured("exp", stated, monkeypatch))


COMPOSED: dict[str, tuple[Any, ...]] = {
    "exp": (jnp.exp, np.exp),
    "log2": (jnp.log2, np.log2),
    "log10": (jnp.log10, np.log10),
    "expit": (jax.nn.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "hypot": (jnp.hypot, np.hypot),
    "logaddexp": (jnp.logaddexp, np.logaddexp),
    "logaddexp2": (jnp.logaddexp2, np.logaddexp2),
}


@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("name", COMPOSED)
def test_the_row_of_the_simulator_allows_what_it_does(name: str, backend: str) -> None:
    computed, true = COMPOSED[name]
    count = 2 if name in ("hypot", "logaddexp", "logaddexp2") else 1
    operands = [np.random.default_rng(i).uniform(-4, -0.1, 4096).astype(np.float32) for i in range(count)]
    operands = [np.abs(x) for x in operands] if name.startswith("log1") or name == "log2" else operands
    (got,) = simulated(elementwise_block(computed), operands, backend)
    expected = true(*(x.astype(np.float64) for x in operands))
    used = np.abs(got.astype(np.float64) - expected) / SIMULATED.ulps[name].error(expected)
    assert 0.1 < used.max() <= 1


def test_exact_products_keep_the_rest() -> None:
    exact = NVIDIA.with_exact_dots()
    assert NVIDIA.operand_roundoff("float32") == 2.0**-11
    assert exact.operand_roundoff("float32") == NVIDIA.operand_roundoff("bfloat16") == 0
    assert (exact.ulps, exact.flushing, exact.accumulate) == (NVIDIA.ulps, NVIDIA.flushing, NVIDIA.accumulate)
    assert XLA_CPU.with_exact_dots() is XLA_CPU


def test_dropped_bits_cost_twice_as_much_as_rounded_ones() -> None:
    nearest = Precision("nearest", {}, dot_input={"float32": TF32})
    dropping = replace(nearest, truncates=True)
    zero = np.zeros(1)
    bound = Bound(zero, products=np.ones(1), operands=zero)
    assert bound.at(nearest) == 2 * 2.0**-11 + 2.0**-22
    assert bound.at(dropping) == 2 * 2.0**-10 + 2.0**-20
    assert bound.at(nearest.with_exact_dots()) == 0


def test_two_machines_side_by_side_have_the_larger_errors_of_both() -> None:
    one = Precision("one", {"exp": Ulps(2, source="a"), "sin": Ulps(1)}, flushing=frozenset({"exp"}))
    other = Precision("other", {"exp": Ulps(1, absolute=3, argument=1, source="b"), "cos": Ulps(4)}, flushes=True)
    both = one.combine(other)
    assert both.ulps == {"exp": Ulps(2, 3, 1, "a or b"), "sin": Ulps(1), "cos": Ulps(4)}
    assert both.flushes
    assert both.flushing == {"exp"}


@pytest.mark.parametrize(("name", "inside", "around"), [("cuda", NVIDIA, XLA_NVIDIA), ("rocm", AMD, XLA_AMD)])
def test_a_device_has_its_row_and_that_of_what_stands_around_the_calls(
    name: str, inside: Precision, around: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "compile_for", lambda traced, place, precision, **_: precision)
    monkeypatch.setattr(device, "kernel_device", lambda platform: platform)
    (backend,) = resolve([name])

    def row(kernel: Any) -> Any:
        return backend.prepare(trace_function(lambda x: [kernel(x)], (ShapeDtype((64, 64), np.dtype("float32")),), ""))

    one = elementwise_block(lambda x: x @ x)
    assert row(one) == inside
    assert row(elementwise_block(jnp.exp)) == inside.with_exact_dots()
    assert row(lambda x: one(x + x)) == inside.combine(around)


def test_the_simulator_flushes_where_xla_computes_around_the_calls() -> None:
    (backend,) = resolve(["simulate:sm_90"])
    x = np.full(128, 1e-40, np.float32)
    for kernel, row in ((lambda x: double(x), SIMULATED), (lambda x: double(x) + x, SIMULATED.combine(XLA_CPU))):
        traced = trace_function(lambda x, kernel=kernel: [kernel(x)], (ShapeDtype(x.shape, x.dtype),), "")
        executable: Any = backend.prepare(traced)
        assert executable.precision == row.with_exact_dots()
        assert row.flushes or executable.run([x])[0].all()


def test_the_documented_table_is_this_one() -> None:
    page = (Path(__file__).parents[2] / "reports/precision/README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:3] == "| `"]
    rows = [cells for cells in rows if len(cells) == 1 + len(ROWS)]  # and not those of what was measured
    documented = {cells[0].strip("`"): cells[1:] for cells in rows if cells[0].strip("`") in NVIDIA.ulps}
    assert documented == {name: [_shown(row.ulps[name]) for row in ROWS] for name in NVIDIA.ulps}


def test_the_page_on_tolerances_has_the_machines_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/tolerances.md").read_text(encoding="utf-8")
    machines = page.partition("\n## The machines\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `.+` \| .+ \| ([\d.]+) \| (.+) \|$", machines, re.MULTILINE)
    formats = {2.0**-10: "TF32, rounded or cut off", 2.0**-11: "TF32", 2.0**-8: "bfloat16", 0.0: "kept"}
    stated = [(f"{row.ulps['exp'].relative:g}", formats[row.operand_roundoff("float32")]) for row in ROWS]
    assert shown == [*stated, ("4.5", formats[TPU.operand_roundoff("float32")])]


def _shown(errors: Ulps) -> str:
    absolute = f" + {errors.absolute:g} at 1" if errors.absolute else ""
    return f"{errors.relative:g}{absolute}" + (f" + {errors.argument:g} of x" if errors.argument else "")
