"""What changes the digest of a module's code, and what does not."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kerneltest.records.fingerprint import Fingerprint, installed_versions

FILES = {
    "home/__init__.py": '"""A package."""\n',
    "home/kernel.py": (
        "from . import helper\nfrom home.table import WIDTH\n\ndef kernel(x):\n    return helper.twice(x)\n"
    ),
    "home/helper.py": "def twice(x):\n    # by addition\n    return x + x\n",
    "home/table.py": "WIDTH = 8\n",
    "home/other.py": "UNUSED = 1\n",
    "home/late.py": "LATE = 1\n",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("home.kernel")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "home"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("kernel.py", "twice(x)", "twice(x) + 1", True),
        ("helper.py", "x + x", "x * 2", True),
        ("helper.py", "# by addition", "# as a sum", False),
        ("helper.py", "def twice(x):", 'def twice(x):\n    """Doubles."""', False),
        ("helper.py", "\n", "\n\n", False),
        ("table.py", "8", "16", True),
        ("__init__.py", '"""A package."""', '"""A package of kernels."""', False),
        ("__init__.py", '"""A package."""', "VERSION = 2", True),
        ("other.py", "1", "2", False),
        ("helper.py", "x + x", "x + ", True),
        ("helper.py", "x + x", " + ".join(["x"] * 600), True),  # deeper than Python recurses
        ("kernel.py", "return", "import home.late\n    return", True),
    ],
)
def test_the_code_that_a_module_imports_counts_and_comments_do_not(
    home: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before = Fingerprint().digest(("home.kernel",))
    path = home / "home" / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert (Fingerprint().digest(("home.kernel",)) != before) is changes


def test_an_import_within_a_function_counts(home: Path) -> None:
    kernel, late = home / "home/kernel.py", home / "home/late.py"
    kernel.write_text(FILES["home/kernel.py"].replace("return", "import home.late\n    return"), encoding="utf-8")
    before = Fingerprint().digest(("home.kernel",))
    late.write_text("LATE = 2\n", encoding="utf-8")
    assert Fingerprint().digest(("home.kernel",)) != before


@pytest.mark.parametrize("raised", ["RuntimeError('types only')", "SystemExit(1)", "NameError", "KeyboardInterrupt"])
def test_a_package_that_only_type_checkers_import_is_read_and_not_imported(home: Path, raised: str) -> None:
    types = home / "only_types"
    types.mkdir()
    (types / "__init__.py").write_text(f"raise {raised}\n", encoding="utf-8")
    kernel = home / "home" / "kernel.py"
    imported = "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from only_types.inner import Float\n"
    kernel.write_text(kernel.read_text(encoding="utf-8") + imported, encoding="utf-8")
    before = Fingerprint().digest(("home.kernel",))
    (types / "inner.py").write_text("Float = float\n", encoding="utf-8")
    assert before
    assert Fingerprint().digest(("home.kernel",)) != before
    assert "only_types" not in sys.modules


def test_installed_packages_are_told_by_their_versions() -> None:
    assert Fingerprint().digest(("numpy", "jax", "pathlib")) == Fingerprint().digest(())
    assert installed_versions() == installed_versions()


def test_a_module_without_a_file_has_no_digest() -> None:
    assert Fingerprint().digest(("sys",)) == ""


def test_modules_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    found = []
    for folder, text in (("one", "A = 1"), ("two", "A = 2")):
        module = ModuleType("conftest")
        path = tmp_path / folder / "conftest.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        module.__file__ = str(path)
        found.append(module)
    code = Fingerprint()
    before = code.digest((), tuple(found))
    (tmp_path / "one" / "conftest.py").write_text("A = 3", encoding="utf-8")
    assert Fingerprint().digest((), tuple(found)) != before
    assert code.digest((), tuple(found)) == before  # read once
