"""Each public name has an example on a page of the docs, and those of docs/api.md run."""

import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kerneltest as kt
from kerneltest.backends.registry import REGISTRY
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.planning import plan_pairing  # noqa: F401 - also fills the registries, before they are put back
from kerneltest.plan.families import FAMILIES

DOCS = Path(__file__).parent.parent / "docs"


def _code(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module in which the examples of docs/api.md have run; what they register is forgotten."""
    registries: list[dict[Any, Any]] = [FAMILIES, INVARIANTS, REGISTRY]
    before = [dict(each) for each in registries]
    module = types.ModuleType("api")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(_code(DOCS / "api.md"), "api.md", "exec"), module.__dict__)
    yield module
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


def test_the_examples_of_the_reference_run(page: Any) -> None:
    assert "argument 'y'" in page.told
    page.test_double_conforms()
    families = set()
    for pairing in (page.double_oracle, page.pooled_oracle, page.exponentials):
        checked = kt.check(pairing, depth="quick")
        assert checked, pairing.name
        families |= {record.family for record in checked.records}
    assert {"staircase", "odd"} <= families
    counted = kt.check(page.double_oracle, depth="quick", backends=["lower:count"])
    assert counted
    assert {len(record.compiler_metrics) for record in counted.records} == {1}


def test_each_public_name_has_an_example() -> None:
    code = "\n".join(map(_code, DOCS.rglob("*.md")))
    models = [f"tolerance.{name}" for name, each in vars(kt.tolerance).items() if inspect.isfunction(each)]
    assert [name for name in (*kt.__all__, *models) if not re.search(rf"\bkt\.{re.escape(name)}\b", code)] == []
