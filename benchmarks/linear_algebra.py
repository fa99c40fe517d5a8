"""Measures how tight the bounds of oracles by `np.linalg` are for LAPACK in float32.

    python -m benchmarks.linear_algebra reports/tolerances/linear_algebra.md

Each oracle of tests/execute/test_linear_algebra.py is compared with LAPACK on `interpret` at `quick`. A fraction is the
largest error / bound among the outputs of a case, among the cases that are not compared bit for bit.
"""

import argparse
import platform
from pathlib import Path
from statistics import median

import jax
import numpy as np
from tabulate import tabulate

import kerneltest as kt
from kerneltest.execute.claims import BIT_FOR_BIT
from tests.execute.test_linear_algebra import TABLE, lapack_pairing

_TITLE = "# How tight the bounds of linear algebra are"
_MEANING = "Error / bound of LAPACK in float32, by oracle. Written by `python -m benchmarks.linear_algebra`."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="of the table")
    path = parser.parse_args().path
    rows = [_measure(name) for name in TABLE]
    versions = f"Python {platform.python_version()}, JAX {jax.__version__}, NumPy {np.__version__}"
    headers = ["oracle", "cases", "accused", "median", "largest"]
    table = tabulate(rows, headers, tablefmt="github", floatfmt=".2g")
    over_all = median(row[3] for row in rows)
    path.write_text(f"{_TITLE}\n\n{_MEANING}\n\n{versions}. The median of the medians is {over_all:.2g}.\n\n{table}\n")


def _measure(name: str) -> tuple[str, int, int, float, float]:
    result = kt.check(lapack_pairing(name), backends=["interpret"], depth="quick", minimize=0)
    judged = [each.bound_fraction for each in result.records if each.tolerance != BIT_FOR_BIT]
    used = [each for each in judged if each is not None]
    return name, result.cases, len(result.findings), median(used), max(used)


if __name__ == "__main__":
    main()
