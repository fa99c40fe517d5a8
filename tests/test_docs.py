"""The README's example finds what the README says, and the guide names every option."""

import re
import sys
import types
from pathlib import Path

import pytest

import kerneltest as kt
from kerneltest.pytest_run import OPTIONS
from kerneltest.verdicts import MEANING

ROOT = Path(__file__).parent.parent
README, GUIDE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/guide.md"))


def test_the_example_finds_what_the_readme_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    module = types.ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    exec(source, module.__dict__)
    result = kt.check(module.softmax_oracle)
    assert f"plans {result.cases} cases" in README
    counted = f"{result.cases - len(result.findings)} pass, {len(result.findings)} special_mismatch"
    assert counted in README
    assert any(f"{f.verdict}: {f.family} in x, {f.signature}\n  {f.message}" in README for f in result.findings)


@pytest.mark.parametrize("option", OPTIONS)
def test_the_guide_has_every_option(option: str) -> None:
    assert f"`--{option.replace('_', '-')}` (`{option}`)" in GUIDE


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "reports/README.md", *(ROOT / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))]
    broken = [(p.name, link) for p, link in links if "://" not in link and not (p.parent / link).exists()]
    assert len(links) > 10
    assert broken == []


def test_the_guide_uses_known_verdicts() -> None:
    table = GUIDE.split("| verdict | means |")[1].split("## ")[0]
    named = [word for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)]
    assert len(named) > 8
    assert set(named) <= set(MEANING)
