"""Seconds from a save to the verdict under `kerneltest watch`: `python -m benchmarks.watch FOLDER`.

The files are those of `save_loop.py`. Each is saved so many times, in turn with its bug and without. `finding` is the
time to the first finding on the terminal, for edits with the bug; `end` is the time to the end of the run, which `-x`
brings about with the first finding. Needs watchfiles, and no GPU.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.save_loop import INTERPRET, SAMPLES, Sample, environment_with

QUIET = 0.5  # seconds between a verdict and the next save
TIERS = {"interpret": INTERPRET, "all tiers": ()}


def measure(sample: Sample, folder: Path, options: tuple[str, ...], edits: int) -> dict[str, list[float]]:
    """Returns the seconds of each edit, by what they led to."""
    sample.write(folder, has_bug=False)
    command = [sys.executable, "-m", "kerneltest", "watch", f"test_{sample.name}.py", "-x", "--kt-depth", "quick"]
    found: defaultdict[str, list[float]] = defaultdict(list)
    with subprocess.Popen(
        [*command, *options],
        cwd=folder,
        env=environment_with(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for edit in range(edits + 1):
            has_bug = edit % 2 == 1
            saved = time.time()
            if edit:
                sample.write_kernel(folder, has_bug=has_bug)
            for line in process.stdout:
                taken = time.time() - saved
                if line.startswith("first finding"):
                    found["finding, a bug"].append(taken)
                if line.startswith("kerneltest watch: ") and " after " in line:
                    assert ("not green" in line) is has_bug, line
                    break
            if edit:
                found["end, a bug" if has_bug else "end, right"].append(taken)
            time.sleep(QUIET)
        process.stdin.write("q")
        process.stdin.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--edits", type=int, default=20, help="of each file, on each choice of tiers")
    parser.add_argument("--tiers", choices=tuple(TIERS), action="append", help="default: both, one after the other")
    chosen = parser.parse_args()
    print(f"JAX {version('jax')}, {os.cpu_count()} processors, {chosen.edits} edits, medians (least)", flush=True)
    for tiers in chosen.tiers or TIERS:
        for sample in SAMPLES:
            found = measure(sample, chosen.folder.resolve() / sample.name, TIERS[tiers], chosen.edits)
            cells = [f"{what} {statistics.median(taken):.2f} ({min(taken):.2f}) s" for what, taken in found.items()]
            print(f"{tiers}, {sample.name}: {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
