"""Generated kernels are right, run by themselves, and are the same for the same seed; what is found of them is kept."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kerneltest as kt
from benchmarks.generated import SeedResult, coverage, run_seed, update
from tools.generate.__main__ import main
from tools.generate.conversion_forms import CONVERSIONS
from tools.generate.forms import BINARY, UNARY
from tools.generate.integer_forms import OF_ARGUMENTS, OF_WRAPPED
from tools.generate.productions import PRODUCTIONS, generate_kernel


@pytest.mark.parametrize("name", sorted(PRODUCTIONS))
def test_kernels_of_each_production_are_right(name: str) -> None:
    result = run_seed(1, name, ["interpret", "interpret-mosaic-gpu", "lower:sm_90", "simulate:gfx942"])
    assert result.findings == ()
    assert result.cases


FORMS = (*UNARY, *BINARY, *OF_ARGUMENTS, *OF_WRAPPED, *CONVERSIONS)


def test_the_coverage_counts_what_the_kernels_have_in_common() -> None:
    kernels = [generate_kernel(seed).features for seed in range(200)]
    others = frozenset().union(*(each for each in kernels if "scan" in each)) - {"scan"}
    row = f"| scan | {sum('scan' in each for each in kernels)} | {len(others)} |"
    assert row in coverage(range(200)).splitlines()


def test_a_seed_gives_the_same_source_in_every_process() -> None:
    code = "from tools.generate.productions import generate_kernel as g; print(g(7).source, end='')"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert again.stdout == generate_kernel(7).source
    assert generate_kernel(7).source != generate_kernel(8).source


def test_every_production_and_every_form_is_used_by_some_seed() -> None:
    kernels = [generate_kernel(seed) for seed in range(3000)]
    used = frozenset().union(*(kernel.features for kernel in kernels))
    assert used >= {*PRODUCTIONS, *(form.name for form in FORMS), "broadcast", "permuted", "rank 0"}
    assert len({kernel.source.partition("\n")[2] for kernel in kernels}) > 2500


def test_a_wrong_kernel_is_found_and_kept_until_it_is_gone() -> None:
    kernel = generate_kernel(1, "scan")
    broken = kernel.source.replace("return np.cumsum(x, axis=1)", "return np.cumsum(x, axis=1) + 1")
    assert kt.check(
        replace(kernel, source=broken).pairing(), backends=["interpret"], depth="quick", minimize=0
    ).findings
    result = SeedResult(1, kernel.what, (), 9, 1.0, ("interpret mismatch in normal, n=1: 1 of 1 elements wrong",))
    ledger: dict[str, object] = {}
    assert update(ledger, [result], {}) == (["1 interpret mismatch"], [])
    assert update(ledger, [result], {}) == ([], [])
    right = run_seed(1, "scan", ["interpret"])
    assert right.findings == ()
    assert update(ledger, [right], {}) == ([], ["1 interpret mismatch"])
    assert json.loads(json.dumps(ledger)) == {"findings": {}, "runs": [{}, {}, {}]}


def test_the_command_prints_sources_and_writes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["5"])
    assert capsys.readouterr().out == generate_kernel(5).source + "\n"
    main(["5", "6", "--only", "gather", "--out", str(tmp_path / "made")])
    written = (tmp_path / "made" / "generated_5.py").read_text()
    assert written == generate_kernel(5, "gather").source
    with pytest.raises(SystemExit):
        main(["5", "--only", "nothing"])
    assert "gather" in capsys.readouterr().err
    run = subprocess.run([sys.executable, str(tmp_path / "made" / "generated_5.py")], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().endswith(" cases")
