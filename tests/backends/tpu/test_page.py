"""What docs/how-backends-work.md shows of TPUs is what comes out."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from tests import forked
from tests.plugins import PLUGINS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-backends-work.md").read_text(encoding="utf-8")
BACKENDS = "lower:tpu-*,compile:tpu-v5e,compile:tpu-v6e"

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


def _words(text: str) -> str:
    return " ".join(text.split())


def _run(folder: Path, code: str, backends: str = BACKENDS) -> subprocess.CompletedProcess[str]:
    (folder / "test_shares.py").write_text(code, encoding="utf-8")
    command = ("pytest", *PLUGINS, "-p", "no:cacheprovider", "test_shares.py")
    return forked.run(folder, *command, "--kt-backends", backends)


@needs_libtpu
def test_the_example_is_told_as_the_page_shows_and_its_mend_passes(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(# test_shares.py\n.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```\n(\d suspects? in .*?)```", PAGE, re.DOTALL)
    assert f"--kt-backends '{BACKENDS}'" in PAGE
    assert _words(shown) in _words(_run(tmp_path, code).stdout)
    assert "`ROWS = 256`, all five generations compile it" in PAGE
    mended = _run(tmp_path, code.replace("ROWS = 1024", "ROWS = 256"), "compile:tpu-*")
    assert mended.returncode == 0, mended.stdout
