"""What loading the plugin costs a run without pairings: `python benchmarks/collection.py`.

Whole processes that collect a folder of plain tests, with and without `-p kerneltest`, in turn, so that both
meet the same noise. The limit is 50 ms.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 15
ROOT = Path(__file__).parent.parent


def seconds(folder: Path, *arguments: str) -> float:
    """Wall time of one `pytest --collect-only`."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for i in range(20):
            tests = "".join(f"def test_{i}_{j}():\n    pass\n\n\n" for j in range(20))
            (folder / f"test_plain_{i}.py").write_text(tests, encoding="utf-8")
        pairs = [(seconds(folder), seconds(folder, "-p", "kerneltest")) for _ in range(RUNS)]
    alone, loaded = (statistics.median(column) for column in zip(*pairs, strict=True))
    cost = statistics.median(b - a for a, b in pairs)
    print(f"pytest alone {alone * 1e3:.0f} ms, with kerneltest {loaded * 1e3:.0f} ms, median cost {cost * 1e3:.0f} ms")
    return 0 if cost < 0.050 else 1


if __name__ == "__main__":
    raise SystemExit(main())
