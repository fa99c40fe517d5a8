"""What changes the digest of an installed package, and what does not."""

from pathlib import Path

import pytest

from kerneltest.core.fingerprint import library_contents, module_contents

PLUGIN = "[jax_plugins]\nx = some\n"
EDITABLE = '{"url": "file:///checkout", "dir_info": {"editable": true}}'

RECORD = "some/__init__.py,sha256=aaa,10\nsome-1.0.dist-info/INSTALLER,sha256=bbb,4\nsome/__pycache__/x.pyc,,\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"some/__init__.py": "", "some/native.so": "1", "some/deep/part.py": "A = 1"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _write(site: Path, name: str, text: str) -> None:
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("some/deep/part.py", "A = 2", True),
        ("some/native.so", "2", True),
        ("some/data.json", "{}", True),
        ("some/__pycache__/part.pyc", "x", False),
        ("other/__init__.py", "", False),
    ],
)
def test_a_checkout_is_told_by_its_files(site: Path, name: str, text: str, changes: bool) -> None:
    before = module_contents("some")
    _write(site, name, text)
    assert (module_contents("some") != before) is changes


@pytest.mark.parametrize(
    ("old", "new", "changes"), [("aaa", "ccc", True), ("bbb", "ddd", False), ("x.pyc", "y.pyc", False)]
)
def test_an_installation_is_told_by_its_record(site: Path, old: str, new: str, changes: bool) -> None:
    _write(site, "some-1.0.dist-info/RECORD", RECORD)
    before = module_contents("some")
    _write(site, "some-1.0.dist-info/RECORD", RECORD.replace(old, new))
    assert (module_contents("some") != before) is changes


def test_a_record_of_an_editable_installation_says_nothing(site: Path) -> None:
    _write(site, "some-1.0.dist-info/RECORD", "some.pth,sha256=aaa,10\n")
    before = module_contents("some")
    _write(site, "some/deep/part.py", "A = 2")
    assert module_contents("some") != before


def test_what_is_not_installed_has_none() -> None:
    assert module_contents("no_such_package") == ""
    assert library_contents() == library_contents()


def _distribution(site: Path, name: str, **files: str) -> None:
    texts = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "RECORD": "x.pth,sha256=aaa,10\n"}
    for file, text in {**texts, **files}.items():
        _write(site, f"{name.replace('-', '_')}-1.0.dist-info/{file}", text)


@pytest.mark.parametrize(
    ("name", "files", "changed", "changes"),
    [
        ("triton-nightly", {"direct_url.json": EDITABLE, "top_level.txt": "some\n"}, "some/deep/part.py", True),
        ("some", {"direct_url.json": EDITABLE}, "some/deep/part.py", False),
        ("some", {"entry_points.txt": PLUGIN}, "some-1.0.dist-info/RECORD", True),
        ("some", {"entry_points.txt": "[other]\nx = some\n"}, "some-1.0.dist-info/RECORD", False),
        (
            "some",
            {"entry_points.txt": PLUGIN, "direct_url.json": EDITABLE},
            "some/native.so",
            True,
        ),
        ("some", {}, "jax_plugins/mine/__init__.py", True),
        ("some", {}, "other_plugins/mine/__init__.py", False),
    ],
)
def test_compilers_and_plugins_of_jax_count(
    site: Path, name: str, files: dict[str, str], changed: str, changes: bool
) -> None:
    """If a package is editable, its files count, since its RECORD has none of them."""
    _distribution(site, name, **files)
    library_contents.cache_clear()
    before = library_contents()
    _write(site, changed, "x.pth,sha256=bbb,10\n")
    library_contents.cache_clear()
    assert (library_contents() != before) is changes
