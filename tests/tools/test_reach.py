"""tools/reach.py counts the lines and mutants that fast tests reach, and those that only slow tests do."""

import shutil
import sys
from pathlib import Path

import pytest

from tools import reach

PACKAGE = '''
def least(x):
    """A docstring is no statement."""
    if x < 3 and x:
        return x
    found = []
    found.append(7)
    return found[0]
'''
TESTS = """
import pytest
from kerneltest.core.bounds import least

def test_fast():
    assert least(2) == 2

@pytest.mark.slow
def test_slow():
    assert least(5) == 7

@pytest.mark.parametrize("wrong", ["a - b"])
def test_that_fails(wrong):
    assert False
"""


def test_mutants_of_a_function() -> None:
    changes = {(line, change) for line, change, _ in reach.mutants(PACKAGE.encode())}
    assert changes == {
        (4, "x < 3 and x -> (x < 3 or x)"),
        (4, "x < 3 -> (x >= 3)"),
        (4, "3 -> (4)"),
        (5, "return x -> return None"),
        (7, "found.append(7) -> pass"),
        (7, "7 -> (8)"),
        (8, "return found[0] -> return None"),
        (8, "0 -> (1)"),
    }
    texts = [text for line, change, text in reach.mutants(PACKAGE.encode()) if change.startswith("x < 3 ->")]
    assert texts == [PACKAGE.replace("x < 3", "(x >= 3)").encode()]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_fast_tests_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"kerneltest/core/bounds.py": PACKAGE, "kerneltest/core/__init__.py": "", "kerneltest/__init__.py": ""}
    for file, text in {**files, "tests/test_bounds.py": TESTS}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    (tmp_path / "tools").mkdir()
    shutil.copy(reach.ROOT / "tools/reach_monitor.py", tmp_path / "tools")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow: slow']\n", encoding="utf-8")
    monkeypatch.setattr(reach, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["reach", "--mutants", "9", "--jobs", "2", "--state", str(tmp_path / "state")])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    reach.main()
    said = capsys.readouterr().out
    assert "fast tests execute 5 of the 8 lines that any test executes" in said
    assert "fails without a mutant: tests/test_bounds.py::test_that_fails[a" in said
    assert "4 mutants: 2 killed by fast tests, 2 by slow tests only, 0 survived all, 0 unfinished" in said
