"""`kerneltest repro` imports a suite as pytest does, and only a file that pytest collects."""

import sys
from pathlib import Path

import pytest

from kerneltest.reproduce.rerun import SuiteImportError, import_suite

TRACE = "from pathlib import Path\nPath('trace').touch()\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose conftest.py makes a folder importable, as those of kernels do."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n", encoding="utf-8")
    (tmp_path / "gpu").mkdir()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "found_by_conftest.py").write_text("WIDTH = 8\n", encoding="utf-8")
    conftest = "import sys\nfrom pathlib import Path\nsys.path.append(str(Path(__file__).parent.parent / 'hidden'))\n"
    (tmp_path / "gpu" / "conftest.py").write_text(conftest, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_suite_finds_what_its_conftest_provides(project: Path) -> None:
    suite = project / "gpu" / "test_wide.py"
    suite.write_text(
        "from found_by_conftest import WIDTH\n\ndef test_of_it():\n    raise AssertionError\n", encoding="utf-8"
    )
    assert import_suite(suite).WIDTH == 8


@pytest.mark.parametrize(
    ("name", "patterns", "collected"),
    [
        ("setup.py", "", False),
        ("gpu/deploy.py", "", False),
        ("gpu/conftest.py", "", False),
        ("test_x.txt.py", "check_*.py", False),
        ("check_x.py", "check_*.py", True),
        ("gpu/x_test.py", "", True),
    ],
)
def test_only_a_file_that_pytest_collects_is_run(project: Path, name: str, patterns: str, collected: bool) -> None:
    if patterns:
        (project / "pytest.ini").write_text(f"[pytest]\npython_files = {patterns}\n", encoding="utf-8")
    (project / name).write_text(TRACE, encoding="utf-8")
    if collected:
        import_suite(project / name)
    else:
        with pytest.raises(SuiteImportError, match="pytest does not collect it as a test file: its name matches none"):
            import_suite(project / name)
    assert (project / "trace").exists() is (collected or name == "gpu/conftest.py")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import absent_module", "ModuleNotFoundError: No module named 'absent_module'"),
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import pytest; pytest.exit('enough')", "Exit: enough"),
        ("import pytest; pytest.skip('not here', allow_module_level=True)", "Skipped: not here"),
        ("def f(:", "SyntaxError: invalid syntax"),
    ],
)
def test_a_suite_that_cannot_be_imported_says_why_in_a_line(
    project: Path, capfd: pytest.CaptureFixture[str], code: str, words: str
) -> None:
    (project / "test_code.py").write_text(code, encoding="utf-8")
    with pytest.raises(SuiteImportError) as caught:
        import_suite(project / "test_code.py")
    assert str(caught.value) == words
    assert capfd.readouterr() == ("", "")


def test_an_interrupt_is_not_taken_for_a_fault_of_the_suite(project: Path) -> None:
    (project / "test_code.py").write_text("raise KeyboardInterrupt", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        import_suite(project / "test_code.py")


def test_a_conftest_that_raises_is_named(project: Path) -> None:
    (project / "conftest.py").write_text("raise ValueError('no')", encoding="utf-8")
    (project / "test_code.py").write_text(TRACE, encoding="utf-8")
    with pytest.raises(SuiteImportError, match="ValueError: no"):
        import_suite(project / "test_code.py")
    assert not (project / "trace").exists()
