"""The README's example finds what the README says; the guide names every option, the page on CI every change."""

import re
import sys
import types
from pathlib import Path

import pytest

import kerneltest as kt
from kerneltest.api import Finding
from kerneltest.core.verdicts import Verdict
from kerneltest.pytest_plugin.run import OPTIONS
from kerneltest.records.diff import MEANING as CHANGES
from kerneltest.records.diff import REGRESSIONS

ROOT = Path(__file__).parent.parent
README, GUIDE, CI = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/guide.md", "docs/ci.md"))


def test_the_example_finds_what_the_readme_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    module = types.ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    exec(source, module.__dict__)
    result = kt.check(module.softmax_oracle)
    assert f"plans {result.cases} cases" in README
    counted = f"{result.cases - len(result.findings)} pass, {len(result.findings)} special_mismatch"
    assert counted in README
    assert any("\n".join(_told(finding)) in README for finding in result.findings)


def _told(finding: Finding) -> list[str]:
    lines = [f"  assert {finding.verdict.assertion}", *(f"  {line}" for line in finding.message.splitlines())]
    return [f"E   {line}" for line in (f"{finding.verdict}: {finding.family} in x, {finding.signature}", *lines)]


def test_the_page_on_ci_has_every_kind_of_change_and_what_fails() -> None:
    rows = re.findall(r"^\| (`.+?) \| (yes)? *\|", CI, re.MULTILINE)
    said = {kind: answer for kinds, answer in rows for kind in re.findall(r"`(.+?)`", kinds)}
    assert {kind for kind in CHANGES if said.get(kind)} == set(REGRESSIONS)
    assert all(f"`{kind}`" in CI for kind in CHANGES)


@pytest.mark.parametrize("option", OPTIONS)
def test_the_guide_has_every_option(option: str) -> None:
    assert f"`--{option.replace('_', '-')}` (`{option}`)" in GUIDE


def test_links_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "reports/README.md", *(ROOT / "docs").glob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))]
    broken = [(p.name, link) for p, link in links if "://" not in link and not (p.parent / link).exists()]
    assert len(links) > 10
    assert broken == []


def test_a_committed_page_is_small() -> None:
    assert (ROOT / "reports/h200/report.html").stat().st_size <= 600_000


def test_the_guide_uses_known_verdicts() -> None:
    table = GUIDE.split("| verdict | means |")[1].split("## ")[0]
    named = [word for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)]
    assert len(named) > 8
    assert set(named) <= set(Verdict)
