"""A user's file of pairings passes `mypy --strict`, and a wrong type in one is reported where it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

# kerneltest is checked by itself, and JAX would take most of the time.
SETTINGS = """
[mypy]
strict = True
[mypy-kerneltest.*]
follow_imports = silent
[mypy-jax.*]
follow_imports = skip
"""

WRONG = """
import kerneltest as kt

def kernel(x: object) -> object:
    return x

def oracle(x: object) -> object:
    return x

kt.array(3)  # wrong
kt.array("n", 32)  # wrong
kt.array("n", domain="positive")  # wrong
kt.indices("q")  # wrong
kt.indices("q", of="n")  # wrong
kt.lengths("q", up_to=7.5)  # wrong
kt.mask("n", hidden="no")  # wrong
kt.dim(block="64")  # wrong
kt.dim(tile=64)  # wrong
kt.tolerance.dot()  # wrong
kt.tolerance.ulp("2")  # wrong
kt.xfail("mismatch", reason="no url")  # wrong
kt.rejects("bad", raises="ValueError", match="x")  # wrong
kt.oracle_for("kernel")  # wrong
kt.oracle_for(kernel, x="n")  # wrong
kt.oracle_for(kernel, x=kt.array("n"), dims={"n": 64})  # wrong
kt.oracle_for(kernel, x=kt.array("n"), tolerance=1e-3)  # wrong
kt.oracle_for(kernel, x=kt.array("n"), xfail=kt.array("n"))  # wrong
kt.oracle_for(kernel, x=kt.array("n"), grad=3)  # wrong
kt.oracle_for(kernel, dims=kt.array("n"))  # wrong
kt.check(oracle)  # wrong
kt.check(kt.oracle_for(kernel, x=kt.array("n"))(oracle), backends=1)  # wrong
kt.family(group="numeric")(oracle)  # wrong
kt.invariant()(oracle)  # wrong
kt.backend("mine")(oracle)  # wrong
kt.choice("one")  # wrong
pairing: kt.Pairing = kt.oracle_for(kernel, x=kt.array("n"))(oracle)
verdict: kt.Verdict = kt.check(pairing).findings[0].message  # wrong
"""


def _mypy(folder: Path, file: Path) -> subprocess.CompletedProcess[str]:
    (folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", str(file)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_users_file_passes_and_wrong_types_are_reported(tmp_path: Path) -> None:
    right = _mypy(tmp_path, ROOT / "tests" / "typed_pairings.py")
    assert right.returncode == 0, right.stdout + right.stderr
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    wrong = _mypy(tmp_path, tmp_path / "wrong.py")
    reported = {int(number) for number in re.findall(r"^wrong\.py:(\d+): error: ", wrong.stdout, re.MULTILINE)}
    lines = enumerate(WRONG.splitlines(), 1)
    assert reported == {number for number, line in lines if line.endswith("# wrong")}, wrong.stdout
