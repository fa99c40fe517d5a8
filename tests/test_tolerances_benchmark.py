"""The page of the benchmark of tolerances repeats its results, of several files too."""

from typing import Any

import pytest

from benchmarks.tolerances_report import WHY, markdown
from tests.corpus import VARIANTS

LOST = next(iter(WHY))
FOUND = next(v.name for v in VARIANTS if v.name not in WHY)


def _result(name: str, **changes: Any) -> dict[str, Any]:
    task = dict(what="right", name=name, model="rounding", backends=["interpret"], depth="quick", seed=0)
    task |= {key: changes.pop(key) for key in task.keys() & changes.keys()}
    result = dict(
        task=task,
        backend="interpret",
        cases=100,
        findings=0,
        used=0.25,
        family="normal",
        empty=0,
        seconds=10.0,
        oracle=2.0,
        messages=[],
        notes=[],
    )
    return result | changes


def _file(*results: dict[str, Any], device: str = "cpu") -> dict[str, Any]:
    return {"environment": {"JAX": "0", "devices": device}, "took": 60.0, "results": list(results)}


def _rows(page: str, heading: str) -> dict[tuple[str, ...], list[str]]:
    """The cells of the table under a heading, by those of its first columns that are names."""
    section = page.split(f"## {heading}")[1].split("\n## ")[0]
    lines = [
        [cell.strip(" `") for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    return {tuple(cells[:2]): cells for cells in lines[2:]}


def test_runs_of_several_seeds_and_machines_add_up() -> None:
    beside = _result("softmax.fused", model="conditioned", findings=4, used=3.0)
    page = markdown(
        [
            _file(_result("softmax.fused"), beside),
            _file(
                _result("softmax.fused", seed=1, used=0.5, family="ties"),
                _result("softmax.fused", backend="cuda", findings=1, messages=["ties m=1: off\nby much"]),
                device="H200",
            ),
        ]
    )
    rows = _rows(page, "Right kernels")
    assert rows["softmax.fused", "interpret"][2:] == ["200", "0", "0.5 (ties)", "3, 4 accused", "20%"]
    assert rows["softmax.fused", "cuda"][2:] == ["100", "1", "0.25 (normal)", "–", "20%"]
    totals = {name: cells for (name, _), cells in _rows(page, "By backend").items()}
    assert totals["interpret"][1:] == ["200", "0", "0", "4 of 100", "–"]
    assert "300 cases of right kernels, 1 accused" in page
    assert "- softmax.fused, `cuda`, seed 0: ties m=1: off by much" in page
    assert "devices H200: right kernels at depth quick, seeds 0 to 1; 60 s" in page


def test_a_run_that_is_kept_twice_is_refused() -> None:
    file = _file(_result("softmax.fused"))
    with pytest.raises(ValueError, match=r"softmax\.fused by rounding on interpret, seed 0 is kept twice"):
        markdown([file, file])


def test_a_run_on_several_backends_is_paid_once() -> None:
    both = [_result("a.b", backend=b, seconds=10.0, oracle=4.0) for b in ("interpret", "cuda")]
    page = markdown([_file(*both, _result("c.d", seconds=30.0, oracle=0.0))])
    assert "with all samples: 10% over all" in page


def test_what_no_backend_ran_and_what_is_not_followed_is_said() -> None:
    page = markdown([_file(_result("a.b", notes=["rounding(): tolist() is not followed"]), _result("c.d", cases=0))])
    assert "No backend here runs c.d." in page
    assert "- a.b: rounding(): tolist() is not followed" in page


def test_a_lost_twin_has_its_reason() -> None:
    twins = [
        _result(FOUND, what="twins", findings=3),
        _result(FOUND, what="twins", findings=0, backend="cuda"),
        _result(LOST, what="twins"),
        _result(LOST, what="twins", findings=2, backend="simulate:sm_90", cases=9),
        _result("x.y: nobody knows", what="twins"),
    ]
    page = markdown([_file(*twins)])
    rows = {name: cells[1:] for (name, _), cells in _rows(page, "Broken twins").items()}
    assert "Broken twins: 2 of 3 found" in page
    assert rows[LOST] == ["–", "**no**", "found", WHY[LOST]]
    assert rows[FOUND] == ["**no**", "found", "–", "not explained"]
    assert rows["x.y: nobody knows"] == ["–", "**no**", "–", "not explained"]
    assert {name: cells[-1] for (name, _), cells in _rows(page, "By backend").items()} == {
        "cuda": "0 of 1",
        "interpret": "1 of 3",
        "simulate:sm_90": "1 of 1",
    }


def test_what_is_explained_is_a_variant() -> None:
    assert set(WHY) <= {variant.name for variant in VARIANTS}
