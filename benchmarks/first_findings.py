"""Seconds to the first finding on the terminal: `python -m benchmarks.first_findings FOLDER`.

Each variant of `benchmarks/variants` is run by pytest on all tiers, at `standard`, without a cache, until the line of
its first finding. Each ratio is to the plain test of `save_loop.py`'s softmax, run just before. `--part 2/8` runs the
second eighth, on a machine that runs several. FOLDER gets `first_findings-PART.json`. Needs no GPU.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.save_loop import SAMPLES, environment_with, seconds
from benchmarks.variants import VARIANTS

FILE = "from benchmarks.variants import VARIANTS\n\nbroken = VARIANTS[{}].broken()\n"
FIRST = "first finding in"
PLAIN = SAMPLES[0]


def first_finding(folder: Path, number: int) -> float:
    """Returns the seconds to the first finding in a variant; infinite without one."""
    (folder / "test_broken.py").write_text(FILE.format(number), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "kerneltest", "-p", "no:cacheprovider", "-p", "no:randomly", "-x"]
    started = time.perf_counter()
    with subprocess.Popen(
        [*command, "test_broken.py"],
        cwd=folder,
        env={**environment_with(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # warnings of processes that the kill interrupts
        text=True,
    ) as process:
        assert process.stdout is not None
        taken = next((time.perf_counter() - started for line in process.stdout if line.startswith(FIRST)), float("inf"))
        process.kill()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="1/1", metavar="PART/PARTS")
    chosen = parser.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    folder = chosen.folder.resolve() / f"part-{part}"
    PLAIN.write(folder, has_bug=False)
    rows = []
    for number in range(part - 1, len(VARIANTS), parts):
        options = ("-p", "no:kerneltest")
        plain = seconds(folder, f"plain_{PLAIN.name}.py", options, 0, writes_bytecode=True)
        taken = first_finding(folder, number)
        rows.append({"variant": VARIANTS[number].name, "plain": plain, "seconds": taken, "ratio": taken / plain})
        print(f"{taken:.2f} s, {taken / plain:.2f} of plain: {VARIANTS[number].name}", flush=True)
    text = json.dumps(rows, indent=1)
    (chosen.folder / f"first_findings-{part}.json").write_text(f"{text}\n", encoding="utf-8")
    ratios = sorted(row["ratio"] for row in rows)
    over = sum(ratio > 2 for ratio in ratios)
    print(f"JAX {version('jax')}: {len(rows)} variants, median {statistics.median(ratios):.2f}, {over} over 2")


if __name__ == "__main__":
    main()
