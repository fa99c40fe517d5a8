"""A pairing that is asked little says so when it is planned, and others do not."""

from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.registry import resolve
from kerneltest.execute.planning import build_plan, plan_pairing
from kerneltest.execute.settings import RunSettings
from kerneltest.plan.cases import find_shortfalls
from tests.sample import double

X = kt.array("n", "float32")
DERIVED = kt.derived("n", lambda n: [1.0] * n, dtypes="float32")


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (dict(x=X), ""),
        (dict(x=X, dims=dict(n=kt.dim(values=(5,)))), ""),
        (dict(x=X, where=lambda n: n > 1), ""),
        (
            dict(x=X, where=lambda n: n == 64),
            "n has 1 of its 7 boundary lengths (64), since where= excludes the others",
        ),
        (dict(x=DERIVED), "no family of values fills its arrays, which are keys or follow from others"),
    ],
)
def test_the_plan_says_what_is_asked_little_and_why(declared: dict[str, Any], words: str) -> None:
    pairing = kt.oracle_for(double, **declared)(lambda x: x + x)
    found = list(find_shortfalls(pairing, "standard"))
    assert (found[0] if found else "").startswith(words)
    assert bool(found) == bool(words)
    settings = RunSettings(depth="standard")
    planned = plan_pairing(pairing, "test_x.py::p", resolve(["interpret"]), settings)
    plan = build_plan([planned], planned.items, [item.name for item in planned.items], settings, run="r")
    assert (f"test_x.py::p is asked little: {words}" in plan.environment.get("warning", "")) == bool(words)
