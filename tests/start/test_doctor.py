"""`kerneltest doctor` names every backend, and the reason and the remedy for each that is missing; it never crashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerneltest.backends.registry import REGISTRY
from kerneltest.cli import main
from kerneltest.start.doctor import list_backends

ROOT = Path(__file__).parent.parent.parent

# A `jax` that shadows the real one: what its import does, and what doctor says of that.
BROKEN = {
    "missing": ("raise ModuleNotFoundError(\"No module named 'jax'\")", "No module named 'jax'"),
    "broken": ("raise AttributeError('jaxlib is too old')", "AttributeError: jaxlib is too old"),
    "one that exits": ("raise SystemExit('no CPU')", "SystemExit: no CPU"),
    "too old": ("__version__ = '0.4.35'\n__version_info__ = (0, 4, 35)", "JAX 0.4.35 is older than 0.10.2"),
}


def test_every_backend_is_in_one_row() -> None:
    told = [
        name for row in list_backends() for name in ([row.id.replace("TARGET", t) for t in row.targets] or [row.id])
    ]
    assert sorted(told) == sorted(REGISTRY)


def test_what_is_missing_comes_with_a_reason_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert all(row.install for row in list_backends() if row.reason)
    assert "interpret             ready" in told
    for name in ("Python", "jax", "jaxlib", "numpy", "devices", "jax_enable_x64", "jax_default_matmul_precision"):
        assert f"\n{name} " in told


@pytest.mark.parametrize("case", BROKEN)
def test_a_jax_that_cannot_be_used_is_told_and_not_fatal(case: str, tmp_path: Path) -> None:
    source, told = BROKEN[case]
    (tmp_path / "jax.py").write_text(source, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "kerneltest", "doctor"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert told in ran.stdout
    assert "ready" not in ran.stdout
