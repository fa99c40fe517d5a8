"""How time and memory grow: `python benchmarks/growth.py FOLDER [AXIS ...]`.

Four axes: `signatures` of one pairing, programs of its `grid`, bytes of each of its arrays (`array`), and `cases`. The
kernel adds two vectors, on `interpret` and on `simulate:sm_90`; cases are made-up records, which are read, reconciled
and made into a page. Each point is a process of its own. FOLDER gets `growth.json`, `growth.md` with the exponents that
fit best, and `growth.svg` (matplotlib). An exponent of 1 is linear; what each process starts with, its smallest point,
is taken off before the fit. Needs no GPU.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

ROOT = Path(__file__).parent.parent
BACKENDS = ("interpret", "simulate:sm_90")
SIZES = {
    "signatures": (4, 8, 16, 32, 64, 128),
    "cases": (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    "grid": (8, 32, 128, 512, 2048, 8192),
    "array": (2**10, 2**14, 2**18, 2**20, 2**22, 2**24),
}


def added(lengths: tuple[int, ...], block: int, backend: str) -> tuple[int, float]:
    """Checks a sum of vectors at some lengths: how many cases that were, and seconds."""
    import kerneltest as kt
    from kernels.vector_add import vector_add_blocked

    def kernel(x: Any, y: Any) -> Any:
        return vector_add_blocked(x, y, block=block)

    def total(x: Any, y: Any) -> Any:
        return x + y

    leaf = kt.array("n", "float32")
    make = kt.oracle_for(kernel, x=leaf, y=leaf, dims={"n": kt.dim(values=lengths, block=block)})
    result = kt.check(make(total), backends=[backend], depth="quick")
    assert result.ok, result.findings[0]
    return result.cases, result.seconds


def read(count: int, backend: str) -> tuple[int, float]:
    """Reads a run of so many records and makes its page: how many they were, and seconds."""
    from benchmarks.report_scale import synthesize
    from kerneltest.records.runs import read_runs
    from kerneltest.report.html.render_page import write_html

    with tempfile.TemporaryDirectory() as folder:
        made = synthesize(Path(folder) / "run", count)
        started = time.perf_counter()
        runs = read_runs(made)
        write_html(made / "report.html", runs)
        return sum(len(run.records) for run in runs), time.perf_counter() - started


WAYS: dict[str, Callable[[int, str], tuple[int, float]]] = {
    "signatures": lambda n, backend: added(tuple(range(1, n + 1)), 128, backend),
    "cases": read,
    "grid": lambda n, backend: added((32 * n,), 32, backend),
    "array": lambda n, backend: added((n // 4,), max(256, n // 64), backend),
}


def point(axis: str, size: int, backend: str) -> dict[str, Any]:
    """Seconds and peak memory of one size, in this process."""
    cases, seconds = WAYS[axis](size, backend)
    return {"seconds": seconds, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "cases": cases}


def measured(axis: str, backend: str) -> list[dict[str, Any]]:
    """All sizes of an axis, each in a process of its own."""
    rows = []
    known = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    for size in SIZES[axis]:
        command = [sys.executable, __file__, "--point", axis, str(size), backend]
        out = subprocess.run(command, env=known, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        rows.append({"size": size, **json.loads(out.splitlines()[-1])})
        print(axis, backend, rows[-1], flush=True)
    return rows


def exponent(rows: list[dict[str, Any]], what: str) -> float:
    """Of the power law that fits what is above the smallest point; NaN where that hardly grows."""
    base = rows[0][what]
    above = [(row["size"], row[what] - base) for row in rows[2:] if row[what] > 1.1 * base]
    if len(above) < 2:
        return math.nan
    sizes, values = np.log(np.array(above, np.float64)).T
    return float(np.polyfit(sizes, values, 1)[0])


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    def shown(value: float) -> str:
        return "hardly grows" if math.isnan(value) else f"{value:.2f}"

    lines = []
    for name, rows in found.items():
        first, last = rows[0], rows[-1]
        spans = [f"{first[what]:.3g} to {last[what]:.3g}" for what in ("seconds", "MiB")]
        ends = f"{first['size']:,} to {last['size']:,}"
        lines.append([name, ends, spans[0], shown(exponent(rows, "seconds")), spans[1], shown(exponent(rows, "MiB"))])
    return tabulate(lines, ["", "from", "seconds", "exponent", "MiB", "exponent"], "github")


def plot(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(2, len(SIZES), figsize=(3.2 * len(SIZES), 5.5), squeeze=False)
    for row, (what, words) in enumerate((("seconds", "seconds"), ("MiB", "peak memory, MiB"))):
        for axes, axis in zip(all_axes[row], SIZES, strict=True):
            for name, points in found.items():
                if name.split(",")[0] == axis:
                    line = [(each["size"], each[what]) for each in points]
                    axes.plot(*zip(*line, strict=True), marker="o", label=name.partition(", ")[2] or "records")
            axes.set(xscale="log", yscale="log", xlabel=axis, ylabel=words)
            axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("axes", nargs="*", default=[])
    parser.add_argument("--point", nargs=3, metavar=("AXIS", "SIZE", "BACKEND"))
    arguments = parser.parse_args()
    if arguments.point:
        axis, size, backend = arguments.point
        print(json.dumps(point(axis, int(size), backend)))
        return
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for axis in arguments.axes or SIZES:
        run = partial(measured, axis)
        found |= {axis: run("")} if axis == "cases" else {f"{axis}, {backend}": run(backend) for backend in BACKENDS}
    (folder / "growth.json").write_text(f"{json.dumps(found, indent=1)}\n", encoding="utf-8")
    about = f"JAX {version('jax')}, NumPy {np.__version__}, {os.cpu_count()} processors"
    (folder / "growth.md").write_text(f"{about}\n\n{table(found)}\n", encoding="utf-8")
    plot(found, folder / "growth.svg")
    print(table(found))


if __name__ == "__main__":
    main()
